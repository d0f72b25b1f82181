"""A loop whose agents lose the task list again and again pauses, instead of paying for the next one (L10)."""

from dataclasses import replace

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    Began,
    EndLoop,
    Finished,
    LoopPolicy,
    LoopWoke,
    PauseReason,
    ReportAttempt,
    Resting,
    SaveCheckpoint,
    TaskRecord,
    TaskState,
)
from ralphd.core.plan import Plan, Task, TaskStatus
from tests.core.loop.scenes import Play, begun

LOST = "TASKS.md was removed"
WHY = f"the task list was lost in 3 iterations in a row: {LOST}"


def loses(play: Play, kind: FailureKind | None = None) -> None:
    """The attempt under way ends, and the list is gone."""
    if kind is None:
        play.succeeds(ticks=False, lost=LOST)
    else:
        play.fails(kind, lost=LOST)


def three_lost(kind: FailureKind | None = None) -> Play:
    """The last of three iterations in a row that lose the list ends like this."""
    play = Play("A", "B", "C", policy=LoopPolicy(jitter=0.0))
    play.loop = replace(play.loop, losses=(-1, 0))  # the iteration under way is number 1
    loses(play, kind)
    return play


@pytest.mark.parametrize("kind", [None, FailureKind.AGENT_CRASH])
def test_the_third_lost_list_in_a_row_pauses_the_loop_with_its_checkpoint(kind: FailureKind | None) -> None:
    play = three_lost(kind)

    assert isinstance(play.loop.stage, Finished)
    (saved,), (report,) = play.ordered(SaveCheckpoint), play.ordered(ReportAttempt)
    assert saved == SaveCheckpoint(PauseReason.ERROR, report.iteration, None, WHY)
    assert report.iteration.task.id == "A"
    assert report.kind is (kind or FailureKind.AGENT_INCOMPLETE)
    assert (report.rule, report.why, report.next) == ("rule", WHY, "the loop pauses until you act")
    assert play.end == EndLoop(75, "task_list", WHY)
    assert play.loop.losses == (-1, 0, 1)
    assert play.latest.index(saved) < play.latest.index(report)


def test_two_lost_lists_do_not_pause_it() -> None:
    play = Play("A", "B", policy=LoopPolicy(jitter=0.0))

    loses(play, FailureKind.AGENT_CRASH)

    assert not play.ordered(EndLoop, ever=True)
    assert not isinstance(play.loop.stage, Finished | Attempting)


def test_an_iteration_that_keeps_its_list_is_not_counted_as_one_that_lost_it() -> None:
    play = Play("A", "B", policy=LoopPolicy(jitter=0.0))
    play.loop = replace(play.loop, losses=(0,))

    play.succeeds()

    assert play.loop.losses == (0,)


def test_a_list_that_is_gone_after_the_attempt_counts_as_lost() -> None:
    play = Play("A", "B", policy=LoopPolicy(jitter=0.0))

    play.succeeds(ticks=False, plan=None)

    assert play.loop.losses == (1,)


def test_the_last_session_of_an_iteration_is_that_of_its_last_attempt_with_one() -> None:
    play = Play("A", policy=LoopPolicy(jitter=0.0))

    play.fails(FailureKind.AGENT_CRASH, session="first")
    after_one = play.loop.stage
    play.now += 600
    play.feed(LoopWoke(play.now))
    play.fails(FailureKind.AGENT_CRASH)

    assert isinstance(after_one, Resting) and after_one.iteration.last_session == "first"
    assert isinstance(play.loop.stage, Resting) and play.loop.stage.iteration.last_session == "first"


def test_two_tasks_that_failed_for_one_reason_are_told_in_one_clause() -> None:
    policy = LoopPolicy(max_task_failures=1, jitter=0.0)
    once = {"state": TaskState.PENDING, "failure_count": 9, "last_failure": "no network"}
    failed = {each: TaskRecord(each, **once) for each in "AB"}  # type: ignore[arg-type]  # of the fields' types

    play = begun("A", "B", policy=policy, ledger=failed)

    assert play.end == EndLoop(1, "tasks_failed", "2 of 2 tasks failed, all with: no network")


def test_the_end_names_the_tasks_of_others_that_are_open() -> None:
    done, others = Task("A", "do A", TaskStatus.DONE), Task("B", "do B", TaskStatus.PENDING, elsewhere=True)
    play = Play(begin=False)

    play.feed(Began(play.now, Plan("TASKS.md", (done, others))))

    assert play.end == EndLoop(0, "complete", "its tasks are done; 1 in the list are not its own")
