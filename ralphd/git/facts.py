"""Where a repository stands, and what an iteration has made of it: the facts of a boundary (R1, R2, R8)."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd.core.gate.verdict import Boundary, JudgedCommit, Position
from ralphd.git import repo
from ralphd.git.diagnostics import in_the_way
from ralphd.git.locks import wait_for_lock
from ralphd.git.repo import Repository
from ralphd.git.rewrite.tree_diff import Sides, entry_of, staged_at
from ralphd.git.runner import GitRunner, NotDone, readable, shown

# The commits between two heads: what an iteration has made of the branch.

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


# Which commits of a range came by fetch or pull, told from those that were made in this repository (R2).

_TAIL_BYTES: Final = 1 << 20
_MOST_LOGS: Final = 200
_MOST_TIPS: Final = 20_000
_MOST_COMMITS: Final = 20_000
_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*?\t([^\n]*)")
_MADE: Final = re.compile(
    rb"commit(?: \((?:initial|amend|merge|cherry-pick)\))?: "
    rb"|(?:cherry-pick|revert|am): (?!fast-forward$)"
    rb"|[^:]*\((?:pick|reword|edit|squash|fixup|continue|merge)\): (?!fast-forward$)"
    rb"|[^:]*: (?:Merge made by|In-index merge)"
)
"""What a line says whose new value was made at that moment."""
_PULLED: Final = re.compile(rb"pull\b[^:]*: (?:Fast-forward|fast-forward)|pull\b[^(]*\(start\)")


@dataclass(frozen=True, slots=True)
class RangeCommit:
    """A commit with its parents."""

    sha: str
    parents: tuple[str, ...]


def pulled(calls: GitRunner, commits: tuple[RangeCommit, ...], *, before: str | None) -> frozenset[str]:
    """Those of a range's first-parent line that came by fetch or pull, or are merges of what did."""
    here = calls.repository.git / "logs" / "HEAD"
    left = {commit.sha for commit in commits} - _made(_lines(here))
    has_merges = any(len(commit.parents) > 1 for commit in commits)
    if not commits or not (left or has_merges):
        return frozenset()
    came = _came(calls, commits[0].sha, before, here)
    return frozenset(
        commit.sha
        for commit in commits
        if commit.sha in came or (len(commit.parents) > 1 and _brings(calls, commit, before, came))
    )


def _came(calls: GitRunner, now: str, before: str | None, here: Path) -> set[str]:
    """All commits between, merged ones too, that came from elsewhere."""
    tips = _tips(calls, here)
    if not tips:
        return set()
    both = [now, *([f"^{before}"] if before else [])]
    free = _listed(calls, [*both, *(f"^{tip}" for tip in islice(tips, _MOST_TIPS))])
    came = _listed(calls, both) - free
    for log in _logs(calls):
        if not came:
            break
        came -= _made(_lines(log))
    return came


def _brings(calls: GitRunner, merge: RangeCommit, before: str | None, came: set[str]) -> bool:
    if not came:
        return False
    without = [f"^{merge.parents[0]}", *([f"^{before}"] if before else [])]
    return not came.isdisjoint(_listed(calls, [merge.sha, *without]))


def _listed(calls: GitRunner, revisions: list[str]) -> set[str]:
    words = ("rev-list", "--ignore-missing", f"--max-count={_MOST_COMMITS}", "--stdin")
    return set(calls.text(*words, given="".join(f"{each}\n" for each in revisions).encode()).split())


def _tips(calls: GitRunner, here: Path) -> set[str]:
    """What was fetched: values of remote-tracking refs, of FETCH_HEAD, and where pulls ended.

    Without what was pushed from here: a fetch tells the values of all refs, new or not.
    """
    pushed: set[str] = set()
    tips = set(_fetched_last(calls)) | {new for new, said in _lines(here) if _PULLED.match(said)}
    form = "--format=%(objectname) %(symref)%00%(refname)"
    for line in calls.text("for-each-ref", form, "refs/remotes").splitlines():
        value, _, names = line.partition(" ")
        points_to, _, name = names.partition("\0")
        if points_to:
            continue  # such as origin/HEAD, which is another's value
        log = list(_lines(calls.repository.common / "logs" / name))
        sent = {new for new, said in log if said.startswith(b"update by push")}
        pushed |= sent
        tips |= {new for new, _ in log} - sent if log else {value}
    return tips - pushed


def _fetched_last(calls: GitRunner) -> Iterator[str]:
    with suppress(OSError), (calls.repository.git / "FETCH_HEAD").open("rb") as file:
        for fetched in islice(file, _MOST_TIPS):
            if found := re.match(rb"[0-9a-f]{40,64}(?=\t)", fetched):
                yield found[0].decode()


def _logs(calls: GitRunner) -> Iterator[Path]:
    """The reflogs of this repository's HEADs and branches."""
    common = calls.repository.common
    yield from (calls.repository.git / "logs" / "HEAD", common / "logs" / "HEAD")
    with suppress(OSError):
        yield from islice(common.glob("worktrees/*/logs/HEAD"), _MOST_LOGS)
    found = (
        Path(place) / name
        for place, _, names in os.walk(common / "logs" / "refs" / "heads")
        for name in names
    )
    yield from islice(found, _MOST_LOGS)


def _made(lines: Iterable[tuple[str, bytes]]) -> set[str]:
    return {new for new, said in lines if _MADE.match(said)}


def _lines(log: Path) -> Iterator[tuple[str, bytes]]:
    """The new value and the message of each line in the last MiB of a reflog."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return
    for found in _LINE.finditer(data):
        if found[1] != found[2]:
            yield found[2].decode(), found[3]


MOST_COMMITS: Final = 1000
"""How many commits of a range are named; a longer one is not judged."""
MOST_DIRTY: Final = 1000
LIMIT_S: Final = 20.0
_FACTS_SHA: Final = re.compile(r"[0-9a-f]{40,64}")


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
    if code == 0 and _FACTS_SHA.fullmatch(sha):
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
        calls = GitRunner(directory, limit_s=limit_s)
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


def _range(calls: GitRunner, before: str | None, now: str | None) -> tuple[_Listed, ...]:
    """One more than are told at most, by which it is seen that there are more."""
    if now is None or (before is not None and not _FACTS_SHA.fullmatch(before)):
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


def _judged(calls: GitRunner, commits: tuple[_Listed, ...], before: str | None) -> tuple[JudgedCommit, ...]:
    if not commits:
        return ()
    came = pulled(calls, commits, before=before)
    new = _not_in_upstream(calls, commits[0].sha, before)
    return tuple(
        JudgedCommit(each.sha, each.subject, each.sha in came, new is not None and each.sha not in new)
        for each in commits
    )


def branch_ref(calls: GitRunner) -> str | None:
    """The branch that HEAD is on, a ref in full; None when it is detached."""
    found = calls.repository.standing()
    return found[0] if found is not None else calls.looked_up("symbolic-ref", "--quiet", "HEAD")


def _not_in_upstream(calls: GitRunner, now: str, before: str | None) -> frozenset[str] | None:
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


def uncommitted(calls: GitRunner) -> Uncommitted:
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


def unmerged(calls: GitRunner) -> tuple[bytes, ...]:
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
