"""ralphd as a service of systemd: its unit file, whether it runs, and starting and stopping it.

A unit that a person edited is never overwritten or removed without a copy.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ralphctl.format.output import SlowNotice
from ralphctl.service import units
from ralphd import wire
from ralphd.dataclass import dataclass
from ralphd.errors import DirectoryUnusable, Forbidden, RalphdError

SYSTEM_UNITS = Path("/etc/systemd/system")
ASK_LIMIT_S = 10.0
"""For requests that systemd answers at once."""
WORK_LIMIT_S = units.STOP_LIMIT_S + 30.0
"""For a start or a stop, which takes as long as the daemon does."""


class NoSystemd(RalphdError, slug="no-systemd", exit_code=69):
    """No systemd answers here."""


class SystemctlFailed(RalphdError, slug="systemctl-failed"):
    """systemctl failed."""


class NotRoot(Forbidden, slug="not-root"):
    """A service of the machine needs root."""


@dataclass(frozen=True, slots=True)
class SystemdService:
    """The daemon's unit, of this user's systemd or of the machine's."""

    is_system: bool = False

    @property
    def systemctl(self) -> str:
        """As a person types it."""
        return "systemctl" if self.is_system else "systemctl --user"

    @property
    def journal(self) -> str:
        """The command that shows the output of the service."""
        return f"journalctl {'-u' if self.is_system else '--user -u'} {units.SERVICE} -n 20"

    def unit_file(self, environ: Mapping[str, str]) -> Path:
        """Return where the unit is; without one, the first place for it."""
        places = self._places(environ)
        return next((place for place in places if os.path.lexists(place)), places[0])

    def place(self, environ: Mapping[str, str]) -> Path:
        """Return where ``regent install`` writes the unit: where systemd reads units. Raise NoSystemd.

        A user's systemd does not know the ``XDG_CONFIG_HOME`` of a shell.
        """
        read = f" {self._ask('show', '--property=UnitPath', '--value').strip()} "
        places = self._places(environ)
        return next((place for place in places if f" {place.parent} " in read), places[0])

    def _places(self, environ: Mapping[str, str]) -> list[Path]:
        if self.is_system:
            return [SYSTEM_UNITS / units.SERVICE]
        bases = [environ.get("XDG_CONFIG_HOME"), os.path.join(_home(environ), ".config")]  # noqa: PTH118
        return [Path(base) / "systemd" / "user" / units.SERVICE for base in bases if base]

    def state_directory(self, unit: str, environ: Mapping[str, str]) -> str:
        """Return the state directory that the text of a unit sets."""
        directory = units.value_of(unit, "RALPHD_STATE_DIR") or "%h/.local/state/ralphd"
        specifier, meant = ("%S", "/var/lib") if self.is_system else ("%h", _home(environ))
        return directory.replace(specifier, meant)

    def check_there(self) -> None:
        """Raise NoSystemd unless systemd answers."""
        # In a chroot systemctl prints nothing and exits with 0.
        if not (version := self._ask("show", "--property=Version", "--value")).strip():
            raise self._away(f"its answer was {version!r}")

    def check_allowed(self, word: str) -> None:
        """Raise NotRoot if systemd would refuse, before anything has been done."""
        if self.is_system and os.geteuid() != 0:
            what = "this daemon is a service of the machine; only root can do this"
            raise NotRoot(what, mend=f"sudo systemctl {word} ralphd")

    def ask(self, *words: str) -> None:
        """Run a systemctl command that takes no time. Raise NoSystemd, SystemctlFailed."""
        self._checked(words, ASK_LIMIT_S)

    def work(self, word: str) -> None:
        """``start``, ``stop`` or ``restart`` the daemon, and wait for it. Raise as ``ask`` does."""
        with SlowNotice(f"systemd to {word} {units.SERVICE}", WORK_LIMIT_S):
            self._checked((word, units.SERVICE), WORK_LIMIT_S)

    def main_pid(self) -> int | None:
        """Return the pid of the daemon if it runs."""
        answer = self._ask("show", "--property=MainPID", "--value", units.SERVICE).strip()
        return int(answer) if answer.isdecimal() and int(answer) else None

    def _ask(self, *words: str) -> str:
        if (done := self._run(words, ASK_LIMIT_S)).returncode:
            raise self._away(done.stderr.strip())
        return done.stdout

    def _checked(self, words: tuple[str, ...], limit_s: float) -> None:
        if (done := self._run(words, limit_s)).returncode:
            what = f"systemctl {words[0]} {units.SERVICE} failed"
            raise SystemctlFailed(what, why=done.stderr.strip(), mend=self.journal)

    def _run(self, words: tuple[str, ...], limit_s: float) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *(() if self.is_system else ("--user",)), "--no-ask-password", *words]
        try:
            return subprocess.run(
                command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=limit_s, check=False,
            )  # fmt: skip
        except OSError as fault:
            raise self._away(f"{command[0]}: {fault.strerror}") from fault
        except subprocess.TimeoutExpired as fault:
            what = f"{self.systemctl} {words[0]} took longer than {limit_s:g} s"
            raise SystemctlFailed(what, mend=self.journal) from fault

    def _away(self, why: str) -> NoSystemd:
        whose = "the machine's" if self.is_system else "your"
        mend = "ralphd --background  (runs the daemon without systemd, until the next reboot)\n"
        mend += "ralphctl regent install --print  (prints the unit)"
        return NoSystemd(f"{whose} systemd does not answer", why=why, mend=mend)


