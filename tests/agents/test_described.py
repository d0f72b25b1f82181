"""The CLIs that are data: how each is started, and what its lines say."""

from pathlib import Path

import pytest

from ralphd.agents.agent import Cli, Launch, LaunchSpec
from ralphd.agents.description import DESCRIBED, description_of, read_description
from ralphd.agents.known import agent_of
from ralphd.agents.parsers import TextParser, described_parser
from ralphd.agents.patterns import patterns_of
from ralphd.agents.reading import Sessions
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
from ralphd.errors import ConfigFaults
from tests.agents.lines import complained, event, heard, last_verdict

DOCS = Path(__file__).parents[2] / "docs"
PROMPT_FILE = Path("/state/p.md")


def parser(name: str) -> TextParser:
    return agent_of(name, AgentSpec()).parser()


def launch(name: str, spec: AgentSpec | None = None, session: str | None = None) -> Launch:
    return agent_of(name, spec or AgentSpec(), outside={}).launch(LaunchSpec("Fix it.", PROMPT_FILE, session))


STARTED = {
    "qwen": "qwen --output-format stream-json --yolo",
    "amp": "amp -x --stream-json --dangerously-allow-all",
    "cursor": "cursor-agent -p --output-format stream-json --force -- Fix it.",
    "copilot": "copilot --output-format json --no-ask-user --no-color --allow-all",
    "aider": "aider --no-stream --no-pretty --yes-always --message-file /state/p.md",
    "kiro": "kiro-cli chat --no-interactive --trust-all-tools -- Fix it.",
}


@pytest.mark.parametrize("name", STARTED)
def test_a_described_agent_is_started_as_its_file_says(name: str) -> None:
    launched = launch(name)

    assert " ".join(launched.argv) == STARTED[name]
    assert launched.stdin == (b"Fix it." if name in ("qwen", "amp", "copilot") else None)
    assert {"CI": "1", "NO_COLOR": "1"}.items() <= launched.environment.items()


@pytest.mark.parametrize(
    ("name", "resumed"),
    [
        ("qwen", "--yolo --resume s-1"),
        ("cursor", "--force --resume s-1 -- Fix it."),
        ("copilot", "--allow-all --resume=s-1"),
        ("amp", "amp threads continue s-1 -x --stream-json --dangerously-allow-all"),
        ("aider", "--yes-always --message-file /state/p.md"),
        ("kiro", "--trust-all-tools -- Fix it."),
    ],
)
def test_a_session_is_resumed_where_there_is_a_way(name: str, resumed: str) -> None:
    assert " ".join(launch(name, session="s-1").argv).endswith(resumed)


def test_what_the_user_says_of_a_described_agent_holds() -> None:
    spec = AgentSpec(
        command=("wrapper", "qwen"), args=("--approval-mode", "auto-edit"), model="coder", env={"CI": "0"},
        prompt_via="argument",
    )  # fmt: skip

    launched = launch("qwen", spec)

    assert launched.argv == (
        "wrapper", "qwen", "--output-format", "stream-json", "-m", "coder", "--approval-mode", "auto-edit",
        "--prompt=Fix it.",
    )  # fmt: skip
    assert (launched.stdin, launched.environment["CI"]) == (None, "0")


def test_a_prompt_for_aider_can_be_an_argument_and_its_environment_the_users() -> None:
    assert launch("aider", AgentSpec(prompt_via="argument")).argv[-1] == "--message=Fix it."
    agent = agent_of("aider", AgentSpec(), outside={"AIDER_CHECK_UPDATE": "true"})
    assert "AIDER_CHECK_UPDATE" not in agent.launch(LaunchSpec("x", PROMPT_FILE)).environment


CLAUDE_LIKE = ("qwen", "amp", "cursor")


