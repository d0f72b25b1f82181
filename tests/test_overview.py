"""What every screen shows of ralphs: words, order, totals, and the cells of a night."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd import overview, wire
from ralphd.core.limits import NO_SLOT
from ralphd.overview import WORDS, Row, folded, rows, totals, word

AT = "2026-11-21T20:31:00Z"
LIMIT = {"reason": "usage_limit", "until": AT}
SENTENCE = {"reason": "claude stopped, resets soon", "until": AT}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ({"state": "idle"}, "stopped"),
        ({"state": "starting"}, "working"),
        ({"state": "running"}, "working"),
        ({"state": "running", "wait": {"reason": "tide", "until": AT}}, "waiting"),
        ({"state": "running", "wait": LIMIT}, "limited"),
        ({"state": "running", "wait": {"reason": "rate limit of claude", "until": AT}}, "limited"),
        ({"state": "running", "seen": {"limit": {"resets_at": AT}}}, "limited"),
        ({"state": "waiting_for_retry", "wait": {"reason": "crash", "until": AT}}, "waiting"),
        ({"state": "waiting_for_retry", "wait": SENTENCE}, "waiting"),
        (
            {
                "state": "waiting_for_retry",
                "wait": SENTENCE,
                "command": [],
                "checkpoint": {"pause_reason": "usage_limit"},
            },
            "limited",
        ),
        (
            {"state": "waiting_for_retry", "wait": SENTENCE, "checkpoint": {"pause_reason": "usage_limit"}},
            "waiting",
        ),
        ({"state": "waiting_for_retry", "wait": {"reason": NO_SLOT, "until": None}}, "waiting"),
        (
            {
                "state": "waiting_for_retry",
                "wait": {"reason": f"account work: 1 of 1 {NO_SLOT}", "until": None},
                "command": [],
                "checkpoint": {"pause_reason": "usage_limit"},
            },
            "waiting",
        ),
        ({"state": "testing", "wait": LIMIT}, "testing"),
        ({"state": "pausing", "wait": LIMIT}, "working"),
        ({"state": "stopping"}, "working"),
        ({"state": "paused", "pause_reason": "usage_limit"}, "paused"),
        ({"state": "paused", "wait": LIMIT}, "limited"),
        ({"state": "failed"}, "failed"),
        ({"state": "done"}, "done"),
        ({"state": "of the future"}, "of the future"),
        ({}, "None"),
    ],
)
def test_each_state_has_one_word(view: dict[str, Any], expected: str) -> None:
    assert word(view) == expected


def test_every_state_has_a_word_of_the_list() -> None:
    assert {word({"state": state}) for state in wire.STATES} <= set(WORDS)


def test_those_that_need_a_person_come_first_and_finished_ones_last() -> None:
    states = ["done", "running", "paused", "testing", "failed", "stopped"]
    views = [{"name": state, "state": state} for state in states]
    ordered = rows(views)
    assert [row.name for row in ordered] == ["failed", "paused", "running", "testing", "stopped", "done"]
    _, rest = folded(ordered)
    assert [row.name for row in rest] == ["stopped", "done"]
    assert totals(ordered) == {"needs you": 2, "working": 1, "testing": 1, "stopped": 1, "done": 1}
    assert folded(rest) == (rest, [])


def test_a_pause_with_an_end_needs_nobody() -> None:
    assert not overview.needs_you({"state": "paused", "wait": LIMIT})
    assert overview.needs_you({"state": "paused"})


def test_the_built_in_loop_may_wait_within_a_run() -> None:
    assert overview.has_a_run({"state": "waiting_for_retry", "ralph_pid": 7})
    assert not overview.has_a_run({"state": "waiting_for_retry", "ralph_pid": None})


def test_cost_and_agent_seen_in_the_output_count_where_nothing_is_reported() -> None:
    seen = {"cost_usd": 0.11, "agent": "codex"}
    assert (Row({"seen": seen}).cost_usd, Row({"seen": seen}).agent) == (0.11, "codex")
    assert Row({"seen": seen, "total_cost_usd": 1.0}).cost_usd == 1.0


THERE = "then there: git merge ralph/landed"
WAITS = "waits for the checkout of main"


def landing(state: str, name: str = "api", ralph: str = "done", **more: Any) -> dict[str, Any]:
    """A ralph whose branch stands so in its landing queue."""
    known = {"state": state, "target": "main", "why": "", "next": "", "ended_at": "2026-11-21T06:00:00Z"}
    return {"name": name, "state": ralph, "started_at": "2026-11-21T05:00:00Z", "landing": known | more}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ({}, ""),
        (landing("landed"), "landed on main"),
        (landing("landed", ended_at="2026-11-20T06:00:00Z"), ""),
        (landing("landed", undoes="abc"), "revert of it landed on main"),
        (landing("landed", why="on ralph/landed: x"), f"waits for the checkout of main: x; {THERE}"),
        (landing("landed", why="on ralph/landed", undoes="abc"), f"revert of it {WAITS}; {THERE}"),
        (landing("pushed", branch="ralph/p1"), "pushed as ralph/p1"),
        (landing("refused", why="conflict in f"), "does not land on main: conflict in f"),
        (landing("queued", next="testing, with 2 more"), "queued to land on main: testing, with 2 more"),
        (
            landing("waiting", why="you decide: ralphctl land api", next="ralphctl land api"),
            "waits for you to land on main",
        ),
        (
            landing("waiting", why="it changes ralph.toml", next="ralphctl land api"),
            "waits for you to land on main: it changes ralph.toml",
        ),
    ],
)
def test_a_branch_has_its_words(view: dict[str, Any], expected: str) -> None:
    assert overview.landing_words(view) == expected


def test_a_line_names_the_branches_that_need_a_person() -> None:
    quiet = [landing("landed"), landing("queued"), landing("refused", ralph="running"), {"name": "own"}]
    assert overview.landing_line(rows(quiet)) == ""
    loud = [landing("waiting", "a"), landing("waiting", "b"), landing("refused", "c")]
    loud += [landing("queued", "d", blocked="red"), landing("landed", "e", why="on ralph/landed")]
    expected = "landing: 3 waiting for you (a, b, e), 1 refused (c), 1 blocked (d): ralphctl queue"
    assert overview.landing_line(rows([*quiet, *loud])) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*wire.VIEW_KEYS, "seen"]), json_values))
def test_any_view_has_a_row(view: dict[str, Any]) -> None:
    row = rows([view])[0]
    assert row.word
    assert folded([row])
    assert totals([row])
    assert overview.landing_line([row]) is not None
    assert overview.landing_words(view) is not None
