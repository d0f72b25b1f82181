"""Checks of the machine: Python, disks, file system, service, process tracking, open files and clock."""

from __future__ import annotations

import os
import platform
import pwd
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path

import psutil

from ralphctl.doctor.result import CheckResult, Results, failed, ok, warning
from ralphctl.doctor.runner import ask
from ralphctl.format.humanize import duration
from ralphctl.service import units
from ralphd import __version__
from ralphd.process import tree

LITTLE_BYTES, NO_BYTES = 1 << 30, 100 << 20
"""Below the first a night may fail on a full disk, below the second it will."""
LITTLE_INODES, NO_INODES = 20_000, 1_000
LITTLE_FILES, NO_FILES = 1024, 256
"""The daemon holds about ten descriptors per ralph; 100 ralphs should fit."""
_YEARS = range(2025, 2101)
_CLOCK_ERROR_S = 60.0
_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "davfs", "ncpfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs",
)  # fmt: skip


def python() -> CheckResult:
    return ok(f"{platform.python_version()}, ralphctl {__version__}, {sys.executable}")


def disk(directory: Path) -> CheckResult:
    """Check the free bytes and inodes of the disk where ``directory`` is, or will be."""
    path = _existing(directory)
    disk = os.statvfs(path)
    # File systems without an inode table report a table of length 0.
    return free_space(path, disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None)


def free_space(path: Path, size: int, inodes: int | None) -> CheckResult:
    free = f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
    text = f"{free} free" + (f", {inodes} inodes" if inodes is not None else "") + f" at {path}"
    advice, left = f"df -h {path}; df -i {path}", LITTLE_INODES if inodes is None else inodes
    if size < NO_BYTES or left < NO_INODES:
        return failed(text, f"{advice}  (and make room)")
    if size < LITTLE_BYTES or left < LITTLE_INODES:
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
    return max(reversed(above), key=itemgetter(0), default=(0, ""))[1]


def network_mount(kind: str, state: Path) -> CheckResult:
    if kind not in _NETWORK:
        return ok(f"{kind or 'of a kind that is not known'}, for the state directory")
    text = f"the state directory {state} is on a network ({kind}): locks and SQLite do not hold there"
    return warning(text, "export RALPHD_STATE_DIR=DIR  (one on a disk of this machine)")


def service(unit: Path, environ: Mapping[str, str], limit_s: float) -> Results:
    """Check that a service starts the daemon after a reboot, and outlives the last session."""
    if not Path("/run/systemd/system").is_dir():
        if unit.exists():
            return warning(f"{unit} is there, and no systemd", f"rm {unit}, or boot with systemd")
        return ok("no systemd here: after a reboot, ralphctl regent start")
    if not unit.exists():
        return ok("none: after a reboot nothing starts the daemon; ralphctl regent install changes that")
    edited = "" if units.is_as_written(unit.read_text(errors="replace")) else ", edited by hand"
    user = pwd.getpwuid(os.getuid()).pw_name
    answer = ask(["loginctl", "show-user", user, "--property=Linger", "--value"], environ, limit_s)
    # loginctl knows only users who are logged in; the file is where systemd keeps the setting.
    stored = Path("/var/lib/systemd/linger", user).exists()
    is_on = answer.text.strip() == "yes" if answer is not None and answer.code == 0 else stored
    return [ok(f"{unit}{edited}"), linger(is_on)]


def linger(is_on: bool) -> CheckResult:
    if is_on:
        return ok("on: the service starts at boot and outlives your sessions", check="linger")
    text = "off: your last logout ends the service and every run"
    return warning(text, "loginctl enable-linger", check="linger")


def trees() -> CheckResult:
    """Check by which means the processes of a run are found."""
    if tree.start_ticks(os.getpid()) is None:
        text = "/proc tells nothing of processes: what a run leaves behind cannot be found"
        return failed(text, "mount -t proc proc /proc")
    if tree.writable_cgroup() is not None:
        return ok("a control group for each run, the strongest means")
    return ok("subreaper and cookie: no control group can be written from here")


def clock(state: Path, environ: Mapping[str, str], limit_s: float) -> CheckResult:
    """Check that the wall clock can be right, and is synchronised."""
    now = newest = time.time()
    files = [state / name for name in ("ralphd.log", "events.db", "lock")]
    for file in (*files, *islice((state / "ralphs").glob("*/regent-state.json"), 200)):
        with suppress(OSError):
            newest = max(newest, file.stat().st_mtime)
    answer = ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"], environ, limit_s)
    synchronised = answer.text.strip() if answer is not None and answer.code == 0 else ""
    return clock_result(now, newest - now, now - tree.boot_s() - psutil.boot_time(), synchronised)


def clock_result(now: float, ahead_s: float, drift_s: float, synchronised: str) -> CheckResult:
    """Judge a clock: ``ahead_s`` is how much newer than now a file of ralphd's is, ``drift_s`` how far the
    clock is off the kernel's count since boot, ``synchronised`` the answer of timedatectl, or nothing."""
    year, local = time.gmtime(now).tm_year, time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    advice = "timedatectl set-ntp true, or sudo date -s TIME"
    if year not in _YEARS:
        return failed(f"it is not {year}: limits would be waited for wrongly", advice)
    if ahead_s > _CLOCK_ERROR_S:
        text = f"a file of ralphd's is {duration(ahead_s)} ahead of now: the clock was set back"
        return warning(text, advice)
    if abs(drift_s) > _CLOCK_ERROR_S:
        text = f"this process is told a time that is {duration(abs(drift_s))} off the kernel's"
        return warning(text, "date; grep btime /proc/stat")
    if synchronised == "no":
        return warning(f"{local}, not synchronised by NTP", "timedatectl set-ntp true")
    return ok(local + (", synchronised" if synchronised == "yes" else ""))


def open_files() -> CheckResult:
    """Check how many files a daemon started from here may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LITTLE_FILES:
        return ok("without a limit" if soft == resource.RLIM_INFINITY else f"{soft} at most")
    reachable = LITTLE_FILES if hard == resource.RLIM_INFINITY else min(hard, LITTLE_FILES)
    advice = (
        f"ulimit -n {reachable}" if reachable > soft else "ask who runs the machine: the hard limit is as low"
    )
    text = f"{soft} at most: a daemon with many ralphs needs more"
    return failed(text, advice) if soft < NO_FILES else warning(text, advice)
