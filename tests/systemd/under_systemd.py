"""ralphd as a service of a real systemd: ``make test-systemd``. Root only; not a part of ``make check``.

Each test boots a systemd of its own in a private namespace (``boot.sh``) and installs the service into it.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.systemd.machine import Machine, machine_in, why_not

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be"),
    pytest.mark.timeout(300),
]
SLOW_S = 60.0
KILLS = 8


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine to be booted."""
    with machine_in(tmp_path / "m") as machine:
        yield machine


def told(figure: str, value: object) -> None:
    """Print a figure for who runs the target."""
    print(f"  {figure}: {value}", flush=True)


def three_runs(machine: Machine, *, second: str = "sleeper") -> dict[str, tuple[int, str, str]]:
    """Three ralphs that run; by name who each is: its pid, its birth, the id of its run."""
    for name in ("one", "two", "three"):
        machine.starts(name, player(second if name == "two" else "sleeper"))
    return running(machine)


def running(machine: Machine) -> dict[str, tuple[int, str, str]]:
    views = machine.views()
    return {
        name: (view["ralph_pid"], machine.born(view["ralph_pid"]), view["run_id"])
        for name, view in views.items()
        if view["state"] == "running"
    }


def test_the_service_is_installed_and_ready_and_uses_a_control_group_for_each_run(machine: Machine) -> None:
    machine.boot()
    began = time.monotonic()
    said = machine.install()
    told("installed, enabled, started and ready", f"{time.monotonic() - began:.2f} s")

    assert "ralphd runs as a service" in said
    assert machine.property("ActiveState") == "active"
    assert machine.property("StatusText") == "no ralphs"
    assert machine.property("UnitFileState") == "enabled"
    pids = three_runs(machine)
    daemon = machine.status()["daemon"]
    assert daemon["pid"] == machine.main_pid()
    assert (daemon["tree_means"], daemon["socket"]) == ("cgroup", "/run/ralphd/ralphd.sock")
    assert daemon["state_directory"] == "/var/lib/ralphd"
    assert all(view["tree_means"] == "cgroup" for view in machine.views().values())
    wait_for(lambda: machine.property("StatusText") == "3 running", timeout_s=SLOW_S)
    group = machine.run("cat", f"/proc/{pids['one'][0]}/cgroup").rpartition(":")[2]
    assert group == f"/system.slice/ralphd.service/ralphd-{pids['one'][2]}"
    assert "linger" not in machine.install()


def test_a_restart_leaves_three_living_runs_as_they_are(machine: Machine) -> None:
    machine.boot()
    machine.install()
    before, daemon = three_runs(machine), machine.main_pid()

    began = time.monotonic()
    machine.systemctl("restart", "ralphd")
    told("systemctl restart with three living runs", f"{time.monotonic() - began:.2f} s")

    assert machine.main_pid() != daemon
    assert running(machine) == before
    assert [view["restarts"] for view in machine.views().values()] == [0, 0, 0]
    told("the same pids, starts and run ids", before)

    again = machine.main_pid()
    assert "3 runs adopted" in machine.ralphctl("regent", "restart", user=False)
    assert machine.main_pid() != again
    assert machine.property("NRestarts") == "0"
    assert running(machine) == before


def test_a_stop_leaves_nothing_in_the_control_group(machine: Machine) -> None:
    machine.boot()
    machine.install()
    three_runs(machine, second="family")  # which has detached itself twice, and ignores SIGTERM
    told("processes in the control group before", len(machine.processes()))

    began = time.monotonic()
    machine.systemctl("stop", "ralphd")
    told("systemctl stop", f"{time.monotonic() - began:.2f} s")

    assert machine.processes() == []
    assert machine.property("Result") == "success"
    machine.systemctl("start", "ralphd")
    wait_for(lambda: len(running(machine)) == 3, timeout_s=SLOW_S, what="what was to be running")


@pytest.mark.parametrize(("words", "left"), [((), 0), (("--now",), 0), (("--leave-runs",), 3)])
def test_regent_stop_is_not_undone_by_systemd(machine: Machine, words: tuple[str, ...], left: int) -> None:
    machine.boot()
    machine.install()
    before = three_runs(machine)

    machine.ralphctl("regent", "stop", *words, user=False)

    wait_for(lambda: machine.property("ActiveState") == "inactive", timeout_s=SLOW_S)
    assert machine.main_pid() == 0
    assert bool(machine.processes()) == bool(left)
    if left:
        machine.systemctl("start", "ralphd")
        assert running(machine) == before


