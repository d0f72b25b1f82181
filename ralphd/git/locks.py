"""Git's lock files: find them, wait for them, and remove those of a git that was killed.

A lock that a killed git has left stops every later commit. It is removed only if no running git could own it:
its processes have ended, it is older than their end, and no other git works in any of the work trees.
"""

import fcntl
import os
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.git.repo import Repository
from ralphd.plain_files import status_of

LOCK_WAIT_S: Final = 3.0
_MOST_LOCKS: Final = 1000
_OWN: Final = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "MERGE_HEAD.lock", "CHERRY_PICK_HEAD.lock")
_SHARED: Final = ("packed-refs.lock", "config.lock", "shallow.lock")


def lock_files(repository: Repository) -> list[Path]:
    """Return the locks of the index, of HEAD, of branches and other refs that exist."""
    git, common = repository.git, repository.common
    candidates = [*(git / name for name in _OWN), *(common / name for name in _SHARED)]
    candidates += islice(git.glob("next-index-*.lock"), _MOST_LOCKS)
    for refs in {git / "refs", common / "refs"}:
        below = (Path(folder) / name for folder, _, names in os.walk(refs) for name in names)
        candidates += islice((path for path in below if path.name.endswith(".lock")), _MOST_LOCKS)
    return sorted({lock for lock in candidates if lock.exists()})


def lock_message(lock: Path) -> str:
    """Return what a lock means to a person, and what to do."""
    return f"{lock} is there: a git is at work, or was killed. Remove it only when no git runs here"


def remove_stale_locks(repository: Repository, top: Path, *, ended_at: Moment) -> tuple[list[str], list[str]]:
    """Remove locks older than ``ended_at`` where no git runs: a line for each removed, and for each left.

    The caller has proved that the process tree which may have made them is empty.
    """
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        files = ((lock, status_of(lock)) for lock in lock_files(repository))
        made = {lock: status.st_mtime for lock, status in files if status and status.st_mtime < ended_at}
        pid = _running_git(repository, top, before=max(made.values())) if made else None
        if pid is None:
            return [f"removed {lock}, which a killed git had left" for lock in made if _is_removed(lock)], []
        if time.monotonic() >= until:
            why = f"git works here (process {pid}): it is left alone"
            return [], [f"{lock} is there, and {why}" for lock in made]
        time.sleep(0.05)


def take_lock(descriptor: int, limit_s: float) -> bool:
    """Lock an open file or folder against other processes. Return whether that was done within the limit."""
    until = time.monotonic() + limit_s
    while True:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)


def wait_for_lock(git_directory: Path) -> None:
    """Wait some seconds for the lock of the index: editors take it for a moment, all day long."""
    until = time.monotonic() + LOCK_WAIT_S
    while os.path.lexists(git_directory / "index.lock") and time.monotonic() < until:
        time.sleep(0.05)


def remove_own_lock(repository: Repository, top: Path) -> None:
    """Remove the lock of the index after a git of ours was killed; the caller has seen none before it."""
    lock = repository.git / "index.lock"
    if lock.exists() and not _running_git(repository, top):
        _is_removed(lock)


def _is_removed(lock: Path) -> bool:
    with suppress(OSError):
        lock.unlink()
        return True
    return False


def _running_git(repository: Repository, top: Path, *, before: Moment = float("inf")) -> int | None:
    """Return a git process in any of the work trees (they share branches and the locks of these).

    One whose directory is unknown counts, unless it was started a second or more after ``before``.
    """
    places = [str(path.resolve()) for path in (top, repository.git, *repository.work_trees())]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            name, _, rest = (process / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            fields = rest.split()
            if not name.startswith("git") or fields[0] in "ZX":
                continue
            try:
                directory = str((process / "cwd").readlink())
            except PermissionError:  # another user's, or outside of the sandbox that this process is in
                age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
                directory = places[0] if time.time() - age_s < before + 1 else ""
            if any(directory == each or directory.startswith(f"{each}/") for each in places):
                return int(process.name)
    return None
