"""regent install and uninstall, with programs on PATH that stand in for systemctl and loginctl."""

import json
import os
import pwd
import shlex
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphctl.service import systemd, units
from tests.ctl.conftest import Ctl
from tests.ctl.golden_files import Golden, without_remark
from tests.helpers import is_alive, wait_for
from tests.template import Forked, Template

# Notes what it is asked, and does of it what a test looks at: a started service is a real daemon.
SYSTEMCTL = """
import json, os, signal, socket, sys, time
place = os.environ["FAKE_SYSTEMD"]
words = [word for word in sys.argv[1:] if word not in ("--user", "--no-ask-password")]
with open(f"{place}/asked", "a") as asked:
    print(("user " if "--user" in sys.argv else "system ") + " ".join(words), file=asked)
if os.path.exists(f"{place}/away"):
    sys.exit(print("Failed to connect to bus: No medium found", file=sys.stderr) or 1)
if os.path.exists(f"{place}/fails") and words[0] == open(f"{place}/fails").read():
    sys.exit(print(f"Job for {words[-1]} failed.", file=sys.stderr) or 1)

def pid():
    try:
        return int(open(f"{place}/pid").read())
    except FileNotFoundError:
        return 0

def end(number):
    if pid():
        os.kill(pid(), number)
        while os.path.exists(f"/proc/{pid()}"):
            time.sleep(0.01)
        os.unlink(f"{place}/pid")

def begin():
    if not pid():
        with socket.socket(socket.AF_UNIX) as starter:
            starter.connect(f"/proc/self/fd/{os.open(place, os.O_PATH)}/starter")
            starter.sendall(json.dumps(dict(os.environ)).encode())
            starter.shutdown(socket.SHUT_WR)
            answer = starter.recv(100)
        with open(f"{place}/pid", "wb") as file:
            file.write(answer)
        held = os.open(os.environ["RALPHD_STATE_DIR"], os.O_PATH)
        for _ in range(3000):
            try:
                return socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{held}/ralphd.sock")
            except OSError:
                time.sleep(0.01)

match words[0]:
    case "show" if "MainPID" in words[1]:
        print(pid())
    case "show" if "UnitPath" in words[1] and os.path.exists(f"{place}/unit-path"):
        print(open(f"{place}/unit-path").read())
    case "show":
        print("" if os.path.exists(f"{place}/chroot") else "252 (252.1)")
    case "start":
        begin()
    case "restart":
        end(signal.SIGUSR2)
        begin()
    case "stop":
        end(signal.SIGTERM)
"""
LOGINCTL = """
import os, sys
answer = open(os.environ["FAKE_SYSTEMD"] + "/linger").read()
print(answer) if answer else sys.exit(print("User is not logged in or lingering", file=sys.stderr) or 1)
"""


@dataclass(frozen=True, slots=True)
class Fake:
    """What stands in for systemd, and what it was asked."""

    place: Path
    unit: Path

    def asked(self) -> list[str]:
        """The words of each systemctl that changes something, oldest first."""
        path = self.place / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if " show " not in line]

    def forget(self) -> None:
        """Nothing was asked so far."""
        (self.place / "asked").unlink()

    def lingers(self, answer: str) -> None:
        """What loginctl says; nothing where it is empty."""
        (self.place / "linger").write_text(answer)

    def pid(self) -> int:
        """The daemon that was started as the service; 0 without one."""
        path = self.place / "pid"
        return int(path.read_text()) if path.exists() else 0

    def dies(self) -> None:
        """End the service as a power cut would."""
        pid = self.pid()
        assert pid, "no service was started"
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid), what="the end of the service")


