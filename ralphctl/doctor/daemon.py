"""Checks of the daemon, its files, and the machine it runs on."""

import json
import os
import resource
import shlex
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import psutil

from ralphctl.client import discovery, transport
from ralphctl.doctor.runner import FIX, CheckResult, Results, failed, ok, unknown, warning
from ralphctl.format.humanize import count
from ralphctl.offline import state as offline
from ralphctl.offline.processes import ask, lock_holder
from ralphd import __version__, wire
from ralphd.config.configuration import Configuration
from ralphd.config.values import toml_value
from ralphd.core.sandbox import BOX, choose, note_on
from ralphd.errors import DaemonNotRunning, Forbidden, RalphdError
from ralphd.plain_files import Descriptor
from ralphd.process import tree
from ralphd.process.machine import free_memory
from ralphd.process.sandbox.probe import facts_for
from ralphd.process.start_errors import LOWER_LEVEL
from ralphd.unix_http import UnixConnection

_ANOTHER_DISK = "export RALPHD_STATE_DIR=DIR  (a directory on a local disk)"
_LITTLE_BYTES, _NO_BYTES = 1 << 30, 100 << 20
"""Below the first a night may fail on a full disk, below the second it will."""
_LITTLE_FILES, _NO_FILES = 1024, 256
"""The daemon holds about ten descriptors per ralph; 100 ralphs should fit."""
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
    *("davfs", "ncpfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs"),
)


def daemon(socket: str | None, environ: Mapping[str, str], directory: str, limit_s: float) -> CheckResult:
    """Check the daemon that a command in ``directory`` would reach."""
    paths = discovery.candidates(socket, environ, directory)
    try:
        status = json.loads(transport.get(paths, "/status", timeout_s=limit_s))
        version, pid = str(status["version"]), int(status["daemon"]["pid"])
    except DaemonNotRunning:
        return _no_daemon(environ)
    except Forbidden as fault:
        return warning(fault.what, fault.mend)
    except RalphdError as fault:
        return failed("; ".join([fault.what, *fault.why.splitlines()]), fault.mend or "ralphctl regent logs")
    except (ValueError, KeyError, TypeError):
        return failed("the daemon sent a status that ralphctl cannot read", "ralphctl regent restart")
    faults = [] if version == __version__ else [f"the version of ralphctl is {__version__}"]
    faults += [str(each) for each in status["daemon"].get("problems", ())]
    if faults:
        advice = "ralphctl regent status\nralphctl regent restart  (the runs continue)"
        return warning(f"pid {pid}, ralphd {version}, is degraded: {'; '.join(faults)}", advice)
    return ok(f"pid {pid}, ralphd {version}, tracks processes by {status['daemon'].get('tree_means')}")


def _no_daemon(environ: Mapping[str, str]) -> CheckResult:
    if pid := lock_holder(Path(wire.state_directory(environ), "lock")):
        text = f"pid {pid} holds the lock of the state directory, but does not answer"
        return failed(text, f"ralphctl regent logs\nps -fp {pid}")
    if idle := [view["name"] for view in offline.registered_views(environ) if view["state"] == "starting"]:
        text = f"not running, and {count(len(idle), 'ralph')} should run: {', '.join(idle)}"
        return warning(text, "ralphctl regent start")
    return ok("not running; ralphctl start starts it")


def lock(state: Path) -> CheckResult:
    pid = lock_holder(state / "lock")
    return ok("not held" if pid is None else f"held by pid {pid}")


# --- files ------------------------------------------------------------------------------------------------


def working_directory(directory: Path) -> CheckResult:
    """Check that a ralph could work in this directory, and whether one does."""
    if not os.access(directory, os.W_OK | os.X_OK):
        return failed(f"{directory} is not writable: no ralph can work here", f"ls -ld {directory}")
    if not offline.is_flocked(directory.stat().st_ino):
        return ok(f"{directory}, no ralph is working here")
    socket = next(filter(None, map(discovery.lock_owner, offline.upward(str(directory)))), None)
    return ok(f"{directory}, a ralph is working here" + (f" (daemon: {socket})" if socket else ""))


def state_directory(state: Path) -> CheckResult:
    """Check place, owner and mode of the state directory."""
    if not os.path.lexists(state):
        above = next(each for each in state.parents if os.path.lexists(each))
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return ok(f"{state}, created at the first start")
        text = f"{state} does not exist, and {above} is not writable"
        return failed(text, "export RALPHD_STATE_DIR=DIR  (a directory that you can write to)")
    if not state.is_dir():
        return failed(f"{state} is not a directory", f"mv {state} {state}.old")
    if state.is_symlink():
        text = f"{state} is a symbolic link; ralphd does not follow it"
        return failed(text, f"export RALPHD_STATE_DIR={state.resolve()}")
    is_writable = os.access(state, os.W_OK | os.X_OK)
    unwritable = failed(f"{state} is not writable", f"chmod u+rwx {state}")
    return _access_fault(state) or (ok(f"{state}, private to you") if is_writable else unwritable)