def meant_by(environ: Mapping[str, str], socket: str | None) -> SystemdService | None:
    """Return the installed service that a command without a daemon should start; None without one.

    A command with another state directory or socket than the unit's means another daemon.
    """
    service = SystemdService()
    try:
        text = service.unit_file(environ).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    plain = {"HOME": _home(environ), "RALPHD_STATE_DIR": service.state_directory(text, environ)}
    if socket_there := units.value_of(text, "RALPHD_SOCKET"):
        plain["RALPHD_SOCKET"] = socket_there
    meant = (wire.state_directory(environ), os.path.abspath(socket or wire.socket_path(environ)))  # noqa: PTH100
    return service if meant == (wire.state_directory(plain), wire.socket_path(plain)) else None


def hosting(pid: int) -> SystemdService | None:
    """Return the service whose main process is ``pid``; None for a daemon that systemd did not start."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    places = (f"/{units.SERVICE}", f"/{units.SERVICE}/ralphd-daemon")  # the second with DelegateSubgroup=
    ours = next((group for group in groups if group.endswith(places)), None)
    if ours is None:
        return None
    service = SystemdService(is_system="/user@" not in ours)
    with suppress(RalphdError):
        return service if service.main_pid() == pid else None
    return service  # it is in that control group: stopped in another way, systemd would restart it


def _home(environ: Mapping[str, str]) -> str:
    """Return the home directory; "~", where nothing exists, for a user without one."""
    return environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111


def _environment() -> dict[str, str]:
    """Add ``XDG_RUNTIME_DIR``, without which systemctl finds no user's systemd after ``su`` or in cron."""
    place = f"/run/user/{os.getuid()}"
    found = {"XDG_RUNTIME_DIR": place} if Path(place).is_dir() else {}
    return {**found, **os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}


_LONGEST_UNIT = 1 << 20


class EditedByHand(RalphdError, slug="unit-edited"):
    """The unit is not as ralphd wrote it."""


def daemon_command() -> tuple[str, ...]:
    """Return the command that starts the daemon of this very installation, whatever PATH is then."""
    script = Path(sys.executable).with_name("ralphd")
    with suppress(OSError), script.open("rb") as text:
        if text.readline(4096).strip() == b"#!" + os.fsencode(sys.executable) and os.access(script, os.X_OK):
            return (str(script),)
    return (sys.executable, "-P", "-m", "ralphd")


def is_unit_current(path: Path, text: str) -> bool:
    """Return whether this very unit is installed."""
    return not path.is_symlink() and _read(path) == text


def write_unit(path: Path, text: str, *, force: bool) -> Path | None:
    """Replace the unit atomically and return the copy of an edited one.

    Raise EditedByHand, unless ``force``, and DirectoryUnusable.
    """
    kept = _set_aside(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise DirectoryUnusable(f"cannot write {path}", why=str(fault)) from fault
    return kept


def check_unit_removable(path: Path, *, force: bool) -> None:
    """Raise EditedByHand for a unit that ``remove_unit`` and ``write_unit`` would refuse to replace."""
    if not force and os.path.lexists(path) and not _is_ours(path):
        what = f"{path} was edited, or does not belong to ralphd"
        why = "nothing was changed; keep your own settings in a drop-in file: "
        why += "systemctl edit ralphd, or systemctl --user edit ralphd"
        raise EditedByHand(what, why=why, mend="the same command with --force  (keeps a copy)")


def remove_unit(path: Path, *, force: bool) -> Path | None:
    """Remove the unit and return the copy of an edited one. Raise as ``write_unit`` does."""
    kept = _set_aside(path, force=force)
    try:
        path.unlink(missing_ok=True)
    except OSError as fault:
        raise DirectoryUnusable(f"cannot remove {path}", why=str(fault)) from fault
    return kept


def _set_aside(path: Path, *, force: bool) -> Path | None:
    """Rename an edited unit, so that systemd does not read the copy."""
    check_unit_removable(path, force=force)
    if not os.path.lexists(path) or _is_ours(path):
        return None
    kept = path.with_name(f"{path.name}.kept-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    try:
        path.rename(kept)
    except OSError as fault:
        raise DirectoryUnusable(f"cannot rename {path} to {kept.name}", why=str(fault)) from fault
    return kept


def _is_ours(path: Path) -> bool:
    return not path.is_symlink() and units.is_as_written(_read(path) or "")


def _read(path: Path) -> str | None:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_LONGEST_UNIT).decode(errors="replace")
    return None
