"""Who starts, and why others wait: by example, and for any applicants."""

from dataclasses import replace
from datetime import UTC
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.limits import RunLimits
from ralphd.core.quota import clock as quota
from ralphd.core.quota.model import AccountRules, AccountUser, QuotaClock, QuotaLimit, QuotaWindow
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


# --- accounts and disk --------------------------------------------------------------------------------

ONE_SLOT = {"work": AccountRules(slots=1)}


def works(*names: str, waiting: tuple[str, ...] = (), limit: QuotaLimit | None = None) -> QuotaClock:
    users = (tuple(AccountUser(f"{each}.1", NOW - 5) for each in some) for some in (names, waiting))
    return QuotaClock("work", "claude", limit, working=next(users), waiting=next(users))


def by_accounts(
    line: list[Applicant], *clocks: QuotaClock, running: int = 0, begun: tuple[Applicant, ...] = ()
) -> dict[str, StartHold | None]:
    known = {each.account: each for each in clocks}
    return start_order(line, running, 1.0, NOW, None, known, begun)


def test_each_waits_for_what_it_needs_and_holds_up_only_those_who_need_the_same() -> None:
    limit = QuotaLimit(NOW + 600, NOW - 9, source="web.1")
    line = [
        Applicant("night", NOW - 9, schedule="00:00-00:01", priority=9),
        Applicant("limited", NOW - 8, accounts={"work": AccountRules()}, limits=TWO),
        Applicant("second", NOW - 7, accounts={"work": AccountRules()}, limits=TWO),
        Applicant("full", NOW - 6, no_room="50 GiB of 50GiB are used", limits=TWO),
        Applicant("first", NOW - 5, limits=TWO),
        Applicant("placeless", NOW - 4, limits=TWO),
        Applicant("free", NOW - 3, accounts={"work": AccountRules(), "home": AccountRules()}),
    ]

    order = by_accounts(line, works(limit=limit), running=1)

    why = "account work: usage limit (met by web)"
    assert order["limited"] == StartHold(Reason.USAGE_LIMIT, why, NOW + 600, ("work",))
    assert order["second"] is not None and order["second"].why == f"{why}; next after limited"
    assert order["full"] == StartHold(Reason.RESOURCES, "50 GiB of 50GiB are used")
    assert [name for name, hold in order.items() if hold is None] == ["first", "free"]
    assert order["placeless"] is not None and order["night"] is not None


def test_the_next_for_a_slot_starts_and_those_after_it_wait() -> None:
    line = [Applicant(name, NOW - 9 + n, accounts=ONE_SLOT) for n, name in enumerate("bcd")]

    order = by_accounts(line, works("a"))
    waits = {name: hold.why for name, hold in order.items() if hold is not None}
    assert waits == {
        "c": "account work: 1 of 1 slots are in use; next after b",
        "d": "account work: 1 of 1 slots are in use; next after b, c",
    }
    begun, *line = line
    assert None not in by_accounts(line, works("a"), begun=(begun,)).values()
    urgent = Applicant("urgent", NOW, accounts=ONE_SLOT, priority=1)
    assert by_accounts([*line, urgent], works("a"), begun=(begun,))["urgent"] is None
    slots = {"work": AccountRules(slots=3)}
    three = by_accounts([replace(each, accounts=slots) for each in line], works("a"))
    assert list(three.values()) == [None, None]


def test_after_a_reset_one_starts_and_keep_free_holds_all() -> None:
    line = [Applicant(name, NOW - 9, accounts={"work": AccountRules(keep_free=0.1)}) for name in "ab"]
    over = by_accounts(line, works(limit=QuotaLimit(NOW - 1, NOW - 99)))
    assert over["a"] is None
    assert over["b"] is not None and over["b"].reason is Reason.USAGE_LIMIT
    assert over["b"].why == "account work: usage limit over; next after a"
    used = replace(works(), windows=(QuotaWindow("five_hour", 0.95, NOW, NOW + 60),))
    assert [hold and hold.until for hold in by_accounts(line, used).values()] == [NOW + 60, NOW + 60]


def test_who_loops_behind_is_first_after_the_reset() -> None:
    clock = works(waiting=("loop",), limit=QuotaLimit(NOW - 1, NOW - 99))
    line = [Applicant("later", NOW, accounts={"work": AccountRules()})]
    assert by_accounts(line, clock)["later"] is not None
    assert by_accounts([replace(line[0], priority=1)], clock)["later"] is None


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.integers(1, 3),
    st.lists(st.integers(1, 3), min_size=8, max_size=8),
    st.booleans(),
)
def test_with_slots_all_work_larger_priorities_first_and_nobody_starves(
    priorities: list[int], slots: int, tasks: list[int], starts_at_a_reset: bool
) -> None:
    """Rounds: some are started, their loops ask, one attempt ends. The first attempts come in rank order."""
    rules, at = AccountRules(slots=slots), NOW
    limit = QuotaLimit(NOW, NOW - 9) if starts_at_a_reset else None
    clock = QuotaClock("work", "claude", limit)
    left = {f"r{n}": tasks[n] for n in range(len(priorities))}
    queue = {f"r{n}": Applicant(f"r{n}", NOW - 20 + n, priority=each, accounts={"work": rules})
             for n, each in enumerate(priorities)}  # fmt: skip
    loops: dict[str, Applicant] = {}
    firsts: list[Applicant] = []
    for _ in range(200):
        at += 1.0
        order = start_order(queue.values(), 0, 1.0, at, None, {"work": clock})
        for name in [name for name, hold in order.items() if hold is None]:
            loops[name] = queue.pop(name)
        for name in sorted(loops):
            me, user = loops[name], f"{name}.1"
            if user in {each.by for each in clock.working}:
                continue
            since = None if me in firsts else me.queued_at
            asked = quota.ask(clock, user, at, rules, priority=me.priority, queued_at=since)
            clock = asked.clock
            if asked.hold is None and me not in firsts:
                firsts.append(me)
            assert len(clock.working) <= slots
        if clock.working:
            by = min(clock.working, key=lambda each: each.since).by
            clock = quota.ended(quota.answered(clock, by, at), by)
            left[name := by.removesuffix(".1")] -= 1
            if not left[name]:
                del loops[name]
    assert not any(left.values()), "somebody starves"
    assert len(firsts) == len(priorities)
    if slots == 1:
        assert firsts == sorted(firsts, key=rank)


def test_a_loop_keeps_the_turn_that_its_ralph_waited_for() -> None:
    rules = AccountRules(slots=1)
    clock = quota.ask(works("a"), "b.1", NOW + 1, rules).clock
    clock = quota.ask(clock, "late.1", NOW + 2, rules, queued_at=NOW).clock

    free = quota.ended(clock, "a.1")

    assert quota.hold_of(free, "late.1", NOW + 3, rules) is None
    assert quota.hold_of(free, "b.1", NOW + 3, rules) is not None
