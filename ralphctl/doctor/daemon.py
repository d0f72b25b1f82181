"""Checks of the daemon and its files: process, lock, state directory, socket, database, ``.ralph/``."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from ralphctl.client import discovery, transport
from ralphctl.doctor.result import FIX, CheckResult, Results, failed, ok, unknown, warning
from ralphctl.format.humanize import count
from ralphctl.offline import state as offline
from ralphd import __version__, wire
from ralphd.errors import DaemonNotRunning, Forbidden, RalphdError
from ralphd.unix_http import UnixConnection

_LOGS = "ralphctl regent logs"
_ADDRESS_BYTES = 107
_DATABASE_BYTES = 1 << 30
_PRIVATE_FILES = ("lock", "ralphd.log", "ralphd.log.1", "ralphd.log.2", "events.db", "webhooks.json")
_RALPH_FILES = ("ralph.json", "env", "regent-state.json", "history.jsonl")


def daemon(socket: str | None, environ: Mapping[str, str], directory: str, limit_s: float) -> CheckResult:
    """Check the daemon that a command in ``directory`` would reach."""
    paths = discovery.candidates(socket, environ, directory)
    try:
        status = json.loads(transport.request(paths, "GET", "/status", timeout_s=limit_s))
        version, pid = str(status["version"]), int(status["daemon"]["pid"])
    except DaemonNotRunning:
        return _no_daemon(environ)
    except Forbidden as fault:
        return warning(fault.what, fault.mend)
    except RalphdError as fault:
        return failed("; ".join([fault.what, *fault.why.splitlines()]), fault.mend or _LOGS)
    except (ValueError, KeyError, TypeError):
        return failed("what answers on the socket says 200, and not how it is", "ralphctl regent restart")
    if version != __version__:
        text = f"pid {pid} is ralphd {version}, and this is ralphctl {__version__}"
        return warning(text, "ralphctl regent restart  (the runs go on)")
    if problems := [str(each) for each in status["daemon"].get("problems", ())]:
        return warning(f"pid {pid} is degraded: {'; '.join(problems)}", "ralphctl regent status")
    means = status["daemon"].get("tree_means")
    return ok(f"pid {pid}, ralphd {version}, finds what belongs to a run by {means}")


def _no_daemon(environ: Mapping[str, str]) -> CheckResult:
    pid = lock_holder(Path(wire.state_directory(environ), "lock"))
    if pid is not None:
        text = f"pid {pid} has the lock of the state directory, and does not listen"
        return failed(text, f"{_LOGS}\nps -fp {pid}")
    if idle := [view["name"] for view in offline.registered_views(environ) if view["state"] == "starting"]:
        text = f"none runs, and {count(len(idle), 'ralph')} should: {', '.join(idle[:3])}"
        return warning(text, "ralphctl regent start")
    return ok("none runs; ralphctl start starts one")


def lock(state: Path) -> CheckResult:
    pid = lock_holder(state / "lock")
    return ok("held by nobody" if pid is None else f"held by pid {pid}")


def lock_holder(lock: Path) -> str | None:
    """Return the pid in the state directory's lock file, or None if nobody holds the lock."""
    with suppress(OSError), lock.open("rb") as file:
        if discovery.is_flocked(os.fstat(file.fileno()).st_ino):
            return file.read(64).decode(errors="replace").strip() or "unknown"
    return None


def working_directory(directory: Path) -> CheckResult:
    """Check that a ralph could work in this directory, and whether one does."""
    if not os.access(directory, os.W_OK | os.X_OK):
        return failed(f"{directory} cannot be written: no ralph can work here", f"ls -ld {directory}")
    if not discovery.is_flocked(directory.stat().st_ino):
        return ok(f"{directory}, where no ralph is at work")
    socket = discovery.lock_owner_above(str(directory))
    return ok(f"{directory} has a ralph at work" + (f", of the daemon at {socket}" if socket else ""))


