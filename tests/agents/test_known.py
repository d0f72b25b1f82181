"""The agents by their names, and what all parsers have to bear."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.agents.agent import LaunchSpec
from ralphd.agents.description import DESCRIBED, description_of
from ralphd.agents.known import (
    KNOWN,
    agent_of,
    check_names,
    fallback_chain,
    missing_program,
    spec_of,
    state_paths,
    tells_costs,
)
from ralphd.agents.parsers import TextParser
from ralphd.agents.reading import MAX_LINE_CHARS, OWN_LINE_CHARS, OWN_LINES
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import AgentEvent, FinalEvent
from ralphd.errors import ConfigFaults, UnknownAgent
from tests.agents.lines import event, heard

MINE = {"mine": AgentSpec(command=("my-agent",)), "claude": AgentSpec(model="opus")}
ALL = (*KNOWN, "mine")


def parser_of(name: str) -> TextParser:
    return agent_of(name, MINE.get(name) or AgentSpec()).parser()


def test_names_that_are_no_agents_are_refused_with_the_nearest_and_all_known() -> None:
    with pytest.raises(UnknownAgent) as refused:
        check_names(("claude", "mine", "cluade"), MINE)

    assert "'cluade' is not a known agent, did you mean claude?" in str(refused.value)
    known = "claude, codex, gemini, opencode, aider, amp, copilot, cursor, kiro, qwen, mine"
    assert known in str(refused.value)


def test_a_name_without_a_command_defines_no_agent() -> None:
    named = {"goose": AgentSpec(model="big")}

    with pytest.raises(UnknownAgent):
        check_names(("goose",), named)
    with pytest.raises(UnknownAgent):
        agent_of("goose", named["goose"])


@pytest.mark.parametrize(
    ("primary", "fallback", "chain"),
    [
        ("claude", (), ()),
        ("claude", ("codex", "claude", "codex", "mine"), ("codex", "mine")),
        ("claude", ("auto",), ("codex", "gemini", "opencode")),
        ("codex", ("auto",), ("gemini", "claude", "opencode")),
        ("mine", ("opencode", "auto"), ("opencode", "codex", "gemini", "claude")),
        ("cursor", ("cursor-agent", "kiro-cli", "qwen", "kiro"), ("kiro-cli", "qwen")),
    ],
)
def test_who_is_asked_next(primary: str, fallback: tuple[str, ...], chain: tuple[str, ...]) -> None:
    assert fallback_chain(primary, fallback, MINE) == chain


@pytest.mark.parametrize(
    ("name", "told_by"),
    [
        ("claude", "no program claude on PATH; npm install -g @anthropic-ai/claude-code"),
        ("codex", "no program codex on PATH; npm install -g @openai/codex"),
        ("gemini", "no program gemini on PATH; npm install -g @google/gemini-cli"),
        ("opencode", "no program opencode on PATH; npm install -g opencode-ai"),
        ("qwen", "no program qwen on PATH; npm install -g @qwen-code/qwen-code"),
        ("copilot", "no program copilot on PATH; npm install -g @github/copilot"),
        ("amp", "no program amp on PATH; npm install -g @ampcode/cli"),
        ("aider", "no program aider on PATH; python -m pip install aider-install && aider-install"),
        ("cursor", "no program cursor-agent on PATH; curl https://cursor.com/install"),
        ("kiro-cli", "no program kiro-cli on PATH; curl -fsSL https://cli.kiro.dev/install"),
    ],
)
def test_an_agent_that_is_not_installed_is_told_with_what_installs_it(
    name: str, told_by: str, tmp_path: Path
) -> None:
    told = missing_program(agent_of(name, AgentSpec()), {"PATH": str(tmp_path)})

    assert told is not None
    assert f"{name} is not installed: {told_by}" in told


def test_a_command_of_the_users_that_is_missing_is_told_by_its_key(tmp_path: Path) -> None:
    agent = agent_of("claude", AgentSpec(command=("./wrapper",)))

    assert "the command of agents.claude" in (missing_program(agent, {"PATH": str(tmp_path)}) or "")


def test_an_agent_that_is_there_is_not_missing(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert missing_program(agent_of("codex", AgentSpec()), {"PATH": str(tmp_path)}) is None


def test_who_tells_its_end_in_an_event_and_who_tells_what_it_costs() -> None:
    agents = {name: agent_of(name, MINE.get(name) or AgentSpec()) for name in ALL}

    assert [name for name, agent in agents.items() if not agent.has_verdict] == ["aider", "kiro", "mine"]
    assert [name for name, agent in agents.items() if tells_costs(agent)] == ["claude", "opencode", "aider"]


def test_every_cli_with_a_description_states_where_it_keeps_its_state() -> None:
    assert {"~/.claude", "~/.claude.json", "~/.codex", "~/.gemini"} <= set(state_paths())
    assert not [name for name in DESCRIBED if not description_of(name).state]


def test_a_cli_has_another_name_and_what_is_configured_of_it_holds_under_both() -> None:
    configured = {"cursor": AgentSpec(model="big"), "kiro-cli": AgentSpec(args=("--agent", "mine"))}

    check_names(("cursor-agent", "kiro"), configured)
    spec = spec_of("cursor-agent", configured)
    launch = agent_of("cursor-agent", spec).launch(LaunchSpec("Fix it.", Path("/p.md")))

    assert launch.argv[-4:] == ("--model", "big", "--", "Fix it.")
    assert spec_of("kiro", configured).args == ("--agent", "mine")
    assert spec_of("kiro", {"kiro": AgentSpec(), **configured}).args == ()
    assert spec_of("mine", configured) == AgentSpec()


@pytest.mark.parametrize("name", ["amp", "kiro"])
def test_a_model_is_refused_where_nobody_knows_how_the_cli_takes_it(name: str) -> None:
    with pytest.raises(ConfigFaults, match=f"the CLI {name}") as told:
        agent_of(name, AgentSpec(model="big"))

    assert told.value.mend == f"put the model into agents.{name}.args"


def assert_bounded_and_writable(parser: TextParser, signs: list[AgentEvent]) -> None:
    assert len(parser.own_lines()) <= OWN_LINES
    assert all(len(line) <= OWN_LINE_CHARS for line in parser.own_lines())
    shown = [*map(asdict, signs), *parser.own_lines(), parser.last_message()]
    assert json.dumps(shown, ensure_ascii=False).encode()


@settings(max_examples=40)
@given(lines=st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_are_fatal(lines: list[bytes]) -> None:
    texts = [line.decode("utf-8", "replace") for line in lines]

    for parser in map(parser_of, ALL):
        signs = [sign for line in texts for sign in (*parser.line(line), *parser.error_line(line))]
        assert_bounded_and_writable(parser, signs)


WHOLE_EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"},
    {"type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 9.5, "error_status": 529},
    {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": "hi"}]},
        "parent_tool_use_id": None,
    },
    {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "name": "x", "input": {"command": ["a"]}}]},
    },
    {"type": "assistant", "message": {"model": "<synthetic>", "content": "no"}, "error": "rate_limit"},
    {
        "type": "rate_limit_event",
        "rate_limit_info": {"status": "rejected", "resetsAt": 1, "rateLimitType": "x"},
    },
    {
        **{"type": "result", "subtype": "success", "is_error": False, "result": "no", "errors": ["no"]},
        **{
            "total_cost_usd": 0.1,
            "usage": {"input_tokens": 1, "output_tokens": 2},
            "terminal_reason": "completed",
        },
        **{
            "api_error_status": 429,
            "api_error": "x",
            "api_error_params": {"rate_limit_info": {"status": "rejected"}},
        },
        **{
            "status": "error",
            "error": {"message": '[API Error: {"error":{"code":1}}]'},
            "stats": {"input_tokens": 1},
        },
    },
    {"type": "result", "status": "success", "stats": {"input_tokens": 1}},
    {"type": "thread.started", "thread_id": "t1"},
    {"type": "item.started", "item": {"type": "command_execution", "command": "ls"}},
    {"type": "item.started", "item": {"type": "mcp_tool_call", "tool": "x", "arguments": {"path": "p"}}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "hi"}},
    {"type": "item.completed", "item": {"type": "file_change", "changes": [{"path": "p"}]}},
    {"type": "item.completed", "item": {"type": "error", "message": "no"}},
    {"type": "error", "message": "Reconnecting... 1/5 (x)", "severity": "error"},
    {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 2}},
    {"type": "turn.failed", "error": {"message": '{"error":{"message":"no"}}', "code": "x"}},
    {"type": "message", "role": "assistant", "content": "hi", "delta": True},
    {"type": "tool_use", "tool_name": "x", "parameters": {"file_path": "p"}},
    {"type": "text", "sessionID": "s1", "part": {"text": "hi"}},
    {
        "type": "tool_use",
        "sessionID": "s1",
        "part": {"tool": "x", "state": {"input": {"url": "u"}, "title": "t"}},
    },
    {
        **{"type": "step_finish", "sessionID": "s1"},
        "part": {"reason": "stop", "cost": 0.1, "tokens": {"input": 1, "output": 2, "cache": {"read": 3}}},
    },
    {
        **{"type": "tool_call", "subtype": "started"},
        "tool_call": {"shellToolCall": {"args": {"command": "ls"}}},
    },
    {"type": "user.message", "data": {"content": "hi"}},
    {"type": "assistant.message", "data": {"content": "hi", "toolRequests": []}},
    {"type": "tool.execution_start", "data": {"toolName": "bash", "arguments": {"command": "ls"}}},
    {"type": "assistant.turn_retry", "data": {"reason": "rate_limit"}},
    {
        "type": "session.error",
        "data": {"errorType": "query", "message": '{"error":{"message":"no"}}', "statusCode": 429},
    },
    {"type": "result", "sessionId": "s1", "exitCode": 1},
    {
        "type": "error",
        "error": {
            "name": "APIError",
            "data": {"message": "no", "statusCode": 429, "responseHeaders": {"A": "b"}, "responseBody": "{}"},
        },
    },
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 3.5, 10**30, float("nan"), float("inf"), "", "x", "\ud800", "\0\x1b[0m"),
    *([], [None, 1, "x", {}, []], {}, {"": None}, {"type": "text", "text": 3}, "x" * 5000),
)


def altered(whole: Any) -> Iterator[Any]:
    """Copies of ``whole``, each with one value in it, at any depth, that is something odd."""
    yield from ODD_VALUES
    if isinstance(whole, dict):
        for key, held in whole.items():
            yield {name: value for name, value in whole.items() if name != key}
            for odd in altered(held):
                yield {**whole, key: odd}
    if isinstance(whole, list):
        for at, held in enumerate(whole):
            for odd in altered(held):
                yield [*whole[:at], odd, *whole[at + 1 :]]


@pytest.mark.parametrize("name", sorted({*KNOWN} - {"aider", "kiro"}))  # to these two all lines are text
def test_no_value_in_any_field_is_fatal(name: str) -> None:
    parser = parser_of(name)

    for whole in WHOLE_EVENTS:
        for odd in altered(whole):
            assert_bounded_and_writable(parser, heard(parser, json.dumps(odd)))


ODD_LINES = {
    "nested": "[" * 100_000,
    "nested objects": '{"type":' * 20_000,
    "a nested value": '{"type":"result","result":' + "[" * 50_000 + "]" * 50_000 + "}",
    "a large number": '{"type":"result","total_cost_usd":' + "9" * 5000 + "}",
    "no number": '{"type":"result","total_cost_usd":NaN,"usage":{"input_tokens":Infinity}}',
    "two events": '{"type":"result"}{"type":"result"}',
    "NUL": "\0" * 1000,
    "escape codes": "\x1b[31m\x1b]0;title\x07{",
    "null": "null",
    "a list": "[]",
    "a word": '"result"',
    "half a character": '{"type":"text","part":{"text":"\\ud83d"}}',
}


@pytest.mark.parametrize("what", ODD_LINES)
@pytest.mark.parametrize("name", KNOWN)
def test_odd_lines_are_no_verdict(name: str, what: str) -> None:
    parser = parser_of(name)

    signs = list(parser.line(ODD_LINES[what]))

    assert not [sign for sign in signs if isinstance(sign, FinalEvent) and sign.good]
    assert_bounded_and_writable(parser, signs)


@pytest.mark.parametrize("name", ALL)
def test_a_line_cut_at_its_bound_is_a_sign_of_life_at_most_and_kept_short(name: str) -> None:
    parser = parser_of(name)
    line = event("result", result="x" * MAX_LINE_CHARS, status="success", subtype="success")[:MAX_LINE_CHARS]

    signs = [*parser.line(line), *parser.error_line("y" * MAX_LINE_CHARS)]

    assert not [sign for sign in signs if isinstance(sign, FinalEvent)]
    assert len("".join(parser.own_lines())) <= 2 * OWN_LINE_CHARS


@pytest.mark.parametrize("name", ALL)
def test_a_talkative_agent_is_kept_by_its_last_lines(name: str) -> None:
    parser = parser_of(name)

    for number in range(1000):
        list(parser.error_line(f"complaint {number}"))

    assert parser.own_lines() == tuple(f"complaint {number}" for number in range(950, 1000))
