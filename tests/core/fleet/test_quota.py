"""One limit and one probe per account and reset, for all hosts together (Q2, Q3)."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.model import AccountLimit, HostName
from ralphd.core.fleet.quota import LIMITED, OPEN, PROBING, answered, is_limited, limit_met, turn
from ralphd.core.quota.model import LONGEST_LIMIT_S, PROBE_S

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
    ],
)
def test_one_host_probes_after_the_reset(
    limit: AccountLimit | None, now: float, unchanged_s: float, answer: AccountLimit | str | None
) -> None:
    assert turn(limit, H1, now, unchanged_s) == answer


@pytest.mark.parametrize(
    ("limit", "host", "began_at", "opens"),
    [
        (PROBE, H2, 0.0, True),
        (PROBE, H1, 99.0, False),
        (PROBE, H1, 100.0, True),
        (LIMIT, H1, 99.0, False),
        (LIMIT, H1, 100.0, True),
        (OPENED, H1, 100.0, False),
        (None, H1, 100.0, False),
    ],
)
def test_an_answer_opens_the_account(
    limit: AccountLimit | None, host: HostName, began_at: float, opens: bool
) -> None:
    new = answered(limit, host, began_at)

    assert (new is not None) == opens
    assert new is None or (new.state, new.until) == (OPEN, None)
    assert not is_limited(new, 0.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 70)), max_size=30))
def test_a_reset_costs_one_call_a_minute(asks: list[tuple[int, int]]) -> None:
    """Hosts ask in any order; the writes are compare-and-swap, so the model applies them in turn."""
    limit, now, changed_at, probes = LIMIT, 100.0, 100.0, []
    for n, wait_s in asks:
        now += wait_s
        host = HostName(f"h{n}")
        match turn(limit, host, now, now - changed_at):
            case AccountLimit() as new:
                limit, changed_at = new, now
                probes.append(now)
            case None:
                assert limit.by == host
    assert all(later - earlier >= PROBE_S for earlier, later in pairwise(probes))
