"""Output that is no progress is no life: empty steps, and an agent's own retries beyond patience (L6)."""

from collections.abc import Iterable

import pytest

from ralphd.core.explanation import Figure
from ralphd.core.failures.agent_events import (
    NOT_IDLING,
    RETRY_PATIENCE_S,
    AgentEvent,
    AgentText,
    Alive,
    Empty,
    Figures,
    FinalEvent,
    Idling,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Warned,
    explain_stuck,
    idled,
    is_life,
    is_stuck,
    limit_s,
    shown_lines,
    traits_of,
)

TIMEOUT_S = 300.0
RETRY = RetryingItself("overloaded")


def after(signs: Iterable[tuple[float, AgentEvent]], timeout_s: float = TIMEOUT_S) -> Idling:
    """The row after these signs at these moments."""
    idling = NOT_IDLING
    for at_s, sign in signs:
        idling = idled(idling, (sign,), at_s, timeout_s)
    return idling


def every(step_s: float, until_s: float, *signs: AgentEvent) -> list[tuple[float, AgentEvent]]:
    return [(at * step_s, sign) for at in range(int(until_s / step_s) + 1) for sign in signs]


def test_empty_steps_are_a_stall_at_the_time_out_and_not_before() -> None:
    assert not is_stuck(after(every(1, 299, Empty())), TIMEOUT_S)
    assert is_stuck(after(every(1, 300, Empty())), TIMEOUT_S)


def test_the_beginnings_of_empty_steps_neither_break_the_row_nor_are_life() -> None:
    row = after(every(1, 300, Alive(), Empty()))

    assert is_stuck(row, TIMEOUT_S)
    assert not is_life((Alive(),), row, 301, TIMEOUT_S)


@pytest.mark.parametrize(
    "sign", [AgentText("a"), ToolUse("edit"), Spent(Figures(tokens_in=1)), Started("s"), FinalEvent(True)]
)
def test_progress_ends_the_row_and_is_life(sign: AgentEvent) -> None:
    row = after([*every(1, 299, Empty()), (299.5, sign), (300, Empty())])

    assert not is_stuck(row, TIMEOUT_S)
    assert is_life((sign,), row, 300, TIMEOUT_S)


def test_an_answer_that_streams_for_long_is_life_though_a_step_was_empty_before_it() -> None:
    row = after([(0, Empty()), *every(1, 3000, Alive())])
    assert is_life((Alive(),), row, 3000, TIMEOUT_S)

    late = after([*every(1, 5, Empty()), (700, Alive())])
    assert is_life((Alive(),), late, 700, TIMEOUT_S)


def test_empty_steps_with_a_long_time_between_them_are_no_row() -> None:
    assert not is_stuck(after(every(200, 2000, Empty())), TIMEOUT_S)


def test_its_own_retries_are_life_for_five_minutes_and_a_stall_a_time_out_later() -> None:
    young, old = after(every(10, 290, RETRY)), after(every(10, 300, RETRY))

    assert is_life((RETRY,), young, 290, TIMEOUT_S)
    assert not is_life((RETRY,), old, 300, TIMEOUT_S)
    assert not is_stuck(old, TIMEOUT_S)
    assert is_stuck(after(every(10, RETRY_PATIENCE_S + TIMEOUT_S, RETRY)), TIMEOUT_S)


def test_retries_are_borne_with_for_the_time_out_where_that_is_longer() -> None:
    row = after(every(10, 1790, RETRY), 1800.0)

    assert is_life((RETRY,), row, 1790, 1800.0)
    assert limit_s(row, 1800.0) == 3600.0


def test_slow_retries_are_a_row_as_well() -> None:
    assert after(every(290, 900, RETRY)).count == 4


def test_a_complaint_is_nothing_of_all_this() -> None:
    assert after([(0, Warned("careful"))]) == NOT_IDLING
    assert not is_life((Warned("careful"),), NOT_IDLING, 0, TIMEOUT_S)
    assert not is_life((), NOT_IDLING, 0, TIMEOUT_S)


def test_without_a_time_out_nothing_is_stuck() -> None:
    assert not is_stuck(after(every(1, 3000, Empty()), 0.0), 0.0)


def test_why_it_was_ended_is_told_with_its_figures() -> None:
    why = explain_stuck("opencode", after(every(1, 300, Empty())), TIMEOUT_S)
    again = explain_stuck("claude", after(every(10, 600, RETRY)), TIMEOUT_S)

    assert why.title == "opencode only printed empty steps for 5 min — killing its processes"
    assert again.title == "claude only retried for 10 min — killing its processes"
    assert (why.rule, why.figures[1].seen, again.figures[2].seen) == ("L6", "301", "61")
    assert "after 5 min of retries" in again.because