@contextmanager
def starter(path: Path, directory: Path) -> Iterator[None]:
    """Starts a daemon in the environment that it is told, and answers with its pid."""

    class Start(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with open(os.devnull, "wb") as nowhere:
                to = nowhere.fileno()
                daemon = Template.present().start(
                    "ralphd", (), json.load(self.rfile), directory, output=to, errors=to
                )
            started.append(daemon)
            self.wfile.write(str(daemon.pid).encode())

    started: list[Forked] = []
    held = os.open(path.parent, os.O_PATH)  # however long the path is
    with socketserver.UnixStreamServer(f"/proc/self/fd/{held}/{path.name}", Start) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            os.close(held)
            for daemon in started:
                daemon.kill()
                daemon.wait(60)


@pytest.fixture
def fake(tmp_path: Path, environment: dict[str, str], ctl: Ctl) -> Iterator[Fake]:
    """A systemd that answers, with linger on, and nothing installed."""
    place = tmp_path / "systemd"
    place.mkdir()
    for name, text in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL)):
        (place / name).write_text(f"#!{sys.executable}\n{text}")
        (place / name).chmod(0o755)
    environment["PATH"] = f"{place}:{environment['PATH']}"
    environment["FAKE_SYSTEMD"] = str(place)
    fake = Fake(place, tmp_path / "home" / ".config" / "systemd" / "user" / "ralphd.service")
    fake.lingers("yes")
    with starter(place / "starter", tmp_path):
        yield fake


def written_by_an_earlier_version() -> str:
    """A unit that nobody has edited, and that is not today's."""
    return units.user_service(units.Installation(("/opt/earlier/ralphd",)))


def test_install_writes_enables_and_starts_a_unit_of_this_installation(
    ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    reply = ctl("regent", "install")

    assert reply.returncode == 0, reply.stderr
    golden(reply, hide={fake.pid(): "PID"})
    assert fake.asked() == [
        "user daemon-reload", "user enable ralphd.service", "user start ralphd.service"
    ]  # fmt: skip
    text = fake.unit.read_text()
    [line] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    command = shlex.split(line.removeprefix("ExecStart="))
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout.startswith("ralphd ")
    assert Path(command[0]).parent == Path(sys.executable).parent
    assert fake.unit.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in fake.unit.parent.iterdir()] == ["ralphd.service"]


def test_the_unit_has_the_places_that_the_shell_has_and_systemd_has_not(
    ctl: Ctl, fake: Fake, environment: dict[str, str], tmp_path: Path
) -> None:
    there = {"XDG_CONFIG_HOME": str(tmp_path / "con fig"), "XDG_DATA_HOME": str(tmp_path / "data")}
    assert ctl("regent", "install", more=there).returncode == 0

    text = (tmp_path / "con fig" / "systemd" / "user" / "ralphd.service").read_text()
    assert units.value_of(text, "RALPHD_STATE_DIR") == environment["RALPHD_STATE_DIR"]
    assert {name: units.value_of(text, name) for name in there} == there


def test_the_unit_is_put_where_systemd_reads_units_whatever_the_shell_says(
    ctl: Ctl, fake: Fake, golden: Golden, tmp_path: Path
) -> None:
    shell = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    (fake.place / "unit-path").write_text(f"/run/systemd/user {fake.unit.parent} /etc/systemd/user")

    assert ctl("regent", "install", more=shell).returncode == 0
    assert units.value_of(fake.unit.read_text(), "XDG_CONFIG_HOME") == shell["XDG_CONFIG_HOME"]
    assert not (tmp_path / "config").exists()
    fake.forget()
    golden(ctl("regent", "start", more=shell), hide={fake.pid(): "PID"})
    assert ctl("regent", "uninstall", more=shell).returncode == 0
    assert not fake.unit.exists()


def test_the_service_listens_where_the_shell_looks(
    ctl: Ctl, fake: Fake, environment: dict[str, str], tmp_path: Path
) -> None:
    socket = {"RALPHD_SOCKET": str(tmp_path / "s" / "own.sock")}

    assert (
        ctl("regent", "install", "--print", more=socket | {"RALPH_RUN_ID": "r1"}).stdout.count("SOCKET") == 0
    )
    text = ctl("regent", "install", "--print", more=socket).stdout
    fake.unit.parent.mkdir(parents=True)
    fake.unit.write_text(text)

    assert units.value_of(text, "RALPHD_SOCKET") == socket["RALPHD_SOCKET"]
    assert systemd.meant_by(environment | socket, None) == systemd.SystemdService()
    assert systemd.meant_by(environment, None) is None


def test_installing_twice_changes_nothing(ctl: Ctl, fake: Fake) -> None:
    ctl("regent", "install")
    pid, text = fake.pid(), fake.unit.read_text()
    fake.forget()

    reply = ctl("regent", "install", "--json")

    assert reply.returncode == 0, reply.stderr
    assert json.loads(reply.stdout) == {"unit": str(fake.unit), "pid": pid, "linger": True, "kept": None}
    assert "user restart ralphd.service" not in fake.asked()
    assert fake.unit.read_text() == text


