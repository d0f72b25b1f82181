"""The quota clock of an account: who starts, who probes, who waits (Q2 to Q6)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Force
from ralphd.core.quota.model import (
    PROBE_S,
    SLOT_LOOK_S,
    AccountRules,
    AccountUser,
    HoldKind,
    QuotaClock,
    QuotaLimit,
    QuotaWindow,
)

NO_RULES = AccountRules()
OPEN = QuotaClock("work", "claude")


def limited(until: float = 1000.0, *, since: float = 100.0, guessed: bool = False) -> QuotaClock:
    met = QuotaLimit(until, since, "5-hour usage limit", "a.1", guessed)
    return quota.limit_met(OPEN, met)


def holds(clock: QuotaClock, by: str, at: float, rules: AccountRules = NO_RULES) -> HoldKind | None:
    hold = quota.hold_of(clock, by, at, rules)
    return None if hold is None else hold.kind


def test_an_open_account_gives_every_permit() -> None:
    asked = quota.ask(OPEN, "a.1", 1.0, NO_RULES)
    assert asked.hold is None
    assert quota.ask(asked.clock, "b.1", 1.0, NO_RULES).hold is None


def test_a_limit_holds_everybody_until_its_end() -> None:
    hold = quota.ask(limited(), "b.1", 999.0, NO_RULES).hold
    assert hold is not None
    assert (hold.kind, hold.until, hold.brief) == (HoldKind.LIMIT, 1000.0, False)
    assert hold.why == "account work: 5-hour usage limit (met by a)"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("5-hour limit reached ∙ resets 2am", "5-hour limit"),
        ("You've hit your session limit · resets 4:20pm (Asia/Kolkata)", "session limit"),
        ("Opus weekly limit reached", "Opus weekly limit"),
        ("weekly Opus usage limit", "weekly Opus usage limit"),
        ("Claude usage limit reached", "usage limit"),
        ("You've hit your usage limit. Visit https://example.com/usage or try again at 3 PM.", "usage limit"),
    ],
)
def test_a_limit_is_shown_by_its_name(words: str, name: str) -> None:
    clock = quota.limit_met(OPEN, QuotaLimit(1000.0, 100.0, words, "a.1"))
    hold, news = quota.hold_of(clock, "b.1", 200.0, NO_RULES), quota.news_of(clock)
    assert hold is not None and hold.why == f"account work: {name} (met by a)"
    assert quota.view_of(clock, 200.0)["limit"] == name
    assert news is not None and f": {name}, met by a;" in news[2]["message"]
    assert QuotaLimit(1000.0, 100.0, brief=True).name == "rate limit"


def test_attempts_that_meet_one_limit_are_one_piece_of_news() -> None:
    clock = limited(1000.0)
    later = quota.limit_met(clock, QuotaLimit(1000.5, 101.0, "", "b.1"))
    assert later.limit is not None and (later.limit.until, later.limit.source) == (1000.5, "a.1")
    assert [news[1] for news in map(quota.news_of, (clock, later)) if news] == ["work 100.0"] * 2
    other = quota.limit_met(clock, QuotaLimit(9000.0, 101.0, "weekly limit", "b.1"))
    assert other.limit is not None and (other.limit.until, other.limit.name) == (9000.0, "weekly limit")


def test_exactly_one_probes_at_the_end() -> None:
    first = quota.ask(limited(), "b.1", 1000.0, NO_RULES)
    second = quota.ask(first.clock, "c.1", 1000.0, NO_RULES)
    assert first.hold is None
    assert second.hold is not None
    assert (second.hold.kind, second.hold.until) == (HoldKind.PROBE, 1000.0 + PROBE_S)
    assert quota.ask(first.clock, "b.1", 1001.0, NO_RULES).hold is None, "the probe itself may try again"


def test_after_a_minute_without_an_answer_the_next_probes() -> None:
    first = quota.ask(limited(), "b.1", 1000.0, NO_RULES).clock
    second = quota.ask(first, "c.1", 1060.0, NO_RULES)
    assert second.hold is None
    assert holds(second.clock, "d.1", 1060.0) is HoldKind.PROBE


def test_the_probes_answer_opens_the_account() -> None:
    probing = quota.ask(limited(), "b.1", 1000.0, NO_RULES).clock
    assert quota.answered(probing, "b.1", 1001.0).limit is None
    assert quota.answered(probing, "c.1", 1001.0) == probing


def test_an_answer_to_an_attempt_from_before_opens_nothing() -> None:
    clock = quota.ask(OPEN, "b.1", 50.0, NO_RULES).clock
    clock = quota.limit_met(clock, QuotaLimit(1000.0, 100.0, "", "a.1"))
    assert quota.answered(clock, "b.1", 101.0).limit is not None


def test_a_dead_probe_leaves_its_place() -> None:
    probing = quota.ask(limited(), "b.1", 1000.0, NO_RULES).clock
    assert holds(probing.without({"b.1"}), "c.1", 1001.0) is None


def test_a_guess_yields_to_a_known_reset_and_never_hides_one() -> None:
    known = quota.limit_met(limited(1000.0, guessed=True), QuotaLimit(500.0, 101.0, "", "b.1"))
    assert known.limit is not None and known.limit.until == 500.0
    guessed = quota.limit_met(limited(1000.0), QuotaLimit(500.0, 101.0, "", "b.1", guessed=True))
    assert guessed.limit is not None and guessed.limit.until == 1000.0


def test_no_limit_holds_longer_than_a_month() -> None:
    clock = limited(1e12, since=100.0)
    assert clock.limit is not None and clock.limit.until == 100.0 + 31 * 86400


@pytest.mark.parametrize(("guessed", "until"), [(True, 900.0), (False, 1000.0)])
def test_a_clock_set_back_keeps_the_reset_or_the_length(guessed: bool, until: float) -> None:
    clock = quota.at_present(limited(1000.0, since=150.0, guessed=guessed), 50.0)
    assert clock.limit is not None and clock.limit.until == until
    probing = replace(limited(40.0, since=10.0), probe=AccountUser("b.1", 500.0))
    assert holds(probing, "c.1", 50.0) is HoldKind.PROBE
    assert holds(quota.at_present(probing, 50.0), "c.1", 50.0 + PROBE_S) is None


def test_who_waits_keeps_its_place_when_the_clock_is_set_back() -> None:
    rules = AccountRules(slots=1)
    clock = quota.ask(OPEN, "w.1", 5000.0, rules).clock
    for by, at in (("b.1", 5010.0), ("a.1", 5020.0), ("new.1", 100.0)):
        clock = quota.ask(clock, by, at, rules).clock
    clock = quota.ended(clock, "w.1")
    assert [by for by in ("new.1", "a.1", "b.1") if holds(clock, by, 101.0, rules) is None] == ["b.1"]
    assert quota.view_of(clock, 101.0)["waiting"] == ["b", "a", "new"]


def test_an_attempt_from_before_a_set_back_clock_opens_nothing() -> None:
    clock = quota.ask(OPEN, "b.1", 5000.0, NO_RULES).clock
    clock = quota.limit_met(clock, QuotaLimit(900.0, 500.0, "", "a.1"))
    assert quota.answered(clock, "b.1", 510.0).limit is not None


def test_the_probes_answer_counts_when_the_clock_is_set_back() -> None:
    probing = quota.ask(limited(guessed=True), "b.1", 1000.0, NO_RULES).clock
    clock = quota.at_present(probing, 50.0)
    assert clock.limit is not None and clock.limit.until > 50.0
    assert quota.answered(clock, "b.1", 51.0).limit is None


def test_a_person_overrides_a_guess_or_everything() -> None:
    assert quota.ask(limited(), "b.1", 200.0, NO_RULES, force=Force.GUESSES).hold is not None
    assert quota.ask(limited(guessed=True), "b.1", 200.0, NO_RULES, force=Force.GUESSES).hold is None
    asked = quota.ask(limited(), "b.1", 200.0, NO_RULES, force=Force.ALL)
    assert asked.hold is None
    assert holds(asked.clock, "c.1", 201.0) is HoldKind.PROBE
    assert quota.answered(asked.clock, "b.1", 201.0).limit is None


def test_a_guess_that_is_over_is_not_overridden_and_its_probe_is_awaited() -> None:
    probing = quota.ask(limited(guessed=True), "b.1", 1000.0, NO_RULES).clock
    hold = quota.ask(probing, "c.1", 1001.0, NO_RULES, force=Force.GUESSES).hold
    assert hold is not None and hold.kind is HoldKind.PROBE


def test_slots_go_to_the_largest_priority_then_to_the_longest_wait() -> None:
    rules = AccountRules(slots=1)
    clock = quota.ask(OPEN, "a.1", 1.0, rules).clock
    for by, at, priority in (("b.1", 2.0, 0), ("c.1", 3.0, 0), ("d.1", 4.0, 1)):
        asked = quota.ask(clock, by, at, rules, priority=priority)
        clock = asked.clock
        assert asked.hold is not None and asked.hold.kind is HoldKind.SLOTS
    clock = quota.ended(clock, "a.1")
    order = []
    while clock.waiting:
        free = [
            each
            for each in clock.waiting
            if quota.hold_of(clock, each.by, 9.0, rules, priority=each.priority) is None
        ]
        assert len(free) == 1
        order.append(free[0].by)
        clock = quota.ask(clock, free[0].by, 9.0, rules, priority=free[0].priority).clock
        clock = quota.ended(clock, free[0].by)
    assert order == ["d.1", "b.1", "c.1"]


def test_a_free_slot_of_those_before_is_in_use() -> None:
    rules = AccountRules(slots=1)
    clock = quota.ask(OPEN, "a.1", 1.0, rules).clock
    for by, at in (("b.1", 2.0), ("c.1", 3.0)):
        clock = quota.ask(clock, by, at, rules).clock
    full, free = quota.hold_of(clock, "b.1", 9.0, rules), quota.ended(clock, "a.1")
    assert full is not None and full.why == f"account {clock.account}: 1 of 1 slots are in use"
    last = quota.hold_of(free, "c.1", 9.0, rules)
    assert last is not None and last.why == f"{full.why}; next after b"


def test_keep_free_stops_work_until_the_windows_reset() -> None:
    clock = quota.reported(OPEN, (QuotaWindow("five_hour", 0.91, 100.0, 1000.0),))
    rules = AccountRules(keep_free=0.1)
    hold = quota.hold_of(clock, "b.1", 200.0, rules)
    assert hold is not None
    assert (hold.kind, hold.until, hold.brief) == (HoldKind.RESERVED, 1000.0, False)
    assert "91 % of the 5-hour limit used" in hold.why
    assert quota.hold_of(clock, "b.1", 1000.0, rules) is None
    assert quota.hold_of(clock, "b.1", 200.0, AccountRules(keep_free=0.05)) is None


def test_an_idle_account_has_no_pace() -> None:
    clock = quota.reported(OPEN, (QuotaWindow("five_hour", 0.2, 0.0, 18000.0),))
    clock = quota.reported(clock, (QuotaWindow("five_hour", 0.5, 3600.0, 18000.0),))
    ends_at = {at: quota.view_of(clock, at)["windows"][0]["ends_at"] for at in (3700.0, 9000.0)}
    assert ends_at[3700.0] is not None and ends_at[9000.0] is None


def test_the_pace_says_when_a_window_ends() -> None:
    clock = quota.reported(OPEN, (QuotaWindow("five_hour", 0.2, 0.0, 18000.0),))
    clock = quota.reported(clock, (QuotaWindow("five_hour", 0.5, 3600.0, 18030.0),))
    assert clock.windows[0].ends_at() == pytest.approx(3600 + 0.5 / (0.3 / 3600))
    clock = quota.reported(clock, (QuotaWindow("five_hour", 0.1, 19000.0, 36000.0),))
    assert clock.windows[0].ends_at() is None, "another window began"
    slow = quota.reported(OPEN, (QuotaWindow("w", 0.1, 0.0, 1000.0),))
    slow = quota.reported(slow, (QuotaWindow("w", 0.2, 500.0, 1000.0),))
    assert slow.windows[0].ends_at() is None, "it resets before"


def test_the_view_names_what_people_ask() -> None:
    clock = quota.ask(limited(), "b.7", 200.0, AccountRules(slots=2, keep_free=0.1)).clock
    view = quota.view_of(quota.reported(clock, (QuotaWindow("five_hour", 1.0, 100.0, 940.0),)), 300.0)
    assert (view["state"], view["source"], view["waiting"], view["slots"]) == ("limited", "a", ["b"], 2)
    assert view["windows"][0]["used"] == 1.0
    probing = quota.ask(limited(), "b.7", 1000.0, NO_RULES).clock
    assert (quota.state_of(probing, 1001.0), quota.state_of(probing, 1061.0)) == ("probing", "limited")
    assert quota.state_of(OPEN, 1.0) == "open"


def test_after_the_reset_an_account_that_nobody_uses_is_open() -> None:
    assert [quota.view_of(limited(), at)["state"] for at in (999.0, 1001.0)] == ["limited", "open"]
    waited_for = quota.ask(limited(), "b.7", 999.0, NO_RULES).clock
    assert quota.state_of(waited_for, 1001.0) == "limited"


# --- twenty ralphs and three accounts, under a virtual clock ------------------------------------------------

RALPHS, ACCOUNTS, SLOTS = 20, 3, 2


class World:
    """The accounts' vendors and the ralphs: at each step a few ralphs look at their account's clock."""

    def __init__(self, slots: int) -> None:
        self.rules = AccountRules(slots=slots)
        self.clocks = [QuotaClock(f"account{number}") for number in range(ACCOUNTS)]
        self.spent_until = [0.0] * ACCOUNTS
        self.refused: list[list[float]] = [[] for _ in range(ACCOUNTS)]
        self.done_at: dict[int, float] = {}
        self.ready_at = [0.0] * RALPHS
        self.served = [0] * RALPHS
        self.most_working = 0

    def look(self, ralph: int, at: float, length_s: float) -> None:
        number, by = ralph % ACCOUNTS, f"ralph{ralph}.x"
        if ralph in self.done_at:
            if at >= self.done_at[ralph]:
                del self.done_at[ralph]
                self.clocks[number] = quota.ended(quota.answered(self.clocks[number], by, at), by)
                self.ready_at[ralph] = at + 1.0
            return
        if at < self.ready_at[ralph]:
            return
        asked = quota.ask(self.clocks[number], by, at, self.rules)
        self.clocks[number] = asked.clock
        if asked.hold is not None:
            return
        self.most_working = max(self.most_working, len(asked.clock.working))
        if at < self.spent_until[number]:
            self.refused[number].append(at)
            met = QuotaLimit(self.spent_until[number], at, "usage limit", by)
            self.clocks[number] = quota.ended(quota.limit_met(self.clocks[number], met), by)
        else:
            self.served[ralph] += 1
            self.clocks[number] = quota.answered(self.clocks[number], by, at)
            self.done_at[ralph] = at + length_s


@given(
    order=st.lists(st.permutations(range(RALPHS)), min_size=60, max_size=60),
    lengths=st.lists(st.floats(1.0, 8.0), min_size=20, max_size=20),
    slots=st.sampled_from([0, SLOTS]),
)
def test_a_reset_costs_one_call_per_account_and_nobody_starves(
    order: list[list[int]], lengths: list[float], slots: int
) -> None:
    world = World(slots)
    for step, turn in enumerate(order):
        at = step * 1.0
        if step == 10:
            world.spent_until = [30.0] * ACCOUNTS
        for ralph in turn:
            world.look(ralph, at, lengths[ralph])
        if step == 29:
            during = [list(each) for each in world.refused]
    assert all(len(each) <= 1 for each in during), "the first refusal holds all others back"
    assert [len(each) for each in world.refused] == [len(each) for each in during], "no call before a reset"
    assert all(world.served), "everybody got a turn"
    if slots:
        assert world.most_working <= slots


STEPS, SHARE, KEEP_FREE, WINDOW_S = 170, 0.05, 0.1, 60.0


class Night(World):
    """The same, with ralphs that are killed, a window of which a share is kept free, and a clock set back.

    ``true_at`` is the vendors' time; the ralphs' clock shows ``ahead_s`` more until it is set back.
    """

    def __init__(self, slots: int, ahead_s: float, *, guessed: bool) -> None:
        super().__init__(slots)
        self.rules = AccountRules(slots, KEEP_FREE)
        self.ahead_s, self.guessed = ahead_s, guessed
        self.life = [0] * RALPHS
        self.used = [0.0] * ACCOUNTS
        self.most_used = 0.0
        self.ends_in_s: dict[int, float] = {}

    def by(self, ralph: int) -> str:
        return f"ralph{ralph}.{self.life[ralph]}"

    def kill(self, ralph: int) -> None:
        number = ralph % ACCOUNTS
        self.clocks[number] = self.clocks[number].without({self.by(ralph)})
        self.life[ralph] += 1
        self.ends_in_s.pop(ralph, None)

    def second(self, true_at: float, turn: list[int], lengths: list[float]) -> None:
        if true_at % WINDOW_S == 0:
            self.used = [0.0] * ACCOUNTS
        for ralph in turn:
            self.turn(ralph, true_at, lengths[ralph])
        for clock in self.clocks:
            self.most_working = max(self.most_working, len(clock.working))

    def turn(self, ralph: int, true_at: float, length_s: float) -> None:
        number, by, at = ralph % ACCOUNTS, self.by(ralph), true_at + self.ahead_s
        clock = self.clocks[number]
        if ralph in self.ends_in_s:
            self.ends_in_s[ralph] -= 1.0
            if self.ends_in_s[ralph] <= 0:
                del self.ends_in_s[ralph]
                self.clocks[number] = quota.ended(quota.answered(clock, by, at), by)
            return
        asked = quota.ask(clock, by, at, self.rules)
        self.clocks[number] = clock = asked.clock
        if asked.hold is not None:
            assert asked.hold.until - at <= max(WINDOW_S, PROBE_S, SLOT_LOOK_S) + 40.0, asked.hold
        elif true_at < self.spent_until[number]:
            self.refused[number].append(true_at)
            met = QuotaLimit(self.spent_until[number] + self.ahead_s, at, "", by, self.guessed)
            self.clocks[number] = quota.ended(quota.limit_met(clock, met), by)
        else:
            self.served[ralph] += 1
            self.used[number] += SHARE
            self.most_used = max(self.most_used, self.used[number])
            resets_at = true_at - true_at % WINDOW_S + WINDOW_S + self.ahead_s
            window = QuotaWindow("five_hour", min(self.used[number], 1.0), at, resets_at)
            self.clocks[number] = quota.reported(quota.answered(clock, by, at), (window,))
            self.ends_in_s[ralph] = length_s


@given(
    turns=st.lists(st.permutations(range(RALPHS)), min_size=20, max_size=20),
    lengths=st.lists(st.floats(1.0, 6.0), min_size=RALPHS, max_size=RALPHS),
    slots=st.sampled_from([0, SLOTS]),
    kills=st.dictionaries(st.integers(0, 90), st.integers(0, RALPHS - 1), max_size=12),
    set_back_at=st.integers(1, 80),
    ahead_s=st.floats(2.0, 40.0),
    guessed=st.booleans(),
)
@settings(max_examples=25)
def test_a_night_of_kills_and_a_clock_set_back_costs_one_call_a_reset(
    turns: list[list[int]],
    lengths: list[float],
    slots: int,
    kills: dict[int, int],
    set_back_at: int,
    ahead_s: float,
    guessed: bool,
) -> None:
    night = Night(slots, ahead_s, guessed=guessed)
    for second in range(STEPS):
        if second == 20:
            night.spent_until = [50.0] * ACCOUNTS
        if second == set_back_at:
            night.ahead_s = 0.0
        if second in kills:
            night.kill(kills[second])
        if second == 110:
            night.served = [0] * RALPHS  # whoever waited over the limit gets a turn after it
        night.second(float(second), turns[second % len(turns)], lengths)
    assert all(len(each) <= 1 for each in night.refused), night.refused
    assert all(night.served), "nobody starves"
    if slots:
        assert night.most_working <= slots
    assert night.most_used <= 1 - KEEP_FREE + SHARE + 1e-9


@given(st.lists(st.permutations(range(RALPHS)), min_size=8, max_size=8), st.integers(1, 4))
def test_a_reset_that_was_wrong_costs_one_call_a_time(orders: list[list[int]], wrong: int) -> None:
    clock, calls = limited(10.0, since=0.0), 0
    for attempt, order in enumerate(orders):
        at = 10.0 * (attempt + 1)
        for ralph in order:
            asked = quota.ask(clock, f"r{ralph}.x", at, NO_RULES)
            clock = asked.clock
            if asked.hold is None and attempt < wrong:
                calls += 1
                met = QuotaLimit(at + 10.0, at, "", f"r{ralph}.x")
                clock = quota.ended(quota.limit_met(clock, met), f"r{ralph}.x")
    assert calls == wrong
