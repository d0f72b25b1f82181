"""Who starts, and why others wait: by example, and for any applicants."""

from dataclasses import replace
from datetime import UTC
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.limits import RunLimits
from ralphd.core.supervision.model import Goal, Reason
from ralphd.core.supervision.start_order import Applicant, StartHold, start_order
from tests.core.supervision.scenes import NOW

TWO = RunLimits(max_running=2)

applicants = st.builds(
    Applicant,
    st.just(""),
    st.integers(-3, 0).map(lambda s: NOW + s),
    st.sampled_from([Goal.RUNNING, Goal.RUNNING, Goal.STOPPED, Goal.PAUSED]),
    st.builds(RunLimits, max_running=st.integers(0, 4), min_free_memory=st.sampled_from([0.0, 0.1, 0.5])),
    st.integers(-1, 1),
    st.sampled_from(["", "", "00:00-12:00", "12:00-24:00"]),
    st.none() | st.sampled_from([NOW - 1, NOW + 60]),
)
lines = st.lists(applicants, max_size=8).map(
    lambda line: [replace(each, name=f"r{number}") for number, each in enumerate(line)]
)
running = st.integers(0, 5)
memory = st.sampled_from([0.0, 0.2, 1.0])


def decided(*line: Applicant, running: int = 0, free: float = 1.0) -> dict[str, StartHold | None]:
    return start_order(line, running, free, NOW, None)


def waits(line: list[Applicant], order: dict[str, StartHold | None], kind: str) -> list[Applicant]:
    return [each for each in line if (hold := order.get(each.name)) is not None and kind in hold.why]


def rank(each: Applicant) -> tuple[int, float]:
    return (-each.priority, each.queued_at)


def test_a_free_place_goes_to_the_largest_priority_then_to_the_longest_wait() -> None:
    late, early = Applicant("late", NOW - 1, limits=TWO), Applicant("early", NOW - 9, limits=TWO)
    urgent = Applicant("urgent", NOW, limits=TWO, priority=5)

    order = decided(late, early, urgent, running=1)

    assert list(order) == ["urgent", "early", "late"]
    full = "2 of 2 ralphs are running ([limits] max_running)"
    assert order["urgent"] is None
    assert order["early"] == StartHold(Reason.RESOURCES, full)
    assert order["late"] == StartHold(Reason.RESOURCES, f"{full}; next after early")


def test_a_place_is_kept_for_the_first_even_if_a_later_one_has_a_larger_limit() -> None:
    first = Applicant("first", NOW - 9, limits=TWO)
    later = Applicant("later", NOW, limits=RunLimits(max_running=5))

    hold = decided(first, later, running=2)["later"]

    assert hold == StartHold(
        Reason.RESOURCES, "2 of 5 ralphs are running ([limits] max_running); next after first"
    )
    assert decided(first, replace(later, limits=RunLimits()), running=2)["later"] is None


def test_outside_its_schedule_a_ralph_waits_until_the_next_time_and_holds_nobody_up() -> None:
    night = Applicant("night", NOW - 9, limits=TWO, priority=9, schedule="23:00-07:00")
    noon = NOW - NOW % 86400 + 12 * 3600

    order = start_order([night, Applicant("day", noon, limits=TWO)], 1, 1.0, noon, UTC)

    why = "outside its schedule, 23:00-07:00 ([ralph] schedule)"
    assert order == {"night": StartHold(Reason.SCHEDULE, why, noon + 11 * 3600), "day": None}
    skipped = replace(night, unscheduled_until=noon + 1)
    assert start_order([skipped], 1, 1.0, noon, UTC) == {"night": None}
    assert start_order([skipped], 1, 1.0, noon + 1, UTC)["night"] is not None


def test_without_enough_memory_nobody_starts_and_who_needs_none_does() -> None:
    needs, takes = Applicant("a", NOW, limits=RunLimits(min_free_memory=0.5)), Applicant("b", NOW)

    order = decided(needs, takes, free=0.2)

    assert order["b"] is None
    assert "20.0 % of the memory is free" in (order["a"] or StartHold(Reason.CRASH, "")).why


@given(lines, running, memory)
def test_nobody_starts_beyond_max_running_or_without_the_goal(
    line: list[Applicant], running: int, free: float
) -> None:
    order = decided(*line, running=running, free=free)
    by_name = {each.name: each for each in line}

    assert order.keys() == {each.name for each in line if each.goal is Goal.RUNNING}
    for name, hold in order.items():
        if hold is None:
            running += 1
            assert not 0 < by_name[name].limits.max_running < running


@given(lines, running, memory)
def test_nobody_starts_before_one_that_comes_first_and_waits_for_the_same(
    line: list[Applicant], running: int, free: float
) -> None:
    order = decided(*line, running=running, free=free)
    starts = [each for each in line if each.name in order and order[each.name] is None]

    for first in waits(line, order, "max_running"):
        assert all(rank(each) <= rank(first) for each in starts if each.limits.max_running)
    for first in waits(line, order, "min_free_memory"):
        need = first.limits.min_free_memory
        assert all(each.limits.min_free_memory < need for each in starts)


@given(lines, running, memory, st.randoms())
def test_it_does_not_matter_who_asks_first(
    line: list[Applicant], running: int, free: float, chance: Random
) -> None:
    mixed = list(line)
    chance.shuffle(mixed)

    assert decided(*mixed, running=running, free=free) == decided(*line, running=running, free=free)


@given(lines)
def test_each_starts_once_places_become_free_one_by_one(line: list[Applicant]) -> None:
    left = [replace(each, goal=Goal.RUNNING, schedule="") for each in line]
    started: list[Applicant] = []
    while left:
        now = [each for each in left if decided(*left)[each.name] is None]
        assert now, "places are free, and nobody starts"
        started += sorted(now, key=rank)
        left = [each for each in left if each not in now]
    limited = [each for each in started if each.limits.max_running]

    assert limited == sorted(limited, key=lambda each: (*rank(each), each.name))
