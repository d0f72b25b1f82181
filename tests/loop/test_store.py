"""What lies on the loop's store: when it is written, what a person's start changes, what damage does (L1)."""

from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.range import GateState
from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.loop.model import (
    Checkpoint,
    CheckpointTask,
    Cooldown,
    Iteration,
    Loop,
    LoopState,
    PauseReason,
    SaveCheckpoint,
    TaskRecord,
    TaskState,
)
from ralphd.core.loop.phases import Phase, Phases
from ralphd.core.plan import Task, TaskStatus
from ralphd.core.quota.model import SKIPPED
from ralphd.core.supervision.model import ReportedTask as TaskName
from ralphd.core.supervision.model import RunId
from ralphd.core.time import parse_rfc3339
from ralphd.errors import ConfigFaults, RalphdError
from ralphd.loop.settings import LoopSettings, by_hand
from ralphd.loop.store import MOST_NOTES, LoopStore
from ralphd.store.gate import load_gate, save_gate

STARTED, EARLIER = "2026-11-21T20:00:00.000000Z", "2026-11-21T08:00:00.000000Z"
NOW = parse_rfc3339("2026-11-21T20:00:05.000000Z")
FAILED = TaskRecord("A", "do A", TaskState.FAILED, 3, FailureKind.TIMEOUT, "too long", timeout_factor=2.25)
LIMITED, NO_LOGIN = Cooldown("claude", "limit", NOW + 900.0, probes=2), Cooldown("codex", "no login")
SPENT = LoopState(
    iteration=7,
    cost_usd=1.5,
    began_at=parse_rfc3339(EARLIER),
    idle_successes=1,
    out=(LIMITED, NO_LOGIN),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory without a repository."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def settings_of(place: Path, *, began_at: str | None = STARTED, max_iterations: int = 0) -> LoopSettings:
    """A loop there that a Regent started on behalf of a person, then."""
    home = place.parent / "home"
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    if began_at is not None:
        environment["RALPH_BEGAN_AT"] = began_at
    settings = by_hand(place, environment)
    return replace(settings, policy=replace(settings.policy, max_iterations=max_iterations))


def left_behind(
    place: Path, memory: LoopState, *records: TaskRecord, checkpoint: Checkpoint | None = None
) -> None:
    """What an earlier loop has written."""
    store = LoopStore(settings_of(place))
    store.load(NOW, resume=True)
    store.remember(Loop(), Loop(memory, {record.id: record for record in records}))
    if checkpoint is not None:
        iteration = Iteration(checkpoint.iteration, Task("A", "do A", TaskStatus.PENDING), "claude", 2)
        order = SaveCheckpoint(checkpoint.pause_reason, iteration, checkpoint.resume_at, checkpoint.why)
        label = replace(memory, cost_usd=checkpoint.total_cost_usd)
        store.save_checkpoint(order, label, NOW)


def test_a_restart_by_the_regent_goes_on_counting(place: Path) -> None:
    memory = replace(SPENT, began_at=parse_rfc3339(STARTED))
    left_behind(place, memory, FAILED)

    assert LoopStore(settings_of(place)).load(NOW, resume=True) == (memory, {"A": FAILED}, None)


def test_a_persons_start_counts_anew_and_asks_again_whom_only_a_person_could_mend(place: Path) -> None:
    left_behind(place, SPENT, FAILED)

    memory, ledger, _ = LoopStore(settings_of(place)).load(NOW, resume=True)

    assert memory == LoopState(began_at=parse_rfc3339(STARTED), out=(LIMITED,))
    assert ledger == {"A": replace(FAILED, failure_count=0, timeout_factor=1.0)}


def test_who_skips_the_wait_of_a_start_waits_for_no_cooldown_of_the_loop_either(place: Path) -> None:
    left_behind(place, SPENT, FAILED)
    settings = settings_of(place)
    skipped = replace(settings, environment={**settings.environment, "RALPH_QUEUED_AT": SKIPPED})

    memory, _, _ = LoopStore(skipped).load(NOW, resume=True)

    assert memory.out == ()


def test_a_loop_that_dies_before_its_first_attempt_is_over_is_no_second_start_of_a_persons(
    place: Path,
) -> None:
    left_behind(place, SPENT, FAILED)
    first = LoopStore(settings_of(place))
    memory, ledger, _ = first.load(NOW, resume=True)
    once = {"A": replace(ledger["A"], failure_count=1)}
    first.remember(Loop(memory, ledger), Loop(memory, once))  # an attempt failed, and the loop was killed

    again, counted, _ = LoopStore(settings_of(place)).load(NOW + 60.0, resume=True)

    assert counted["A"].failure_count == 1
    assert again == memory


def test_a_persons_start_goes_on_from_the_checkpoint(place: Path) -> None:
    checkpoint = Checkpoint(
        NOW, 5, PauseReason.RATE_LIMIT, resume_at=NOW + 40.0, total_cost_usd=0.75, why="429"
    )
    left_behind(place, SPENT, checkpoint=checkpoint)

    memory, _, resumed = LoopStore(settings_of(place)).load(NOW, resume=True)

    assert (memory.iteration, memory.cost_usd) == (4, 0.75)
    assert resumed is not None
    assert (resumed.task, resumed.agent) == (CheckpointTask("A", "do A", 2), "claude")
    assert (resumed.pause_reason, resumed.resume_at, resumed.created_at) == (
        PauseReason.RATE_LIMIT,
        NOW + 40,
        NOW,
    )


@pytest.mark.parametrize(("most", "iteration"), [(0, 4), (5, 4), (4, 0), (3, 0)])
def test_who_starts_a_loop_again_that_ended_at_its_number_of_iterations_wants_as_many_more(
    place: Path, most: int, iteration: int
) -> None:
    left_behind(place, SPENT, checkpoint=Checkpoint(NOW, 5, PauseReason.ITERATION_BOUNDARY))

    memory, _, _ = LoopStore(settings_of(place, max_iterations=most)).load(NOW, resume=True)

    assert memory.iteration == iteration


@pytest.mark.parametrize("began_at", [None, "yesterday", ""])
def test_without_a_regent_each_start_is_a_persons(place: Path, began_at: str | None) -> None:
    left_behind(place, SPENT, FAILED)

    memory, ledger, _ = LoopStore(settings_of(place, began_at=began_at)).load(NOW, resume=True)

    assert (memory.began_at, memory.iteration, ledger["A"].failure_count) == (NOW, 0, 0)


def test_who_does_not_resume_asks_everybody_and_the_checkpoint_is_kept_aside(place: Path) -> None:
    left_behind(place, SPENT, checkpoint=Checkpoint(NOW, 5, PauseReason.USAGE_LIMIT))
    store = LoopStore(settings_of(place))

    memory, _, resumed = store.load(NOW, resume=False)

    assert (memory.iteration, memory.out, resumed) == (0, (), None)
    (said,) = store.news()
    assert "it is kept as" in said
    assert store.news() == []


@pytest.mark.parametrize("name", ["loop.json", "tasks.json", "checkpoint.json"])
def test_a_damaged_file_is_said_kept_and_begun_anew_and_one_of_a_newer_version_is_left_alone(
    place: Path, name: str
) -> None:
    left_behind(place, SPENT, FAILED, checkpoint=Checkpoint(NOW, 5, PauseReason.ERROR))
    path = settings_of(place).home / name
    path.write_text('{"version": ')
    store = LoopStore(settings_of(place))

    store.load(NOW, resume=True)

    assert any(name in line for line in store.news())
    assert list(path.parent.glob(f"{name}.corrupt-*"))
    path.write_text('{"version": 99}')
    with pytest.raises(RalphdError):
        LoopStore(settings_of(place)).load(NOW, resume=True)
    assert path.read_text() == '{"version": 99}'


def test_the_next_agent_is_told_the_last_notes_a_line_each(place: Path) -> None:
    store = LoopStore(settings_of(place))
    store.load(NOW, resume=True)

    for number in range(50):
        store.hand_over("the service\ncannot be reached")
        store.hand_over(f"crash {number}")

    notes = store.handoff().splitlines()
    assert len(notes) == MOST_NOTES
    assert notes[-2:] == ["- the service cannot be reached", "- crash 49"]
    store.hand_over("")
    assert store.handoff() == ""


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_l14_phases_are_gone_on_with_from_a_checkpoint_alone(place: Path, has_checkpoint: bool) -> None:
    (place / "ralph.toml").write_text("[phases]\nenabled = true\n")
    checkpoint = Checkpoint(created_at=NOW, iteration=1, pause_reason=PauseReason.ERROR)
    left_behind(place, SPENT, checkpoint=checkpoint if has_checkpoint else None)
    phases = Phases("A", Phase.REVIEW, "first this")
    LoopStore(settings_of(place)).save_phases(phases)

    store = LoopStore(settings_of(place))
    store.load(NOW, resume=True)

    assert store.phases == (phases if has_checkpoint else None)
    store.load(NOW, resume=False)
    assert store.phases is None
    assert not (settings_of(place).home / "phases.json").exists()


def test_r9_the_last_verdict_is_read_as_it_is_and_only_where_it_is_news_about_a_task_of_ours(
    place: Path,
) -> None:
    store = LoopStore(settings_of(place))
    store.load(NOW, resume=True)
    path, ledger = store.prompt_file.with_name("gate.json"), {"A": FAILED}
    sha, task = "a" * 40, TaskName("A", "do A")
    run_id, kind = RunId("r000001-3fa9c1d2"), VerdictKind.REVERTED
    last = Verdict(
        kind, "red", boundary_id="r1/7", run_id=run_id, number=3, task=task, commits=(sha,), reverted=(sha,),
        tail="1 failed\n", at=NOW,
    )  # fmt: skip

    assert store.gate_news(LoopState(), ledger).verdict is None
    conflict = replace(last, boundary_id="r1/8", at=NOW + 1)
    save_gate(path, GateState(last=last, unapplied=conflict))
    assert load_gate(path) == GateState(last=last, unapplied=conflict)
    assert (store.gate_news(LoopState(), ledger).verdict or last).boundary_id == "r1/8"
    save_gate(path, GateState(last=last))
    found = replace(last, commits=(sha[:7],), reverted=(sha[:7],), tail="1 failed")
    assert store.gate_news(LoopState(), ledger).verdict == found
    assert store.gate_news(LoopState(judged="r1/7"), ledger).verdict is None
    assert store.gate_news(LoopState(), {}).verdict is None
    for text in ("{", "[]", '{"version": 9}', '{"version": 1, "last": {"verdict": 3}}'):
        path.write_text(text)
        assert store.gate_news(LoopState(), ledger).verdict is None
        assert path.read_text() == text


@pytest.mark.parametrize("level", ["signals", "write", "box"])
def test_a_loop_by_hand_never_drops_a_sandbox(place: Path, level: str) -> None:
    (place / "ralph.toml").write_text(f'[sandbox]\nlevel = "{level}"\n')
    with pytest.raises(ConfigFaults, match=f'level = "{level}" needs the daemon'):
        settings_of(place)
