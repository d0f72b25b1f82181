"""How much commits have changed, by git, in a bounded time and without a lock."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.time import rfc3339

LIMIT_S = 5.0
MOST_COMMITS = 2000
_LOG = ("log", "--no-walk=unsorted", "--stdin", "--numstat", "-z", "--format=", "--no-renames")
_PLAIN = ("--no-ext-diff", "--no-textconv", "--diff-merges=first-parent")


@dataclass(frozen=True, slots=True)
class Diffstat:
    """What ``commits`` of those asked for have changed; the others are not in the repository any more."""

    commits: int
    missing: int
    files: int
    added: int
    removed: int


def diffstat(directory: Path, commits: Sequence[str], *, limit_s: float = LIMIT_S) -> Diffstat | None:
    """The sum over ``commits``; None where git is not there, or does not answer in time."""
    from ralphd.git import repo

    deadline = time.monotonic() + limit_s
    asked = commits[-MOST_COMMITS:]
    answer = repo.answer(directory, "cat-file", "--batch-check", limit_s=limit_s, given=_lines(asked))
    if answer is None or answer[0] != 0:
        return None
    found = [words[0] for line in answer[1].decode(errors="replace").splitlines()
             if len(words := line.split()) == 3 and words[1] == "commit"]  # fmt: skip
    if not found:
        return Diffstat(0, len(commits), 0, 0, 0)
    left_s = max(deadline - time.monotonic(), 0.1)
    answer = repo.answer(directory, *_LOG, *_PLAIN, limit_s=left_s, given=_lines(found))
    if answer is None or answer[0] != 0:
        return None
    return _summed(answer[1], len(found), len(commits) - len(found))


def commits_between(directory: Path, first: str, last: str, *, limit_s: float = LIMIT_S) -> list[str] | None:
    """The commits that lead from one to the other, oldest first; None where that cannot be told."""
    return _listed(directory, f"{first}..{last}", limit_s=limit_s)


def commits_after(directory: Path, at: float, last: str, *, limit_s: float = LIMIT_S) -> list[str] | None:
    """The commits up to ``last`` that were made after a moment; git knows whole seconds alone."""
    return _listed(directory, f"--since={rfc3339(math.floor(at) + 1)}", last, limit_s=limit_s)


def _listed(directory: Path, *which: str, limit_s: float) -> list[str] | None:
    from ralphd.git import repo

    words = ("rev-list", "--reverse", "--abbrev-commit", f"--max-count={MOST_COMMITS}", *which)
    answer = repo.answer(directory, *words, "--", limit_s=limit_s)
    return None if answer is None or answer[0] != 0 else answer[1].decode(errors="replace").split()


def _lines(shas: Sequence[str]) -> bytes:
    return "".join(f"{sha}\n" for sha in shas).encode()


def _summed(printed: bytes, commits: int, missing: int) -> Diffstat:
    files: set[bytes] = set()
    added = removed = 0
    for record in printed.split(b"\0"):
        plus, _, rest = record.lstrip(b"\n").partition(b"\t")
        minus, tab, name = rest.partition(b"\t")
        if not tab:
            continue
        files.add(name)
        added += int(plus) if plus.isdigit() else 0  # of a binary file: a dash
        removed += int(minus) if minus.isdigit() else 0
    return Diffstat(commits, missing, len(files), added, removed)
