"""The words of the files that outlive a daemon: another version of it reads what this one wrote."""

from ralphd.core.loop.model import (
    CHECKPOINT_VERSION,
    Checkpoint,
    Cooldown,
    LoopState,
    PauseReason,
    TaskRecord,
    TaskState,
)


def test_a_checkpoint_has_one_of_these_reasons() -> None:
    assert CHECKPOINT_VERSION == 1
    assert sorted(PauseReason) == [
        "error",
        "interrupted",
        "iteration_boundary",
        "outage",
        "rate_limit",
        "resources",
        "stall",
        "timeout",
        "usage_limit",
        "user_requested",
    ]


def test_l1_a_task_stands_in_one_of_these_ways() -> None:
    assert sorted(TaskState) == ["complete", "failed", "in_progress", "pending"]


def test_a_checkpoint_leaves_out_what_is_not_known() -> None:
    least = Checkpoint(1.5, 3, PauseReason.ERROR)

    assert least == Checkpoint(
        created_at=1.5,
        iteration=3,
        pause_reason=PauseReason.ERROR,
        max_iterations=0,
        task=None,
        agent=None,
        resume_at=None,
        uncommitted_files=(),
        head_commit=None,
        snapshot_ref=None,
        session_id=None,
        total_cost_usd=0.0,
        why="",
    )


def test_l1_a_new_loop_remembers_nothing() -> None:
    assert TaskRecord("A") == TaskRecord(
        id="A",
        title="",
        state=TaskState.PENDING,
        failure_count=0,
        last_kind=None,
        last_failure="",
        reopened=False,
        timeout_factor=1.0,
        unreviewed=False,
    )
    assert Cooldown("claude", "limit") == Cooldown("claude", "limit", until=None, probes=0, back=False)
    assert LoopState() == LoopState(
        iteration=0,
        cost_usd=0.0,
        began_at=None,
        idle_successes=0,
        out=(),
        last_agent=None,
        agents=(),
        rotates=False,
        in_flight=None,
        list_file=None,
    )
