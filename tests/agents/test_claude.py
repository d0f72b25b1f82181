"""Claude Code: how it is started, and what its stream says."""

from pathlib import Path
from typing import Any

import pytest

from ralphd.agents.agent import Launch, LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import (
    AgentText,
    Alive,
    Figures,
    FinalEvent,
    Limited,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Warned,
    WindowUsed,
)
from tests.agents.lines import complained, event, heard, last_verdict, parser_of

LIMIT_WORDS = "You've hit your session limit · resets 4:10pm (Europe/Lisbon)"


def launched(spec: AgentSpec | None = None, *, session: str | None = None, **outside: str) -> Launch:
    agent = agent_of("claude", spec or AgentSpec(), outside=outside)
    return agent.launch(LaunchSpec("Fix it.", Path("/state/PROMPT-now.md"), session))


def result(**fields: Any) -> str:
    return event("result", **{"subtype": "success", "is_error": False, "result": "Done.", **fields})


def synthetic(words: str, **fields: Any) -> str:
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": words}]}
    return event("assistant", message=message, is_api_error_message=True, **fields)


def said(words: str, **fields: Any) -> str:
    return event("assistant", message={"model": "m", "content": [{"type": "text", "text": words}]}, **fields)


def test_it_streams_json_without_asking_and_reads_its_prompt_from_stdin() -> None:
    launch = launched()

    assert launch.argv == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        "--dangerously-skip-permissions",
    )
    assert launch.stdin == b"Fix it."
    assert launch.environment["DISABLE_AUTOUPDATER"] == "1"
    assert launch.environment["TERM"] == "dumb"


def test_its_own_ladder_of_retries_is_cut_short_unless_the_environment_says_otherwise() -> None:
    assert launched().environment["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert "CLAUDE_CODE_MAX_RETRIES" not in launched(CLAUDE_CODE_MAX_RETRIES="7").environment
    assert launched(AgentSpec(env={"API_TIMEOUT_MS": "9"})).environment["API_TIMEOUT_MS"] == "9"


@pytest.mark.parametrize(("uid", "sandbox"), [(0, "1"), (1000, None)])
def test_as_root_it_is_told_of_a_sandbox_since_it_refuses_to_work_otherwise(
    uid: int, sandbox: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)

    assert launched().environment.get("IS_SANDBOX") == sandbox


def test_a_session_is_resumed_after_the_users_own_arguments() -> None:
    spec = AgentSpec(args=("--max-turns", "9"), model="opus")

    assert launched(spec, session="dfe8-01").argv[-6:] == (
        *("--model", "opus"),
        *("--max-turns", "9"),
        *("--resume", "dfe8-01"),
    )


@pytest.mark.parametrize("session", ["--help", "-x", "", "a b", "a\nb", "x" * 200])
def test_what_could_be_read_as_a_flag_is_no_session(session: str) -> None:
    assert "--resume" not in launched(session=session).argv


@pytest.mark.parametrize("flag", ["--permission-mode=plan", "--allowedTools"])
def test_who_sets_permissions_keeps_them(flag: str) -> None:
    assert "--dangerously-skip-permissions" not in launched(AgentSpec(args=(flag, "x"))).argv


def test_a_command_of_the_users_takes_the_place_of_the_program() -> None:
    agent = agent_of("claude", AgentSpec(command=("nice", "my-claude")))

    assert agent.program == "nice"
    assert agent.launch(LaunchSpec("x", Path("p"))).argv[:3] == ("nice", "my-claude", "-p")


def test_a_good_run_tells_its_session_words_tools_cost_and_verdict() -> None:
    parser = parser_of("claude")
    tool = {"type": "tool_use", "name": "Bash", "input": {"command": "make test\n", "timeout": 5}}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7}

    signs = heard(
        parser,
        event("system", subtype="init", session_id="dfe8-01", model="opus"),
        event("assistant", message={"model": "opus", "content": [tool]}),
        event("user", message={"content": [{"type": "tool_result", "content": LIMIT_WORDS}]}),
        said("All tests pass."),
        result(result="All tests pass.", total_cost_usd=0.25, usage=usage, terminal_reason="completed"),
    )

    assert signs == [
        Started("dfe8-01", "opus"),
        ToolUse("Bash", "make test"),
        Alive(),
        AgentText("All tests pass."),
        Spent(Figures(0.25, 25, 7), total=True),
        FinalEvent(good=True, message="All tests pass."),
    ]
    assert parser.own_lines() == ()
    assert parser.last_message() == "All tests pass."


