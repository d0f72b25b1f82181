"""The strip of a night: which state a cell shows."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphctl.report import strip
from ralphctl.report.model import TIME_USES
from ralphctl.report.page import PageStrip, ReportPage, plain_text
from ralphctl.report.strip import WORST_FIRST, Span, pieces, state_of

_RANKS = {use: rank for rank, use in enumerate(TIME_USES)}
Label = tuple[int, str, str | None]
Stretch = tuple[Label, Span]


def stretch(begin: float, end: float, use: str, reason: str | None = None) -> Stretch:
    return (_RANKS[use], use, reason), (round(begin * 1_000_000), round(end * 1_000_000))


def cells(
    night: Iterable[Stretch], marks: list[tuple[float, str]], since: float, until: float, number: int = 64
) -> list[str]:
    by_label = defaultdict[Label, list[Span]](list)
    for label, span in night:
        by_label[label].append(span)
    return strip.cells(by_label, marks, since, until, number)


TIMES = st.one_of(st.floats(-500, 1500), st.sampled_from([-1e12, 1e12, 0.0, 1000.0]))
STRETCHES = st.lists(
    st.builds(
        stretch, TIMES, TIMES, st.sampled_from([*TIME_USES]), st.sampled_from(["usage_limit", "crash"])
    ),
    max_size=12,
)
MOMENTS = st.one_of(TIMES, st.sampled_from([math.nan, math.inf, -math.inf]))
MARKS = st.lists(st.tuples(MOMENTS, st.sampled_from(["failed", "reverted"])), max_size=4)


@pytest.mark.parametrize(
    ("use", "reason", "expected"),
    [
        ("work", None, "working"), ("undone", None, "working"), ("between", None, "working"),
        ("tests", None, "testing"), ("wait", "usage_limit", "limited"), ("wait", "crash", "waiting"),
        ("hang", None, "failed"), ("failure", None, "failed"), ("person", None, "stopped"),
        ("off", None, "stopped"),
    ],
)  # fmt: skip
def test_each_use_of_time_has_its_state(use: str, reason: str | None, expected: str) -> None:
    assert state_of(use, reason) == expected
    assert expected in strip.CELLS


def test_every_state_has_a_place_in_the_order_and_two_signs() -> None:
    assert set(WORST_FIRST) == set(strip.CELLS) == set(strip.PLAIN_CELLS)
    assert len(set(strip.CELLS.values())) == len(set(strip.PLAIN_CELLS.values())) == len(WORST_FIRST)
    assert strip.drawn(WORST_FIRST, encoding="ascii").isascii()
    assert strip.legend(encoding="ascii").replace("\xa0", "").isascii()
    assert "\x1b" not in strip.drawn(WORST_FIRST)
    assert "\x1b" in strip.drawn(WORST_FIRST, colour=True)


def test_a_night_reads_from_left_to_right() -> None:
    night = [
        stretch(0, 300, "work"), stretch(300, 500, "wait", "usage_limit"), stretch(500, 700, "wait", "retry"),
        stretch(700, 800, "tests"), stretch(800, 900, "failure"),
    ]  # fmt: skip
    shown = cells(night, [(250.0, "reverted"), (999.9, "failed")], 0.0, 1000.0, 10)
    assert strip.drawn(shown) == "██R░░▒▒T✗✗"


def test_the_worst_wins_of_what_takes_a_fifth_of_the_time_in_which_anything_ran() -> None:
    def shown(*night: Stretch) -> list[str]:
        return cells(night, [], 0.0, 100.0, 1)

    assert shown(stretch(0, 81, "work"), stretch(81, 100, "failure")) == ["working"]
    assert shown(stretch(0, 80, "work"), stretch(80, 100, "failure")) == ["failed"]
    assert shown(stretch(0, 50, "wait", "crash"), stretch(50, 100, "wait", "rate_limit")) == ["limited"]
    assert shown(stretch(0, 100, "work"), stretch(0, 30, "tests")) == ["testing"], (
        "overlaps: the smallest rank"
    )
    assert shown(stretch(0, 1, "work")) == ["working"], "time in which nothing ran does not count"
    assert shown(stretch(0, 100, "person")) == shown() == ["stopped"]


def test_a_mark_wins_over_what_lasts_and_the_worst_of_marks_wins() -> None:
    night = [stretch(0, 100, "work")]
    assert cells(night, [(0.0, "failed"), (1.0, "reverted"), (100.0, "reverted")], 0.0, 100.0, 4) == [
        "failed", "working", "working", "reverted",
    ]  # fmt: skip
    assert (
        cells(night, [(-0.1, "failed"), (100.1, "failed"), (math.nan, "failed")], 0.0, 100.0, 4)
        == ["working"] * 4
    )


@given(STRETCHES, MARKS, st.integers(1, 200))
def test_any_times_make_as_many_cells_as_asked_for(
    night: list[Stretch], marks: list[tuple[float, str]], number: int
) -> None:
    shown = cells(night, marks, 0.0, 1000.0, number)
    assert len(shown) == number
    assert set(shown) <= set(WORST_FIRST)
    assert shown == cells(night[::-1], marks[::-1], 0.0, 1000.0, number), "their order does not matter"
    worst = min((WORST_FIRST.index(state) for at, state in marks if 0 <= at <= 1000), default=None)
    if worst is not None:
        assert {*WORST_FIRST[: worst + 1]} & {*shown}, "the mark, or what is worse in its cell"


@given(st.integers(1, 999), st.integers(1, 200))
def test_each_moment_is_in_exactly_one_cell(at: int, number: int) -> None:
    shown = cells([], [(at + 0.5, "reverted")], 0.0, 1000.0, number)
    assert shown.count("reverted") == 1
    assert shown.index("reverted") == int((at + 0.5) / 1000.0 * number)
    both = cells([stretch(0, at, "work"), stretch(at, 1000, "wait", "crash")], [], 0.0, 1000.0, number)
    assert "stopped" not in both
    assert both == sorted(both, key=["working", "waiting"].index), "nothing is drawn twice or left out"


@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=4), max_size=6))
def test_pieces_share_the_time_without_overlaps(drawn: list[list[tuple[int, int]]]) -> None:
    ranked = [[(begin, begin + took) for begin, took in spans] for spans in drawn]
    owner = {at: which for begin, end, which in pieces(ranked) for at in range(begin, end)}
    assert sum(end - begin for begin, end, _ in pieces(ranked)) == len(owner)
    for at in range(71):
        first = next((i for i, spans in enumerate(ranked) if any(b <= at < e for b, e in spans)), None)
        assert owner.get(at) == first


@given(st.integers(20, 200), st.integers(1, 40))
def test_strips_fit_any_screen(width: int, letters: int) -> None:
    strips = tuple(PageStrip(name, lambda number: ["failed"] * number) for name in ("a", "b" * letters))
    lines = plain_text(ReportPage("x", "done", (), (), strips), columns=width, encoding="ascii").splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].count("x") == lines[2].count("x") <= strip.MOST_CELLS
    assert width < 80 or letters > 13 or lines[1].count("x") == strip.MOST_CELLS
    assert "".join(lines).replace("\u2026", "").isascii()


def test_an_empty_span_has_cells_too() -> None:
    assert cells([stretch(0, 10, "work")], [], 5.0, 5.0, 8) == ["stopped"] * 8
    assert cells([stretch(0, 10, "work")], [], 5.0, 4.0, 8) == ["stopped"] * 8


def test_ten_thousand_iterations_take_a_moment() -> None:
    night = [stretch(i, i + 0.9, "work") for i in range(10_000)]
    night += [stretch(i + 0.9, i + 1, "tests") for i in range(10_000)]
    night += [stretch(0, 10_000, "between"), stretch(0, 10_000, "off")]
    began = time.process_time()
    assert cells(night, [], 0.0, 10_000.0) == ["working"] * strip.MOST_CELLS
    assert time.process_time() - began < 1.0
