"""Gemini CLI: how it is started, and what its events say."""

from pathlib import Path

import pytest

from ralphd.agents.agent import Launch, LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.agents.reading import LAST_MESSAGE_CHARS
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

QUOTA_WORDS = "You have exhausted your daily quota on this model."


def launched(spec: AgentSpec | None = None, *, session: str | None = None) -> Launch:
    agent = agent_of("gemini", spec or AgentSpec(), outside={})
    return agent.launch(LaunchSpec("- Fix it.", Path("/state/PROMPT-now.md"), session))


def failed(message: str) -> str:
    return event("result", status="error", error={"type": "unknown", "message": message}, stats={})


def piece(words: str) -> str:
    return event("message", role="assistant", content=words, delta=True)


def test_it_reads_its_prompt_from_stdin_and_trusts_the_directory() -> None:
    launch = launched(session="a02d-90")

    assert launch.argv == ("gemini", "--output-format", "stream-json", "--yolo", "--resume", "a02d-90")
    assert launch.stdin == b"- Fix it."
    assert launch.environment["GEMINI_CLI_TRUST_WORKSPACE"] == "true"


def test_a_prompt_as_an_argument_cannot_be_taken_for_a_flag() -> None:
    assert launched(AgentSpec(prompt_via="argument")).argv[-1] == "--prompt=- Fix it."


def test_a_good_run_tells_its_session_tools_words_tokens_and_verdict() -> None:
    parser = parser_of("gemini")

    signs = heard(
        parser,
        event("init", session_id="a02d-90", model="pro"),
        event("message", role="user", content=QUOTA_WORDS),
        event("tool_use", tool_name="read_file", parameters={"file_path": "limits.md"}),
        event("tool_result", status="success", output=QUOTA_WORDS),
        piece("Done."),
        event("result", status="success", stats={"input_tokens": 24, "output_tokens": 8}),
    )

    assert signs == [
        Started("a02d-90", "pro"),
        Alive(),
        ToolUse("read_file", "limits.md"),
        Alive(),
        Alive(),
        AgentText("Done."),
        Spent(Figures(None, 24, 8)),
        FinalEvent(good=True, message="Done."),
    ]
    assert parser.own_lines() == ()
    assert parser.last_message() == "Done."


def test_a_message_in_pieces_is_shown_by_lines_and_kept_whole() -> None:
    parser = parser_of("gemini")

    signs = heard(parser, piece("All "), piece("done.\n<promise>COM"), piece("PLETE</promise>"))

    assert signs == [Alive(), AgentText("All done."), Alive()]
    assert parser.last_message() == "All done.\n<promise>COMPLETE</promise>"


def test_a_message_after_a_tool_is_another_one() -> None:
    parser = parser_of("gemini")

    heard(parser, piece("First."), event("tool_use", tool_name="x"), piece("Second."))

    assert parser.last_message() == "Second."


def test_pieces_without_a_line_end_are_shown_in_time() -> None:
    parser = parser_of("gemini")

    shown = [sign for sign in heard(parser, *[piece("word " * 100)] * 10) if isinstance(sign, AgentText)]

    assert len(shown) >= 2
    assert all(len(sign.text) < 5000 for sign in shown)


def test_of_a_message_of_any_length_the_end_is_kept() -> None:
    parser = parser_of("gemini")
    for piece in ("a" * LAST_MESSAGE_CHARS, "b" * LAST_MESSAGE_CHARS, "c"):
        parser.line(event("message", role="assistant", content=piece, delta=True))

    assert parser.last_message() == "b" * (LAST_MESSAGE_CHARS - 1) + "c"


def test_an_error_status_without_an_error_takes_the_last_complaint() -> None:
    parser = parser_of("gemini")

    signs = heard(
        parser,
        event("error", severity="error", message="Model stream ended without a finish reason."),
        event("result", status="error", stats={"input_tokens": 0}),
    )

    assert signs == [
        Warned("Model stream ended without a finish reason."),
        FinalEvent(good=False, message="Model stream ended without a finish reason."),
    ]
    assert parser.own_lines() == ("Model stream ended without a finish reason.",)


def test_the_vendors_error_is_unpacked_from_its_own() -> None:
    told = '[API Error: {"error":{"code":403,"message":"No permission.","status":"PERMISSION_DENIED"}}]'

    verdict = last_verdict(heard(parser_of("gemini"), failed(told)))

    assert (verdict.message, verdict.status, verdict.code) == ("No permission.", 403, "PERMISSION_DENIED")
    assert verdict.body == told


def test_advice_after_an_error_is_no_part_of_it() -> None:
    told = f"[API Error: {QUOTA_WORDS}]\nPlease wait and try again later, or request a quota increase."

    assert last_verdict(heard(parser_of("gemini"), failed(told))).message == QUOTA_WORDS


def test_its_retries_are_told_on_stderr() -> None:
    parser = parser_of("gemini")

    signs = complained(
        parser,
        "Attempt 1 failed with status 503. Retrying with backoff... _ApiError: busy",
        "    at retryWithBackoff (file:///chunk.js:1:2)",
        "  status: 503",
        "Attempt 2 failed: You exceeded your current quota",
        "YOLO mode is enabled. All tool calls will be automatically approved.",
    )

    assert signs == [
        RetryingItself("Retrying with backoff... _ApiError: busy", 503, 1),
        RetryingItself("You exceeded your current quota", None, 2),
    ]
    assert "  status: 503" in parser.own_lines()
    assert len(parser.own_lines()) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (173, FailureKind.RATE_LIMIT),
        (144, FailureKind.FATAL),
        (145, FailureKind.FATAL),
        (146, FailureKind.FATAL),
        (147, FailureKind.FATAL),
        (244, FailureKind.TRANSIENT),
        (247, FailureKind.TRANSIENT),
        (17, FailureKind.TRANSIENT),
        (41, FailureKind.FATAL),
        (42, FailureKind.FATAL),
        (44, FailureKind.FATAL),
        (52, FailureKind.FATAL),
        (53, FailureKind.AGENT_INCOMPLETE),
        (54, FailureKind.AGENT_CRASH),
        (55, FailureKind.FATAL),
        (126, FailureKind.FATAL),
        (127, FailureKind.FATAL),
    ],
)
def test_its_exit_status_is_the_http_status_modulo_256_or_one_of_its_own(
    code: int, kind: FailureKind
) -> None:
    assert agent_of("gemini", AgentSpec()).exits[code].kind is kind