@pytest.mark.parametrize("name", CLAUDE_LIKE)
def test_events_like_claudes_are_read_by_their_table(name: str) -> None:
    said = {"content": [{"type": "text", "text": "Fixed."}]}
    reader = parser(name)

    signs = heard(
        reader,
        event("system", subtype="init", session_id="T-1", model="m"),
        event("user", message={"content": "API Error: 529"}),
        event("assistant", message=said, session_id="T-1"),
        event("result", subtype="success", is_error=False, result="Fixed.", session_id="T-1"),
    )

    model = None if name == "amp" else "m"
    assert signs == [Started("T-1", model), Alive(), AgentText("Fixed."), FinalEvent(True, "Fixed.")]
    assert (reader.last_message(), reader.own_lines()) == ("Fixed.", ())


@pytest.mark.parametrize("name", CLAUDE_LIKE)
@pytest.mark.parametrize(
    "fields",
    [
        {"subtype": "error_during_execution", "is_error": True},
        {"subtype": "success", "is_error": True},
        {"subtype": "success", "is_error": 0},
        {"subtype": "success"},
        {"is_error": False},
        {"subtype": "success", "is_error": False, "error": {"message": "no"}},
    ],
)
def test_an_end_is_good_only_where_all_of_it_says_so(name: str, fields: dict[str, object]) -> None:
    verdict = last_verdict(heard(parser(name), event("result", result="Fixed.", **fields)))

    assert not verdict.good and verdict.message


def test_qwen_tells_its_tokens_why_it_failed_and_its_retries_on_stderr() -> None:
    reader = parser("qwen")
    told = "[API Error: 401 Wrong key]"

    signs = heard(
        reader,
        event("system", subtype="retry", data={"attempt": 1, "maxRetries": 10}),
        event("assistant", message={"content": "x", "usage": {"input_tokens": 9, "output_tokens": 2}}),
        event("result", is_error=True, error={"message": told}, usage={"input_tokens": 900}),
    )
    retries = complained(
        reader,
        "Ripgrep not available: spawn rg EACCES.",
        "Retrying in 60s (attempt 1/10): [API Error: 429 Too Many Requests]",
        "Something else",
    )

    assert signs == [
        Alive(),
        Spent(Figures(None, 9, 2), total=False),
        AgentText("x"),
        FinalEvent(False, told),
    ]
    again = RetryingItself("[API Error: 429 Too Many Requests]", None, 1, 10, 60.0)
    assert retries == [again, Warned("Something else")]
    assert reader.own_lines()[0] == told and reader.own_lines()[-1] == "Something else"


def test_words_of_a_helper_of_the_agents_are_not_its_last_message() -> None:
    reader = parser("qwen")
    aside = {"message": {"content": "COMPLETE"}, "parent_tool_use_id": "t1"}

    signs = heard(reader, event("assistant", message={"content": "Begun."}), event("assistant", **aside))

    assert signs == [AgentText("Begun."), AgentText("COMPLETE")]
    assert reader.last_message() == "Begun."


def test_amps_tokens_come_with_its_messages_and_are_added() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3}

    signs = heard(parser("amp"), event("assistant", message={"content": "x", "usage": usage}))

    assert signs == [Spent(Figures(None, 7, 3), total=False), AgentText("x")]


def test_cursors_tool_calls_are_named_by_their_first_key() -> None:
    call = {"shellToolCall": {"args": {"command": "make"}}}

    signs = heard(
        parser("cursor"),
        event("tool_call", subtype="started", tool_call=call),
        event(
            "tool_call", subtype="completed", tool_call={"shellToolCall": {"result": "[unavailable] Error"}}
        ),
        event("tool_call", subtype="started", tool_call=[]),
    )

    assert signs == [ToolUse("shellToolCall", "make"), Alive(), ToolUse("")]


