"""Verdicts for their readers: the prompt of the loop, the history, ``ralphctl undo``.

Entries of ``history.jsonl`` come in as they were read; any key may be missing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.gate.verdict import LEFT, Verdict, VerdictKind
from ralphd.core.supervision.model import ReportedTask
from ralphd.core.text import first_names
from ralphd.dataclass import dataclass

# What a loop hears of its commits at a boundary: the verdict, cut down to what a prompt can carry (L9, R9).

TAIL_LINES: Final = 50
TAIL_CHARS: Final = 8000
MOST_LINE_CHARS: Final = 500
MOST_SHAS: Final = 20
_ESCAPE: Final = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|.)", re.DOTALL)
_SHA: Final = re.compile(r"[0-9a-f]{7,64}")
_SHORT: Final = 7


@dataclass(frozen=True, slots=True)
class RevertNotice:
    """Why a task is open again: the boundary, the reverted commits, the end of the tests' output."""

    commits: tuple[str, ...]
    why: str
    tail: tuple[str, ...] = ()
    boundary: str = ""

    @property
    def words(self) -> str:
        were = "commit was" if len(self.commits) == 1 else "commits were"
        return f"its {were} reverted ({', '.join(self.commits)}): {self.why}"


@dataclass(frozen=True, slots=True)
class GateNews:
    """What a loop that begins has to know of its gate.

    ``verdict`` reached no loop so far. ``undone``: boundaries restored by a person. ``settled``: no commit of
    an earlier run waits for a verdict.
    """

    verdict: Verdict | None = None
    undone: tuple[str, ...] = ()
    settled: bool = False


def heard(verdict: Verdict) -> Verdict:
    """Return a verdict bounded for a prompt: one line of why, abbreviated commits, a short tail (L9, R9).

    Raise ValueError for a commit that is none.
    """
    why, tail = one_line(verdict.why) or "nobody says why", "\n".join(tail_of(verdict.tail))
    commits, reverted = tuple(map(_short, verdict.commits)), tuple(map(_short, verdict.reverted))
    return replace(verdict, why=why, commits=commits, reverted=reverted, tail=tail)


def heard_in(found: object, boundary: str) -> Verdict | None:
    """Return the verdict in the reply to a report; None where there is none, or it cannot be read."""
    if not isinstance(found, Mapping):
        return None
    try:
        task = None if found.get("task") is None else ReportedTask(_text(found["task"]["id"]))
        commits, reverted = (tuple(map(_text, found[name])) for name in ("commits", "reverted"))
        verdict = Verdict(VerdictKind(found["kind"]), _text(found["why"]), boundary_id=boundary, task=task)
        return heard(replace(verdict, commits=commits, reverted=reverted, tail=_text(found.get("tail", ""))))
    except (KeyError, TypeError, ValueError):
        return None


def notice_of(verdict: Verdict) -> RevertNotice | None:
    """Return what the next attempt has to know; None where nothing was reverted."""
    if verdict.kind is not VerdictKind.REVERTED:
        return None
    tail = tuple(verdict.tail.splitlines())
    return RevertNotice(verdict.reverted[:MOST_SHAS], verdict.why, tail, verdict.boundary_id)


def verdict_line(verdict: Verdict) -> str:
    """Return a verdict as a line of the loop's log."""
    shas = verdict.reverted if verdict.kind is VerdictKind.REVERTED else verdict.commits
    return f"verdict: {verdict.kind} {first_names(shas)}".rstrip() + f": {verdict.why}"


def one_line(text: str) -> str:
    """Return a text as one bounded line of printable characters."""
    plain = "".join(each if each.isprintable() else " " for each in _ESCAPE.sub("", text))
    return " ".join(plain.split())[:MOST_LINE_CHARS]


def tail_of(text: str) -> tuple[str, ...]:
    """Return the last lines of the tests' output, bounded and without control characters."""
    lines = _ESCAPE.sub("", text.expandtabs(4)).replace("\r\n", "\n").split("\n")
    shown: list[str] = []
    left = TAIL_CHARS
    for line in reversed([each.rstrip() for each in lines[-2 * TAIL_LINES :]]):
        plain = "".join(each if each.isprintable() else " " for each in line)[:MOST_LINE_CHARS].rstrip()
        if len(shown) == TAIL_LINES or len(plain) + 1 > left:
            break
        if plain or shown:  # no empty lines at the end
            shown.append(plain)
            left -= len(plain) + 1
    return tuple(reversed(shown))


def _short(sha: str) -> str:
    if not _SHA.fullmatch(sha):
        raise ValueError(f"{sha!r:.40} is not a commit")
    return sha[:_SHORT]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


Entry: TypeAlias = Mapping[str, Any]

