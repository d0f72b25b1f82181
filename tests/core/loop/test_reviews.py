"""A task is done when its review says so; without a review nothing goes on (L14, L15)."""

from dataclasses import replace

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Began,
    Loop,
    LoopPolicy,
    PauseReason,
    ReportAttempt,
    SaveCheckpoint,
    TaskState,
)
from ralphd.core.loop.tasks import unreviewed
from tests.core.loop.scenes import Play

REVIEWS = LoopPolicy(jitter=0.0, reviews=True, retries_before_fallback=0)


def begun_again(was: Play, policy: LoopPolicy = REVIEWS) -> Play:
    """The next run of a loop that died."""
    play = Play(*was.ids, policy=policy, begin=False)
    play.done, play.loop = was.done, Loop(was.loop.memory, was.loop.ledger)
    play.feed(Began(play.now, play.plan))
    return play


def test_a_task_that_was_ticked_before_its_review_is_open_for_the_next_run() -> None:
    play = Play("A", policy=REVIEWS)
    play.done.add("A")

    play = begun_again(play)

    assert play.task == "A"
    assert unreviewed(play.plan, play.loop.ledger) == ("A",)
    play.succeeds()
    assert play.end.reason == "complete"
    assert play.loop.ledger["A"].state is TaskState.COMPLETE
    assert unreviewed(play.plan, play.loop.ledger) == ()


def test_a_ticked_task_whose_findings_are_left_is_tried_again_and_never_called_done() -> None:
    play = Play("A", "B", policy=replace(REVIEWS, max_task_failures=1))
    play.done.add("A")
    play.fails(FailureKind.AGENT_INCOMPLETE)
    play.judged()
    assert play.task == "B"
    play.succeeds()
    assert play.task == "A"
    play.fails(FailureKind.AGENT_INCOMPLETE)
    play.judged()

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")


def test_where_no_review_is_asked_for_any_more_the_list_says_what_is_done() -> None:
    play = Play("A", policy=REVIEWS)
    play.done.add("A")

    assert begun_again(play, LoopPolicy()).end.reason == "complete"


def test_l15_where_nothing_can_be_reviewed_the_loop_ends_with_78_and_its_checkpoint() -> None:
    play = Play("A", policy=REVIEWS)

    play.succeeds(halted="nothing could be reviewed", cost_usd=0.5)

    kinds = [type(order) for order in play.latest]
    assert kinds[:2] == [SaveCheckpoint, ReportAttempt]
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.ERROR
    assert (play.end.code, play.end.reason, play.end.why) == (78, "review", "nothing could be reviewed")
    assert (play.loop.memory.cost_usd, play.loop.memory.in_flight) == (0.5, None)
    assert play.failures("A") == 0