def state_directory(state: Path) -> CheckResult:
    """Check place, owner and modes of the state directory, and the modes of files that may hold secrets."""
    if not os.path.lexists(state):
        above = next(each for each in state.parents if os.path.lexists(each))
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return ok(f"{state}, which the first start makes")
        why = "cannot be written" if above.is_dir() else "is no directory"
        text = f"{state} is not there, and cannot be made: {above} {why}"
        return failed(text, "export RALPHD_STATE_DIR=DIR  (one that you can write)")
    owner = state.stat().st_uid
    if not state.is_dir():
        return failed(f"{state} is no directory", f"mv {state} {state}.old")
    if state.is_symlink():
        text = f"{state} is a symbolic link, which ralphd does not follow"
        return failed(text, f"export RALPHD_STATE_DIR={state.resolve()}")
    if owner != os.geteuid():
        return _foreign(state, owner)
    if not os.access(state, os.W_OK | os.X_OK):
        return failed(f"{state} cannot be written", f"chmod u+rwx {state}")
    open_paths = [path for path in _private_paths(state) if _open_mode(path)]
    if not open_paths:
        return ok(f"{state}, yours alone")
    shown = ", ".join(f"{path} ({_open_mode(path):04o})" for path in open_paths[:3])
    more = f" and {len(open_paths) - 3} more" if len(open_paths) > 3 else ""
    repairs = tuple(partial(set_mode, path) for path in open_paths)
    return failed(f"others can look into {shown}{more}", FIX, repairs)


def _foreign(path: Path, owner: int) -> CheckResult:
    text = f"{path} belongs to uid {owner}, you are uid {os.geteuid()}"
    return failed(text, f"sudo chown -R {os.geteuid()} {path}")


def _private_paths(state: Path) -> Iterator[Path]:
    yield from (state, state / "ralphs", state / "build")
    yield from (state / name for name in _PRIVATE_FILES)
    for home in islice((state / "ralphs").glob("*"), 1000):
        yield from (home, *(home / name for name in _RALPH_FILES))