def test_a_unit_of_an_earlier_version_is_replaced_and_its_daemon_too(ctl: Ctl, fake: Fake) -> None:
    ctl("regent", "install")
    before = fake.pid()
    fake.unit.write_text(written_by_an_earlier_version())

    reply = ctl("regent", "install")

    assert reply.returncode == 0, reply.stderr
    assert "user restart ralphd.service" in fake.asked()
    assert fake.pid() != before
    assert "/opt/earlier" not in fake.unit.read_text()
    assert [path.name for path in fake.unit.parent.iterdir()] == ["ralphd.service"]


def test_a_daemon_in_the_background_makes_room_and_leaves_its_runs(
    ctl: Ctl, fake: Fake, golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    assert ctl("start", "project", "--", "sleep", "600").returncode == 0
    before = json.loads(ctl("status", "--all", "--json").stdout)
    try:
        reply = ctl("regent", "install")
        after = json.loads(ctl("status", "--all", "--json").stdout)
    finally:
        assert ctl("stop", "project", "--now").returncode == 0

    assert reply.returncode == 0, reply.stderr
    golden(without_remark(reply), hide={before["daemon"]["pid"]: "OLD-PID", fake.pid(): "PID"})
    assert after["daemon"]["pid"] == fake.pid()
    assert after["ralphs"][0]["ralph_pid"] == before["ralphs"][0]["ralph_pid"]


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_unit_that_was_edited_is_left_alone(command: str, ctl: Ctl, fake: Fake, golden: Golden) -> None:
    fake.unit.parent.mkdir(parents=True)
    edited = written_by_an_earlier_version().replace("WatchdogSec=60", "WatchdogSec=600")
    fake.unit.write_text(edited)

    reply = ctl("regent", command)

    golden(reply)
    assert reply.returncode == 1
    assert fake.unit.read_text() == edited
    assert fake.asked() == []


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_by_force_an_edited_unit_is_replaced_or_removed_and_kept_as_a_copy(
    command: str, ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    fake.unit.parent.mkdir(parents=True)
    fake.unit.write_text("[Service]\nExecStart=/home/me/bin/mine\n")

    reply = ctl("regent", command, "--force")

    assert reply.returncode == 0, reply.stderr
    [kept] = fake.unit.parent.glob("ralphd.service.kept-*")
    assert kept.read_text() == "[Service]\nExecStart=/home/me/bin/mine\n"
    golden(reply, hide={kept.name: "THE-COPY"} | ({fake.pid(): "PID"} if fake.pid() else {}))
    assert fake.unit.exists() == (command == "install")


def test_a_masked_unit_is_not_written_through(ctl: Ctl, fake: Fake, golden: Golden) -> None:
    fake.unit.parent.mkdir(parents=True)
    fake.unit.symlink_to("/dev/null")

    reply = ctl("regent", "install")

    golden(reply)
    assert reply.returncode == 1
    assert fake.unit.readlink() == Path("/dev/null")


@pytest.mark.parametrize("away", ["no systemctl", "no bus", "a chroot"])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_systemd_nothing_is_changed_and_it_is_said_what_to_do(
    away: str, command: str, ctl: Ctl, fake: Fake, golden: Golden, environment: dict[str, str]
) -> None:
    if command == "uninstall":
        fake.unit.parent.mkdir(parents=True)
        fake.unit.write_text(written_by_an_earlier_version())
    match away:
        case "no systemctl":
            environment["PATH"] = "/nowhere"
        case "no bus":
            (fake.place / "away").touch()
        case _:
            (fake.place / "chroot").touch()

    reply = ctl("regent", command)

    golden(reply)
    assert reply.returncode == 69
    assert fake.unit.exists() == (command == "uninstall")


def test_a_service_that_does_not_start_is_told_with_where_to_look(
    ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    (fake.place / "fails").write_text("start")

    reply = ctl("regent", "install")

    golden(reply)
    assert reply.returncode == 1


@pytest.mark.parametrize("answer", ["no", ""])
def test_linger_that_is_off_is_explained_and_never_turned_on(
    answer: str, ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    fake.lingers(answer)
    name = pwd.getpwuid(os.getuid()).pw_name
    if not answer and Path("/var/lib/systemd/linger", name).exists():
        pytest.skip("this user lingers")

    reply = ctl("regent", "install")

    golden(reply, hide={fake.pid(): "PID", f"enable-linger {name}": "enable-linger USER"})


def test_print_only_prints(ctl: Ctl, fake: Fake) -> None:
    mine = ctl("regent", "install", "--print")
    machines = ctl("regent", "install", "--print", "--system", "--user", "root")

    assert units.is_as_written(mine.stdout)
    assert "WantedBy=default.target" in mine.stdout
    assert units.is_as_written(machines.stdout)
    assert "\nUser=root\n" in machines.stdout
    assert not fake.unit.exists()
    assert fake.asked() == []


@pytest.mark.parametrize("words", ["--system", "--system --user no-such-user", "--user root"])
def test_what_does_not_fit_together_is_a_fault_of_usage(
    words: str, ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    reply = ctl("regent", "install", *words.split())

    golden(reply)
    assert reply.returncode == 2
    assert fake.asked() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_a_service_of_the_machine_needs_root(ctl: Ctl, fake: Fake) -> None:
    reply = ctl("regent", "install", "--system", "--user", pwd.getpwuid(os.getuid()).pw_name)

    assert reply.returncode == 1
    assert "needs root" in reply.stderr
    assert fake.asked() == []


def test_uninstall_stops_disables_and_removes_and_says_what_stays(
    ctl: Ctl, fake: Fake, golden: Golden, environment: dict[str, str]
) -> None:
    ctl("regent", "install")
    pid = fake.pid()
    fake.forget()

    reply = ctl("regent", "uninstall")

    assert reply.returncode == 0, reply.stderr
    assert fake.asked() == [
        "user stop ralphd.service", "user disable ralphd.service", "user daemon-reload"
    ]  # fmt: skip
    assert not is_alive(pid)
    assert not fake.unit.exists()
    assert Path(environment["RALPHD_STATE_DIR"], "events.db").exists()
    again = ctl("regent", "uninstall")
    golden(reply, again, hide={pid: "PID"})
    assert again.returncode == 0


def test_regent_start_starts_the_service_where_it_is_installed(ctl: Ctl, fake: Fake, golden: Golden) -> None:
    ctl("regent", "install")
    fake.dies()
    (fake.place / "pid").unlink()
    fake.forget()

    reply = ctl("regent", "start")

    assert reply.returncode == 0, reply.stderr
    golden(reply, hide={fake.pid(): "PID"})
    assert fake.asked() == ["user start ralphd.service"]


def test_a_service_whose_systemd_is_away_is_not_started_behind_its_back(
    ctl: Ctl, fake: Fake, golden: Golden
) -> None:
    ctl("regent", "install")
    fake.dies()
    (fake.place / "away").touch()

    reply = ctl("regent", "start")

    golden(reply)
    assert reply.returncode == 69
    assert ctl("status").returncode == 3


def test_a_daemon_of_another_place_is_started_in_the_background(ctl: Ctl, fake: Fake, tmp_path: Path) -> None:
    ctl("regent", "install")
    fake.forget()
    elsewhere = {"RALPHD_STATE_DIR": str(tmp_path / "elsewhere")}

    reply = ctl("regent", "start", more=elsewhere)

    assert reply.returncode == 0, reply.stderr
    assert f"pid {fake.pid()}" not in reply.stdout
    assert fake.asked() == []
    assert ctl("regent", "stop", more=elsewhere).returncode == 0


@pytest.mark.parametrize(
    ("group", "whose"),
    [
        ("/user.slice/user-7.slice/user@7.service/app.slice/ralphd.service", False),
        ("/user.slice/user-7.slice/user@7.service/app.slice/ralphd.service/ralphd-daemon", False),
        ("/system.slice/ralphd.service/ralphd-daemon", True),
        ("/system.slice/ralphd.service/ralphd-r000001-aaaaaaaa", None),
        ("/system.slice/ssh.service", None),
    ],
)
def test_a_daemon_of_the_service_is_known_by_its_control_group(
    group: str, whose: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: f"0::{group}\n")
    monkeypatch.setattr(systemd.SystemdService, "main_pid", lambda self: 7)
    assert systemd.hosting(7) == (None if whose is None else systemd.SystemdService(is_system=whose))
