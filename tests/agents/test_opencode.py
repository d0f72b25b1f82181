"""opencode: how it is started, and what its events say."""

import json
from pathlib import Path
from typing import Any

from ralphd.agents.agent import LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import (
    AgentText,
    Alive,
    Empty,
    Figures,
    FinalEvent,
    Spent,
    Started,
    ToolUse,
)
from tests.agents.lines import complained, event, heard, last_verdict, parser_of

QUOTA_WORDS = "You exceeded your current quota, please check your plan and billing details."


def line(kind: str, **fields: Any) -> str:
    return event(kind, timestamp=1, sessionID="ses_1", **fields)


def finish(reason: str, tokens: int = 0, cost: float = 0.0) -> str:
    used = {"input": tokens, "output": tokens, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    return line("step_finish", part={"type": "step-finish", "reason": reason, "tokens": used, "cost": cost})


def said(words: str) -> str:
    return line("text", part={"type": "text", "text": words})


def failed(name: str, **data: Any) -> str:
    return line("error", error={"name": name, "data": data})


def test_it_reads_its_prompt_from_stdin_and_does_not_update_itself() -> None:
    launch = agent_of("opencode", AgentSpec(model="p/m"), outside={}).launch(
        LaunchSpec("Fix it.", Path("p"), "ses_1")
    )

    assert launch.argv == (
        *("opencode", "run", "--format", "json", "--auto"),
        *("-m", "p/m", "-s", "ses_1"),
    )
    assert launch.stdin == b"Fix it."
    assert launch.environment["OPENCODE_DISABLE_AUTOUPDATE"] == "1"


def test_a_good_run_tells_its_session_once_and_ends_with_a_stop() -> None:
    parser = parser_of("opencode")
    state = {"status": "completed", "input": {"command": "cat limits.md"}, "output": QUOTA_WORDS}

    signs = heard(
        parser,
        line("step_start", part={}),
        line("tool_use", part={"tool": "bash", "state": state}),
        finish("tool-calls", tokens=12, cost=0.5),
        line("step_start", part={}),
        said("Done."),
        finish("stop", tokens=3, cost=0.25),
    )

    assert signs == [
        Started("ses_1"),
        Alive(),
        ToolUse("bash", "cat limits.md"),
        Spent(Figures(0.5, 12, 12), total=False),
        Alive(),
        AgentText("Done."),
        Spent(Figures(0.25, 3, 3), total=False),
        FinalEvent(good=True, message="Done."),
    ]
    assert parser.own_lines() == ()
    assert parser.last_message() == "Done."


def test_an_error_tells_status_headers_and_body() -> None:
    body = json.dumps({"error": {"message": QUOTA_WORDS, "type": "tokens", "code": "usage_limit_reached"}})
    parser = parser_of("opencode")

    signs = heard(
        parser,
        failed(
            "APIError",
            message=QUOTA_WORDS,
            statusCode=429,
            responseHeaders={"Retry-After": "3", "odd": 3},
            responseBody=body,
        ),
    )

    assert last_verdict(signs) == FinalEvent(
        good=False,
        message=QUOTA_WORDS,
        status=429,
        code="usage_limit_reached",
        headers={"retry-after": "3"},
        body=body,
    )
    assert parser.own_lines() == (QUOTA_WORDS,)


def test_an_error_in_the_stream_is_unpacked() -> None:
    told = json.dumps({"message": "Overloaded", "type": "server_error", "code": "server_is_overloaded"})

    verdict = last_verdict(heard(parser_of("opencode"), failed("UnknownError", message=told)))

    assert (verdict.message, verdict.code, verdict.status) == ("Overloaded", "server_is_overloaded", None)


def test_a_vendors_error_that_is_passed_on_as_it_came_is_read() -> None:
    error = {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": "try later"}
    (verdict,) = parser_of("opencode").line(json.dumps({"type": "error", "error": error}))

    assert isinstance(verdict, FinalEvent) and verdict.message == "try later" and not verdict.good


def test_an_error_without_words_has_its_name() -> None:
    assert (
        last_verdict(heard(parser_of("opencode"), failed("ContextOverflowError"))).code
        == "ContextOverflowError"
    )


def test_steps_without_tokens_are_empty() -> None:
    signs = heard(parser_of("opencode"), *[line("step_start", part={}), finish("unknown")] * 3)

    assert signs == [Started("ses_1"), Alive(), Empty(), Alive(), Empty(), Alive(), Empty()]


def test_a_step_that_ends_for_another_reason_is_no_good_end() -> None:
    verdict = last_verdict(heard(parser_of("opencode"), said("half of"), finish("length", tokens=9)))

    assert (verdict.good, verdict.code) == (False, "length")


def test_a_step_after_an_end_is_told_as_a_new_start() -> None:
    signs = heard(parser_of("opencode"), finish("stop", tokens=1), line("step_start", part={}))

    assert signs[-2:] == [FinalEvent(good=True), Started("ses_1")]


def test_a_later_good_end_outweighs_an_error() -> None:
    signs = heard(
        parser_of("opencode"), failed("APIError", message="busy"), said("Done."), finish("stop", tokens=1)
    )

    assert last_verdict(signs).good


def test_lines_that_are_no_events_and_stderr_are_its_own() -> None:
    parser = parser_of("opencode")

    heard(parser, "Error: Session not found")
    complained(parser, "opencode run [message..]")

    assert parser.own_lines() == ("Error: Session not found", "opencode run [message..]")
