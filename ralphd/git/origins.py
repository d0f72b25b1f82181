"""Which commits of a range came by fetch or pull, told from those that were made in this repository (R2).

A commit was made here when a reflog of this repository says so: of HEAD in any of its work trees, or of one
of its branches. What no reflog explains came from elsewhere when it is in anything that was fetched: in a
value that a remote-tracking ref got otherwise than by a push from here, in FETCH_HEAD, in what a pull ended
at. A merge that brings in such a commit counts as one. What was made here and then pushed is in the upstream,
and is not pulled, whoever pushed it. Without reflogs, what is in a remote-tracking ref counts as pulled.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd.git.calls import Calls

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


def pulled(calls: Calls, commits: tuple[RangeCommit, ...], *, before: str | None) -> frozenset[str]:
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


def _came(calls: Calls, now: str, before: str | None, here: Path) -> set[str]:
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


def _brings(calls: Calls, merge: RangeCommit, before: str | None, came: set[str]) -> bool:
    if not came:
        return False
    without = [f"^{merge.parents[0]}", *([f"^{before}"] if before else [])]
    return not came.isdisjoint(_listed(calls, [merge.sha, *without]))


def _listed(calls: Calls, revisions: list[str]) -> set[str]:
    words = ("rev-list", "--ignore-missing", f"--max-count={_MOST_COMMITS}", "--stdin")
    return set(calls.text(*words, given="".join(f"{each}\n" for each in revisions).encode()).split())


def _tips(calls: Calls, here: Path) -> set[str]:
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


def _fetched_last(calls: Calls) -> Iterator[str]:
    with suppress(OSError), (calls.repository.git / "FETCH_HEAD").open("rb") as file:
        for fetched in islice(file, _MOST_TIPS):
            if found := re.match(rb"[0-9a-f]{40,64}(?=\t)", fetched):
                yield found[0].decode()


def _logs(calls: Calls) -> Iterator[Path]:
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
