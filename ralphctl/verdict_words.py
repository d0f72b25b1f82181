"""Verdicts as a table, why there are none, and what an undo has brought back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ralphctl.explanation import PLAIN_COLUMNS
from ralphctl.guard_words import commit_words
from ralphctl.tell import DIM, clean, paint
from ralphctl.words import clock, count, duration, moment

View: TypeAlias = Mapping[str, Any]

SWITCH = '[regent]\nrollback_on_test_failure = true\ntest_command = "make test"'
BOUNDARY = "ralphctl notify iteration-finished --wait"
_OFF = "the guard is off"
_HEADS = ("WHEN", "ITER", "VERDICT", "COMMITS", "TESTS", "WHY")
_MOST = (16, 6, 9, 8, 16)
_LEAST_WHY = 16
_MOST_LAST = 160
_GAP = "  "


def none_yet(view: View) -> list[str]:
    """Why there are no verdicts, and what to do about it."""
    name, guard = clean(str(view.get("name"))), view.get("guard")
    if isinstance(guard, dict):
        if guard.get("boundaries") is False:
            return [
                f"{name}: no commit was judged: its command has told no end of an iteration",
                "  one line at the end of an iteration in its loop does:",
                f"    {BOUNDARY}",
            ]
        return [f"{name}: no commit was judged yet: no iteration has ended with one"]
    notes = view.get("notes")
    off = [str(note) for note in notes if str(note).startswith(_OFF)] if isinstance(notes, list) else []
    if off:
        return [f"{name}: no commit was judged: {clean(off[0])}"]
    return [
        f"{name}: no commit was judged: {_OFF}",
        f"  these lines in ralph.toml, with your test command, and ralphctl reload {name} switch it on:",
        *(f"    {line}" for line in SWITCH.splitlines()),
    ]


def none_kept(name: str) -> str:
    """The same where no daemon answers."""
    return f"{clean(name)}: no verdict is kept; whether the guard is on only a daemon tells"


def table(verdicts: Sequence[View], now: float, *, columns: int | None = None, colour: bool = False) -> str:
    """The verdicts, newest first, each with its reason wrapped beside it."""
    wanted = [_HEADS, *(_cells(each, now) for each in verdicts)]
    widths = [
        min(max(max(map(len, cell.split("\n"))) for cell in column), most)
        for column, most in zip(list(zip(*wanted, strict=True))[:-1], _MOST, strict=True)
    ]
    room = (columns or PLAIN_COLUMNS) - sum(widths) - len(_GAP) * len(widths)
    lines: list[str] = []
    for i, row in enumerate(wanted):
        shown = _wrapped(row, (*widths, max(room, _LEAST_WHY)))
        lines += (paint(line, DIM, on=colour and i == 0) for line in shown)
    return "\n".join(lines)


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
        for cell, width in zip(row, widths, strict=True)
    ]
    for i in range(max(map(len, cells))):
        parts = [
            (cell[i] if i < len(cell) else "").ljust(width) for cell, width in zip(cells, widths, strict=True)
        ]
        yield _GAP.join(parts).rstrip()


def _cells(verdict: View, now: float) -> tuple[str, ...]:
    at = moment(verdict.get("at"))
    kind = clean(str(verdict.get("verdict") or "?"))
    number = verdict.get("iteration")
    return (
        "?" if at is None else clock(at, now),
        "-" if number is None else clean(str(number)),
        f"{kind}, put back" if verdict.get("undone") else kind,
        commit_words(verdict.get("reverted") or verdict.get("commits")) or "-",
        _tests(verdict) or "-",
        _why(verdict),
    )


def _why(verdict: View) -> str:
    """The reason, and the last line of what red tests printed."""
    why, tail = clean(str(verdict.get("why") or "")), verdict.get("tail")
    lines = [line for line in tail.splitlines() if line.strip()] if isinstance(tail, str) else []
    return f"{why}; they end with: {clean(lines[-1].strip())[:_MOST_LAST]}" if lines else why


def _tests(verdict: View) -> str:
    """``red, red, green; 13s``: what each run came to, and how long they took in all."""
    results, took = verdict.get("tests"), verdict.get("tests_s")
    if not isinstance(results, list) or not results:
        return ""
    said = ", ".join(clean(str(result)).replace("_", " ") for result in results)
    seconds = [each for each in took if isinstance(each, int | float)] if isinstance(took, list) else []
    return said + (f"; {duration(sum(seconds))}" if seconds else "")


def undone_lines(undone: View) -> list[str]:
    """What is back, as ``undo`` tells it."""
    name, commits, made = undone["ralph"]["name"], undone["commits"], undone["made"]
    of = "" if undone.get("iteration") is None else f" of iteration {undone['iteration']}"
    if not made:
        head = f"{clean(str(name))}: {count(len(commits), 'commit')}{of} were there already"
    else:
        head = f"{clean(str(name))}: put back {count(len(commits), 'commit')}{of}"
    lines = [head, *(f"  {_commit(each)}" for each in commits)]
    if made:
        newest = clean(str(made[0]["sha"]))[:7]
        by = f"commit {newest}" if len(made) == 1 else f"{len(made)} commits up to {newest}"
        lines.append(f"  by {by}; nothing was pushed")
    if unjudged := undone.get("unjudged"):
        shas = commit_words([str(each["sha"])[:7] for each in unjudged])
        gets = "gets none of its own" if len(unjudged) == 1 else "get none of their own"
        lines.append(f"  {shas} had no verdict yet, and {gets}: the tests are for all of it")
    return lines


def _commit(commit: View) -> str:
    return f"{clean(str(commit['sha']))[:7]}  {clean(str(commit['subject']))}".rstrip()
