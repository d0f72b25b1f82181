"""One limit and one probe per account and reset, for all hosts together (Q2, Q3)."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.model import AccountLimit, HostName
from ralphd.core.fleet.quota import (
    LIMITED,
    OPEN,
    PROBING,
    UNUSED_S,
    HostTime,
    SharedLimit,
    ahead_s,
    applied,
    is_limited,
    limit_met,
    opened,
    to_write,
    turn,
)
from ralphd.core.quota import clock as local
from ralphd.core.quota.model import (
    LONGEST_LIMIT_S,
    PROBE_S,
    AccountRules,
    FleetTurn,
    HoldKind,
    QuotaClock,
    QuotaLimit,
)

H1, H2 = HostName("h1"), HostName("h2")
LIMIT = AccountLimit("claude", "team-a", LIMITED, 100.0, "five_hour", H1)
PROBE = replace(LIMIT, state=PROBING, by=H2, probed_at=100.0)
OPENED = replace(LIMIT, state=OPEN, until=None)


@pytest.mark.parametrize(
    ("known", "met_until", "now", "until"),
    [
        (None, 100.0, 0.0, 100.0),
        (OPENED, 100.0, 0.0, 100.0),
        (LIMIT, 99.0, 0.0, None),
        (LIMIT, 100.0, 0.0, None),
        (LIMIT, 101.0, 0.0, 101.0),
        (PROBE, 100.0, 101.0, None),
        (PROBE, 500.0, 101.0, 500.0),
        (None, 99.0, 100.0, None),
        (None, 1e11, 0.0, LONGEST_LIMIT_S),
        (replace(LIMIT, until=1e11), 200.0, 0.0, 200.0),
    ],
)
def test_the_later_end_is_kept(
    known: AccountLimit | None, met_until: float, now: float, until: float | None
) -> None:
    new = limit_met(known, replace(LIMIT, until=met_until, by=H2), now)

    assert (new and new.until) == until
    assert new is None or (new.state, new.by, new.probed_at) == (LIMITED, H2, None)


@pytest.mark.parametrize(
    ("limit", "now", "unchanged_s", "answer"),
    [
        (None, 0.0, 0.0, None),
        (OPENED, 0.0, 0.0, None),
        (LIMIT, 99.0, 900.0, "claude team-a: limited until 1970-01-01T00:01:40.000000Z"),
        (LIMIT, 100.0, 0.0, replace(PROBE, by=H1)),
        (replace(PROBE, by=H1), 100.0, 0.0, None),
        (PROBE, 130.0, PROBE_S - 1, "claude team-a: h2 tries it first"),
        (PROBE, 0.0, 900.0, "claude team-a: limited until 1970-01-01T00:01:40.000000Z"),
        (PROBE, 100.0, PROBE_S, replace(PROBE, by=H1)),
        (replace(PROBE, by=H1), 170.0, PROBE_S, replace(PROBE, by=H1, probed_at=170.0)),
    ],
)
def test_one_host_probes_after_the_reset(
    limit: AccountLimit | None, now: float, unchanged_s: float, answer: AccountLimit | str | None
) -> None:
    assert turn(limit, H1, now, unchanged_s) == answer


@pytest.mark.parametrize(("limit", "opens"), [(PROBE, True), (LIMIT, True), (OPENED, False), (None, False)])
def test_an_answer_opens_the_account(limit: AccountLimit | None, opens: bool) -> None:
    new = opened(limit, H1)

    assert (new is not None) == opens
    assert new is None or (new.state, new.until, new.by) == (OPEN, None, H1)
    assert not is_limited(new, 0.0)


@pytest.mark.parametrize(
    ("known_guessed", "met_guessed", "known_until", "met_until", "is_taken"),
    [
        (True, False, 500.0, 300.0, True),
        (False, True, 300.0, 500.0, False),
        (False, True, 50.0, 500.0, True),
        (True, True, 300.0, 500.0, True),
        (True, True, 500.0, 300.0, False),
    ],
)
def test_a_guess_yields_to_a_known_reset(
    known_guessed: bool, met_guessed: bool, known_until: float, met_until: float, is_taken: bool
) -> None:
    known = replace(LIMIT, until=known_until, guessed=known_guessed)
    met = replace(LIMIT, until=met_until, guessed=met_guessed, by=H2)

    assert (limit_met(known, met, 100.0) == met) == is_taken


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 70)), max_size=30))
def test_a_reset_costs_one_call_a_minute(asks: list[tuple[int, int]]) -> None:
    """Hosts ask in any order; the writes are compare-and-swap, so the model applies them in turn."""
    limit, now, changed_at, probes = LIMIT, 100.0, 100.0, []
    for n, wait_s in asks:
        now = min(now + wait_s, 100.0 + UNUSED_S - 1)
        host = HostName(f"h{n}")
        match turn(limit, host, now, now - changed_at):
            case AccountLimit() as new:
                limit, changed_at = new, now
                probes.append(now)
            case None:
                assert limit.by == host
    assert all(later - earlier >= PROBE_S for earlier, later in pairwise(probes))


OWN = QuotaClock("claude@team-a", "claude", is_stable=True)
MET = QuotaLimit(100.0, 10.0, "five_hour", "a.1")
NO_RULES = AccountRules()


def seen(limit: AccountLimit | None, **more: Any) -> SharedLimit:
    return SharedLimit(limit, **{"stored_at": 20.0, **more})


def here(clock: QuotaClock, shared: SharedLimit, at: float = 50.0, ahead: float = 0.0) -> QuotaClock:
    return applied(clock, shared, HostTime(H1, at + ahead, ahead), "fleet-1")


def written(
    clock: QuotaClock, shared: SharedLimit, at: float = 50.0, *, is_wanted: bool = True, ahead: float = 0.0
) -> AccountLimit | None:
    return to_write(clock, "team-a", shared, HostTime(H1, at + ahead, ahead), is_wanted=is_wanted)


def test_a_limit_of_another_host_holds_here() -> None:
    clock = here(OWN, seen(replace(LIMIT, by=H2)))

    hold = local.hold_of(clock, "b.1", 50.0, NO_RULES)
    assert hold is not None
    assert (hold.kind, hold.until) == (HoldKind.LIMIT, 100.0)
    assert hold.why == "account claude@team-a: usage limit (met by host h2)"
    assert local.view_of(clock, 50.0)["source"] == "host h2"
    assert here(clock, seen(replace(LIMIT, by=H2), is_applied=True), 70.0) == clock  # written once


def test_nobody_here_probes_before_this_host_has_the_turn() -> None:
    limited = here(OWN, seen(LIMIT))
    hold = local.ask(limited, "b.1", 100.0, NO_RULES).hold
    assert hold is not None and (hold.kind, hold.until) == (HoldKind.PROBE, 160.0)
    assert hold.why.endswith("one host of the fleet tries it first")

    others = here(limited, seen(PROBE, is_applied=True), 101.0)
    hold = local.hold_of(others, "b.1", 101.0, NO_RULES)
    assert hold is not None and hold.why.endswith("host h2 tries it first")
    assert local.state_of(others, 101.0) == "probing"
    assert local.view_of(others, 101.0)["probing"] == "host h2"

    ours = here(limited, seen(replace(PROBE, by=H1), is_applied=True), 101.0)
    assert local.ask(ours, "b.1", 101.0, NO_RULES).hold is None


def test_a_turn_is_renewed_and_ends_with_its_daemon() -> None:
    limited = here(OWN, seen(LIMIT))
    assert here(limited, seen(LIMIT, is_applied=True), 79.0) == limited
    renewed = here(limited, seen(LIMIT, is_applied=True), 80.0)
    assert renewed.fleet_turn == FleetTurn("fleet-1", 80.0, "one host of the fleet")
    assert here(renewed, seen(LIMIT, is_applied=True), 40.0).fleet_turn == FleetTurn(
        "fleet-1", 40.0, "one host of the fleet"
    )  # the clock was set back
    assert local.ask(renewed.without({"fleet-1"}), "b.1", 100.0, NO_RULES).hold is None
    assert local.ask(renewed, "b.1", 100.0 + PROBE_S, NO_RULES).hold is None  # a daemon that hangs
    forced = local.ask(limited, "b.1", 50.0, NO_RULES, force=local.Force.ALL)
    assert forced.hold is None
    assert here(forced.clock, seen(LIMIT, is_applied=True)).probe == forced.clock.probe


def test_a_reset_that_nobody_waited_for_holds_nobody() -> None:
    late = 100.0 + UNUSED_S
    assert here(OWN, seen(LIMIT), late) == OWN
    assert here(here(OWN, seen(LIMIT)), seen(LIMIT), late).fleet_turn is None
    assert here(OWN, seen(PROBE), late).fleet_turn is not None
    assert here(here(OWN, seen(PROBE)), seen(PROBE, unchanged_s=PROBE_S), late).fleet_turn is None
    assert written(here(OWN, seen(LIMIT)), seen(LIMIT), late) is None


def test_the_answer_of_a_model_here_opens_the_account_for_all() -> None:
    clock = replace(OWN, opened_at=55.0)
    assert written(clock, seen(LIMIT, is_applied=True)) == replace(OPENED, by=H1)
    assert written(clock, seen(replace(PROBE, by=H1))) == replace(OPENED, by=H1)
    assert here(clock, seen(LIMIT, is_applied=True)) == clock
    # What the clock here has not had yet, and a file that a person has deleted, open nothing.
    assert written(clock, seen(LIMIT)) is None
    assert written(OWN, seen(LIMIT, is_applied=True)) is None
    assert here(clock, seen(LIMIT)).limit is not None


@pytest.mark.parametrize(
    ("met", "stays"),
    [
        (MET, False),
        (replace(MET, since=30.0), True),
        (replace(MET, since=30.0, host=H2), False),
        (replace(MET, since=20.0), False),
    ],
)
def test_an_open_fleet_opens_what_is_older(met: QuotaLimit, stays: bool) -> None:
    clock = here(replace(OWN, limit=met), seen(OPENED))

    assert (clock.limit is not None) == stays
    assert stays or clock.opened_at == 50.0


def test_a_limit_met_here_is_written_once() -> None:
    clock = replace(OWN, limit=MET)
    new = written(clock, seen(None))
    assert new == AccountLimit("claude", "team-a", LIMITED, 100.0, "five_hour", H1)
    assert written(clock, seen(new)) is None
    assert here(clock, seen(new)).limit == MET
    assert written(replace(clock, limit=replace(MET, host=H2)), seen(None)) is None
    later = replace(clock, limit=replace(MET, until=300.0))
    assert here(later, seen(new)).limit == later.limit
    assert (limit := written(later, seen(new))) is not None and limit.until == 300.0
    guess = replace(clock, limit=replace(MET, until=300.0, guessed=True))
    assert (yields := here(guess, seen(new)).limit) is not None and yields.until == 100.0
    assert here(guess, seen(replace(PROBE, by=H1)), 101.0).limit == guess.limit


def test_the_turn_is_taken_only_where_somebody_waits() -> None:
    clock = here(OWN, seen(LIMIT))
    assert written(clock, seen(LIMIT), 99.0) is None
    assert written(clock, seen(LIMIT), 100.0, is_wanted=False) is None
    assert written(clock, seen(LIMIT), 100.0) == replace(PROBE, by=H1)


@pytest.mark.parametrize(
    ("own", "others", "ahead"),
    [
        (0.0, [0.0, 0.0, 18000.0], 0.0),
        (18000.0, [18000.0, 0.0, 0.0], 18000.0),
        (-7200.0, [-7200.0, 0.0], -7200.0),
        (0.0, [0.0, -7200.0], 0.0),
        (4.0, [4.0, 0.0, 0.0], 0.0),
        (3600.0, [3600.0, 3600.0, 3600.0], 0.0),
        (3600.0, [3600.0], 0.0),
        (0.0, [], 0.0),
    ],
)
def test_most_clocks_are_right(own: float, others: list[float], ahead: float) -> None:
    assert ahead_s(own, others) == ahead


def test_a_clock_that_is_ahead_waits_for_the_same_reset() -> None:
    ahead = 18000.0
    clock = here(OWN, seen(LIMIT), ahead=ahead)
    assert clock.limit is not None and clock.limit.until == 100.0 + ahead
    # A reset that the service named is right, and a guess is only a length.
    named, guess = replace(MET, until=20000.0), replace(MET, until=20000.0, guessed=True)
    assert (new := written(replace(OWN, limit=named), seen(None), ahead=ahead)) and new.until == 20000.0
    assert (new := written(replace(OWN, limit=guess), seen(None), ahead=ahead)) and new.until == 2000.0
    for before in (OWN, replace(OWN, limit=MET)):
        assert here(before, seen(replace(LIMIT, until=1e10)), 2000.0) == before  # no limit is so long
