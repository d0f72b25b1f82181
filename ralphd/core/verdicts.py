"""Verdicts as the record keeps them: what a person sees of them, and which can be undone.

Entries of ``history.jsonl`` come in as they were read; anything may be missing from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ralphd.core.explain import Explanation, Figure, in_seconds

Entry: TypeAlias = Mapping[str, Any]

_SHOWN: Final = (
    "at",
    "run_id",
    "iteration",
    "task",
    "verdict",
    "why",
    "commits",
    "reverted",
    "tests",
    "tests_s",
    "refs",
    "baseline",
    "tail",
)
_RULES: Final = {"kept": "R3", "reverted": "R5"}
_TITLES: Final = {
    "kept": "Its commits stay: the tests pass",
    "reverted": "Commits were reverted",
    "untested": "Its commits were not judged",
}
_DONE: Final = {
    "kept": "nothing was changed",
    "reverted": "each has a commit of its own that takes it back; ralphctl undo puts them back",
    "untested": "nothing was reverted",
}


@dataclass(frozen=True, slots=True)
class ToUndo:
    """A verdict by which commits were reverted, abbreviated and newest first, and that was not undone."""

    boundary_id: str
    run_id: str
    iteration: int | None
    task: Mapping[str, Any] | None
    commits: tuple[str, ...]


def undo_key(boundary_id: str) -> str:
    """By what the record knows that the verdict on a boundary was undone."""
    return f"{boundary_id}/undo"


def verdicts(newest_first: Iterable[Entry], limit: int) -> list[dict[str, Any]]:
    """The last verdicts, newest first, and of each whether it was undone since."""
    found: list[dict[str, Any]] = []
    for entry, is_undone in _judged(newest_first):
        if len(found) == limit:
            break
        found.append({key: entry.get(key) for key in _SHOWN} | {"undone": is_undone})
    return found


def to_undo(newest_first: Iterable[Entry], iteration: int | None) -> ToUndo | str:
    """What to put back: of that iteration, else what was reverted last; or why there is nothing, in words.

    A count may begin anew with a run, so of several iterations of one number the last is meant that counts.
    """
    why = f"iteration {iteration} was not judged" if iteration is not None else "nothing was reverted so far"
    is_first = True
    for entry, is_undone in _judged(newest_first):
        if iteration is not None and entry.get("iteration") != iteration:
            continue
        if entry.get("reverted") and not is_undone:
            return _to_undo(entry)
        if is_undone and (is_first or iteration is None):
            why, is_first = f"{_which(entry)} is put back already", False
        elif is_first and iteration is not None:
            why, is_first = f"nothing of iteration {iteration} was reverted: it is {_words(entry)}", False
    return why


def explain_verdict(last: Entry, *, is_undone: bool) -> Explanation:
    """Why the commits of the last iteration that was judged were kept, reverted or neither."""
    kind = str(last.get("verdict"))
    done = "put back by ralphctl undo" if is_undone else _DONE.get(kind, "")
    if kind == "untested" and last.get("reverted"):  # it could not be taken back
        done = "reverts that were made are still there"
    in_the_way = kind == "untested" and not last.get("tests")
    return Explanation(
        "R8" if in_the_way else _RULES.get(kind, ""),
        _TITLES.get(kind, "Not known"),
        str(last.get("why") or ""),
        figures=tuple(_figures(last)),
        done=done,
    )


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
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return (", ".join(shown[:5]) + more) or "none"


def _judged(newest_first: Iterable[Entry]) -> Iterable[tuple[Entry, bool]]:
    undone: set[str] = set()
    for entry in newest_first:
        match entry.get("kind"):
            case "undo":
                undone.add(str(entry.get("key")))
            case "verdict":
                yield entry, undo_key(_boundary(entry)) in undone
            case _:
                continue


def _boundary(entry: Entry) -> str:
    return str(entry.get("key")).removesuffix("/verdict")


def _to_undo(entry: Entry) -> ToUndo:
    number, task = entry.get("iteration"), entry.get("task")
    return ToUndo(
        boundary_id=_boundary(entry),
        run_id=str(entry.get("run_id")),
        iteration=number if isinstance(number, int) else None,
        task=task if isinstance(task, Mapping) else None,
        commits=tuple(map(str, entry["reverted"])),
    )


def _which(entry: Entry) -> str:
    number = entry.get("iteration")
    return "what was reverted" if number is None else f"what was reverted of iteration {number}"


def _words(entry: Entry) -> str:
    return f"{entry.get('verdict')}, since {entry.get('why')}"
