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

    assert told[-1] == "max_cost_usd counts the costs that agents report; none are reported by mine"


def test_without_such_a_limit_nothing_is_said_of_costs(tmp_path: Path) -> None:
    assert notes(tmp_path, OWN) == ("no task list: the prompt alone defines the work",)


def test_a_list_without_a_task_is_said(tmp_path: Path) -> None:
    (tmp_path / "TASKS.md").write_text("- ☐ in marks that are no boxes\n")

    assert notes(tmp_path, OWN) == ("TASKS.md lists no task: the prompt alone defines the work",)


def test_a_primary_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandNotStartable, match="the agent mine cannot be started"):
        notes(tmp_path, OWN.replace("/bin/true", "/bin/not-there"))


def test_us004_a_limit_of_an_iteration_that_has_no_effect_is_noted(tmp_path: Path) -> None:
    limits = "[agents]\ntimeout_seconds = 60\niteration_timeout_seconds = 3"
    (told,) = notes(tmp_path, OWN.replace("[agents]", limits, 1))[1:]

    assert told.endswith("3 is less than 1.5 × timeout_seconds (60): the limit of an iteration is 90 s")


def test_iteration_mode_is_for_commands(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match="is for a command"):
        notes(tmp_path, '[ralph]\nmode = "iteration"\n' + OWN)


ROTATION = '[agents]\nprimary = "a"\nfallback = ["b"]\nstrategy = "rotate"\n'
TWO = ROTATION + '[agents.a]\ncommand = ["/bin/true"]\n[agents.b]\ncommand = ["/bin/true"]\n'


def test_a_rotation_is_told_with_all_who_take_turns(tmp_path: Path) -> None:
    told = notes(tmp_path, TWO + 'args = ["-b"]\n')

    assert told[1:] == ("rotation: a, b take turns, an iteration each",)


@pytest.mark.parametrize("fallback", ["[]", '["mine"]', '["mine", "mine"]'])
def test_a_rotation_of_one_is_told(tmp_path: Path, fallback: str) -> None:
    keys = f'[agents]\nstrategy = "rotate"\nfallback = {fallback}\n'

    told = notes(tmp_path, OWN.replace("[agents]\n", keys))

    assert told[1:] == ("rotation with one agent: mine is asked every time",)


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("", True),
        ('args = ["-b"]\n', False),
        ('env = {WHO = "b"}\n', False),
        ('prompt_via = "argument"\n', False),
    ],
)
def test_one_agent_under_two_names_is_allowed_and_told(tmp_path: Path, more: str, is_told: bool) -> None:
    told = [note for note in notes(tmp_path, TWO + more) if "under two names" in note]

    twins = "a and b are one agent under two names: same command, arguments, model and environment"
    assert told == ([twins] if is_told else [])


def test_tasks_that_are_marked_parallel_are_told(tmp_path: Path) -> None:
    (tmp_path / "PLAN.md").write_text("## Task 1\n## Task 2 (parallel)\n## Task 3: c (parallel)\n")

    told = notes(tmp_path, OWN)

    assert told[1] == "task-2, task-3 are marked parallel: they are done one after the other"


def test_l14_phases_without_a_review_command_are_said(tmp_path: Path) -> None:
    phases = "[phases]\nenabled = true\n"

    assert "no review" in notes(tmp_path, phases + OWN)[-1]
    assert "no review" not in notes(tmp_path, phases + 'review_command = "make lint"\n' + OWN)[-1]
