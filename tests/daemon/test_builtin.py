"""What has to be there for the built-in loop, told before it is started: RT-9, L1, L2, bad input."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.config import Configuration
from ralphd.config.specs import AgentSpec, AgentsSpec, RalphSpec
from ralphd.daemon.builtin import command_of, notes_on_loop
from ralphd.errors import CommandNotStartable, ConfigFaults, RalphdError, UnknownAgent

OWN = AgentsSpec(primary="mine", named={"mine": AgentSpec(command=(sys.executable, "agent.py"))})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "PROMPT.md").write_text("Do it.\n")
    return tmp_path


def told(
    place: Path,
    agents: AgentsSpec = OWN,
    ralph: RalphSpec | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    configuration = Configuration(ralph=ralph or RalphSpec(), agents=agents)
    return notes_on_loop(place, configuration, environment or {"PATH": os.environ.get("PATH", os.defpath)})


def fault(place: Path, agents: AgentsSpec = OWN, ralph: RalphSpec | None = None) -> RalphdError:
    """Why it is refused; every refusal says what to do."""
    with pytest.raises(RalphdError) as refused:
        told(place, agents, ralph)
    assert refused.value.mend
    return refused.value


def test_the_loop_is_run_by_this_interpreter_and_by_nothing_that_lies_in_the_directory() -> None:
    home = Path("/state/ralphs/demo")
    plain = (sys.executable, "-P", "-m", "ralphd.loop", "--home", str(home))

    assert command_of(home, tied=False) == plain
    assert command_of(home, tied=True) == (*plain, "--pause-when-exhausted")


def test_it_is_said_which_task_list_was_found_and_how_much_of_it_is_open(place: Path) -> None:
    assert told(place) == ("there is no task list: each iteration gets the prompt alone",)

    (place / "TASKS.md").write_text("- [x] one\n- [ ] two\n- [ ] three\n")
    assert told(place) == ("the task list is TASKS.md: 3 tasks, 2 open",)

    (place / "fix_plan.md").write_text("- [ ] one\n")
    assert told(place) == ("the task list is fix_plan.md: 1 task, 1 open",)


def test_a_task_list_that_cannot_be_read_is_refused_with_file_and_line(place: Path) -> None:
    (place / "prd.json").write_text('{"userStories": [\n  {"id": 1,}\n]}')

    refused = fault(place)

    assert isinstance(refused, ConfigFaults)
    assert "prd.json is not JSON" in refused.why
    assert "line 2" in refused.why


def test_a_task_list_that_is_named_has_to_be_there(place: Path) -> None:
    assert fault(place, ralph=RalphSpec(tasks="TODO.md")).why == "TODO.md is not there"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it is not there"),
        (b"", "it is empty"),
        (b" \n\t\n", "it is empty"),
        (b"caf\xe9", "it is not UTF-8 (byte 3)"),
        (b"x" * ((4 << 20) + 1), "it is larger than 4 MiB"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused(place: Path, content: bytes | None, why: str) -> None:
    (place / "PROMPT.md").unlink()
    if content is not None:
        (place / "PROMPT.md").write_bytes(content)

    refused = fault(place)

    assert refused.why == why
    assert str(place / "PROMPT.md") in refused.what


def test_a_prompt_outside_of_the_directory_is_refused(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "PROMPT.md"
    other.write_text("Do something else.\n")
    outside = "it lies outside the working directory"
    assert fault(place, ralph=RalphSpec(prompt_file=str(other))).why == outside

    (place / "PROMPT.md").unlink()
    (place / "PROMPT.md").symlink_to(other)
    assert fault(place).why == outside


@pytest.mark.parametrize("agents", [AgentsSpec(primary="claud"), replace(OWN, fallback=("claud",))])
def test_rt_9_a_name_that_is_no_agents_is_refused_with_those_that_are(
    place: Path, agents: AgentsSpec
) -> None:
    refused = fault(place, agents)

    assert isinstance(refused, UnknownAgent)
    assert "claude" in refused.what
    assert "mine" in refused.why or "codex" in refused.why


def test_a_primary_that_is_not_installed_is_refused_and_such_a_fallback_is_told(place: Path) -> None:
    missing = AgentSpec(command=("no-such-agent-anywhere",))
    refused = fault(place, AgentsSpec(primary="gone", named={"gone": missing}))
    assert isinstance(refused, CommandNotStartable)
    assert "no-such-agent-anywhere" in refused.why

    agents = replace(OWN, fallback=("gone",), named={**OWN.named, "gone": missing})
    assert "passed over as long as it is missing: no-such-agent-anywhere" in told(place, agents)[1]


def test_an_agent_in_the_working_directory_is_found_from_there(place: Path) -> None:
    script = place / "agent.sh"
    script.write_text("#!/bin/sh\n")
    agents = AgentsSpec(primary="mine", named={"mine": AgentSpec(command=("./agent.sh",))})
    assert isinstance(fault(place, agents), CommandNotStartable)

    script.chmod(0o755)

    assert len(told(place, agents)) == 1


def test_the_path_that_counts_is_that_of_the_run(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = tmp_path_factory.mktemp("bin")
    (programs / "only-here").write_text("#!/bin/sh\n")
    (programs / "only-here").chmod(0o755)
    agents = AgentsSpec(primary="mine", named={"mine": AgentSpec(command=("only-here",))})
    fault(place, agents)

    assert told(place, agents, environment={"PATH": str(programs)})


def test_each_run_an_iteration_is_for_commands(place: Path) -> None:
    assert "mode" in fault(place, ralph=RalphSpec(mode="iteration")).what
