"""The state directory: whose it is, who can look into it, its socket and its lock, and where it lies."""

from __future__ import annotations

import os
import socket as sockets
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ralphctl import link
from ralphctl.local.doctor.findings import FIX, Finding, IgnoreAll, Level, RemoveSocket, SetMode

_LONGEST_ADDRESS = 107
_PRIVATE_FILES = ("lock", "ralphd.log", "ralphd.log.1", "ralphd.log.2", "events.db", "webhooks.json")
_RALPHS_FILES = ("ralph.json", "env", "regent-state.json", "history.jsonl")
_MOST_RALPHS = 1000
_SHOWN = 3
_ANSWER_S = 2.0


def state_directory(state: Path) -> Sequence[Finding]:
    """Place, owner and modes of the state directory and of what in it may hold secrets."""
    name = "state directory"
    if not os.path.lexists(state):
        return [_not_there(name, state)]
    about = state.stat()
    if not stat.S_ISDIR(about.st_mode):
        return [Finding(name, Level.FAILED, f"{state} is no directory", f"mv {state} {state}.old")]
    if state.is_symlink():
        found = f"{state} is a symbolic link, which ralphd does not follow"
        return [Finding(name, Level.FAILED, found, f"export RALPHD_STATE_DIR={state.resolve()}")]
    if about.st_uid != os.geteuid():
        found = f"{state} belongs to uid {about.st_uid}, you are uid {os.geteuid()}"
        return [Finding(name, Level.FAILED, found, f"sudo chown -R {os.geteuid()} {state}")]
    if not os.access(state, os.W_OK | os.X_OK):
        return [Finding(name, Level.FAILED, f"{state} cannot be written", f"chmod u+rwx {state}")]
    return [_modes(name, state)]


def _not_there(name: str, state: Path) -> Finding:
    above = next(each for each in (state, *state.parents) if os.path.lexists(each))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return Finding(name, Level.OK, f"{state}, which the first start makes")
    why = "cannot be written" if above.is_dir() else "is no directory"
    found = f"{state} is not there, and cannot be made: {above} {why}"
    return Finding(name, Level.FAILED, found, "export RALPHD_STATE_DIR=DIR  (one that you can write)")


def existing(path: Path) -> Path:
    """``path``, or the nearest directory above it that is there."""
    return next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))


def _modes(name: str, state: Path) -> Finding:
    open_ones = [(path, mode) for path, mode in _of_ours(state) if _is_open(path)]
    if not open_ones:
        return Finding(name, Level.OK, f"{state}, yours alone")
    shown = ", ".join(f"{path} ({_mode(path):04o})" for path, _ in open_ones[:_SHOWN])
    more = f" and {len(open_ones) - _SHOWN} more" if len(open_ones) > _SHOWN else ""
    repairs = tuple(SetMode(path, mode) for path, mode in open_ones)
    return Finding(name, Level.FAILED, f"others can look into {shown}{more}", FIX, repairs)


def _of_ours(state: Path) -> Iterator[tuple[Path, int]]:
    """What is ours there, and its mode: what a daemon writes anew is private by itself."""
    ralphs = state / "ralphs"
    yield from ((path, 0o700) for path in (state, ralphs, state / "build"))
    yield from ((state / name, 0o600) for name in _PRIVATE_FILES)
    for home in _homes(ralphs):
        yield home, 0o700
        yield from ((home / name, 0o600) for name in _RALPHS_FILES)


def _homes(ralphs: Path) -> Iterable[Path]:
    try:
        return list(islice(ralphs.iterdir(), _MOST_RALPHS))
    except OSError:
        return []


def _is_open(path: Path) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(about.st_mode) and bool(about.st_mode & 0o077)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def socket(path: Path, lock: Path) -> Sequence[Finding]:
    """The socket as a file: private, of a daemon that lives, and at a path that everybody can use."""
    name = "socket"
    try:
        about = path.lstat()
    except OSError:
        about = None
    if about is None:
        return [_length(name, path, f"{path}, which a daemon makes")]
    if not stat.S_ISSOCK(about.st_mode):
        return [Finding(name, Level.FAILED, f"{path} is no socket", f"mv {path} {path}.old")]
    if about.st_uid not in (os.geteuid(), 0):
        found = f"{path} belongs to uid {about.st_uid}: it is another user's daemon"
        return [Finding(name, Level.FAILED, found, "unset RALPHD_SOCKET  (for a daemon of your own)")]
    if _is_stale(path, lock):
        found = f"{path} was left behind: nobody listens there"
        stale = RemoveSocket(path, about.st_ino, lock)
        return [Finding(name, Level.WARNING, found, f"{FIX}, or ralphctl regent start", (stale,))]
    if about.st_uid == os.geteuid() and about.st_mode & 0o077:
        found = f"others can speak to {path} ({stat.S_IMODE(about.st_mode):04o})"
        return [Finding(name, Level.FAILED, found, FIX, (SetMode(path, 0o600),))]
    return [_length(name, path, f"{path}, yours alone")]


def _is_stale(path: Path, lock: Path) -> bool:
    if lock_holder(lock) is not None:
        return False
    address, held = link.short_address(str(path))
    try:
        with sockets.socket(sockets.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    finally:
        if held is not None:
            os.close(held)
    return False


def _length(name: str, path: Path, found: str) -> Finding:
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        return Finding(name, Level.OK, found)
    found = f"{path} is longer than {_LONGEST_ADDRESS} bytes: curl and the like cannot use it"
    return Finding(name, Level.WARNING, found, "export RALPHD_SOCKET=PATH  (a shorter one)")


def lock_holder(lock: Path) -> str | None:
    """The pid in the lock of the state directory, while somebody holds it; None while nobody does."""
    try:
        with lock.open("rb") as file:
            if not link.is_flocked(os.fstat(file.fileno()).st_ino):
                return None
            return file.read(64).decode(errors="replace").strip() or "unknown"
    except OSError:
        return None


def mirror(directory: Path) -> Sequence[Finding]:
    """``.ralph/`` of the working directory, where there is one."""
    name, place = ".ralph", directory / ".ralph"
    if not os.path.lexists(place):
        return []
    if place.is_symlink() or not place.is_dir():
        found = f"{place} is no directory; ralphd keeps its files for people there"
        return [Finding(name, Level.FAILED, found, f"mv {place} {place}.old")]
    about = place.stat()
    if about.st_uid != os.geteuid():
        found = f"{place} belongs to uid {about.st_uid}, you are uid {os.geteuid()}"
        return [Finding(name, Level.FAILED, found, f"sudo chown -R {os.geteuid()} {place}")]
    return [_mirrors_state(name, place, about.st_mode)]


def _mirrors_state(name: str, place: Path, mode: int) -> Finding:
    ignore = place / ".gitignore"
    if not _ignores_all(ignore):
        found = f"{ignore} does not keep git from what is beside it"
        return Finding(name, Level.WARNING, found, FIX, (IgnoreAll(ignore),))
    if mode & 0o077:
        found = f"others can look into {place} ({stat.S_IMODE(mode):04o})"
        return Finding(name, Level.WARNING, found, FIX, (SetMode(place, 0o700),))
    return Finding(name, Level.OK, f"{place}, kept out of git")


def _ignores_all(ignore: Path) -> bool:
    try:
        with ignore.open("rb") as file:
            return b"*" in file.read(4096).split()
    except OSError:
        return False
