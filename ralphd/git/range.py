"""The commits between two heads: what an iteration has made of the branch."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.git import repo

MOST_NAMED: Final = 50
MOST_COUNTED: Final = 10_000
_SUBJECT_CHARS: Final = 200
_SHA: Final = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as people speak of it: a short sha and the first line of its message."""

    sha: str
    subject: str


@dataclass(frozen=True, slots=True)
class Made:
    """The commits that are in one head and not in another: the newest 50, newest first, and how many in all.

    More than 10 000 count as 10 000.
    """

    commits: tuple[Commit, ...] = ()
    count: int = 0


def present_head(directory: Path) -> str | None:
    """The full sha of HEAD; None without a commit or a repository, or when git does not tell in time."""
    answer = repo.answer(directory, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    text = "" if answer is None or answer[0] != 0 else answer[1].decode(errors="replace").strip()
    return text if _SHA.fullmatch(text) else None


def made(directory: Path, before: str | None, after: str | None) -> Made:
    """What ``after`` has and ``before`` has not; all of it where ``before`` is None.

    Nothing where they are the same, ``after`` is None, or git does not know one of them.
    """
    if after is None or before == after:
        return Made()
    if not all(_SHA.fullmatch(sha) for sha in (before or after, after)):
        return Made()
    heads = [after] if before is None else [after, f"^{before}"]
    listed = repo.answer(
        directory,
        *("log", "-z", "--format=%h%x09%s", "--no-show-signature", "--encoding=UTF-8", "--no-color"),
        *(f"--max-count={MOST_NAMED}", *heads, "--"),
    )
    if listed is None or listed[0] != 0:
        return Made()
    entries = [entry for entry in listed[1].decode(errors="replace").split("\0") if entry]
    commits = tuple(
        Commit(sha, said[:_SUBJECT_CHARS]) for sha, _, said in (e.partition("\t") for e in entries)
    )
    return Made(commits, len(commits) if len(commits) < MOST_NAMED else _counted(directory, heads))


def _counted(directory: Path, heads: list[str]) -> int:
    counted = repo.answer(directory, "rev-list", "--count", f"--max-count={MOST_COUNTED}", *heads, "--")
    return int(counted[1]) if counted is not None and counted[0] == 0 else MOST_NAMED