def test_a_frozen_daemon_is_replaced_by_the_watchdog_and_its_runs_are_adopted(machine: Machine) -> None:
    machine.boot(service="WatchdogSec=3\n")
    machine.install()
    before, frozen = three_runs(machine), machine.main_pid()

    began = time.monotonic()
    machine.kill(frozen, signal.SIGSTOP)
    wait_for(
        lambda: machine.main_pid() not in (0, frozen) and machine.property("ActiveState") == "active",
        timeout_s=SLOW_S,
        what="another daemon",
    )
    told("frozen to ready again, WatchdogSec=3", f"{time.monotonic() - began:.2f} s")

    assert machine.property("NRestarts") == "1"
    assert running(machine) == before
    adopted = [
        event
        for line in machine.ralphctl("events", "--json").splitlines()
        if (event := json.loads(line))["type"] == "ralph.adopted"
    ]
    assert len(adopted) == 3
    assert "most recent call first" in (machine.root / "daemon.log").read_text()  # where it hung


def test_a_healthy_daemon_is_left_alone_by_the_watchdog(machine: Machine) -> None:
    machine.boot(service="WatchdogSec=1\n")
    machine.install()
    pid, before = machine.main_pid(), three_runs(machine)
    pings = {machine.property("WatchdogTimestampMonotonic")}

    def many() -> bool:
        pings.add(machine.property("WatchdogTimestampMonotonic"))
        return len(pings) > 12

    wait_for(many, timeout_s=SLOW_S, what="pings for four times the limit")

    assert (machine.main_pid(), machine.property("NRestarts")) == (pid, "0")
    assert running(machine) == before


def test_reload_is_told_and_changes_nothing_for_the_runs(machine: Machine) -> None:
    machine.boot()
    machine.install()
    before, pid = three_runs(machine), machine.main_pid()

    machine.systemctl("reload", "ralphd")

    wait_for(lambda: machine.property("ActiveState") == "active", what="the end of the reload")
    assert machine.main_pid() == pid
    assert running(machine) == before
    assert "read the user's configuration" in (machine.root / "daemon.log").read_text()


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")
def test_npm_ci_and_git_commit_work_in_a_run_under_the_hardened_unit(machine: Machine) -> None:
    machine.boot()
    machine.install()
    place = machine.directory("app")
    _write_package(machine, place)
    script = (
        "set -e; npm ci --offline --no-audit --no-fund; node -e 'require(\"local\")';"
        " git init -q; git add -A; git -c user.name=R -c user.email=r@localhost commit -qm done;"
        " git log --oneline; unshare --user --map-root-user true && echo a sandbox of its own;"
        " grep -E 'NoNewPrivs|Seccomp:|CapBnd' /proc/self/status; umask"
    )
    machine.ralphctl("start", "--name", "app", str(place), "--", "/bin/sh", "-c", script)

    machine.ralphctl("wait", "app", "--wait-timeout", "60", check=False)
    said = machine.ralphctl("logs", "app")
    told("the run said", said)
    assert machine.views()["app"]["state"] == "done", said
    assert "added 1 package" in said
    assert " done" in machine.run("git", "log", "--oneline", cwd=place, user=True)
    status = dict(line.partition(":")[::2] for line in said.splitlines() if ":\t" in line)
    assert {name.split()[-1]: value.strip() for name, value in status.items()} == {
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "CapBnd": "0000000000000000",
    }
    assert (place / "package.json").stat().st_mode & 0o777 == 0o644
    assert "0022" in said


def test_what_the_page_says_lets_runs_become_root_again(machine: Machine) -> None:
    page = (Path(__file__).parents[2] / "docs" / "systemd.md").read_text()
    machine.boot(service=page.partition("[Service]\n")[2].partition("```")[0])
    machine.install()
    place = machine.directory("free")
    command = ("grep", "-E", "NoNewPrivs|Seccomp:|CapBnd", "/proc/self/status")

    machine.ralphctl("start", "--name", "free", str(place), "--", *command)
    machine.ralphctl("wait", "free", "--wait-timeout", "60", check=False)

    status = dict(line.partition(":")[::2] for line in machine.ralphctl("logs", "free").splitlines())
    assert status["NoNewPrivs"].strip() == status["Seccomp"].strip() == "0"
    assert int(status["CapBnd"], 16) != 0


def _write_package(machine: Machine, place: Path) -> None:
    """A package that depends on a packed one beside it: nothing is asked of a registry."""
    local = machine.directory("local")
    (local / "package.json").write_text('{"name": "local", "version": "1.0.0", "main": "index.js"}')
    (local / "index.js").write_text("console.log('the local package')\n")
    npm = ("npm", "--offline", "--no-audit", "--no-fund")
    machine.run(*npm, "pack", "--pack-destination", str(place), cwd=local, user=True)
    wanted = {"name": "app", "version": "1.0.0", "dependencies": {"local": "file:local-1.0.0.tgz"}}
    (place / "package.json").write_text(json.dumps(wanted))
    (place / ".gitignore").write_text("node_modules\n")
    for path in place.iterdir():
        os.chown(path, local.stat().st_uid, local.stat().st_gid)
    machine.run(*npm, "install", "--package-lock-only", cwd=place, user=True)


