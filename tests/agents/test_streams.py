"""Event streams in the output of any command: recognised line by line, shown as text, counted."""

import json
import random
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.agents.streams import EventCounter, EventStreams, EventText, without_past_limit
from tests.agents import streams
from tests.agents.streams import AT, CODEX, CODEX_LIMITED, GEMINI, OPENCODE, claude, limited


def shown(printed: list[str], *, verbose: bool = False, grep: str | None = None) -> list[str]:
    """The lines that are shown, those that are no event as they are."""
    text = EventText(verbose=verbose, grep=grep)
    replaced = ((line, text.line(line, AT)) for line in printed)
    return [each for line, new in replaced for each in ([line] if new is None else new.splitlines())]


def counted(printed: list[str]) -> EventCounter:
    counter = EventCounter()
    for line in printed:
        counter.line(line, AT)
    return counter


CLAUDES = [
    "claude: started, claude-opus-5-5",
    "I fixed it.",
    "[Edit] /repo/a.py",
    "claude: finished · $0.11 · 2000 tokens in, 40 out",
]
LIMIT = {"agent": "claude", "name": "five_hour", "resets_at": "2026-11-21T23:44:34.000000Z"}
CODEXES = ["[command_execution] make test", "All tests pass.", "codex: finished · 2400 tokens in, 84 out"]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (claude(), CLAUDES),
        (CODEX, CODEXES),
        (
            GEMINI,
            ["gemini: started, gemini-2.5-pro", "[replace] a.py", "Done now.",
             "gemini: finished · 7 tokens in, 3 out"],
        ),
        (OPENCODE, ["[bash] ls", "One file.", "opencode: finished · $0.02 · 10 tokens in, 5 out"]),
    ],
)  # fmt: skip
def test_each_agents_stream_reads_as_text(printed: list[str], expected: list[str]) -> None:
    assert shown(printed) == expected


def test_verbose_adds_edits_and_results() -> None:
    assert shown(claude(), verbose=True)[2:-1] == [
        "[Edit] /repo/a.py", "    - x = 1", "    + x = 2", "    1 line changed",
    ]  # fmt: skip
    assert "    14 passed" in shown(CODEX, verbose=True)
    assert shown(GEMINI, verbose=True)[2:5] == ["    - x", "    + y", "    replaced"]
    assert "    a.py" in shown(OPENCODE, verbose=True)


def test_grep_shows_the_lines_that_hold_it() -> None:
    assert shown(claude(), grep="line") == ["    1 line changed"]


def test_a_limit_is_one_line_and_its_end_another() -> None:
    assert shown(limited()) == [
        "claude: 5-hour limit reached, resets in 2 h 44 min",
        "claude: failed (HTTP 429)",
    ]


def test_streams_that_are_mixed_read_as_each_alone() -> None:
    mixed = [line for pair in zip_longest(claude(), CODEX, fillvalue="") for line in pair if line]
    assert sorted(shown(mixed)) == sorted([*CLAUDES, *CODEXES])


@pytest.mark.parametrize(
    "line",
    [
        "", "plain", "{", '{"type', '{"type":"assistant","mess', "[1, 2]", '{"type": 3}', '{"type":"result"}',
        '{"level":"info","type":"error","message":"mine"}', '{"type":"error","message":"database is down"}',
        '{"type":"message","timestamp":1,"text":"mine"}', '{"type":"text","part":{}}', "\x00\xff{}",
        '{"type":"system","session_id":"s","subtype":"init"} and more', '{"type":"a"' + "[" * 100_000,
    ],
)  # fmt: skip
def test_any_other_line_stays_as_it_is(line: str) -> None:
    assert EventText().line(line, AT) is None
    assert counted([line]).seen is None


@given(st.data())
def test_no_line_however_broken_raises(data: st.DataObject) -> None:
    text, counter = EventText(verbose=True), EventCounter()
    for _ in range(5):
        event = json.loads(data.draw(st.sampled_from([*claude(), *limited(), *CODEX, *GEMINI, *OPENCODE])))
        key = data.draw(st.sampled_from(sorted(event)))
        event[key] = data.draw(
            st.sampled_from([None, 1, "x", [], {}, [1], {"content": [3]}, [{"type": "text"}]])
        )
        line = json.dumps(event)[: data.draw(st.sampled_from([None, 40]))]
        text.line(line, AT)
        counter.line(line, AT)


