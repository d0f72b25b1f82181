"""The facts of an alert: the night, its cost, the task of the run, the last output."""

from datetime import datetime

import pytest

from ralphd.core.alert import MOST_LINE_CHARS, MOST_LINES, evening_before, shown_lines, spent, task_of
from ralphd.core.delivery import StoredEvent
from ralphd.core.time import rfc3339

NIGHT = datetime(2026, 11, 22, 18).timestamp()


def entry(at: float, kind: str = "attempt", **data: object) -> dict[str, object]:
    return {"kind": kind, "at": rfc3339(at), **data}


@pytest.mark.parametrize(
    ("now", "day"), [((2026, 11, 22, 18), 22), ((2026, 11, 23, 3), 22), ((2026, 11, 23, 17, 59), 22),
                     ((2026, 11, 23, 18, 1), 23)],
)  # fmt: skip
def test_a_night_begins_at_the_last_evening(now: tuple[int, ...], day: int) -> None:
    assert evening_before(datetime(*now).timestamp()) == datetime(2026, 11, day, 18).timestamp()  # type: ignore[arg-type]  # year to minute


def test_the_cost_is_that_of_attempts_and_reports_of_the_night() -> None:
    entries = [
        entry(NIGHT + 300, cost_usd=4.0),
        entry(NIGHT + 200, cost_usd=0.5),
        entry(NIGHT + 150, cost_usd=None),
        entry(NIGHT + 100, "cost", usd=0.25),
        entry(NIGHT + 50, "run", code=1),
        entry(NIGHT - 1, cost_usd=8.0),
    ]

    assert spent(entries, NIGHT, NIGHT + 200) == 0.75


def test_an_unknown_cost_is_not_zero() -> None:
    assert spent([entry(NIGHT + 1, "run"), {"kind": "cost"}], NIGHT, NIGHT + 9) is None


def an_event(id: int, run: str = "r1", **data: object) -> StoredEvent:
    return StoredEvent(id, "iteration.started", rfc3339(NIGHT), "demo", run, data)


def test_the_task_is_the_last_one_that_the_run_named_before() -> None:
    first, second = {"id": "a", "title": "A"}, {"id": "b", "title": "B"}
    events = [an_event(9, task=second), an_event(4, "r2", task=second), an_event(3, task=first)]

    assert task_of(an_event(5), events) == first
    assert task_of(an_event(9), events) == second
    assert task_of(an_event(2), events) is None


def test_output_is_bounded_and_without_control_characters() -> None:
    lines = [f"{n}" for n in range(50)] + ["", "\x1b[31mred\x1b[0m\x07\r", "x" * 100_000]

    shown = shown_lines(lines)

    assert len(shown) == MOST_LINES
    assert shown[-2] == "red"
    assert len(shown[-1]) == MOST_LINE_CHARS
