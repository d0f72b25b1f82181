"""Report what happened in a repository since a commit: the facts that the gate judges (R1, R2, R8).

Three questions: which commits came, which of them were pulled rather than made here (reflogs know), and what
is in the way of a change. All readers take no lock and change nothing; an agent may be at work.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd.core.gate.verdict import Boundary, Change, JudgedCommit, Position
from ralphd.dataclass import dataclass
from ralphd.git import repo
from ralphd.git.diagnostics import trouble_of
from ralphd.git.repo import FULL_SHA, Repository
from ralphd.git.runner import GitRunner, NotDone, readable
from ralphd.git.tree_diff import Sides, entry_of, staged_at
from ralphd.plain_files import open_plain

MOST_NAMED: Final = 50
MOST_COUNTED: Final = 10_000
MOST_COMMITS: Final = 1000
"""How many commits of a range are listed; a longer one is not judged."""
MOST_DIRTY: Final = 1000
LIMIT_S: Final = 20.0
_SUBJECT_CHARS: Final = 200
_SHA: Final = re.compile(r"[0-9a-f]{4,64}")
LOG: Final = ("log", "-z", "--no-show-signature", "--encoding=UTF-8", "--no-color", "--no-notes")


def log_entries(output: bytes, errors: str = "replace") -> list[tuple[list[str], str]]:
    """Return the words and the subject of each entry of a LOG whose format separates them by a tab."""
    entries = (entry.partition("\t") for entry in output.decode(errors=errors).split("\0"))
    return [(words.split(), subject) for words, _, subject in entries if words]


# The commits between two heads.


@dataclass(frozen=True, slots=True)
class Made:
    """The short shas of the newest 50 commits that one head has and another lacks, newest first.

    ``count`` is the number of all, 10,000 at most.
    """

    shas: tuple[str, ...] = ()
    count: int = 0


def made(directory: Path, before: str | None, after: str | None) -> Made:
    """Return what ``after`` has and ``before`` lacks; all of it where ``before`` is None.

    Nothing where they are equal, ``after`` is None, or git does not know one of them.
    """
    if after is None or before == after or not all(_SHA.fullmatch(sha) for sha in (before or after, after)):
        return Made()
    heads = [after] if before is None else [after, f"^{before}"]
    listed = repo.answer(directory, *LOG, "--format=%h", f"--max-count={MOST_NAMED}", *heads, "--")
    if listed is None or listed[0] != 0:
        return Made()
    shas = tuple(listed[1].decode().replace("\0", " ").split())
    if len(shas) < MOST_NAMED:
        return Made(shas, len(shas))
    count = repo.line(directory, "rev-list", "--count", f"--max-count={MOST_COUNTED}", *heads, "--")
    return Made(shas, int(count) if count else MOST_NAMED)


# Which commits of a range were pulled (R2).
#
# A commit that somebody else made must not be reverted, and git records no origin. What was fetched is known
# from remote-tracking refs, their reflogs, FETCH_HEAD and the reflog lines of pulls; what a reflog of this
# repository names as made was not pulled, though it may be in a remote since: it was pushed from here.

_TAIL_BYTES: Final = 1 << 20
_MOST_LOGS: Final = 200
_MOST_TIPS: Final = 20_000
_MOST_LISTED: Final = 20_000
_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*?\t([^\n]*)")
_MADE: Final = re.compile(
    rb"commit(?: \((?:initial|amend|merge|cherry-pick)\))?: "
    rb"|(?:cherry-pick|revert|am): (?!fast-forward$)"
    rb"|[^:]*\((?:pick|reword|edit|squash|fixup|continue|merge)\): (?!fast-forward$)"
    rb"|[^:]*: (?:Merge made by|In-index merge)"
)
"""Reflog messages of lines whose new value is a commit made at that moment."""
_PULLED: Final = re.compile(rb"pull\b[^:]*: (?:Fast-forward|fast-forward)|pull\b[^(]*\(start\)")


def pulled(
    git: GitRunner, commits: tuple[Change, ...], *, before: str | None, merged: bool = False
) -> dict[str, bool]:
    """Return the shas of a range that were fetched or pulled; True: a merge that brings such commits in.

    ``merged``: commits of other branches that this work tree did not make count, too.
    """
    head_log = git.repository.git / "logs" / "HEAD"
    merges = [commit for commit in commits if len(commit.parents) > 1]
    made_here = _made_in(head_log)
    if not merges and {commit.sha for commit in commits} <= made_here:
        return {}
    base = [f"^{before}"] if before else []
    fetched = _fetched(git, [commits[0].sha, *base], head_log)
    if merged:
        fetched |= _of_other_branches(git, [commits[0].sha, *base]) - made_here
    if not fetched:
        return {}
    brought = ((each.sha, _rev_list(git, [each.sha, f"^{each.parents[0]}", *base])) for each in merges)
    bring = {sha for sha, listed in brought if listed & fetched}
    return {commit.sha: commit.sha not in fetched for commit in commits if commit.sha in fetched | bring}


def _of_other_branches(git: GitRunner, revisions: list[str]) -> set[str]:
    own = (git.branch() or "").removeprefix("refs/heads/")
    others = ("--not", f"--exclude={own}", "--branches", "--remotes")
    alone = git.text("rev-list", f"--max-count={_MOST_LISTED}", *revisions, *others)
    return _rev_list(git, revisions) - set(alone.split())


def _fetched(git: GitRunner, revisions: list[str], head_log: Path) -> set[str]:
    """Return all commits of a range, merged ones too, that were not made in this repository."""
    if not (tips := _fetched_tips(git, head_log)):
        return set()
    not_fetched = _rev_list(git, [*revisions, *(f"^{tip}" for tip in islice(tips, _MOST_TIPS))])
    fetched = _rev_list(git, revisions) - not_fetched
    common = git.repository.common
    logs = [head_log, common / "logs" / "HEAD"]
    with suppress(OSError):
        logs += islice(common.glob("worktrees/*/logs/HEAD"), _MOST_LOGS)
    branches = os.walk(common / "logs" / "refs" / "heads")
    logs += islice((Path(folder) / name for folder, _, names in branches for name in names), _MOST_LOGS)
    for log in logs:
        if fetched:
            fetched -= _made_in(log)
    return fetched


def _rev_list(git: GitRunner, revisions: list[str]) -> set[str]:
    words = ("rev-list", "--ignore-missing", f"--max-count={_MOST_LISTED}", "--stdin")
    return set(git.text(*words, given="".join(f"{each}\n" for each in revisions).encode()).split())


def _fetched_tips(git: GitRunner, head_log: Path) -> set[str]:
    """Return the values of remote-tracking refs and of FETCH_HEAD, and where pulls ended.

    Without those that were pushed from here: a fetch writes FETCH_HEAD lines for all refs, old ones too.
    """
    pushed: set[str] = set()
    tips = {new for new, message in _reflog(head_log) if _PULLED.match(message)}
    with suppress(OSError), open_plain(git.repository.git / "FETCH_HEAD") as file:
        shas = (re.match(rb"[0-9a-f]{40,64}(?=\t)", line) for line in islice(file, _MOST_TIPS))
        tips |= {sha[0].decode() for sha in shas if sha}
    form = "--format=%(objectname) %(symref)%00%(refname)"
    for line in filter(None, git.text("for-each-ref", form, "refs/remotes").split("\n")):
        value, _, names = line.partition(" ")
        symref, _, name = names.partition("\0")
        if symref:
            continue  # such as origin/HEAD: another ref's value
        log = list(_reflog(git.repository.common / "logs" / name))
        sent = {new for new, message in log if message.startswith(b"update by push")}
        pushed |= sent
        tips |= {new for new, _ in log} - sent if log else {value}
    return tips - pushed


def _made_in(log: Path) -> set[str]:
    return {new for new, message in _reflog(log) if _MADE.match(message)}


def _reflog(log: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the new value and the message of each line in the last MiB of a reflog."""
    try:
        with open_plain(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return
    for line in _LINE.finditer(data):
        if line[1] != line[2]:
            yield line[2].decode(), line[3]


# Which commits of a range a run made.
#
# The environment of a run sets the zlib level of git's objects, which the header of a loose object shows, and
# which nothing else uses by default. Commits, merges, rebases and amends of the run are marked by that. The
# reflog would be the obvious place, but GIT_REFLOG_ACTION replaces the messages in which git finds the branch
# of ``git checkout -`` and in which we find pulls.

RUN_SETTING: Final = "'core.looseCompression=2'"
RUN_MARK: Final = {"GIT_CONFIG_PARAMETERS": RUN_SETTING}
_OF_RUN: Final = b"\x78\x5e"
_LEVELS_OF_RUN: Final = frozenset("2345")
_REVERTS_COMMIT: Final = re.compile(r"^This reverts commit ([0-9a-f]{40,64})[.,]", re.MULTILINE)


def run_setting(inherited: str) -> str:
    """Return GIT_CONFIG_PARAMETERS for a run, which marks the commits that it makes."""
    return f"{inherited} {RUN_SETTING}".strip()


def made_by_run(git: GitRunner, sha: str) -> bool | None:
    """Return whether a commit has the mark of a run; None if it is packed, or the level is configured."""
    if _LEVELS_OF_RUN.intersection(git.compression):
        return None
    try:
        with open_plain(git.repository.common / "objects" / sha[:2] / sha[2:]) as file:
            return file.read(len(_OF_RUN)) == _OF_RUN
    except OSError:
        return None


def rewritten_by_other(git: GitRunner, before: str, after: str, judged: tuple[Change, ...]) -> bool:
    """Return whether ``before`` was left only by a rewrite of commits that no run made, and not by a run."""
    lost = first_parents(git, after, before) if judged else ()
    if not (lost and lost[-1].parents[:1] == judged[-1].parents[:1]):
        return False
    if any(made_by_run(git, each.sha) is not False for each in lost):
        return False
    # The oldest of the new commits replaces the oldest lost one: an amend and a rebase keep author and date.
    oldest = judged[-1].sha
    if made_by_run(git, oldest) is False:
        return True
    return _authors(git, [oldest]).isdisjoint(_authors(git, [each.sha for each in lost]))


def _authors(git: GitRunner, shas: list[str]) -> set[str]:
    words = (*LOG, "--no-walk=unsorted", "--stdin", "--format=%at %ae")
    return set(git.text(*words, given="".join(f"{sha}\n" for sha in shas).encode()).split("\0"))


# Where HEAD is, and what is between it and an earlier position.


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Tracked files that differ from HEAD, staged or not: those without conflicts, and those with."""

    entries: Mapping[bytes, Sides]
    unmerged: tuple[bytes, ...]

    @property
    def names(self) -> tuple[bytes, ...]:
        return (*self.entries, *self.unmerged)


def position(directory: Path) -> Position:
    """Return the full sha of HEAD, None before the first commit, and its branch, None when detached.

    The branch is without ``refs/heads/``. Both are None outside of a repository, and where git is too slow.
    Blocks for 10 s at most, mostly for two reads of a file.
    """
    if (repository := Repository.find(directory)) is None:
        return Position(None, None)
    if (known := repository.branch_and_head()) is not None:
        return Position(known[1], _branch_name(known[0]))
    words = ("rev-parse", "--revs-only", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    code, output = repo.answer(directory, *words) or (1, b"")
    sha, _, ref = output.removesuffix(b"\n").decode(errors="replace").partition("\n")
    if code == 0 and FULL_SHA.fullmatch(sha):
        return Position(sha, _branch_name(ref))
    return Position(None, _branch_name(repo.line(directory, "symbolic-ref", "--quiet", "HEAD") or ""))


def _branch_name(ref: str) -> str | None:
    return repo.printable(ref.removeprefix("refs/heads/")) if ref.startswith("refs/heads/") else None


def boundary(directory: Path, before: Position) -> Boundary:
    """Return what came since ``before``, and what is in the way of a change.

    The commits are those from HEAD along first parents to the first that ``before`` has. ``descends`` is
    whether that line leads to ``before`` itself: where it was merged into something else, reverting that
    merge would remove what was there before. Git being too slow is a trouble too. Waits some seconds for the
    lock of the index.
    """
    after = position(directory)
    if (after.head, after.branch) == (before.head, before.branch):
        return Boundary(before, after)
    if after == Position(None, None):
        trouble = f"git does not tell where HEAD is: git -C {directory} status"
        return Boundary(before, after, False, trouble=trouble)
    try:
        git = GitRunner(directory, limit_s=LIMIT_S)
        commits = first_parents(git, before.head, after.head)
        # One more than is judged was listed, which shows that there are more.
        judged, is_whole = commits[:MOST_COMMITS], len(commits) <= MOST_COMMITS
        dirty = uncommitted(git)
        came = pulled(git, judged, before=before.head, merged=True)
        unpushed = _not_in_upstream(git, after.head, before.head) if judged else None
        trouble = trouble_of(git, dirty.unmerged)
        descends = not is_whole or (bool(judged) and judged[-1].parents[:1] == (before.head,))
        old, new = before.head, after.head
        rewritten = bool(old and new and not descends and rewritten_by_other(git, old, new, judged))
        pushed = set[str]() if unpushed is None else {each.sha for each in judged} - unpushed
        marked = tuple(
            JudgedCommit(c.sha, c.subject[:_SUBJECT_CHARS], c.sha in came, c.sha in pushed, by_run, c.reverts)
            for c in judged
            for by_run in [made_by_run(git, c.sha) if came.get(c.sha, True) else None]
        )
    except NotDone as why:
        return Boundary(before, after, trouble=str(why))
    if not is_whole and not came:
        trouble = trouble or f"more than {MOST_COMMITS} commits came in one iteration: nothing is judged"
    names = tuple(map(readable, dirty.names[:MOST_DIRTY]))
    return Boundary(before, after, descends, marked, trouble, names, rewritten)


def first_parents(git: GitRunner, before: str | None, after: str | None) -> tuple[Change, ...]:
    """Return the commits of ``after`` that ``before`` lacks, along first parents, newest first.

    They are one more than MOST_COMMITS at most. Raises NotDone.
    """
    if after is None or (before is not None and not FULL_SHA.fullmatch(before)):
        return ()
    words = (*LOG, "--first-parent", "--format=%H %P%x09%s%n%b", f"--max-count={MOST_COMMITS + 1}")
    code, output = git.run(*words, after, *([f"^{before}"] if before else []), "--")
    if code != 0 and before and git.commit(before) is None:
        return ()  # before is gone: nothing can descend from it
    if code != 0:
        raise NotDone(f"git log ended with {code}; try it: git -C {git.directory} log")
    commits = []
    for (sha, *parents), message in log_entries(output):
        target = _REVERTS_COMMIT.search(message)
        subject = message.partition("\n")[0]
        reverts = target[1] if target else ""
        commits.append(Change(sha, subject=subject, parents=tuple(parents), reverts=reverts))
    return tuple(commits)


def _not_in_upstream(git: GitRunner, after: str | None, before: str | None) -> frozenset[str] | None:
    """Return the commits that the upstream lacked at the last fetch or push; None without an upstream."""
    branch = git.branch()
    tracking = branch and git.line("for-each-ref", "--format=%(upstream)", branch)
    if not after or not tracking or not tracking.startswith("refs/remotes/"):
        return None
    without = [f"^{tracking}", *([f"^{before}"] if before else [])]
    code, output = git.run("rev-list", "--first-parent", f"--max-count={MOST_COMMITS}", after, *without)
    return None if code else frozenset(output.decode().split())


def uncommitted(git: GitRunner) -> Uncommitted:
    """Return tracked files with changes, submodules at another commit included. Raises NotDone."""
    words = ("--porcelain=v2", "-z", "-uno", "--no-renames", "--ignore-submodules=dirty")
    entries: dict[bytes, Sides] = {}
    unmerged, to_add = [], []
    for line in git.output("status", *words).split(b"\0"):
        if line.startswith(b"u "):  # u XY sub m1 m2 m3 mW h1 h2 h3 path
            unmerged.append(line.split(b" ", 10)[10])
        elif line.startswith(b"1 "):  # 1 XY sub mH mI mW hH hI path
            _, flags, _, in_head, in_index, _, head, index, path = line.split(b" ", 8)
            entries[path] = Sides(entry_of(in_head, head), entry_of(in_index, index))
            to_add += [path] if flags.endswith(b"A") else []
    for path, staged in staged_at(git, to_add).items():  # git add -N: status omits what is staged
        entries[path] = Sides(entries[path].committed, staged)
    return Uncommitted(entries, tuple(unmerged))
