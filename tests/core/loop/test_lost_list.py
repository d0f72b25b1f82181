"""A loop whose agents lose the task list again and again pauses, instead of paying for the next one (L10)."""

from dataclasses import replace

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    EndLoop,
    Finished,
    LoopPolicy,
    PauseReason,
    ReportAttempt,
    SaveCheckpoint,
)
from tests.core.loop.scenes import Play

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
