"""What the machine gives: room, a local file system, a clock, open files, means to find a tree."""

from __future__ import annotations

import os
import pwd
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from ralphctl.local import units
from ralphctl.local.doctor.findings import Finding, Level
from ralphctl.local.doctor.homes import existing
from ralphctl.local.doctor.programs import ask
from ralphctl.words import duration
from ralphd.process import tree

LITTLE_BYTES, NO_BYTES = 1 << 30, 100 << 20
"""Below the first a night may end for want of room, below the second it will."""
LITTLE_INODES, NO_INODES = 20_000, 1_000
LITTLE_FILES, NO_FILES = 1024, 256
"""A ralph holds about ten descriptors of the daemon's; 100 of them are meant to fit."""
_FIRST_YEAR, _LAST_YEAR = 2025, 2100
_AHEAD_S = 60.0
_MOST_LOOKED_AT = 200
_NETWORK = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "beegfs",
        ),
        *("davfs", "ncpfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs"),
    )
)


def room(name: str, directory: Path) -> Sequence[Finding]:
    """Free bytes and inodes where ``directory`` is, or is to be."""
    disk = os.statvfs(existing(directory))
    inodes = disk.f_favail if disk.f_files else None  # file systems without a table of them say 0
    return [free(name, str(existing(directory)), disk.f_bavail * disk.f_frsize, inodes)]


def free(name: str, place: str, free_bytes: int, inodes: int | None) -> Finding:
    """Whether so much is enough."""
    told = f"{_size(free_bytes)} free" + (f", {inodes} inodes" if inodes is not None else "") + f" at {place}"
    if free_bytes < NO_BYTES or (inodes is not None and inodes < NO_INODES):
        return Finding(name, Level.FAILED, told, f"df -h {place}; df -i {place}  (and make room)")
    if free_bytes < LITTLE_BYTES or (inodes is not None and inodes < LITTLE_INODES):
        found = f"{told}: logs alone may take 2 GiB ([logs] total_bytes)"
        return Finding(name, Level.WARNING, found, f"df -h {place}; df -i {place}")
    return Finding(name, Level.OK, told)


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"


def file_system(state: Path) -> Sequence[Finding]:
    """Whether the state directory lies on a disk of this machine: locks and SQLite's WAL need one."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    return [on_network(mounted(text, existing(state).resolve()), state)]


def mounted(mountinfo: str, path: Path) -> str:
    """The kind of the file system that ``path`` is on, by ``/proc/self/mountinfo``; empty: not known."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(tree.unescaped(fields[4]))
        # The last one of the same place lies on top.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split(" ")[0]
    return kind


def on_network(kind: str, state: Path) -> Finding:
    """What that means."""
    name = "file system"
    if kind not in _NETWORK:
        return Finding(name, Level.OK, f"{kind or 'of a kind that is not known'}, for the state directory")
    found = f"the state directory {state} is on a network ({kind}): locks and SQLite do not hold there"
    return Finding(name, Level.WARNING, found, "export RALPHD_STATE_DIR=DIR  (one on a disk of this machine)")


def service(environ: Mapping[str, str], unit: Path, limit_s: float) -> Sequence[Finding]:
    """systemd, the unit of this user's, and whether it outlives the last session."""
    name = "service"
    has_systemd = Path("/run/systemd/system").is_dir()
    if not unit.exists():
        if not has_systemd:
            return [Finding(name, Level.OK, "no systemd here: after a reboot, ralphctl regent start")]
        found = "none: after a reboot nothing starts the daemon; ralphctl regent install changes that"
        return [Finding(name, Level.OK, found)]
    if not has_systemd:
        found = f"{unit} is there, and no systemd"
        return [Finding(name, Level.WARNING, found, f"rm {unit}, or boot with systemd")]
    text = unit.read_text(encoding="utf-8", errors="replace")
    edited = "" if units.is_as_written(text) else ", edited by hand"
    return [Finding(name, Level.OK, f"{unit}{edited}"), lingering(_lingers(environ, limit_s))]


def lingering(lingers: bool) -> Finding:
    """What linger means to who has a unit."""
    if lingers:
        return Finding("linger", Level.OK, "on: the service starts at boot and outlives your sessions")
    found = "off: your last logout ends the service and every run"
    return Finding("linger", Level.WARNING, found, "loginctl enable-linger")