_SHOWN: Final = (
    *("at", "run_id", "iteration", "task", "verdict", "why", "commits", "reverted"),
    *("tests", "tests_s", "refs", "baseline", "tail"),
)
_TAKEN_BACK: Final = "each has a commit of its own that takes it back; ralphctl undo puts them back"
_KINDS: Final = {
    "kept": ("R3", "Its commits stay: the tests pass", "nothing was changed"),
    "reverted": ("R5", "Commits were reverted", _TAKEN_BACK),
    "untested": ("", "Its commits were not judged", "nothing was reverted"),
}
"""Rule, title and what was done, by the kind of a verdict."""


@dataclass(frozen=True, slots=True)
class ToUndo:
    """A verdict that reverted commits, abbreviated and newest first; or the ``repair`` of a branch."""

    boundary_id: str
    run_id: str
    iteration: int | None
    task: Mapping[str, Any] | None
    commits: tuple[str, ...]
    repair: int | None = None
    branch: str = ""

    @property
    def id(self) -> str:
        return self.boundary_id if self.repair is None else f"{self.boundary_id}/repair"


def undo_key(boundary_id: str) -> str:
    """Return the key of the history entry that a verdict was undone."""
    return f"{boundary_id}/undo"


def verdicts(newest_first: Iterable[Entry], limit: int) -> list[dict[str, Any]]:
    """Return the last verdicts, newest first, each with whether it was undone."""
    judged = islice(undoable(newest_first, "verdict"), limit)
    return [{key: entry.get(key) for key in _SHOWN} | {"undone": is_undone} for entry, is_undone in judged]


def to_undo(newest_first: Iterable[Entry], iteration: int | None) -> ToUndo | str:
    """Return the verdict to undo: that of an iteration, else the last one; or why there is none, in words.

    A run may count its iterations from the start: of several with one number the last one counts.
    """
    why = f"iteration {iteration} was not judged" if iteration is not None else "nothing was reverted so far"
    is_first = True
    for entry, is_undone in undoable(newest_first, "verdict"):
        number = entry.get("iteration")
        if iteration is not None and number != iteration:
            continue
        if entry.get("reverted") and not is_undone:
            run_id, commits = str(entry.get("run_id")), tuple(map(str, entry["reverted"]))
            task = task if isinstance(task := entry.get("task"), Mapping) else None
            known = number if isinstance(number, int) else None
            return ToUndo(_boundary(entry), run_id, known, task, commits)
        if is_undone and (is_first or iteration is None):
            of = "" if number is None else f" of iteration {number}"
            why, is_first = f"what was reverted{of} is put back already", False
        elif is_first and iteration is not None:
            is_so = f"{entry.get('verdict')}, since {entry.get('why')}"
            why, is_first = f"nothing of iteration {iteration} was reverted: it is {is_so}", False
    return why


def explain_verdict(last: Entry, *, is_undone: bool) -> Explanation:
    """Explain why the commits of the last judged iteration were kept, reverted or neither."""
    kind = str(last.get("verdict"))
    rule, title, done = _KINDS.get(kind, ("", "Not known", ""))
    if any(str(ref).startswith(LEFT) for ref in last.get("refs") or ()):
        done = "the branch went back, and the ref keeps what it left; ralphctl undo puts it back"
    done = "put back by ralphctl undo" if is_undone else done
    if kind == "untested" and last.get("reverted"):  # it could not be taken back
        done = "reverts that were made are still there"
    rule = "R8" if kind == "untested" and not last.get("tests") else rule
    return Explanation(rule, title, str(last.get("why") or ""), tuple(_figures(last)), done=done)


def _figures(last: Entry) -> Iterable[Figure]:
    if last.get("iteration") is not None:
        yield Figure("iteration", str(last["iteration"]))
    yield Figure("commits", _list(last.get("commits")))
    if last.get("reverted"):
        yield Figure("reverted", _list(last["reverted"]))
    tests, took = last.get("tests"), last.get("tests_s")
    if isinstance(tests, list | tuple) and tests:
        seconds = in_seconds(sum(took)) if isinstance(took, list | tuple) and took else ""
        yield Figure("tests", f"{_list(tests)}{f', {seconds} in all' if seconds else ''}")


def _list(values: object) -> str:
    shown = [str(each).replace("_", " ") for each in values] if isinstance(values, list | tuple) else []
    return first_names(shown, 5) or "none"


def undoable(newest_first: Iterable[Entry], kind: str) -> Iterator[tuple[Entry, bool]]:
    """Yield the entries of a kind, each with whether a later one says that it was undone."""
    undone: set[str] = set()
    for entry in newest_first:
        if entry.get("kind") == "undo":
            undone.add(str(entry.get("key")))
        elif entry.get("kind") == kind:
            yield entry, undo_key(_boundary(entry)) in undone


def _boundary(entry: Entry) -> str:
    return str(entry.get("key")).removesuffix("/verdict")