def _access_fault(path: Path) -> CheckResult | None:
    about = path.lstat()
    if about.st_uid != os.geteuid():
        text = f"{path} belongs to uid {about.st_uid}, but you are uid {os.geteuid()}"
        return failed(text, f"sudo chown -R {os.geteuid()} {path}")
    text = f"other users can access {path} (mode {stat.S_IMODE(about.st_mode):04o})"
    return failed(text, FIX, lambda: set_mode(path)) if about.st_mode & 0o077 else None


def set_mode(path: Path) -> str:
    """Make a directory or socket of ours private. Raise OSError."""
    # O_PATH opens sockets too, follows no link, and what was checked is what is changed.
    with Descriptor(path, os.O_PATH | os.O_NOFOLLOW) as descriptor:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        mode = 0o700 if stat.S_ISDIR(about.st_mode) else 0o600
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    return f"chmod {mode:04o} {path}"


def socket(path: Path, lock: Path) -> CheckResult:
    """Check the socket as a file: private, and of a live daemon."""
    if not os.path.lexists(path):
        return ok(f"{path}, created when the daemon starts")
    about = path.lstat()
    if not stat.S_ISSOCK(about.st_mode):
        return failed(f"{path} is not a socket", f"mv {path} {path}.old")
    if about.st_uid not in (os.geteuid(), 0):
        text = f"{path} belongs to uid {about.st_uid}: another user's daemon"
        return failed(text, "unset RALPHD_SOCKET  (for a daemon of your own)")
    if lock_holder(lock) is None and _is_refused(path):
        text, inode = f"{path} is stale: no process listens on it", about.st_ino
        return warning(text, f"{FIX}, or ralphctl regent start", lambda: remove_socket(path, inode, lock))
    return (_access_fault(path) if about.st_uid == os.geteuid() else None) or ok(f"{path}, private to you")


def _is_refused(path: Path) -> bool:
    try:
        with closing(UnixConnection(str(path), 2.0)) as connection:
            connection.connect()
    except OSError as fault:
        return isinstance(fault, ConnectionRefusedError)
    return False


def remove_socket(path: Path, inode: int, lock: Path) -> str:
    """Remove a stale socket, if it is still the one with this inode. Raise OSError."""
    # Not under the daemon's lock: a daemon starting just now would take us for another daemon, and exit. If
    # its socket is removed nevertheless, it creates it again.
    if lock_holder(lock) is not None or path.lstat().st_ino != inode:
        raise BlockingIOError(f"a daemon has just started: {path}")
    path.unlink()
    return f"removed {path}"


def ralph_directory(directory: Path) -> Results:
    """Check ``.ralph/`` of the working directory, if there is one."""
    path = directory / ".ralph"
    if not os.path.lexists(path):
        return ()
    if path.is_symlink() or not path.is_dir():
        text = f"{path} is not a directory; ralphd needs it for its copies of state files"
        return failed(text, f"mv {path} {path}.old")
    ignore = path / ".gitignore"
    if b"*" not in (offline.read_bytes(ignore) or b"").split():
        text = f"{ignore} does not exclude this directory from git"
        return warning(text, f"echo '*' > {shlex.quote(str(ignore))}")
    return _access_fault(path) or ok(f"{path}, ignored by git")


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
        return failed(f"{version}, cannot write to {state}: {fault}", f"df -h {state}; ls -ld {state}")
    if mode != "wal":
        return failed(f"{version}, without a write-ahead log in {state}", _ANOTHER_DISK)
    return ok(f"{version}, with a write-ahead log")


def events(state: Path, *, limit_s: float) -> CheckResult:
    """Check that ``events.db`` is intact; a live daemon's is left alone."""
    path, lock = state / "events.db", state / "lock"
    if not path.exists():
        return ok("does not exist yet")
    if lock_holder(lock) is not None:
        return ok("in use by the daemon, which reports damage itself")
    deadline = time.monotonic() + limit_s
    try:
        # Read-only, but not immutable: what the last daemon wrote is still in the log.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=limit_s, uri=True)) as db:
            # Looks at the clock after so many instructions.
            db.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            report = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as fault:  # locked, interrupted, not to be opened: no word on its content
        return unknown(f"could not be read completely: {fault}")
    except (OSError, sqlite3.Error) as fault:
        report = str(fault)
    if lock_holder(lock) is not None:
        return unknown("a daemon started during the check")
    if report == "ok":
        return ok("intact")
    text = f"damaged: {report}; the next daemon keeps a copy and creates a new one"
    return failed(text, "ralphctl regent start")


# --- machine ----------------------------------------------------------------------------------------------


def python() -> CheckResult:
    return ok(f"{sys.version.split()[0]}, ralphctl {__version__}, {sys.executable}")


def disk(directory: Path) -> CheckResult:
    """Check the free bytes of the disk where ``directory`` is, or will be."""
    path = _existing(directory)
    return free_space(path, psutil.disk_usage(str(path)).free)