def _lingers(environ: Mapping[str, str], limit_s: float) -> bool:
    user = pwd.getpwuid(os.getuid()).pw_name
    answer = ask(["loginctl", "show-user", user, "--property=Linger", "--value"], environ, limit_s)
    if answer is not None and answer.code == 0:
        return answer.text.strip() == "yes"
    # It knows nothing of a user who is not logged in; the file is where it keeps the answer.
    return Path("/var/lib/systemd/linger", user).exists()


def trees() -> Sequence[Finding]:
    """By which means the processes of a run are found (S7)."""
    name = "trees"
    if tree.start_ticks(os.getpid()) is None:
        found = "/proc tells nothing of processes: what a run leaves behind cannot be found"
        return [Finding(name, Level.FAILED, found, "mount -t proc proc /proc")]
    if tree.writable_cgroup() is not None:
        return [Finding(name, Level.OK, "a control group for each run, the strongest means")]
    found = "subreaper and cookie: no control group can be written from here"
    return [Finding(name, Level.OK, found)]


def clock(state: Path, environ: Mapping[str, str], limit_s: float) -> Sequence[Finding]:
    """Whether the wall clock can be right, and stays so."""
    now = time.time()
    if wrong := impossible(time.gmtime(now).tm_year, _ahead_s(state, now), _drift_s(now)):
        return [wrong]
    answer = ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"], environ, limit_s)
    synced = answer.text.strip() if answer is not None and answer.code == 0 else ""
    return [synchronised(synced, time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now)))]


def impossible(year: int, ahead_s: float, drift_s: float) -> Finding | None:
    """What is wrong with a clock in ``year``; None where nothing is.

    A file of ralphd's is ``ahead_s`` newer than now; since boot it has gone ``drift_s`` otherwise than the
    kernel says.
    """
    name, mend = "clock", "timedatectl set-ntp true, or sudo date -s TIME"
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return Finding(name, Level.FAILED, f"it is not {year}: limits would be waited for wrongly", mend)
    if ahead_s > _AHEAD_S:
        found = f"a file of ralphd's is {duration(ahead_s)} ahead of now: the clock was set back"
        return Finding(name, Level.WARNING, found, mend)
    if abs(drift_s) > _AHEAD_S:
        found = f"this process is told a time that is {duration(abs(drift_s))} off the kernel's"
        return Finding(name, Level.WARNING, found, "date; grep btime /proc/stat")
    return None


def synchronised(answer: str, now: str) -> Finding:
    """What ``timedatectl`` says of NTP: yes, no, or nothing."""
    if answer == "no":
        found = f"{now}, not synchronised by NTP"
        return Finding("clock", Level.WARNING, found, "timedatectl set-ntp true")
    return Finding("clock", Level.OK, now + (", synchronised" if answer == "yes" else ""))


def _ahead_s(state: Path, now: float) -> float:
    return max((found - now for found in _written_at(state)), default=0.0)


def _written_at(state: Path) -> Iterable[float]:
    files = [state / name for name in ("ralphd.log", "events.db", "lock")]
    files += islice((state / "ralphs").glob("*/regent-state.json"), _MOST_LOOKED_AT)
    for file in files:
        try:
            yield file.stat().st_mtime
        except OSError:
            continue


def _drift_s(now: float) -> float:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0
    booted = next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)
    return 0.0 if booted is None else now - tree.boot_s() - booted


def open_files() -> Sequence[Finding]:
    """How many files a daemon that is started here may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    name, found = "open files", f"{soft} at most"
    if soft == resource.RLIM_INFINITY or soft >= LITTLE_FILES:
        return [Finding(name, Level.OK, "without a limit" if soft == resource.RLIM_INFINITY else found)]
    level = Level.FAILED if soft < NO_FILES else Level.WARNING
    most = LITTLE_FILES if hard == resource.RLIM_INFINITY else min(hard, LITTLE_FILES)
    mend = f"ulimit -n {most}" if most > soft else "ask who runs the machine: the hard limit is as low"
    return [Finding(name, level, f"{found}: a daemon with many ralphs needs more", mend)]