def test_copilots_verdict_is_its_exit_code_and_its_reason_the_error_before() -> None:
    reader = parser("copilot")
    error = {"errorType": "rate_limit", "message": "Last error: 429 slow down", "statusCode": 429}

    signs = heard(
        reader,
        event("user.message", data={"content": "Fix it."}),
        event("tool.execution_start", data={"toolName": "bash", "arguments": {"command": "make"}}),
        event("assistant.turn_retry", data={"reason": "rate_limit"}),
        event("session.error", data=error),
        event("result", sessionId="c-1", exitCode=1),
    )

    failed = FinalEvent(False, "Last error: 429 slow down", 429, "rate_limit")
    expected = [Started(), ToolUse("bash", "make"), RetryingItself("rate_limit"), Warned(failed.message)]
    assert signs == [*expected, Started("c-1"), failed]
    assert reader.own_lines() == (failed.message,)


def test_copilot_that_gets_over_an_error_ends_well_with_its_last_message() -> None:
    signs = heard(
        parser("copilot"),
        event("session.error", data={"message": "no"}),
        event("assistant.message", data={"content": "Fixed.", "toolRequests": []}),
        event("result", sessionId="c-1", exitCode=0),
    )

    assert last_verdict(signs) == FinalEvent(True, "Fixed.")


@pytest.mark.parametrize("name", [name for name in DESCRIBED if description_of(name).format == "json"])
def test_lines_that_are_no_events_are_the_agents_own_and_broken_events_are_not(name: str) -> None:
    reader = parser(name)

    heard(reader, '{"type":"user","message":{"content":"API Error: 529', "API Error: 529 of a tool")
    heard(reader, event(description_of(name).event[0].type))
    heard(reader, "Out of Credits", '{"error":{"message":"429 slow down"}}')

    assert reader.own_lines() == ("Out of Credits", '{"error":{"message":"429 slow down"}}')


def test_aider_tells_tokens_and_prices_by_the_message_and_its_edits() -> None:
    reader = parser("aider")
    dear = "Tokens: 1.2k sent, 42 received. Cost: $0.04 message, $0.09 session."
    cheap = "Tokens: 12k sent, 3k cache write, 1k cache hit, 1,042 received."

    signs = heard(reader, dear, "Applied edit to a.py", "Retrying in 0.5 seconds...", cheap)
    priced = heard(reader, "Cost: $0.01 message, $0.10 session.")

    assert signs == [
        AgentText(dear), Spent(Figures(0.04, 1200, 42), total=False), ToolUse("Applied edit", "a.py"),
        RetryingItself(delay_s=0.5), AgentText(cheap), Spent(Figures(None, 12000, 1042), total=False),
    ]  # fmt: skip
    assert priced[1] == Spent(Figures(0.01), total=False)
    assert reader.own_lines()[:2] == (dear, "Applied edit to a.py")


def test_what_kiro_quotes_is_shown_and_its_last_message_and_never_read_for_failures() -> None:
    reader = parser("kiro")

    signs = heard(reader, "> Too many requests are waited out now.", " ⋮ Too many requests", "Done.")

    assert len(signs) == 3 and all(isinstance(sign, AgentText) for sign in signs)
    assert reader.own_lines() == ("Done.",)
    assert reader.last_message().startswith("> Too many requests")


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_expressions_for_lines_find_their_examples_and_patterns_have_a_file(name: str) -> None:
    given = description_of(name)

    assert [
        line for line in given.line if not line.examples or not all(map(line.match.match, line.examples))
    ] == []
    assert patterns_of(name).agent == name
    assert (Path(patterns_of.__code__.co_filename).parent / "patterns" / f"{name}.toml").exists()


@pytest.mark.parametrize(
    "amount", ["", "k", ",", "1.2.3k", "9" * 400, "1e9", "-3", "١٢", "nan"]
)  # the digits of another script are none here
def test_odd_amounts_are_none_or_as_they_read(amount: str, tmp_path: Path) -> None:
    given = read_description(
        _file(tmp_path, _TEXT + "[[line]]\nmatch='T (?P<tokens_in>.*)'\ntells='spent'\n")
    )

    (shown, spent) = described_parser(given, Sessions()).line(f"T {amount}")

    assert isinstance(shown, AgentText)
    assert isinstance(spent, Spent) and spent.figures.tokens_in >= 0


