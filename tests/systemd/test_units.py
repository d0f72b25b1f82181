"""The units: what systemd itself says of them, and what is promised of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ralphctl.service import units
from ralphctl.service.units import Installation
from ralphd.api.server import GRACE_S
from ralphd.config.configuration import Configuration
from ralphd.daemon.host import CLOSING_S
from ralphd.daemon.lifecycle import KILL_LIMIT_S, LOOK_ROUND_S
from ralphd.errors import UsageError

UNITS = Path(__file__).parents[2] / "systemd"
WHERE = Installation(("/bin/true",), {"RALPHD_STATE_DIR": "/home/r/.local/state/ralphd"})
ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze here")


def analyze(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze without anything of this machine's user."""
    (tmp_path / "run").mkdir(mode=0o700, exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }
    return subprocess.run(
        ["systemd-analyze", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def written(tmp_path: Path, name: str, text: str) -> str:
    """A unit as a file."""
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def settings(text: str) -> dict[str, str]:
    """The settings of a unit, by name; the last of several."""
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


# --- what systemd says of them --------------------------------------------------------------------------


@needs_analyze
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    service = written(tmp_path, "ralphd.service", units.system_service(WHERE, "daemon"))
    socket = written(tmp_path, "ralphd.socket", units.system_socket("daemon"))
    (tmp_path / "user").mkdir()
    users = written(tmp_path / "user", "ralphd.service", units.user_service(WHERE))

    machine = analyze(tmp_path, "verify", "--man=no", service, socket)
    user = analyze(tmp_path, "--user", "verify", "--man=no", users)

    assert (machine.returncode, machine.stderr, machine.stdout) == (0, "", "")
    assert (user.returncode, user.stderr, user.stdout) == (0, "", "")


@needs_analyze
def test_systemd_takes_a_program_whatever_directory_it_is_in(tmp_path: Path) -> None:
    for number, odd in enumerate(("it's", 'a "b" c', "back\\slash", "100%h; a", "#é={x}")):
        program = tmp_path / odd / "ralphd"
        program.parent.mkdir()
        program.symlink_to("/bin/true")
        place = tmp_path / str(number)
        place.mkdir()
        unit = written(place, "ralphd.service", units.user_service(Installation((str(program),))))

        said = analyze(tmp_path, "--user", "verify", "--man=no", unit)

        assert (said.returncode, said.stderr) == (0, ""), odd


@needs_analyze
def test_the_exposure_of_the_machines_service_is_at_most_seven(tmp_path: Path) -> None:
    unit = written(tmp_path, "ralphd.service", units.system_service(WHERE, "ralph"))

    said = analyze(tmp_path, "security", "--offline=yes", "--threshold=70", unit)

    assert said.returncode == 0, said.stdout
    found = re.search(r"exposure level for ralphd\.service: ([\d.]+)", said.stdout)
    assert found is not None
    assert 0 < float(found[1]) <= 7.0


# --- what is promised of them ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [units.user_service(WHERE), units.system_service(WHERE, "ralph")])
def test_both_services_leave_the_runs_when_the_daemon_is_replaced(text: str) -> None:
    promised = {
        "Type": "notify", "NotifyAccess": "main", "Delegate": "yes", "KillMode": "process",
        "RestartKillSignal": "SIGUSR2", "Restart": "always", "RestartPreventExitStatus": "75 78",
        "OOMPolicy": "continue", "ExecReload": "/bin/kill -HUP $MAINPID", "StartLimitIntervalSec": "0",
        "UMask": "0022",
    }  # fmt: skip
    found = settings(text)

    assert {name: found.get(name) for name in promised} == promised
    assert "KillSignal" not in found  # a stop is SIGTERM, which stops the runs


def test_a_stop_has_the_time_that_the_daemon_may_need() -> None:
    deadline_s = Configuration().regent.stop_deadline_seconds
    limit_s = int(settings(units.user_service(WHERE))["TimeoutStopSec"])

    assert limit_s > deadline_s + KILL_LIMIT_S + CLOSING_S
    assert CLOSING_S > GRACE_S


def test_the_watchdog_waits_for_several_passes_of_the_supervision() -> None:
    assert int(settings(units.user_service(WHERE))["WatchdogSec"]) / 3 > LOOK_ROUND_S


def test_what_would_break_the_tools_of_an_agent_is_not_in_the_sandbox() -> None:
    breaking = {
        "ProtectHome", "PrivateTmp", "ProtectControlGroups", "MemoryDenyWriteExecute", "RestrictNamespaces",
        "PrivateDevices", "ProtectClock", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname",
        "LockPersonality", "PrivateUsers", "PrivateNetwork", "ProcSubset", "ProtectProc",
    }  # fmt: skip

    assert not breaking & set(settings(units.system_service(WHERE, "ralph")))


def test_the_service_and_the_socket_of_the_machine_agree_on_the_path() -> None:
    assert units.value_of(units.system_service(WHERE, "ralph"), "RALPHD_SOCKET") == "%t/ralphd/ralphd.sock"
    assert settings(units.system_socket("ralph"))["ListenStream"] == "/run/ralphd/ralphd.sock"


def test_odd_paths_are_quoted_and_read_back_and_impossible_ones_refused(tmp_path: Path) -> None:
    odd = '/home/a b/100%/"x"\\y'
    text = units.user_service(Installation((f"{odd}/bin/ralphd",), {"RALPHD_STATE_DIR": odd}))

    assert units.value_of(text, "RALPHD_STATE_DIR") == odd
    assert r'ExecStart=/usr/bin/env "/home/a b/100%%/\"x\"\\y/bin/ralphd"' in text
    for wrong in ("/home/$x", "/home/a\nExecStartPre=/bin/evil", "/home/it's=/ralphd"):
        with pytest.raises(UsageError, match="a unit cannot"):
            units.user_service(Installation((wrong,)))


@pytest.mark.parametrize(
    "change", [lambda t: t.replace("60", "61"), lambda t: t + "\n", lambda t: "", str.upper]
)
def test_an_edited_unit_is_told_from_one_that_was_written(change: object) -> None:
    text = units.user_service(WHERE)
    assert callable(change)

    assert units.is_as_written(text)
    assert not units.is_as_written(change(text))


@pytest.mark.parametrize("name", ["ralphd.service", "ralphd.socket", "user/ralphd.service"])
def test_the_files_for_packages_are_as_written(name: str) -> None:
    assert units.is_as_written((UNITS / name).read_text())