def test_a_streak_begins_where_the_gap_before_it_was_too_long() -> None:
    assert after([(10, Empty())]).began_s == 10
    assert after([(0, Empty()), (150, Empty())]).count == 2
    assert after([(0, Empty()), (150.5, Empty())]).began_s == 150.5


def test_the_patience_with_retries_is_between_retries_only() -> None:
    assert after([(0, Empty()), (200, RETRY)]).began_s == 200
    assert after([(0, RETRY), (200, Empty())]).began_s == 200
    assert after([(0, RETRY), (200, RETRY)]).began_s == 0


def test_a_streak_is_judged_by_its_length_not_by_its_end() -> None:
    late = [(1000 + at_s, sign) for at_s, sign in every(10, 290, RETRY)]
    empty = [(1000 + at_s, sign) for at_s, sign in every(1, 299, Empty())]

    assert is_life((RETRY,), after(late), 1290, TIMEOUT_S)
    assert not is_stuck(after(empty), TIMEOUT_S)


def test_three_empty_steps_are_a_streak() -> None:
    three = after([(0, Empty()), (150, Empty()), (300, Empty())])

    assert is_stuck(three, TIMEOUT_S)
    assert not is_life((Alive(),), three, 301, TIMEOUT_S)
    assert not is_stuck(Idling(0.0, 400.0, 2), TIMEOUT_S)
    assert is_stuck(after(every(0.5, 1, Empty()), 1.0), 1.0)
    assert not is_stuck(Idling(0.0, 3000.0, 3000), 0.0)


def test_a_sign_of_life_long_after_retries_is_life() -> None:
    assert is_life((Alive(),), after(every(10, 50, RETRY)), 250, TIMEOUT_S)


def test_the_figures_name_what_was_seen_and_what_was_missing() -> None:
    empty = [(100 + at_s, sign) for at_s, sign in every(1, 300, Empty())]
    why = explain_stuck("opencode", after(empty), TIMEOUT_S)
    again = explain_stuck("claude", after([*every(10, 600, RETRY), (601, Empty())]), TIMEOUT_S)

    assert why.because == "output without progress is not a sign of life: hang_timeout_seconds = 300"
    assert why.figures == (
        Figure("without progress", "5 min", "ended at 5 min"),
        Figure("empty steps", "301"),
        Figure("retries by itself", "0"),
    )
    assert why.missing == ("a text", "a tool use", "tokens")
    assert why.done == "all its processes are killed (stall)"
    assert again.figures[1:] == (Figure("empty steps", "1"), Figure("retries by itself", "61"))


@pytest.mark.parametrize(
    ("spent", "before", "figures"),
    [
        (Spent(Figures(0.5, 10, 2)), Figures(0.25, 5, 1), Figures(0.5, 10, 2)),
        (Spent(Figures(None, 10, 2)), Figures(0.25, 5, 1), Figures(0.25, 10, 2)),
        (Spent(Figures(0.5, 10, 2), total=False), Figures(0.25, 5, 1), Figures(0.75, 15, 3)),
        (Spent(Figures(0.5, 10, 2), total=False), Figures(None, 5, 1), Figures(0.5, 15, 3)),
        (Spent(Figures(None, 10, 2), total=False), Figures(0.25, 5, 1), Figures(0.25, 15, 3)),
        (Spent(Figures(None, 10, 2), total=False), Figures(), Figures(None, 10, 2)),
    ],
)
def test_figures_replace_earlier_ones_or_are_added(spent: Spent, before: Figures, figures: Figures) -> None:
    assert spent.after(before) == figures


def test_the_events_of_a_line_are_taken_together() -> None:
    empty, both = traits_of((Empty(),)), traits_of((Empty(), AgentText("a"), AgentText("b")))

    assert (empty.idles, empty.progresses, empty.is_more_than_empty) == (True, False, False)
    assert (both.idles, both.progresses, both.is_more_than_empty) == (True, True, True)
    assert (both.works, both.is_told, both.beats, both.judges) == (True, True, False, False)
    assert traits_of((Alive(),)).beats
    assert traits_of((FinalEvent(True), Alive())).judges
    assert not any(getattr(traits_of(()), name) for name in traits_of(()).__slots__)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (AgentText("I read it.\nIt is fine."), ["I read it.", "It is fine."]),
        (ToolUse("Bash", "make test"), ["[Bash] make test"]),
        (ToolUse("Bash", "cat <<E\nfirst\nsecond"), ["[Bash] cat <<E"]),
        (ToolUse("Read"), ["[Read]"]),
        (Warned("deprecated"), []),
        (RETRY, []),
    ],
)
def test_people_see_texts_and_one_line_of_each_tool_use(event: AgentEvent, lines: list[str]) -> None:
    assert [*shown_lines(event)] == lines
