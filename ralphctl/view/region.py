"""What stands below the log: how the ralph is now, in one to three lines (VW-5). No clock is looked at."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ralphctl import countdown
from ralphctl.show import is_built_in
from ralphctl.tell import clean
from ralphctl.words import count, duration, moment
from ralphd import wire

View: TypeAlias = Mapping[str, Any]

HINT = "?: keys"
LEAST_WIDTH = 10
_QUIET_S = 60.0
_STATES = {"waiting_for_retry": "waiting", "testing": "running the tests"}
_MOST_QUESTION_LINES = 6


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known beside the view: which of how many tasks it is at (``place``), a question that is open.

    ``trouble``: why nobody knows how it is now.
    """

    place: tuple[int, int] | None = None
    trouble: str = ""
    question: str = ""
    has_keys: bool = False


def lines(view: View, sight: Sight, now: float, width: int, *, rows: int = 3) -> list[str]:
    """The region for a terminal of ``width`` columns, of which one stays free; ``rows`` lines at most.

    A question may take more: it is never cut.
    """
    room = max(width - 1, LEAST_WIDTH)
    shown = [_head(view, sight, now, room)]
    if sight.question:
        return shown + textwrap.wrap(sight.question, room)[:_MOST_QUESTION_LINES]
    more = [_wait(view, sight, now, room), _task(view, sight, room)]
    kept = [line for line in more if line][: max(rows - 1, 0)]
    return shown + kept[::-1]  # what it waits for comes last, nearest to the keys


def _head(view: View, sight: Sight, now: float, room: int) -> str:
    """``── demo · running · 12m 5s · iteration 4 · claude · $0.42 ────── ?: keys``."""
    inner = room - len("── ")
    said = _fitting(_parts(view, sight, now), inner)
    head = f"── {cut(said, inner)} "
    hint = f" {HINT}" if sight.has_keys and cells(head) + len(HINT) + 3 <= room else ""
    return cut(head + "─" * (room - cells(head) - len(hint)) + hint, room)


def _parts(view: View, sight: Sight, now: float) -> list[tuple[int, str]]:
    """What there is to say, in order, each with its rank: the highest goes first where room is short."""
    state = str(view.get("state") or "?")
    runs = state not in wire.SETTLED_STATES
    began, spoke = moment(view.get("started_at")), moment(view.get("last_output_at"))
    quiet = state == "running" and spoke is not None and now - spoke >= _QUIET_S and now - spoke
    cost = view.get("total_cost_usd")
    found = [
        (0, clean(str(view.get("name") or "?"))),
        (1, sight.trouble or clean(_STATES.get(state, state))),
        (4, duration(now - began) if runs and began is not None else ""),
        (2, iteration_words(view)),
        (5, clean(str(view.get("agent") or ""))),
        (3, f"${cost:.2f}" if isinstance(cost, int | float) and cost else ""),
        (6, f"quiet for {duration(quiet)}" if quiet else ""),
    ]
    return [(rank, text) for rank, text in found if text]


def iteration_words(view: View) -> str:
    """The iteration it is in, where its checkpoint says so; else how many are over."""
    held, done = view.get("checkpoint"), view.get("iteration")
    present = held.get("iteration") if isinstance(held, dict) and is_built_in(view) else None
    if isinstance(present, int) and view.get("state") not in wire.SETTLED_STATES:
        return f"iteration {present}"
    return count(done, "iteration") if isinstance(done, int) and done else ""


def _fitting(parts: Sequence[tuple[int, str]], room: int) -> str:
    kept = list(parts)
    while len(kept) > 1 and cells(_joined(kept)) > room:
        kept.remove(max(kept))
    return _joined(kept)


def _joined(parts: Sequence[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)


def _task(view: View, sight: Sight, room: int) -> str:
    task = view.get("task")
    if not isinstance(task, dict) or view.get("state") in wire.SETTLED_STATES:
        return ""
    title = clean(str(task.get("title") or task.get("id") or "?"))
    where = f" {sight.place[0]} of {sight.place[1]}" if sight.place else ""
    return cut(f"task{where}: {title}", room)


def _wait(view: View, sight: Sight, now: float, room: int) -> str:
    """The wait with its countdown; where the line is short, first the clock goes, then the order turns."""
    for said in countdown.lines(view, now, has_keys=sight.has_keys):
        if cells(said) <= room:
            return said
    return cut(countdown.shortest(view, now), room)


def cut(text: str, room: int) -> str:
    """``text`` in ``room`` cells at most; what is cut off ends in an ellipsis."""
    if cells(text) <= room:
        return text
    kept, used = "", 0
    for letter in text:
        used += cells(letter)
        if used > room - 1:
            break
        kept += letter
    return kept + "…"


def cells(text: str) -> int:
    """How many columns ``text`` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(letter: str) -> int:
    if unicodedata.combining(letter) or letter in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
