"""What the daemon does for the built-in loop: copies, the summary in the view, progress, iterations."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.api.schemas import RalphView
from ralphd.core.loop.model import Checkpoint, Cooldown, LoopState, PauseReason
from ralphd.core.supervision.model import (
    Goal,
    Paused,
    RunId,
    Running,
    RunReports,
    Step,
    Supervision,
    Wait,
)
from ralphd.core.supervision.reports import AttemptFinished, IterationFinished, IterationStarted, Reported
from ralphd.daemon.metrics import measured
from ralphd.daemon.ralph.record import ActiveConfiguration, RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.store.checkpoint import CheckpointManager
from ralphd.store.events import EventStore
from ralphd.store.loop_files import LoopFiles
from ralphd.store.state import RegentState, shown_state
from tests.daemon.test_regent_view import a_regent

HELD = Checkpoint(1_700_000_000.0, iteration=3, pause_reason=PauseReason.USAGE_LIMIT, agent="claude")
RUN = RunId("r000001-3fa9c1d2")
COPIES = ("checkpoint.json", "tasks.json", "handoff.md", "progress.md", "history.jsonl", "regent-state.json")


async def a_loop(place: Path, now: Supervision) -> tuple[Regent, RalphRecord, EventStore]:
    """The Regent of a ralph with the built-in loop, in a state."""
    regent, events = await a_regent(place)
    whole = regent.account
    whole.files.create()
    definition = replace(whole.definition, command=())
    account = RalphRecord(whole.files, definition, RegentState(now), whole._services)
    return Regent(account, whole._services), account, events


async def test_a_definition_without_a_command_has_the_rules_of_the_built_in_loop(tmp_path: Path) -> None:
    _, account, events = await a_loop(tmp_path, Supervision())
    with_command = replace(account.definition, command=("x",))

    assert account.policy.own_loop
    assert not ActiveConfiguration.of(with_command).policy.own_loop
    assert not account.in_force.changed_to(with_command, with_command).policy.own_loop
    await events.close()


async def test_copies_are_back_after_a_git_clean_and_a_cleared_checkpoint_is_gone(tmp_path: Path) -> None:
    running = Supervision(Goal.RUNNING, Running(RUN))
    _, account, events = await a_loop(tmp_path, running)
    manager = CheckpointManager(account.files.home, tmp_path)
    manager.save(HELD)
    for name in ("tasks.json", "handoff.md"):
        (account.files.home / name).write_text("{}")
    await account.write_down(Reported(1.0, RUN, "1", "d", AttemptFinished("claude", "ok")), Step(running))
    shutil.rmtree(tmp_path / ".ralph")

    await account.freshen()

    for name in COPIES:
        assert (tmp_path / ".ralph" / name).read_bytes() == (account.files.home / name).read_bytes()
    os.unlink(account.files.home / "checkpoint.json")
    await account.freshen()
    assert not (tmp_path / ".ralph" / "checkpoint.json").exists()
    await events.close()


async def test_the_view_shows_what_the_loop_would_go_on_from(tmp_path: Path) -> None:
    regent, account, events = await a_loop(tmp_path, Supervision(Goal.RUNNING, Paused("usage_limit")))
    assert json.loads(regent.view_bytes())["checkpoint"] is None
    assert json.loads(regent.view_bytes())["command"] == []
    CheckpointManager(account.files.home, tmp_path).save(HELD)

    await account.freshen()

    shown = json.loads(regent.view_bytes())["checkpoint"]
    assert (shown["iteration"], shown["pause_reason"], shown["uncommitted"]) == (3, "usage_limit", 0)
    RalphView.model_validate_json(regent.view_bytes())
    await events.close()


async def test_iterations_are_read_back_with_their_attempts_and_runs_past_all_of_them(tmp_path: Path) -> None:
    running = Supervision(Goal.RUNNING, Running(RUN))
    _, account, events = await a_loop(tmp_path, running)
    account.history.append("run", "r000000", 0.5, {"run_id": "r000000"})
    for number in (1, 2):
        for what in (AttemptFinished("claude", "ok", iteration=number), IterationFinished(number)):
            fact = Reported(float(number), RUN, f"{type(what).__name__}{number}", "d", what)
            await account.write_down(fact, Step(running))

    found = account.records.iterations(1)

    assert [(each["iteration"], len(each["attempts"])) for each in found] == [(2, 1)]
    assert [each["run_id"] for each in account.records.runs(1)] == ["r000000"]
    assert len((account.files.home / "progress.md").read_text().splitlines()) == 6
    await events.close()


POOL = LoopState(agents=("a", "b"), rotates=True, last_agent="b", out=(Cooldown("a", "no login"),))


async def test_the_view_and_the_state_file_show_who_is_in_the_pool(tmp_path: Path) -> None:
    regent, account, events = await a_loop(tmp_path, Supervision(Goal.RUNNING, Running(RUN)))
    assert json.loads(regent.view_bytes())["pool"] is None
    LoopFiles(account.files.home, tmp_path).memory.save(POOL)

    await account.write_down(Reported(1.0, RUN, "1", "d", IterationStarted(1)), Step(account.supervision))

    shown = json.loads(regent.view_bytes())["pool"]
    assert shown["strategy"] == "rotate"
    assert [(agent["name"], agent["in"], agent["reason"]) for agent in shown["agents"]] == [
        ("a", False, "no login"),
        ("b", True, None),
    ]
    RalphView.model_validate_json(regent.view_bytes())
    await account.freshen()  # the copy is written with the next look round, without a transition
    assert json.loads((tmp_path / ".ralph" / "regent-state.json").read_text())["pool"] == shown
    await events.close()


async def test_a_wait_of_the_built_in_loop_is_a_state_in_view_and_file(tmp_path: Path) -> None:
    reports = RunReports(wait=Wait("claude: 5-hour limit", 9e9))
    waiting = Supervision(Goal.RUNNING, Running(RUN), said=reports)
    regent, account, events = await a_loop(tmp_path, waiting)
    LoopFiles(account.files.home, tmp_path).memory.save(replace(POOL, tasks=(2, 5)))

    await account.look_at_loop_files()
    await account.freshen()

    shown = json.loads(regent.view_bytes())
    RalphView.model_validate(shown)
    assert (shown["state"], shown["tasks"]) == ("waiting_for_retry", {"done": 2, "total": 5})
    saved = json.loads((tmp_path / ".ralph" / "regent-state.json").read_text())
    assert (saved["state"], saved["tasks"]) == (shown["state"], shown["tasks"])
    assert account.supervision.state.kind == "running"
    figures = [*measured([regent], account._services, events, 0.0)]
    assert ("ralphd_ralphs", {"state": "waiting_for_retry"}, 1) in figures
    assert ("ralphd_ralph_up", {"ralph": account.definition.name}, True) in figures
    await events.close()


@pytest.mark.parametrize(
    ("state", "own_loop", "testing", "shown"),
    [
        (Running(RUN), True, False, "waiting_for_retry"),
        (Running(RUN), False, False, "running"),
        (Running(RUN), True, True, "testing"),
        (Paused("usage_limit"), True, False, "paused"),
    ],
)
def test_only_a_wait_of_the_built_in_loop_at_work_is_shown_as_a_state(
    state: Running | Paused, own_loop: bool, testing: bool, shown: str
) -> None:
    current = Supervision(Goal.RUNNING, state, said=RunReports(wait=Wait("tide", 2.0), testing=testing))
    assert shown_state(current, own_loop=own_loop) == shown


async def test_a_command_of_ones_own_has_no_pool_whatever_lies_in_its_home(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    regent.account.files.create()
    LoopFiles(regent.account.files.home, tmp_path).memory.save(POOL)

    await regent.account.look_at_loop_files()

    assert json.loads(regent.view_bytes())["pool"] is None
    await events.close()
