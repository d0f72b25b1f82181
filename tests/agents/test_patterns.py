"""The patterns of the agents as data: what each matches and not, and where none is looked for (K2, K3)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphctl.offline.classify import finding_of, plain_agent
from ralphd.agents.known import KNOWN
from ralphd.agents.patterns import patterns_of
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.patterns import LONGEST_LINE, Pattern, folded_text, match_after_good_exit, match_in
from ralphd.errors import ConfigFaults

AGENTS = (*KNOWN, "general")
NOW = 1_800_000_000.0


def _each(which: str) -> dict[str, Pattern]:
    return {entry.name: entry for agent in AGENTS for entry in getattr(patterns_of(agent), which)}


PATTERNS, PHRASES = _each("patterns"), _each("phrases")
COUNTER_EXAMPLES = sorted(
    {text for each in (*PATTERNS.values(), *PHRASES.values()) for text in each.counter_examples}
)
EXAMPLES = sorted({text for each in PATTERNS.values() for text in each.examples})


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_matches_its_examples_and_not_its_counter_examples(pattern: Pattern) -> None:
    assert pattern.examples and pattern.counter_examples
    assert [line for line in pattern.examples if not pattern.match(line)] == []
    assert [line for line in pattern.counter_examples if pattern.match(line)] == []


@pytest.mark.parametrize("phrase", PHRASES.values(), ids=PHRASES)
def test_a_phrase_is_found_in_its_examples_and_not_in_its_counter_examples(phrase: Pattern) -> None:
    assert [text for text in phrase.examples if not phrase.expression.search(folded_text(text))] == []
    assert [text for text in phrase.counter_examples if phrase.expression.search(folded_text(text))] == []


def test_no_pattern_of_one_name_differs_from_another_of_that_name() -> None:
    for agent in AGENTS:
        for which in (patterns_of(agent).patterns, patterns_of(agent).phrases):
            names = [entry.name for entry in which]
            assert len(names) == len(set(names)), agent


@pytest.mark.parametrize(
    "before", ["", "  ⎿  ", "■ ", "🖐  ", "\x1b[91m\x1b[1m", "[2026-11-21T20:00:00.123Z] ", "12:00:01 - "]
)
def test_glyphs_times_and_escape_codes_before_a_message_do_not_matter(before: str) -> None:
    found = patterns_of("claude").first(f"{before}You’ve hit your weekly limit · resets 3pm (Asia/Tokyo)")

    assert found is not None and found[0].kind is FailureKind.USAGE_LIMIT


@pytest.mark.parametrize("before", ["- ", "> ", "* ", '"', "`", "+", "The error was: ", "# ", "1. "])
def test_what_makes_a_line_a_quotation_or_prose_does(before: str) -> None:
    for agent in AGENTS:
        assert patterns_of(agent).first(f"{before}You've hit your weekly limit · resets 3pm") is None


def _claude(said: str, tool: str) -> list[dict[str, object]]:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": tool}
    return [
        {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"},
        {"type": "user", "message": {"role": "user", "content": [result]}, "session_id": "s1"},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": said}]}, "session_id": "s1"},
    ]


def _codex(said: str, tool: str) -> list[dict[str, object]]:
    command = {
        "id": "i1",
        "type": "command_execution",
        "command": "cat x",
        "aggregated_output": tool,
        "exit_code": 1,
    }
    return [
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "item.completed", "item": command},
        {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": said}},
    ]


def _gemini(said: str, tool: str) -> list[dict[str, object]]:
    return [
        {"type": "init", "session_id": "g1", "model": "m"},
        {"type": "message", "role": "user", "content": tool},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": tool},
        {"type": "message", "role": "assistant", "content": said, "delta": True},
    ]


def _opencode(said: str, tool: str) -> list[dict[str, object]]:
    state = {"status": "completed", "output": tool}
    return [
        {"type": "step_start", "sessionID": "ses_1", "part": {}},
        {"type": "tool_use", "sessionID": "ses_1", "part": {"tool": "bash", "state": state}},
        {"type": "text", "sessionID": "ses_1", "part": {"text": said}},
    ]


def _qwen(said: str, tool: str) -> list[dict[str, object]]:
    return [
        *_claude(said, tool)[:2],
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "name": "x", "input": {"a": tool}}]},
        },
        _claude(said, tool)[2],
    ]


def _cursor(said: str, tool: str) -> list[dict[str, object]]:
    done = {"shellToolCall": {"args": {"command": "cat x"}, "result": {"success": {"stdout": tool}}}}
    return [
        {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"},
        {"type": "tool_call", "subtype": "started", "tool_call": done},
        {"type": "tool_call", "subtype": "completed", "tool_call": done},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": said}]}, "session_id": "s1"},
    ]


def _copilot(said: str, tool: str) -> list[dict[str, object]]:
    return [
        {"type": "user.message", "data": {"content": tool}},
        {"type": "tool.shell_output", "data": {"text": tool}},
        {"type": "tool.execution_complete", "data": {"result": {"content": tool, "detailedContent": tool}}},
        {"type": "assistant.message_delta", "data": {"deltaContent": said}},
        {"type": "assistant.message", "data": {"content": said, "toolRequests": []}},
    ]


_OVERLOADED = {"type": "result", "subtype": "error_during_execution", "is_error": True}
_SUCCESS = {"type": "result", "subtype": "success", "is_error": False, "result": "SAID", "session_id": "s1"}
_RUNS: dict[
    str, tuple[Callable[[str, str], list[dict[str, object]]], dict[str, object], dict[str, object]]
] = {
    "claude": (
        _claude,
        {"type": "result", "subtype": "success", "is_error": False, "result": "SAID", "session_id": "s1"},
        {
            "type": "result",
            "subtype": "success",
            "is_error": True,
            "api_error_status": 529,
            "result": "Overloaded",
        },
    ),
    "codex": (
        _codex,
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
        {
            "type": "turn.failed",
            "error": {"message": "unexpected status 529 <unknown status code>: Overloaded"},
        },
    ),
    "gemini": (
        _gemini,
        {"type": "result", "status": "success", "stats": {"total_tokens": 2}},
        {"type": "result", "status": "error", "error": {"message": "[API Error: The model is overloaded.]"}},
    ),
    "opencode": (
        _opencode,
        {"type": "step_finish", "sessionID": "ses_1", "part": {"reason": "stop", "tokens": {"input": 1}}},
        {
            "type": "error",
            "sessionID": "ses_1",
            "error": {"data": {"message": "Overloaded", "statusCode": 529}},
        },
    ),
    "qwen": (_qwen, _SUCCESS, {**_OVERLOADED, "error": {"message": "[API Error: 529 Overloaded]"}}),
    "amp": (_claude, _SUCCESS, {**_OVERLOADED, "error": "529 Overloaded"}),
    "cursor": (_cursor, _SUCCESS, {**_OVERLOADED, "result": "529 Overloaded"}),
    "copilot": (
        lambda said, tool: [
            *_copilot(said, tool),
            {
                "type": "session.error",
                "data": {"errorType": "query", "message": "Last error: 529 Overloaded"},
            },
        ],
        {"type": "result", "sessionId": "s1", "exitCode": 0},
        {"type": "result", "sessionId": "s1", "exitCode": 1},
    ),
}


def _kind_of(agent: str, events: list[dict[str, object]], code: int) -> FailureKind | None:
    lines = (json.dumps(event, separators=(",", ":")) for event in events)
    return finding_of(lines, plain_agent(agent), code=code, now=NOW).kind


@pytest.mark.parametrize("agent", _RUNS)
def test_nothing_quoted_in_a_good_run_makes_it_a_failure(agent: str) -> None:
    run, good, _ = _RUNS[agent]
    wrong = [
        text
        for text in (*COUNTER_EXAMPLES, *EXAMPLES)
        for end in ({**good, "result": text} if "result" in good else good,)
        if _kind_of(agent, [*run(text, text), end], 0) is not None
    ]

    assert wrong == []


@pytest.mark.parametrize("agent", _RUNS)
def test_nothing_quoted_in_a_run_that_failed_for_another_reason_changes_the_reason(agent: str) -> None:
    run, _, bad = _RUNS[agent]
    wrong = [
        text
        for text in (*COUNTER_EXAMPLES, *EXAMPLES)
        if _kind_of(agent, [*run(text, text), bad], 1) is not FailureKind.TRANSIENT
    ]

    assert wrong == []


@pytest.mark.parametrize("agent", AGENTS)
def test_no_counter_example_that_ends_the_output_of_a_good_exit_is_a_failure(agent: str) -> None:
    prose = {
        text for pattern in PATTERNS.values() for text in pattern.counter_examples if not text.startswith("{")
    }
    judged = {text: finding_of(["Done.", "", text], plain_agent(agent), code=0, now=NOW) for text in prose}
    wrong = [text for text, finding in judged.items() if finding.kind is not None]

    assert wrong == []


@pytest.mark.parametrize("agent", KNOWN)
def test_a_wrapper_that_loses_the_exit_status_reports_what_its_agent_would(agent: str) -> None:
    own, wrapper = patterns_of(agent), patterns_of("general")
    lines = [text for pattern in own.patterns for text in pattern.examples]
    reported = [(line, match) for line in lines if (match := match_after_good_exit([line], own))]

    kinds = {line: match_after_good_exit([line], wrapper) for line, _ in reported}

    assert {line: match and match.kind for line, match in kinds.items()} == {
        line: match.kind for line, match in reported
    }


def test_live_patterns_are_found_on_stderr_lines_and_ordinary_complaints_are_not() -> None:
    for agent in AGENTS:
        patterns = patterns_of(agent)
        assert patterns.live("Error: No messages returned")
        assert patterns.live("oh no: Bun has crashed. This indicates a bug in Bun, not your code.")
        assert not patterns.live("API Error (Connection error.) · Retrying in 5 seconds… (attempt 4/10)")
        assert not patterns.live("npm warn deprecated inflight@1.0.6")
        assert not patterns.live("request failed: read ECONNRESET")
        assert patterns.live("request failed: read ECONNRESET", at_once=True)


def test_only_the_beginning_of_a_very_long_line_is_looked_at() -> None:
    assert patterns_of("claude").first("x" * LONGEST_LINE + "\nYou've hit your limit") is None
    assert patterns_of("claude").first("You've hit your limit · " + "x" * 10_000_000) is not None


def _file(directory: Path, text: str) -> Path:
    path = directory / "mine.toml"
    path.write_text(text)
    return path


def test_a_file_of_the_users_replaces_by_name_and_goes_first_with_new_ones(tmp_path: Path) -> None:
    mine = _file(
        tmp_path,
        """
        version = 1
        [[pattern]]
        name = "claude-execution-error"
        kind = "fatal"
        match = "execution error"
        [[pattern]]
        name = "my-own"
        kind = "rate_limit"
        match = "you've hit your limit"
        """,
    )

    patterns = patterns_of("claude", mine)

    assert patterns.patterns[0].name == "my-own"
    assert len(patterns.patterns) == len(patterns_of("claude").patterns) + 1
    by_line = {
        line: patterns.first(line) for line in ("Execution error", "You've hit your limit · resets 3pm")
    }
    assert [found[0].kind for found in by_line.values() if found] == [
        FailureKind.FATAL,
        FailureKind.RATE_LIMIT,
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version = 9", "version: must be 1, is 9"),
        ("", "version: must be 1, is missing"),
        ("version = 1\nx = 2", "x: unknown"),
        ("version = 1\npattern = 3", "pattern: must be written as [[pattern]]"),
        ("version = 1\n[[pattern]]\nkind='fatal'\nmatch='a'", "pattern 1: name: must be a text"),
        (
            "version = 1\n[[pattern]]\nname='a'\nmatch='a'",
            "pattern a: kind: is missing; known are rate_limit",
        ),
        ("version = 1\n[[pattern]]\nname='a'\nkind='bad'\nmatch='a'", "pattern a: kind: 'bad' is unknown"),
        (
            "version = 1\n[[pattern]]\nname='a'\nkind='fatal'\nmatch='('",
            "pattern a: match: missing ), unterminated",
        ),
        (
            "version = 1\n[[pattern]]\nname='a'\nkind='fatal'\nmatch='a'\nlive='y'",
            "live: must be true or false",
        ),
        (
            "version = 1\n[[phrase]]\nname='a'\nkind='fatal'\nmatch='a'\nexamples=[1]",
            "examples: must be a list",
        ),
        ("version = 1\n[[phrase]]\nname='a'\nkind='fatal'\nmatch='a'\nwhat=1", "phrase a: what: unknown key"),
        ("version = = 1", "Invalid value"),
    ],
)
def test_what_is_wrong_with_a_file_of_the_users_is_said(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigFaults, match=r"mine\.toml cannot be used") as told:
        patterns_of("claude", _file(tmp_path, text))

    assert fault in told.value.why


def test_all_faults_of_a_file_are_told_together_and_a_missing_file_is_one(tmp_path: Path) -> None:
    entry = "[[pattern]]\nname='a'\nkind='fatal'\nmatch='a'\n"
    with pytest.raises(ConfigFaults) as told:
        patterns_of("claude", _file(tmp_path, f"version = 2\n{entry}{entry}"))
    with pytest.raises(ConfigFaults, match=r"none\.toml") as missing:
        patterns_of("claude", tmp_path / "none.toml")

    assert told.value.why.splitlines() == ["version: must be 1, is 2", "pattern a: the name is used twice"]
    assert "No such file" in missing.value.why


def test_a_byte_order_mark_of_a_file_is_read_over(tmp_path: Path) -> None:
    assert patterns_of("claude", _file(tmp_path, "\ufeffversion = 1\n")) == patterns_of("claude")


def test_the_file_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "patterns.toml"
    shown = example.read_text(encoding="utf-8")

    patterns = patterns_of("codex", _file(tmp_path, shown))

    pattern, phrase = patterns.patterns[0], patterns.phrases[0]
    assert (pattern.name, phrase.name) == ("gateway-asleep", "project-frozen")
    assert pattern.match(pattern.examples[0]) and not pattern.match(pattern.counter_examples[0])


def test_what_aider_says_after_a_step_that_went_well_ends_an_earlier_failure() -> None:
    failed = [
        "litellm.RateLimitError: RateLimitError: OpenAIException - Too Many Requests",
        "Retrying in 2.0 seconds...",
    ]
    aider = plain_agent("aider")

    assert finding_of(failed, aider, code=0, now=NOW).kind is FailureKind.RATE_LIMIT
    assert finding_of([*failed, "Applied edit to a.py"], aider, code=0, now=NOW).kind is None
    assert finding_of([*failed, "Tokens: 1k sent, 42 received."], aider, code=0, now=NOW).kind is None


def test_who_says_no_more_than_that_there_was_no_answer_does_not_hide_the_reason() -> None:
    def kind(*lines: str) -> FailureKind | None:
        said = match_in(lines, patterns_of("general"))
        return said.kind if said else None

    assert kind("Provider returned error") is FailureKind.TRANSIENT
    assert kind("Error: 429 slow down", "Provider returned error") is FailureKind.RATE_LIMIT
    assert kind("Error: 429 slow down", "KeyError: 'x'") is FailureKind.RATE_LIMIT


def test_the_last_words_of_a_failure_are_read_though_no_pattern_opens_them() -> None:
    def kind(*lines: str) -> FailureKind | None:
        said = match_in(lines, patterns_of("general"))
        return said.kind if said else None

    assert kind("Relay: the call failed upstream: ECONNRESET") is FailureKind.TRANSIENT
    assert kind("I saw that the call failed upstream: ECONNRESET") is None
    assert kind("Timeouts and ECONNRESET are retried") is None
