"""What the owner of a ralph is told of the built-in loop before it starts."""

from pathlib import Path

import pytest

from ralphd.config.configuration import load
from ralphd.daemon.builtin import notes_on_loop
from ralphd.errors import CommandNotStartable, ConfigFaults

OWN = '[agents]\nprimary = "mine"\n[agents.mine]\ncommand = ["/bin/true"]\n'


def notes(directory: Path, text: str) -> tuple[str, ...]:
    """The notes on a directory with this ``ralph.toml`` and a prompt."""
    (directory / "ralph.toml").write_text(text)
    (directory / "PROMPT.md").write_text("Do it.\n")
    environ = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}
    return notes_on_loop(directory, load(directory, environ=environ), environ)


def test_a_limit_of_costs_that_nobody_tells_is_said(tmp_path: Path) -> None:
    told = notes(tmp_path, "[ralph]\nmax_cost_usd = 5\n" + OWN)

    assert told[-1] == "max_cost_usd counts what agents tell; no costs are told by mine"


def test_without_such_a_limit_nothing_is_said_of_costs(tmp_path: Path) -> None:
    assert notes(tmp_path, OWN) == ("there is no task list: each iteration gets the prompt alone",)


def test_a_primary_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandNotStartable, match="the agent mine cannot be started"):
        notes(tmp_path, OWN.replace("/bin/true", "/bin/not-there"))


def test_iteration_mode_is_for_commands(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match="is for a command"):
        notes(tmp_path, '[ralph]\nmode = "iteration"\n' + OWN)
