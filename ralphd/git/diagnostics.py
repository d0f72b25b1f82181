"""What stands in the way in a repository, in words for whoever works there next."""

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.git import repo
from ralphd.git.repo import Repository

_LIMIT_S: Final = 2.0
_MOST_NAMES: Final = 10
_MOST_LOCKS: Final = 1000
_OWN: Final = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "MERGE_HEAD.lock", "CHERRY_PICK_HEAD.lock")
_SHARED: Final = ("packed-refs.lock", "config.lock", "shallow.lock")
_BISECT: Final = "a bisect is under way: git bisect reset ends it"
_UNDER_WAY: Final = (
    (("rebase-merge", "rebase-apply/rebasing"), "a rebase", "rebase"),
    (("rebase-apply/applying",), "git am", "am"),
    (("MERGE_HEAD",), "a merge", "merge"),
    (("CHERRY_PICK_HEAD",), "a cherry-pick", "cherry-pick"),
    (("REVERT_HEAD",), "a revert", "revert"),
)


def present_trouble(directory: Path) -> tuple[str, ...]:
    """A line each for a lock that is there, something half done, a detached HEAD, unmerged files.

    Empty where all is well, and outside of a repository. Blocks for one bounded call of git.
    """
    if Repository.find(directory) is None:
        return ()
    unmerged = _unmerged(directory)
    return (*in_the_way(directory), *([unmerged] if unmerged else []))


def in_the_way(directory: Path) -> tuple[str, ...]:
    """The same without the unmerged files: from files alone, without starting git."""
    repository = Repository.find(directory)
    if repository is None:
        return ()
    under_way = half_done(directory)
    found = [_lock(repository.git), *under_way]
    if not under_way:
        found.append(_detached(repository.git))
    return tuple(line for line in found if line)


def half_done(directory: Path) -> tuple[str, ...]:
    """A line about a rebase, merge or the like that waits to be ended, one about a bisect; from files alone.

    A rebase that stops uses the files of a cherry-pick too: the first that fits is what a person began.
    """
    repository = Repository.find(directory)
    if repository is None:
        return ()
    found = tuple(
        f"{what} is half done: git {verb} --continue, or --abort" for what, verb in _begun(repository)
    )
    return (*found, *([_BISECT] if (repository.git / "BISECT_LOG").exists() else []))


def ways_back(directory: Path) -> tuple[tuple[str, str], ...]:
    """The words for git that end each of these as if it had not been begun."""
    repository = Repository.find(directory)
    if repository is None:
        return ()
    found = tuple((verb, "--abort") for _, verb in _begun(repository))
    return (*found, *([("bisect", "reset")] if (repository.git / "BISECT_LOG").exists() else []))


def is_older(directory: Path, moment: Moment) -> bool:
    """Whether what is half done here was begun before that: its oldest file is older. From files alone."""
    repository = Repository.find(directory)
    if repository is None:
        return False
    names = (*chain(*(names for names, _, _ in _UNDER_WAY)), "rebase-apply", "sequencer", "BISECT_LOG")
    found = [place for name in names for place in (repository.git / name, *(repository.git / name).glob("*"))]
    return any(os.path.lexists(place) and place.lstat().st_mtime < moment for place in found)


def _begun(repository: Repository) -> tuple[tuple[str, str], ...]:
    """What was begun, in words, and the verb for git; one at most, since a rebase uses others' files."""
    found = (
        (what, verb)
        for names, what, verb in _UNDER_WAY
        if any((repository.git / name).exists() for name in names)
    )
    return tuple(islice(found, 1))


def lock_files(repository: Repository) -> list[Path]:
    """The locks of git that are there now: of the index, of HEAD, of branches and other refs."""
    git, common = repository.git, repository.common
    found = [*(git / name for name in _OWN), *(common / name for name in _SHARED)]
    found += islice(git.glob("next-index-*.lock"), _MOST_LOCKS)
    for refs in {git / "refs", common / "refs"}:
        found += islice(_below(refs), _MOST_LOCKS)
    return sorted({lock for lock in found if lock.exists()})


def has_locks(directory: Path) -> bool:
    """Whether any of these is there, in the repository around a directory."""
    repository = Repository.find(directory)
    return repository is not None and bool(lock_files(repository))


def _below(refs: Path) -> Iterator[Path]:
    return (
        Path(place) / name for place, _, names in os.walk(refs) for name in names if name.endswith(".lock")
    )


def locked(lock: Path) -> str:
    """What a lock means to whoever is kept out by it, and what to do."""
    return f"{lock} is there: a git is at work, or was killed. Remove it only when no git runs here"


def _lock(git: Path) -> str:
    lock = git / "index.lock"
    return locked(lock) if lock.exists() else ""


def _unmerged(directory: Path) -> str:
    _, printed = repo.answer(directory, "ls-files", "--unmerged", "-z", limit_s=_LIMIT_S) or (1, b"")
    names = sorted({entry.partition(b"\t")[2] for entry in printed.split(b"\0") if entry})
    shown = ", ".join(name.decode(errors="replace") for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"files with conflicts: {shown}{more}" if names else ""


def _detached(git: Path) -> str:
    head = git / "HEAD"
    try:
        text = head.read_text(errors="replace")
    except OSError:
        return ""
    if text.startswith("ref:") or head.is_symlink():  # a link to its branch, as git once made it
        return ""
    return f"HEAD is detached at {text[:7]}: what is committed here belongs to no branch (git switch BRANCH)"