def free_space(path: Path, size: int) -> CheckResult:
    text, advice = f"{size / (1 << 30):.2f} GiB free at {path}", f"df -h {path}"
    if size < _NO_BYTES:
        return failed(text, f"{advice}  (then free some space)")
    if size < _LITTLE_BYTES:
        return warning(f"{text}: logs alone may take 2 GiB ([logs] total_bytes)", advice)
    return ok(text)


def _existing(path: Path) -> Path:
    return next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))


def file_system(state: Path) -> CheckResult:
    """Check that the state directory is on a local disk: locks and SQLite's WAL need one."""
    mounts = [(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    return network_mount(mount_type(mounts, _existing(state).resolve()), state)


def mount_type(mounts: Sequence[tuple[str, str]], path: Path) -> str:
    """Return the file system type of ``path`` by mount points and their types; empty if unknown."""
    above = [(len(Path(point).parts), kind) for point, kind in mounts if path.is_relative_to(point)]
    # Of several mounts on one directory the last is on top.
    return max(reversed(above), key=lambda mount: mount[0], default=(0, ""))[1]


def network_mount(kind: str, state: Path) -> CheckResult:
    if kind not in _NETWORK:
        return ok(f"{kind or 'unknown type'}, for the state directory")
    text = f"{state} is on a network file system ({kind}): locks and SQLite are unreliable there"
    return warning(text, _ANOTHER_DISK)


def service(unit: Path) -> Results:
    """Check that a service starts the daemon after a reboot, and outlives the last session."""
    if not Path("/run/systemd/system").is_dir():
        if unit.exists():
            return warning(f"{unit} exists, but systemd is not running", f"rm {unit}, or boot with systemd")
        return ok("systemd is not running; after a reboot: ralphctl regent start")
    if not unit.exists():
        return ok("none: the daemon does not start after a reboot (ralphctl regent install adds a service)")
    # Where systemd keeps the setting; loginctl knows only users who are logged in.
    return [ok(str(unit)), linger(Path("/var/lib/systemd/linger", psutil.Process().username()).exists())]


def linger(is_on: bool) -> CheckResult:
    on = ok("on: the service starts at boot and outlives your sessions", check="linger")
    text = "off: your last logout ends the service and every run"
    return on if is_on else warning(text, "loginctl enable-linger", check="linger")


def trees() -> CheckResult:
    """Check how the processes of a run are tracked."""
    if tree.start_ticks(os.getpid()) is None:
        text = "/proc shows no processes: leftover processes of a run cannot be found"
        return failed(text, "mount -t proc proc /proc")
    is_writable = tree.writable_cgroup() is not None
    return ok("tracked by a control group per run" if is_writable else "tracked by subreaper and cookie")


def limits(configuration: Configuration) -> CheckResult:
    """Check that the limits of runs are in effect, and that the next run need not wait."""
    found, enabled = configuration.run_limits(), tree.enabled_controllers()
    given = [f"{name} = {toml_value(value)}" for name, value in asdict(found).items() if value]
    controllers = ", ".join(sorted(enabled or ())) or "no controllers"
    group = "no control group" if enabled is None else f"control group with {controllers}"
    lacks = "no run can start" if enabled is None and found.require_cgroup else found.unavailable(enabled)
    trouble = lacks or found.why_wait(free_memory(), 0)
    text = "; ".join(filter(None, (", ".join(given), group, trouble)))
    return warning(text) if trouble else ok(text)


def sandbox(configuration: Configuration, environ: Mapping[str, str]) -> CheckResult:
    """Check which sandbox a run in this directory gets."""
    level = configuration.sandbox.level
    facts = facts_for(level, environ)
    choice = choose(level, facts)
    if choice.fault:
        return failed(f'level = "{level}" is not available: {choice.fault}', LOWER_LEVEL)
    if note := note_on(choice.level, choice.reason):
        return warning(note)
    if choice.level == "none":
        return ok('off, as level = "none" asks for')
    if choice.level == BOX:
        return ok("box: a run sees only its own processes, and writes only what is listed (bubblewrap)")
    more = " and change files only in its own directories" if choice.level == "write" else ""
    return ok(f"{choice.level}: a run can signal only its own processes{more} (Landlock ABI {facts.abi})")


def clock(environ: Mapping[str, str], limit_s: float) -> CheckResult:
    """Check that the clock is synchronised, if timedatectl knows it."""
    answer = ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"], environ, limit_s)
    if answer is None or answer.code != 0:
        return unknown("timedatectl does not report whether it is synchronised")
    if answer.text.strip() == "no":
        return warning("not synchronised by NTP", "timedatectl set-ntp true")
    return ok("synchronised")


def open_files() -> CheckResult:
    """Check how many files a daemon started from here may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _LITTLE_FILES:
        return ok("no limit" if soft == resource.RLIM_INFINITY else f"limit {soft}")
    most = _LITTLE_FILES if hard == resource.RLIM_INFINITY else min(hard, _LITTLE_FILES)
    advice = f"ulimit -n {most}" if most > soft else "ask your administrator: the hard limit is as low"
    text = f"limit {soft}: a daemon with many ralphs needs more"
    return (failed if soft < _NO_FILES else warning)(text, advice)
