"""Where a repository stands, and what an iteration has made of it: the facts of a boundary (R1, R2, R8)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.core.boundary import Boundary, JudgedCommit, Position
from ralphd.git import repo
from ralphd.git.calls import Calls, NotDone, readable, shown
from ralphd.git.entries import Sides, entry_of, staged_at
from ralphd.git.locks import wait_for_lock
from ralphd.git.origins import RangeCommit, pulled
from ralphd.git.repo import Repository
from ralphd.git.trouble import in_the_way

MOST_COMMITS: Final = 1000
"""How many commits of a range are named; a longer one is not judged."""
MOST_DIRTY: Final = 1000
LIMIT_S: Final = 20.0
_SUBJECT_CHARS: Final = 200
_SHA: Final = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Tracked files that differ from HEAD, staged or not, and among them those with conflicts.

    ``entries``: what HEAD and the index have there, of those without conflicts.
    """

    entries: Mapping[bytes, Sides]
    unmerged: tuple[bytes, ...]

    @property
    def names(self) -> tuple[bytes, ...]:
        """All of them."""
        return (*self.entries, *self.unmerged)


def position(directory: Path) -> Position:
    """The full sha of HEAD, None before the first commit; its branch, None when detached.

    The branch is without ``refs/heads/``. Both are None outside of a repository, and where git does
    not tell in time. Blocks for 10 s at most, mostly for two reads of a file.
    """
    repository = Repository.find(directory)
    if (found := repository.standing() if repository is not None else None) is not None:
        ref, sha = found
        return Position(sha, _short(ref.encode(errors="surrogateescape").decode(errors="replace")))
    words = ("rev-parse", "--revs-only", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    code, printed = repo.answer(directory, *words) or (1, b"")
    sha, _, ref = printed.removesuffix(b"\n").decode(errors="replace").partition("\n")
    if code == 0 and _SHA.fullmatch(sha):
        return Position(sha, _short(ref))
    code, printed = repo.answer(directory, "symbolic-ref", "--quiet", "HEAD") or (1, b"")
    return Position(None, _short(printed.removesuffix(b"\n").decode(errors="replace")))


def _short(ref: str) -> str | None:
    return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None


def boundary(directory: Path, before: Position, *, limit_s: float = LIMIT_S) -> Boundary:
    """What came since ``before``, and what stands in the way.

    The commits are those from HEAD along first parents to the first that ``before`` has. ``descends`` is
    whether that line leads to ``before`` itself: where it was merged into something else, reverting that
    merge would take away what was there before. What git cannot tell in time is a trouble too. Waits some
    seconds for a lock; takes none, changes nothing.
    """
    now = position(directory)
    if (now.head, now.branch) == (before.head, before.branch):
        return Boundary(before, now)
    if now == Position(None, None):
        return Boundary(
            before, now, False, trouble=f"git does not tell where HEAD is: git -C {directory} status"
        )
    try:
        calls = Calls(directory, limit_s=limit_s)
        commits = _range(calls, before.head, now.head)
        told, is_whole = commits[:MOST_COMMITS], len(commits) <= MOST_COMMITS
        uncommitted_ = uncommitted(calls)
        judged = _judged(calls, told, before.head)
        trouble = trouble_of(directory, uncommitted_.unmerged)
    except NotDone as why:
        return Boundary(before, now, trouble=str(why))
    if not is_whole and not any(commit.pulled for commit in judged):
        trouble = trouble or f"more than {MOST_COMMITS} commits came in one iteration: nothing is judged"
    descends = not is_whole or (bool(told) and told[-1].parents[:1] == (before.head,))
    dirty = tuple(readable(name) for name in uncommitted_.names[:MOST_DIRTY])
    return Boundary(before, now, descends, judged, trouble, dirty)


@dataclass(frozen=True, slots=True)
class _Listed(RangeCommit):
    subject: str


def _range(calls: Calls, before: str | None, now: str | None) -> tuple[_Listed, ...]:
    """One more than are told at most, by which it is seen that there are more."""
    if now is None or (before is not None and not _SHA.fullmatch(before)):
        return ()
    code, printed = calls.call(
        *("log", "-z", "--first-parent", "--format=%H %P%x09%s", "--no-show-signature", "--no-color"),
        *("--encoding=UTF-8", "--no-notes", f"--max-count={MOST_COMMITS + 1}"),
        *(now, *([f"^{before}"] if before else []), "--"),
    )
    if code != 0 and before and calls.call("cat-file", "-e", f"{before}^{{commit}}")[0] != 0:
        return ()  # what was there before is gone: nothing can descend from it
    if code != 0:
        raise NotDone(f"git log ended with {code}; try it: git -C {calls.directory} log")
    found = []
    for entry in printed.decode(errors="replace").split("\0"):
        shas, _, subject = entry.partition("\t")
        if shas:
            sha, *parents = shas.split()
            found.append(_Listed(sha, tuple(parents), subject[:_SUBJECT_CHARS]))
    return tuple(found)


def _judged(calls: Calls, commits: tuple[_Listed, ...], before: str | None) -> tuple[JudgedCommit, ...]:
    if not commits:
        return ()
    came = pulled(calls, commits, before=before)
    new = _not_in_upstream(calls, commits[0].sha, before)
    return tuple(
        JudgedCommit(each.sha, each.subject, each.sha in came, new is not None and each.sha not in new)
        for each in commits
    )


def branch_ref(calls: Calls) -> str | None:
    """The branch that HEAD is on, a ref in full; None when it is detached."""
    found = calls.repository.standing()
    return found[0] if found is not None else calls.looked_up("symbolic-ref", "--quiet", "HEAD")


def _not_in_upstream(calls: Calls, now: str, before: str | None) -> frozenset[str] | None:
    """Those of the line that the upstream has not, as of the last fetch or push; None without an upstream."""
    branch = branch_ref(calls)
    if branch is None:
        return None
    tracking = calls.looked_up("for-each-ref", "--format=%(upstream)", branch)
    if tracking is None or not tracking.startswith("refs/remotes/"):
        return None
    without = [f"^{tracking}", *([f"^{before}"] if before else [])]
    code, printed = calls.call("rev-list", "--first-parent", f"--max-count={MOST_COMMITS}", now, *without)
    return None if code else frozenset(printed.decode().split())


def uncommitted(calls: Calls) -> Uncommitted:
    """Tracked files with changes, submodules at another commit included. Raises NotDone."""
    words = ("--porcelain=v2", "-z", "-uno", "--no-renames", "--ignore-submodules=dirty")
    entries: dict[bytes, Sides] = {}
    unmerged, to_add = [], []
    for line in calls.printed("status", *words).split(b"\0"):
        if line.startswith(b"u "):  # u XY sub m1 m2 m3 mW h1 h2 h3 path
            unmerged.append(line.split(b" ", 10)[10])
        elif line.startswith(b"1 "):  # 1 XY sub mH mI mW hH hI path
            _, flags, _, in_head, in_index, _, head, index, path = line.split(b" ", 8)
            entries[path] = Sides(entry_of(in_head, head), entry_of(in_index, index))
            to_add += [path] if flags.endswith(b"A") else []
    for path, staged in staged_at(calls, to_add).items():  # git add -N: status does not tell what is staged
        entries[path] = Sides(entries[path].committed, staged)
    return Uncommitted(entries, tuple(unmerged))


def unmerged(calls: Calls) -> tuple[bytes, ...]:
    """Files with conflicts, as the index has them. Raises NotDone."""
    lines = calls.printed("ls-files", "--unmerged", "-z").split(b"\0")
    return tuple(sorted({line.partition(b"\t")[2] for line in lines if line}))


def trouble_of(directory: Path, unmerged: Collection[bytes]) -> str:
    """What stands in the way of any change to the work tree, in words; empty: nothing (R8)."""
    lines = list(in_the_way(directory))
    repository = Repository.find(directory)
    if repository is not None and lines and "index.lock" in lines[0]:
        wait_for_lock(repository)
        lines = list(in_the_way(directory))
    if unmerged:
        lines.append(f"files with conflicts: {shown(set(unmerged))}")
    return "; ".join(lines)