def _file(directory: Path, text: str) -> Path:
    path = directory / "mine.toml"
    path.write_text(text)
    return path


_TEXT = "version = 1\nprogram = 'x'\ninstall = 'y'\n[start]\n"
_JSON = "version = 1\nprogram = 'x'\ninstall = 'y'\nformat = 'json'\n[start]\n"
_END = "[[event]]\ntype = 'result'\ntells = 'end'\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version = 2", "version: Input should be 1"),
        ("version = 1\nprogram = 'x'", "install: Field required"),
        (_TEXT + "flags = []", "start: flags: Unexpected keyword argument"),
        (_TEXT + "args = 'x'", "start: args: Input should be a valid tuple"),
        (_TEXT + "resume_first = 'yes'", "start: resume_first: Input should be a valid boolean"),
        (_TEXT + "prompt = 'post'", "start: prompt: Input should be 'stdin', 'argument' or 'file'"),
        (_TEXT + "prompt = 'file'", "start.file_flag: is missing"),
        (_TEXT + "[exits.x]\nkind = 'fatal'\nwhy = 'z'", "exits: x: [key]: Input should be a valid integer"),
        (_TEXT + "[exits.3]\nkind = 'bad'\nwhy = 'z'", "exits: 3: kind: Input should be 'rate_limit'"),
        (_TEXT + "[[line]]\nmatch = '('\ntells = 'noise'", "line: 1: match: Value error, is not a regular"),
        (_TEXT + "[[line]]\nmatch = 'x'\ntells = 'news'", "line: 1: tells: Input should be 'noise'"),
        (_TEXT + "[[line]]\nmatch = '(?P<rason>x)'\ntells = 'retry'", "line: unknown group rason"),
        (_TEXT + _END, 'event: is for format = "json"'),
        (_JSON, 'event: none tells = "end"'),
        (_JSON + _END, "event: an end without `good` would always be a success"),
        (_JSON + _END + "good = { x = [1] }", "event: 1: good"),
        (_JSON + _END + "colour = 'red'", "event: 1: colour: Unexpected keyword argument"),
        ("version = = 1", "Invalid value"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigFaults, match=r"mine\.toml cannot be used") as told:
        read_description(_file(tmp_path, text))

    assert fault in told.value.why


def test_the_example_of_the_how_to_can_be_used_as_it_stands(tmp_path: Path) -> None:
    described = (DOCS / "examples" / "heron.toml").read_text(encoding="utf-8")
    patterns = (DOCS / "examples" / "heron_patterns.toml").read_text(encoding="utf-8")
    given = read_description(_file(tmp_path, described))
    assert read_description(_file(tmp_path, f"\ufeff{described}")) == given, "as editors on Windows write it"
    known = patterns_of("general", _file(tmp_path, patterns))
    agent = Cli(name="heron", description=given, patterns=known, outside={})
    reader = agent.parser()

    signs = heard(
        reader,
        event("hello", session="h-1", model="m"),
        event("say", text="Fixed."),
        event("bye", ok=False, why="429 slow down", usage={"in": 3, "out": 1, "usd": 0.5}),
    )

    failed = FinalEvent(False, "429 slow down")
    assert signs == [Started("h-1", "m"), AgentText("Fixed."), Spent(Figures(0.5, 3, 1)), failed]
    assert agent.launch(LaunchSpec("Fix it.", PROMPT_FILE)).argv[0] == "heron"
    own = known.patterns[0]
    assert own.name.startswith("heron") and all(map(own.match, own.examples))


def test_the_table_of_the_documentation_has_every_described_agent_as_its_file_is() -> None:
    page = (DOCS / "agents.md").read_text(encoding="utf-8")
    table = page.partition("## ")[0].splitlines()
    rows = {row.split("`")[1]: row for row in table if row.startswith("| `")}

    for name in DESCRIBED:
        given = description_of(name)
        assert f"`{given.install.replace('|', chr(92) + '|')}`" in rows[name], name
        assert (f"run with {given.run_with}" if given.run_with else "from documents") in rows[name], name
