"""ralphd as a service of systemd: whether it is one, and what systemctl is asked to do with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralphctl.local import units
from ralphctl.patience import telling
from ralphd import wire
from ralphd.errors import Forbidden, RalphdError

SYSTEM_UNITS = Path("/etc/systemd/system")
ASK_LIMIT_S = 10.0
"""For what systemd answers at once."""
WORK_LIMIT_S = units.STOP_LIMIT_S + 30.0
"""For a start or a stop, which takes as long as the daemon does."""


class NoSystemd(RalphdError):
    """There is no systemd here that would answer."""

    slug, exit_code = "no-systemd", 69


class SystemctlFailed(RalphdError):
    """systemd could not do what it was asked."""

    slug, exit_code = "systemctl-failed", 1


class NotRoot(Forbidden):
    """A service of the machine, and we are not root."""

    slug = "not-root"


@dataclass(frozen=True, slots=True)
class Service:
    """The daemon's unit, of this user's systemd or of the machine's."""

    is_system: bool = False

    @property
    def systemctl(self) -> str:
        """As a person types it."""
        return "systemctl" if self.is_system else "systemctl --user"

    @property
    def journal(self) -> str:
        """The command that shows what the service printed."""
        return f"journalctl {'-u' if self.is_system else '--user -u'} {units.SERVICE} -n 20"

    def unit_file(self, environ: Mapping[str, str]) -> Path:
        """Where the unit is; where there is none, the first place for it."""
        places = self._places(environ)
        return next((place for place in places if os.path.lexists(place)), places[0])

    def place(self, environ: Mapping[str, str]) -> Path:
        """Where ``regent install`` puts the unit: where systemd reads units, as it says. Raises NoSystemd.

        A user's systemd does not know what ``XDG_CONFIG_HOME`` is in a shell.
        """
        read = f" {self._ask('show', '--property=UnitPath', '--value').strip()} "
        places = self._places(environ)
        return next((place for place in places if f" {place.parent} " in read), places[0])

    def _places(self, environ: Mapping[str, str]) -> list[Path]:
        if self.is_system:
            return [SYSTEM_UNITS / units.SERVICE]
        bases = [environ.get("XDG_CONFIG_HOME"), os.path.join(_home(environ), ".config")]  # noqa: PTH118
        return [Path(base) / "systemd" / "user" / units.SERVICE for base in bases if base]

    def check_there(self) -> None:
        """Raise NoSystemd where nobody answers."""
        # An empty answer with exit code 0 is that of a chroot.
        if not (version := self._ask("show", "--property=Version", "--value")).strip():
            raise self._away(f"it answered {version!r}")

    def check_allowed(self, word: str) -> None:
        """Raise NotRoot where systemd would not obey: better before anything is done than half-way."""
        if self.is_system and os.geteuid() != 0:
            raise NotRoot(
                "this daemon is a service of the machine, which needs root",
                mend=f"sudo systemctl {word} ralphd",
            )

    def ask(self, *words: str) -> None:
        """Have systemctl do something that is done at once. Raises NoSystemd, SystemctlFailed."""
        self._checked(words, ASK_LIMIT_S)

    def work(self, word: str) -> None:
        """``start``, ``stop`` or ``restart`` the daemon, and wait for it. Raises as ``ask`` does."""
        with telling(f"systemd to {word} {units.SERVICE}", WORK_LIMIT_S):
            self._checked((word, units.SERVICE), WORK_LIMIT_S)

    def main_pid(self) -> int | None:
        """The pid of the daemon, where it runs."""
        answer = self._ask("show", "--property=MainPID", "--value", units.SERVICE).strip()
        return int(answer) if answer.isdecimal() and int(answer) else None

    def _ask(self, *words: str) -> str:
        done = self._run(words, ASK_LIMIT_S)
        if done.returncode:
            raise self._away(done.stderr.strip())
        return done.stdout

    def _checked(self, words: tuple[str, ...], limit_s: float) -> None:
        done = self._run(words, limit_s)
        if done.returncode:
            raise SystemctlFailed(
                f"systemd did not {words[0]} {units.SERVICE}", why=done.stderr.strip(), mend=self.journal
            )

    def _run(self, words: tuple[str, ...], limit_s: float) -> subprocess.CompletedProcess[str]:
        scope = () if self.is_system else ("--user",)
        command = ["systemctl", *scope, "--no-ask-password", *words]
        try:
            return subprocess.run(
                command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=limit_s, check=False,
            )  # fmt: skip
        except OSError as fault:
            raise self._away(f"{command[0]}: {fault.strerror}") from fault
        except subprocess.TimeoutExpired as fault:
            raise SystemctlFailed(
                f"{self.systemctl} {words[0]} took longer than {limit_s:g} s", mend=self.journal
            ) from fault

    def _away(self, why: str) -> NoSystemd:
        whose = "the machine's" if self.is_system else "your own"
        return NoSystemd(
            f"{whose} systemd does not answer",
            why=why,
            mend="ralphd --background  (the daemon without systemd, until the next reboot)\n"
            "ralphctl regent install --print  (the unit, for a systemd elsewhere)",
        )


def meant_by(environ: Mapping[str, str], socket: str | None) -> Service | None:
    """The service whose daemon a command without a daemon means; None where none is installed.

    Another state directory or socket than the unit's is another daemon.
    """
    service = Service()
    try:
        text = service.unit_file(environ).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    home = _home(environ)
    plain = {"HOME": home, "RALPHD_STATE_DIR": _state_directory(text, home)}
    if socket_there := units.value_of(text, "RALPHD_SOCKET"):
        plain["RALPHD_SOCKET"] = socket_there
    meant = (wire.state_directory(environ), os.path.abspath(socket or wire.socket_path(environ)))  # noqa: PTH100
    return service if meant == (wire.state_directory(plain), wire.socket_path(plain)) else None


def _state_directory(text: str, home: str) -> str:
    found = units.value_of(text, "RALPHD_STATE_DIR")
    return f"{home}/.local/state/ralphd" if found is None else found.replace("%h", home)


def hosting(pid: int) -> Service | None:
    """The service whose main process is ``pid``; None for a daemon that systemd knows nothing of."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    ours = [group for group in groups if group.endswith(f"/{units.SERVICE}")]
    if not ours:
        return None
    service = Service(is_system="/user@" not in ours[0])
    try:
        return service if service.main_pid() == pid else None
    except RalphdError:
        return service  # it is in that control group, and a stop that systemd undoes would be none


def _home(environ: Mapping[str, str]) -> str:
    """The home directory; "~" for a user that the machine does not know, where nothing is found then."""
    return environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111


def _environment() -> dict[str, str]:
    """Ours; after ``su`` or from cron the place of the user's systemd is missing in it."""
    place = f"/run/user/{os.getuid()}"
    found = {"XDG_RUNTIME_DIR": place} if Path(place).is_dir() else {}
    return {**found, **os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