def test_costs_and_tokens_of_all_runs_are_added() -> None:
    printed = [*claude("s-1", 0.11), *claude("s-2", 0.20), *CODEX, *OPENCODE]
    seen = counted(printed).seen
    assert seen == {
        "agent": "opencode", "session_id": "ses_1", "limit": None, "cost_usd": 0.33,
        "tokens_in": 2000 + 2000 + 2400 + 10, "tokens_out": 40 + 40 + 84 + 5,
    }  # fmt: skip


def test_a_resumed_session_counts_what_it_added() -> None:
    seen = counted([*claude("s-1", 0.10), *claude("s-1", 0.25)]).seen
    assert seen is not None
    assert seen["cost_usd"] == 0.25


@pytest.mark.parametrize("cost", [-1, 1e6 + 1, 2e15])
def test_a_cost_that_makes_no_sense_is_ignored(cost: float) -> None:
    seen = counted([*claude("s-1", 0.10), *claude("s-2", cost)]).seen
    assert seen is not None
    assert seen["cost_usd"] == 0.10


def test_a_reset_that_no_calendar_has_is_unknown() -> None:
    seen = counted(limited(resets_at=960_000_000_000_000)).seen
    assert seen is not None
    assert seen["limit"] == LIMIT | {"resets_at": None}


def test_events_that_cannot_be_read_are_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventCounter, "_on_event", EventStreams._on_event)  # raises
    counted(claude() * 10)
    assert [each.message for each in caplog.records] == ["an event of an agent cannot be read"]


def test_two_sessions_at_one_time_are_kept_apart() -> None:
    one, other = claude("s-1", 0.10), claude("s-2", 0.20)
    seen = counted([line for pair in zip(one, other, strict=True) for line in pair]).seen
    assert seen is not None
    assert seen["cost_usd"] == pytest.approx(0.30)


@pytest.mark.parametrize(
    ("printed", "limit"),
    [
        (limited(), LIMIT),
        ([*limited(), *CODEX], None),
        (limited(resets_at=4_000_000_000), LIMIT | {"resets_at": None}),
        (CODEX_LIMITED, {"agent": "codex", "name": "", "resets_at": "2026-11-21T23:44:00.000000Z"}),
        ([*limited(), *claude()], None),
        (CODEX, None),
    ],
)
def test_a_limit_is_seen_until_an_agent_succeeds(printed: list[str], limit: object) -> None:
    seen = counted(printed).seen
    assert seen is not None
    assert seen["limit"] == limit


def test_a_limit_ends_with_its_reset() -> None:
    seen = counted(limited()).seen
    assert without_past_limit(None, 0.0) is None
    assert seen is not None and seen["limit"] == LIMIT
    assert without_past_limit(seen, 1795304673.9) is seen
    assert without_past_limit(seen, 1795304674.0) == seen | {"limit": None}
    unknown = seen | {"limit": LIMIT | {"resets_at": None}}
    assert without_past_limit(unknown, 1e10) is unknown


def test_what_is_kept_of_many_sessions_is_bounded() -> None:
    counter = counted([line for number in range(200) for line in claude(f"s-{number}", 0.01)])
    assert counter.seen is not None
    assert counter.seen["cost_usd"] == pytest.approx(2.0)
    assert len(counter._streams) <= 64


def test_a_stream_may_begin_anywhere() -> None:
    for printed in (claude(), GEMINI, OPENCODE):
        begin = random.Random(printed[0]).randrange(1, len(printed))
        assert not any(line.startswith("{") for line in shown(printed[begin:]))


def test_each_sample_is_recognised() -> None:
    every = (claude(), limited(), CODEX, CODEX_LIMITED, GEMINI, OPENCODE)
    assert all(counted(printed).seen for printed in every)
    assert streams.AT.endswith("Z")
