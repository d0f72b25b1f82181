"""What stands in the way in a repository, in words for whoever works there next."""

from pathlib import Path
from typing import Final

from ralphd.git import repo
from ralphd.git.repo import Repository

_LIMIT_S: Final = 2.0
_MOST_NAMES: Final = 10
_BISECT: Final = "a bisect is under way: git bisect reset ends it"
_UNDER_WAY: Final = (
    (("rebase-merge", "rebase-apply/rebasing"), "a rebase", "git rebase --continue, or --abort"),
    (("rebase-apply/applying",), "git am", "git am --continue, or --abort"),
    (("MERGE_HEAD",), "a merge", "git merge --continue, or --abort"),
    (("CHERRY_PICK_HEAD",), "a cherry-pick", "git cherry-pick --continue, or --abort"),
    (("REVERT_HEAD",), "a revert", "git revert --continue, or --abort"),
)


def present_trouble(directory: Path) -> tuple[str, ...]:
    """A line each for a lock that is there, something half done, unmerged files, a detached HEAD.

    Empty where all is well, and outside of a repository. Blocks for one bounded call of git.
    """
    repository = Repository.find(directory)
    if repository is None:
        return ()
    under_way = half_done(directory)
    found = [_lock(repository.git), *under_way, _unmerged(directory)]
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
    git = repository.git
    found = (
        f"{what} is half done: {how}"
        for names, what, how in _UNDER_WAY
        if any((git / name).exists() for name in names)
    )
    first = next(found, None)
    return tuple(line for line in (first, _BISECT if (git / "BISECT_LOG").exists() else None) if line)


def _lock(git: Path) -> str:
    lock = git / "index.lock"
    if not lock.exists():
        return ""
    return f"{lock} is there: a git is at work, or was killed. Remove it only when no git runs here"


def _unmerged(directory: Path) -> str:
    _, printed = repo.answer(directory, "ls-files", "--unmerged", "-z", limit_s=_LIMIT_S) or (1, b"")
    names = sorted({entry.partition(b"\t")[2] for entry in printed.split(b"\0") if entry})
    shown = ", ".join(name.decode(errors="replace") for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"files with conflicts: {shown}{more}" if names else ""


def _detached(git: Path) -> str:
    try:
        text = (git / "HEAD").read_text(errors="replace")
    except OSError:
        return ""
    if text.startswith("ref:"):
        return ""
    return f"HEAD is detached at {text[:7]}: what is committed here belongs to no branch (git switch BRANCH)"
