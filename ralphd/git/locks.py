"""Lock files that a git has left which was killed, and whether a git is still at work."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.git.diagnostics import lock_files
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner

LOCK_WAIT_S: Final = 3.0
_LOCK_LOOK_S: Final = 0.05
_PROC: Final = Path("/proc")


def removed_locks(
    repository: Repository, top: Path, *, ended_at: Moment
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove what is older than ``ended_at``, where no git works here: what was removed, and what was not.

    The caller has proved that the tree of processes which may have made them is empty.
    """
    locks = [lock for lock in lock_files(repository) if _is_older(lock, ended_at)]
    if not locks:
        return (), ()
    if busy := _git_at_work(repository, top):
        left = (f"{lock} is there, and git works here (process {busy}): it is left alone" for lock in locks)
        return (), tuple(left)
    return tuple(f"removed {lock}, which a killed git had left" for lock in locks if _is_removed(lock)), ()


def wait_for_lock(repository: Repository) -> None:
    """Wait a moment for the lock of the index: an editor looks at the status all day."""
    until = time.monotonic() + LOCK_WAIT_S
    while os.path.lexists(repository.git / "index.lock") and time.monotonic() < until:
        time.sleep(_LOCK_LOOK_S)


def remove_left_by_ours(calls: GitRunner) -> None:
    """Remove the lock of the index after a git of ours was killed; there was none before it."""
    lock = calls.repository.git / "index.lock"
    if lock.exists() and not _git_at_work(calls.repository, calls.top):
        _is_removed(lock)


def _is_older(lock: Path, moment: Moment) -> bool:
    try:
        found = lock.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime < moment


def _is_removed(lock: Path) -> bool:
    try:
        lock.unlink()
    except OSError:
        return False
    return True


def _git_at_work(repository: Repository, top: Path) -> int | None:
    """A git whose working directory is in a work tree or the repository, or is not to be known.

    In any of its work trees: they share branches, and the locks of these.
    """
    places = [str(place.resolve()) for place in (top, repository.git, *repository.work_trees())]
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if not (entry / "comm").read_text(errors="replace").startswith("git"):
                continue
            if (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX":
                continue
            if _works_in(entry, places):
                return int(entry.name)
    return None


def _works_in(entry: Path, places: list[str]) -> bool:
    try:
        place = str((entry / "cwd").readlink())
    except PermissionError:
        return True
    except OSError:
        return False  # it has ended
    return any(place == each or place.startswith(f"{each}/") for each in places)