def test_a_socket_that_systemd_listens_on_starts_the_daemon_and_outlives_it(machine: Machine) -> None:
    machine.boot()
    machine.install()
    machine.systemctl("stop", "ralphd")
    socket = (Path(__file__).parents[2] / "systemd" / "ralphd.socket").read_text()
    machine.run("sh", "-c", 'printf %s "$1" > /etc/systemd/system/ralphd.socket', "sh", socket)
    machine.systemctl("daemon-reload")
    machine.systemctl("start", "ralphd.socket")
    inode = machine.run("stat", "-c", "%i %a %U", "/run/ralphd/ralphd.sock")
    assert machine.main_pid() == 0

    before = three_runs(machine)

    assert machine.main_pid() != 0
    machine.systemctl("restart", "ralphd")
    assert running(machine) == before
    machine.systemctl("stop", "ralphd")
    assert machine.run("stat", "-c", "%i %a %U", "/run/ralphd/ralphd.sock") == inode
    assert inode.endswith("600 ralph")
    assert machine.processes() == []
    assert len(machine.views()) == 3
    assert machine.main_pid() != 0
    told("inode, mode and owner of the socket throughout", inode)


def test_uninstall_stops_and_removes_and_says_what_stays(machine: Machine) -> None:
    machine.boot()
    machine.install()
    three_runs(machine)

    said = machine.ralphctl("regent", "uninstall", "--system", user=False)

    assert "kept: /var/lib/ralphd" in said
    assert machine.processes() == []
    assert machine.property("LoadState") == "not-found"
    assert machine.run("ls", "/var/lib/ralphd/ralphs").split() == ["one", "three", "two"]


def test_a_service_of_ones_own_is_started_replaced_and_stopped_by_regent(machine: Machine) -> None:
    machine.boot()
    machine.log_in()
    said = machine.ralphctl("regent", "install")
    before = three_runs(machine)

    assert "it starts when you log in" in said
    assert all(view["tree_means"] == "cgroup" for view in machine.views().values())
    assert "3 runs adopted: one, three, two" in machine.ralphctl("regent", "restart")
    assert running(machine) == before
    machine.ralphctl("regent", "stop")
    assert machine.users("is-active", "ralphd.service", check=False) == "inactive"
    machine.ralphctl("start", "one")
    assert machine.users("is-active", "ralphd.service") == "active"
    machine.ralphctl("regent", "uninstall")
    assert machine.users("is-active", "ralphd.service", check=False) == "inactive"
    assert not (machine.home / ".config" / "systemd" / "user" / "ralphd.service").exists()


def test_however_often_the_daemon_is_killed_systemd_starts_it_again(machine: Machine) -> None:
    """By default systemd gives a service up that it had to start five times within ten seconds."""
    machine.boot()
    machine.install()
    before, began = three_runs(machine), time.monotonic()
    for _ in range(KILLS):
        killed = machine.main_pid()
        machine.kill(killed, signal.SIGKILL)
        wait_for(lambda killed=killed: machine.main_pid() not in (0, killed), timeout_s=SLOW_S)  # type: ignore[misc]
    told(f"{KILLS} kills, each as soon as the next daemon was there", f"{time.monotonic() - began:.2f} s")

    wait_for(lambda: machine.property("ActiveState") == "active", timeout_s=SLOW_S)
    assert machine.property("NRestarts") == str(KILLS)
    assert running(machine) == before
    assert [view["restarts"] for view in machine.views().values()] == [0, 0, 0]


def test_a_second_daemon_of_the_same_state_directory_is_not_tried_again_and_again(machine: Machine) -> None:
    machine.boot()
    machine.run("install", "-d", "-o", "ralph", "-m", "700", "/var/lib/ralphd", "/run/ralphd")
    where = ("--state-dir", "/var/lib/ralphd", "--socket", str(machine.home / "other.sock"))
    machine.run("ralphd", "--background", *where, user=True)

    with pytest.raises(AssertionError, match="systemd did not start"):
        machine.install()

    assert machine.property("ExecMainStatus") == "75"
    assert machine.property("NRestarts") == "0"


def test_a_boot_without_its_masks_is_refused(tmp_path: Path) -> None:
    boot = Path(__file__).with_name("boot.sh")
    outside = os.readlink("/proc/self/ns/mnt")
    not_private = ["unshare", "--fork", "--pid", "--mount-proc", "sh", "-c"]
    not_private.append(f"exec {boot} {tmp_path} $(readlink /proc/self/ns/mnt)")

    outright = subprocess.run([boot, tmp_path, outside], capture_output=True, text=True, timeout=30)
    inside = subprocess.run(not_private, capture_output=True, text=True, timeout=30)

    assert (outright.returncode, inside.returncode) == (1, 1)
    assert "not the first process of a pid namespace; nothing was started" in outright.stderr
    assert "the machine's own mount namespace; nothing was started" in inside.stderr
