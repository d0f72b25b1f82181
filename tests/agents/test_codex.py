"""Codex: how it is started, and what its events say."""

from pathlib import Path

import pytest

from ralphd.agents.agent import Launch, LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import (
    AgentText,
    Alive,
    Figures,
    FinalEvent,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Warned,
)
from ralphd.core.failures.kinds import FailureKind
from tests.agents.lines import complained, event, heard, last_verdict, parser_of

LIMIT_WORDS = "You’ve hit your usage limit. Upgrade to Plus or try again at 6:02 PM."


def launched(spec: AgentSpec | None = None, *, session: str | None = None) -> Launch:
    agent = agent_of("codex", spec or AgentSpec(), outside={})
    return agent.launch(LaunchSpec("Fix it.", Path("/state/PROMPT-now.md"), session))


def failed(message: str) -> str:
    return event("turn.failed", error={"message": message})


def test_it_reads_its_prompt_from_stdin_by_a_dash() -> None:
    launch = launched(AgentSpec(model="gpt-5"))

    assert launch.argv == (
        *("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        *("-m", "gpt-5", "-"),
    )
    assert launch.stdin == b"Fix it."


def test_a_thread_is_resumed_by_a_command_of_its_own() -> None:
    assert launched(AgentSpec(args=("-c", "a=1")), session="01a1-ffea").argv[-5:] == (
        *("-c", "a=1"),
        *("resume", "01a1-ffea", "-"),
    )


def test_a_sandbox_that_the_user_asks_for_stays() -> None:
    argv = launched(AgentSpec(args=("--sandbox=workspace-write",))).argv

    assert "--dangerously-bypass-approvals-and-sandbox" not in argv


def test_a_good_run_tells_its_thread_commands_words_tokens_and_verdict() -> None:
    parser = parser_of("codex")
    command = {"type": "command_execution", "command": "cat limits.md", "aggregated_output": ""}

    signs = heard(
        parser,
        event("thread.started", thread_id="01a1-ffea"),
        event("turn.started"),
        event("item.started", item={"id": "item_1", **command}),
        event("item.completed", item={"id": "item_1", **command, "aggregated_output": LIMIT_WORDS}),
        event(
            "item.completed", item={"type": "file_change", "changes": [{"path": "a.py"}, {"path": "b.py"}]}
        ),
        event("item.completed", item={"type": "agent_message", "text": "Done."}),
        event("turn.completed", usage={"input_tokens": 24, "cached_input_tokens": 3, "output_tokens": 8}),
    )

    assert signs == [
        Started("01a1-ffea"),
        Alive(),
        ToolUse("command_execution", "cat limits.md"),
        Alive(),
        ToolUse("file_change", "a.py b.py"),
        AgentText("Done."),
        Spent(Figures(None, 24, 8)),
        FinalEvent(good=True, message="Done."),
    ]
    assert parser.own_lines() == ()
    assert parser.last_message() == "Done."


def test_a_failed_turn_is_the_verdict_and_its_message_all_there_is() -> None:
    parser = parser_of("codex")

    signs = heard(parser, event("error", message=LIMIT_WORDS), failed(LIMIT_WORDS))

    assert signs == [Warned(LIMIT_WORDS), FinalEvent(good=False, message=LIMIT_WORDS)]
    assert parser.own_lines() == (LIMIT_WORDS,)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("unexpected status 503 Service Unavailable: busy, url: http://x/v1/responses", 503),
        ("unexpected status 529 <unknown status code>: Overloaded", 529),
        ("exceeded retry limit, last status: 429 Too Many Requests", 429),
        ("stream disconnected before completion: stream closed", None),
    ],
)
def test_an_http_status_in_its_own_words_is_read(message: str, status: int | None) -> None:
    assert last_verdict(heard(parser_of("codex"), failed(message))).status == status


def test_a_vendors_error_in_json_is_unpacked() -> None:
    told = '{"error": {"message": "Billing hard limit", "type": "invalid", "code": "billing_hard_limit"}}'

    verdict = last_verdict(heard(parser_of("codex"), failed(told)))

    assert (verdict.message, verdict.code, verdict.body) == ("Billing hard limit", "billing_hard_limit", told)


@pytest.mark.parametrize(
    ("message", "sign"),
    [
        ("Reconnecting... 2/5 (stream closed)", RetryingItself("stream closed", None, 2, 5)),
        (
            "Reconnecting... 1/5 (unexpected status 503 Service Unavailable)",
            RetryingItself("unexpected status 503 Service Unavailable", 503, 1, 5),
        ),
        ("Reconnecting... waiting for network", RetryingItself("waiting for network")),
    ],
)
def test_a_passing_error_is_a_retry_of_its_own(message: str, sign: RetryingItself) -> None:
    parser = parser_of("codex")

    assert heard(parser, event("error", message=message)) == [sign]
    assert parser.own_lines() == ()


def test_an_error_item_is_a_warning_and_no_evidence() -> None:
    parser = parser_of("codex")

    signs = heard(parser, event("item.completed", item={"type": "error", "message": "Model not found."}))

    assert signs == [Warned("Model not found.")]
    assert parser.own_lines() == ()


def test_a_transcript_on_stderr_is_not_its_own() -> None:
    parser = parser_of("codex")

    complained(parser, "Error: no such profile", "OpenAI Codex v0.169.0", "exec cat", LIMIT_WORDS)

    assert parser.own_lines() == ("Error: no such profile",)


def test_exit_2_is_a_command_line_that_it_does_not_understand() -> None:
    assert agent_of("codex", AgentSpec()).exits[2].kind is FailureKind.FATAL


def test_a_resumed_thread_tells_all_its_tokens_and_an_attempt_spends_its_part() -> None:
    agent = agent_of("codex", AgentSpec())
    started = event("thread.started", thread_id="t1")

    signs = [
        heard(
            agent.parser(), started, event("turn.completed", usage={"input_tokens": read, "output_tokens": 8})
        )
        for read in (24, 36)
    ]

    assert [heard_of[1] for heard_of in signs] == [Spent(Figures(None, 24, 8)), Spent(Figures(None, 12, 0))]