def _open_mode(path: Path) -> int:
    """Return the mode of what others have rights to; 0 for anything else."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(mode) or not mode & 0o077 else stat.S_IMODE(mode)


def set_mode(path: Path) -> str:
    """Make a file, directory or socket of ours private. Raise OSError."""
    # O_PATH opens sockets too, follows no link, and what was checked is what is changed.
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not ours")
        mode = 0o700 if stat.S_ISDIR(about.st_mode) else 0o600
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)
    return f"chmod {mode:04o} {path}"


def socket(path: Path, lock: Path) -> CheckResult:
    """Check the socket as a file: private, of a live daemon, and at a path short enough for every client."""
    text = f"{path}, which a daemon makes"
    if os.path.lexists(path):
        about, text = path.lstat(), f"{path}, yours alone"
        if not stat.S_ISSOCK(about.st_mode):
            return failed(f"{path} is no socket", f"mv {path} {path}.old")
        if about.st_uid not in (os.geteuid(), 0):
            text = f"{path} belongs to uid {about.st_uid}: it is another user's daemon"
            return failed(text, "unset RALPHD_SOCKET  (for a daemon of your own)")
        if lock_holder(lock) is None and _is_refused(path):
            remove = partial(remove_socket, path, about.st_ino, lock)
            text = f"{path} was left behind: nobody listens there"
            return warning(text, f"{FIX}, or ralphctl regent start", (remove,))
        if about.st_uid == os.geteuid() and (mode := _open_mode(path)):
            return failed(f"others can speak to {path} ({mode:04o})", FIX, (partial(set_mode, path),))
    if len(os.fsencode(path)) <= _ADDRESS_BYTES:
        return ok(text)
    text = f"{path} is longer than {_ADDRESS_BYTES} bytes: curl and the like cannot use it"
    return warning(text, "export RALPHD_SOCKET=PATH  (a shorter one)")


def _is_refused(path: Path) -> bool:
    connection = UnixConnection(str(path), 2.0)
    try:
        connection.connect()
    except OSError as fault:
        return fault.errno == errno.ECONNREFUSED
    connection.close()
    return False


def remove_socket(path: Path, inode: int, lock: Path) -> str:
    """Remove a stale socket, if it is still the one with this inode. Raise OSError."""
    # Not under the daemon's lock: a daemon starting just now would take us for another daemon, and exit. If
    # its socket is removed nevertheless, it creates it again.
    if lock.exists() and discovery.is_flocked(lock.stat().st_ino):
        raise BlockingIOError(f"a ralphd has started meanwhile: {lock}")
    if path.lstat().st_ino != inode:
        raise BlockingIOError(f"{path} is another one meanwhile")
    path.unlink()
    return f"removed {path}"


def ralph_directory(directory: Path) -> Results:
    """Check ``.ralph/`` of the working directory, if there is one."""
    path = directory / ".ralph"
    if not os.path.lexists(path):
        return ()
    if path.is_symlink() or not path.is_dir():
        text = f"{path} is no directory; ralphd keeps its files for people there"
        return failed(text, f"mv {path} {path}.old")
    if (owner := path.stat().st_uid) != os.geteuid():
        return _foreign(path, owner)
    ignore, words = path / ".gitignore", list[bytes]()
    with suppress(OSError), ignore.open("rb") as file:
        words = file.read(4096).split()
    if b"*" not in words:
        text = f"{ignore} does not keep git from what is beside it"
        return warning(text, f"echo '*' > {shlex.quote(str(ignore))}")
    if mode := _open_mode(path):
        return warning(f"others can look into {path} ({mode:04o})", FIX, (partial(set_mode, path),))
    return ok(f"{path}, kept out of git")


def sqlite(state: Path) -> CheckResult:
    """Check that a database with a write-ahead log works in the state directory."""
    version = sqlite3.sqlite_version
    if not state.is_dir():
        return ok(version)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".doctor-", dir=state) as folder,
            closing(sqlite3.connect(Path(folder, "trial.db"), isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            connection.execute("CREATE TABLE trial AS SELECT 1 AS id")
    except (OSError, sqlite3.Error) as fault:
        return failed(f"{version}, which cannot write in {state}: {fault}", f"df -h {state}; ls -ld {state}")
    if mode == "wal":
        return ok(f"{version}, with a write-ahead log")
    text = f"{version}, without a write-ahead log in {state} (it is {mode} there)"
    return failed(text, "export RALPHD_STATE_DIR=DIR  (one on a disk of this machine)")


def events(state: Path, *, limit_s: float) -> CheckResult:
    """Check that ``events.db`` is intact, as far as ``limit_s`` seconds allow.

    A second connection could damage a database in use, so a live daemon's file is left alone.
    """
    path, lock = state / "events.db", state / "lock"
    if not path.exists():
        return ok("not there yet")
    if lock_holder(lock) is not None:
        return ok("in use by the daemon, which tells of damage by itself")
    try:
        report = _quick_check(path, time.monotonic() + limit_s)
    except TimeoutError as why:
        return unknown(str(why))
    except (OSError, sqlite3.Error) as fault:
        report = str(fault)
    if lock_holder(lock) is not None:
        return unknown("a daemon has started while it was looked at")
    if report == "ok":
        return ok("whole")
    text = f"damaged: {report}; the daemon keeps a copy of it and goes on with a new one"
    return failed(text, "ralphctl regent start")


def _quick_check(path: Path, deadline: float) -> str:
    """Return SQLite's report on a database: ``ok``, or what is wrong. Raise OSError, sqlite3.Error."""
    log = path.with_name(f"{path.name}-wal")
    with ExitStack() as stack:
        address = f"file:{quote(str(path))}?mode=ro&immutable=1"
        if log.exists() and log.stat().st_size > 0:
            if path.stat().st_size + log.stat().st_size > _DATABASE_BYTES:
                raise TimeoutError("it is too large to be looked at; a daemon looks when it opens it")
            # The last daemon's writes are in the log, and reading a log writes to the database: copy both.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ralphd-doctor-"))
            for file in (log, path):  # the database last: its copy is opened
                address = f"file:{quote(shutil.copyfile(file, f'{folder}/{file.name}'))}"
        connection = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.OperationalError as fault:
            if time.monotonic() > deadline:
                raise TimeoutError("it is large, and was not looked at to its end") from fault
            raise
