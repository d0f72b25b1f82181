"""Any command as an agent."""

from pathlib import Path

import pytest

from ralphd.agents.agent import Agent, LaunchSpec
from ralphd.agents.known import KNOWN, agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import AgentText, Warned
from ralphd.errors import ConfigFaults
from tests.agents.lines import complained, heard


def agent(spec: AgentSpec | None = None) -> Agent:
    return agent_of("mine", spec or AgentSpec(command=("my-agent", "--go")))


def test_a_command_gets_its_prompt_on_stdin() -> None:
    launch = agent().launch(LaunchSpec("Fix it.", Path("/p.md"), session="s1"))

    assert launch.argv == ("my-agent", "--go")
    assert launch.stdin == b"Fix it."
    assert launch.environment["NO_COLOR"] == "1"


def test_or_as_its_last_argument() -> None:
    spec = AgentSpec(command=("my-agent",), args=("--message",), prompt_via="argument", env={"CI": "0"})

    launch = agent(spec).launch(LaunchSpec("- Fix\0 it.", Path("/p.md")))

    assert launch.argv == ("my-agent", "--message", "- Fix it.")
    assert launch.stdin is None
    assert launch.environment["CI"] == "0"


def test_or_as_a_file() -> None:
    spec = AgentSpec(command=("my-agent",), args=("--message-file",), prompt_via="file")

    launch = agent(spec).launch(LaunchSpec("Fix it.", Path("/state/p.md")))

    assert launch.argv == ("my-agent", "--message-file", "/state/p.md")
    assert launch.stdin is None


@pytest.mark.parametrize("name", ["mine", *KNOWN])
def test_a_prompt_that_is_too_long_for_an_argument_is_pointed_to(name: str) -> None:
    spec = AgentSpec(command=("x",), prompt_via="argument")

    argv = agent_of(name, spec).launch(LaunchSpec("long " * 40_000, Path("/state/p.md"))).argv

    assert "/state/p.md" in argv[-1]
    assert len(argv[-1]) < 1000


def test_all_that_it_prints_is_its_own_by_paragraphs_and_it_has_no_verdict() -> None:
    parser = agent().parser()

    signs = heard(parser, "working", "", '{"type":"result","is_error":true}')
    signs += complained(parser, "Error: 429")

    assert signs == [
        AgentText("working"),
        AgentText('{"type":"result","is_error":true}'),
        Warned("Error: 429"),
    ]
    assert parser.own_lines() == ("working", "", '{"type":"result","is_error":true}', "Error: 429")
    assert not agent().has_verdict


def test_its_last_lines_are_its_last_message() -> None:
    parser = agent().parser()

    heard(parser, *(f"line {number}" for number in range(200)), "<promise>COMPLETE</promise>")

    assert parser.last_message().splitlines()[-1] == "<promise>COMPLETE</promise>"
    assert len(parser.last_message().splitlines()) == 50


def test_a_model_is_refused_since_nobody_knows_how_to_ask_for_it() -> None:
    with pytest.raises(ConfigFaults, match="model"):
        agent(AgentSpec(command=("x",), model="big"))