def test_success_with_is_error_is_a_failure() -> None:
    parser = parser_of("claude")

    verdict = last_verdict(
        heard(parser, result(is_error=True, result="API Error: 500 oh", api_error_status=500))
    )

    assert verdict == FinalEvent(good=False, message="API Error: 500 oh", status=500)
    assert parser.own_lines() == ("API Error: 500 oh",)


FAILURES: dict[str, tuple[dict[str, Any], int | None, str]] = {
    "usage limit": (
        {"api_error_status": 429, "api_error": "usage_limit_reached"},
        429,
        "usage_limit_reached",
    ),
    "rate limit": ({"api_error_status": 429, "api_error_type": "rate_limit_error"}, 429, "rate_limit_error"),
    "overloaded": ({"api_error_status": 529, "api_error_type": "overloaded_error"}, 529, "overloaded_error"),
    "no network": ({"api_error_status": None, "api_error": "connection_failed"}, None, "connection_failed"),
    "long prompt": ({"terminal_reason": "prompt_too_long", "api_error_status": 400}, 400, "prompt_too_long"),
    "turns": ({"subtype": "error_max_turns", "is_error": True}, None, "max_turns"),
    "budget": (
        {"subtype": "error_max_budget_usd", "terminal_reason": "budget_exhausted"},
        None,
        "budget_exhausted",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failed_result_tells_its_status_and_its_name(what: str) -> None:
    fields, status, code = FAILURES[what]

    verdict = last_verdict(heard(parser_of("claude"), result(**{"is_error": True, **fields})))

    assert (verdict.good, verdict.status, verdict.code) == (False, status, code)


@pytest.mark.parametrize(
    "fields",
    [
        {"is_error": "yes"},
        {"api_error": "usage_limit_reached"},
        {"api_error_status": 529},
        {"terminal_reason": "max_turns"},
        {"subtype": "error_during_execution"},
        {"subtype": None},
    ],
)
def test_a_result_is_good_only_when_nothing_in_it_speaks_of_a_failure(fields: dict[str, Any]) -> None:
    assert not last_verdict(heard(parser_of("claude"), result(**fields))).good


def test_a_message_that_the_cli_wrote_itself_is_its_own_and_names_the_failure() -> None:
    parser = parser_of("claude")

    signs = heard(
        parser,
        synthetic("Not logged in · Please run /login", error="authentication_failed"),
        result(is_error=True, result="Not logged in · Please run /login"),
    )

    assert signs[0] == Warned("Not logged in · Please run /login")
    assert last_verdict(signs).code == "authentication_failed"
    assert parser.own_lines() == ("Not logged in · Please run /login",)
    assert parser.last_message() == ""


def test_the_errors_of_a_result_without_words_are_its_message() -> None:
    line = result(subtype="error_during_execution", is_error=True, result=None, errors=["No conversation", 3])

    assert last_verdict(heard(parser_of("claude"), line)).message == "No conversation"


def test_its_own_retries_are_told_with_their_delay() -> None:
    line = event(
        "system",
        subtype="api_retry",
        attempt=2,
        max_retries=10,
        retry_delay_ms=1500,
        error_status=529,
        error="overloaded",
    )

    assert heard(parser_of("claude"), line) == [RetryingItself("overloaded", 529, 2, 10, 1.5)]


@pytest.mark.parametrize(
    ("info", "signs"),
    [
        (
            {"status": "rejected", "resetsAt": 1795304674, "rateLimitType": "five_hour"},
            [Limited(1795304674.0, "five_hour")],
        ),
        ({"status": "rejected", "resetsAt": 1795304674000}, [Limited(1795304674.0)]),
        ({"status": "rejected", "resetsAt": "soon"}, [Limited(None)]),
        ({"status": "allowed_warning", "resetsAt": 1795304674}, [Alive()]),
        ({"status": "allowed"}, [Alive()]),
    ],
)
def test_a_limit_is_one_only_when_it_rejects(info: dict[str, Any], signs: list[Any]) -> None:
    assert heard(parser_of("claude"), event("rate_limit_event", rate_limit_info=info)) == signs


def test_the_used_shares_of_the_plan_come_in_good_runs_too() -> None:
    week = {"utilization": 0.4, "resetsAt": 1795650274, "status": "allowed"}
    odd = {"utilization": "much"}
    info = {"status": "allowed", "unifiedWindows": {"seven_day": week, "odd": odd, "more": 5}}
    signs = heard(parser_of("claude"), event("rate_limit_event", rate_limit_info=info))
    assert signs == [Alive(), WindowUsed("seven_day", 0.4, 1795650274.0)]
    alone = {
        "status": "allowed_warning",
        "rateLimitType": "five_hour",
        "utilization": 1.2,
        "resetsAt": 1795304674,
    }
    signs = heard(parser_of("claude"), event("rate_limit_event", rate_limit_info=alone))
    assert signs == [Alive(), WindowUsed("five_hour", 1.0, 1795304674.0)]


def test_a_subagents_words_are_not_the_last_message() -> None:
    parser = parser_of("claude")

    heard(parser, said("I am the agent."), said("I am a helper.", parent_tool_use_id="toolu_1"))

    assert parser.last_message() == "I am the agent."


def test_talk_and_tool_output_about_limits_are_not_its_own_lines() -> None:
    parser = parser_of("claude")

    heard(
        parser,
        said(LIMIT_WORDS),
        event("user", message={"content": [{"type": "tool_result", "content": LIMIT_WORDS}]}),
        event("assistant", message={"content": LIMIT_WORDS}),
        result(result=LIMIT_WORDS),
    )

    assert parser.own_lines() == ()


def test_lines_that_are_no_events_are_its_own_but_what_was_cut_is_not() -> None:
    parser = parser_of("claude")

    heard(parser, "Credit balance is too low", '{"type":"user","message":"' + LIMIT_WORDS, LIMIT_WORDS)
    complained(parser, "error: unknown option '--no'")

    assert parser.own_lines() == ("Credit balance is too low", "error: unknown option '--no'")


def test_after_a_whole_event_plain_lines_are_its_own_again() -> None:
    parser = parser_of("claude")

    heard(parser, "{broken", "half of it", said("hi"), "API Error: 500")

    assert parser.own_lines() == ("API Error: 500",)


def test_a_resumed_session_tells_its_whole_price_and_an_attempt_costs_its_part() -> None:
    agent = agent_of("claude", AgentSpec())
    told = [(0.25, "s1"), (0.75, "s1"), (0.125, "s2")]

    signs = [
        heard(agent.parser(), result(total_cost_usd=cost, session_id=session))[0] for cost, session in told
    ]

    assert signs == [Spent(Figures(0.25)), Spent(Figures(0.5)), Spent(Figures(0.125))]


def test_a_second_result_of_one_attempt_replaces_the_first() -> None:
    lines = [result(total_cost_usd=cost, session_id="s1") for cost in (0.25, 0.5)]

    spent = [sign for sign in heard(parser_of("claude"), *lines) if isinstance(sign, Spent)]

    assert spent == [Spent(Figures(0.25)), Spent(Figures(0.5))]
