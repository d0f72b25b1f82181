"""How a loop waits, and how it resumes from a checkpoint (L2, L3, L12, H5)."""

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    Began,
    Cooldown,
    EndLoop,
    EndRest,
    Finished,
    Loop,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseReason,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartIteration,
    StopAsked,
)
from tests.core.loop.scenes import FAR, START, TWO, Play, begun, reset_in, resumed_at

CRASH = FailureKind.AGENT_CRASH
TRANSIENT, RATE = FailureKind.TRANSIENT, FailureKind.RATE_LIMIT


# Waits


def test_us007_a_wait_can_be_skipped() -> None:
    play = Play("A")
    play.fails(FailureKind.RATE_LIMIT)

    play.feed(Skipped(play.now))

    assert isinstance(play.loop.stage, Attempting)


def test_skipping_the_wait_for_an_agent_asks_it_at_the_users_own_risk() -> None:
    play = Play("A")
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, START))

    play.feed(Skipped(play.now))

    assert play.agent == "claude"


def test_a_wake_before_its_time_changes_nothing() -> None:
    play = Play("A")
    play.fails(FailureKind.RATE_LIMIT)
    before = play.loop

    play.feed(LoopWoke(play.now + 30.0))

    assert play.loop == before
    assert play.latest == ()


def test_a_wait_does_not_outlast_the_runtime() -> None:
    play = Play("A", policy=LoopPolicy(max_runtime_s=100.0))

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, START))
    play.wakes()

    assert play.end.code == 5
    assert play.now == START + 100.0


def test_l12_a_stop_in_a_wait_keeps_the_iteration_that_waited() -> None:
    play = begun("A")
    play.fails(CRASH)
    assert isinstance(play.loop.stage, Resting)
    waited = play.loop.stage.iteration

    play.feed(StopAsked(play.now))

    why = "stopped as requested"
    assert play.latest == (
        EndRest(),
        SaveCheckpoint(PauseReason.INTERRUPTED, waited, None, why),
        EndLoop(130, "interrupted", why),
    )


def test_a_limit_that_is_reached_in_a_wait_keeps_the_iteration_that_waited() -> None:
    play = begun("A", policy=LoopPolicy(max_runtime_s=100.0, transient_retries=0))
    play.fails(TRANSIENT)
    play.now = START + 100.0

    play.feed(Skipped(play.now))

    rested, saved, end = play.latest
    assert rested == EndRest()
    assert isinstance(saved, SaveCheckpoint)
    assert saved.iteration is not None
    assert saved.iteration.task.id == "A"
    assert isinstance(end, EndLoop)
    assert play.loop.stage == Finished(5)


def test_a_runtime_that_is_over_by_less_than_a_clock_can_tell_is_waited_for_once_more() -> None:
    policy = LoopPolicy(max_runtime_s=100.0000001)
    play = begun("A", policy=policy, memory=LoopState(out=(Cooldown("claude", "limit", FAR),)))

    play.wakes()

    assert play.now - START < policy.max_runtime_s
    waits = play.ordered(StartIteration, ever=True)[0].iteration
    why = "claude: usage limit: limit"
    assert play.latest == (
        EndRest(),
        SaveCheckpoint(PauseReason.USAGE_LIMIT, waits, FAR, why),
        Rest(play.now, PauseReason.USAGE_LIMIT, why),
    )
    assert play.loop.stage == Resting(waits, play.now, play.now, PauseReason.USAGE_LIMIT, for_an_agent=True)
    play.now += 0.001
    play.wakes()
    assert play.end.code == 5


def test_h5_a_wait_begins_anew_when_the_clock_says_more_than_a_second_before_its_beginning() -> None:
    play = begun("A", failing=3)
    as_it_was = play.loop

    play.feed(LoopWoke(START - 1.0))
    assert (play.loop, play.latest) == (as_it_was, ())
    back = START - 1.5
    play.feed(LoopWoke(back))

    iteration = play.ordered(StartIteration, ever=True)[0].iteration
    why = "the last 3 iterations failed (the clock was set back)"
    assert play.loop.stage == Resting(iteration, back, back + 4.0, PauseReason.ERROR)
    assert play.latest == (
        SaveCheckpoint(PauseReason.ERROR, iteration, back + 4.0, why),
        Rest(back + 4.0, PauseReason.ERROR, why),
    )


def test_h5_a_wait_for_an_agent_is_still_one_when_the_clock_was_set_back() -> None:
    play = begun("A", memory=LoopState(out=(Cooldown("claude", "limit", FAR), Cooldown("codex", "no login"))))
    iteration = play.ordered(StartIteration)[0].iteration

    play.feed(LoopWoke(START - 500.0))

    assert play.loop.stage == Resting(
        iteration, START - 500.0, FAR, PauseReason.USAGE_LIMIT, for_an_agent=True
    )


def test_h5_a_wait_for_a_guessed_return_keeps_its_length_when_the_clock_was_set_back() -> None:
    out = (Cooldown("claude", "limit", FAR, guessed=True), Cooldown("codex", "no login"))
    play = begun("A", memory=LoopState(out=out))
    play.now = START - 500.0

    play.feed(LoopWoke(play.now))

    assert play.wait_s == FAR - START
    play.wakes()
    assert play.agent == "claude"


def test_h5_a_guessed_return_keeps_its_length_where_the_maximum_runtime_cut_the_wait_for_it() -> None:
    policy = LoopPolicy(max_runtime_s=100.0)
    play = begun("A", policy=policy, memory=LoopState(out=(Cooldown("claude", "limit", FAR, guessed=True),)))
    assert play.wait_s == 100.0
    play.now = START - 50.0

    play.feed(LoopWoke(play.now))

    assert play.loop.memory.out == (Cooldown("claude", "limit", FAR - 50.0, guessed=True),)
    assert play.wait_s == 150.0


def test_l3_of_two_that_come_back_at_once_it_is_the_turn_of_the_one_after_the_last() -> None:
    policy = LoopPolicy(agents=("a", "b", "c"), rotates=True)
    memory = LoopState(
        last_agent="a", out=(Cooldown("a", "", FAR), Cooldown("b", "", FAR), Cooldown("c", "no login"))
    )
    play = begun("A", policy=policy, memory=memory)

    play.wakes()

    assert play.agent == "b"


@pytest.mark.parametrize(
    ("after_s", "counted_s"),
    [(0.0, 0.0), (0.25, 0.25), (30.0, 30.0), (60.0, 60.0), (99.0, 60.0), (-5.0, 0.0)],
)
def test_t5_of_a_wait_that_was_skipped_counts_what_was_waited(after_s: float, counted_s: float) -> None:
    play = begun("A")
    play.fails(RATE, reset=reset_in(60.0, play.now + 1.0))

    play.feed(Skipped(play.now + after_s))

    assert play.attempt.iteration.rate_waited_s == counted_s


def test_h5_a_wait_that_begins_anew_twice_says_once_that_the_clock_was_set_back() -> None:
    play = begun("A", failing=3)

    play.feed(LoopWoke(START - 500.0))
    play.feed(LoopWoke(START - 1000.0))

    assert play.ordered(Rest)[0].why == "the last 3 iterations failed (the clock was set back)"


# Resumed from a checkpoint


def test_us003_a_resumed_loop_goes_on_with_its_task_its_agent_and_its_session() -> None:
    play = Play("A", "B", policy=TWO, begin=False)

    play.feed(Began(START, play.plan, resumed_at("B", attempt=2, agent="codex", session="s9")))

    iteration = play.attempt.iteration
    assert (iteration.task.id, iteration.agent, iteration.attempt, iteration.session) == (
        "B",
        "codex",
        3,
        "s9",
    )


def test_t5_a_loop_that_was_killed_in_a_rate_limit_waits_for_its_end_and_can_be_told_to_skip_it() -> None:
    play = Play("A", "B", begin=False)
    until = START + 40.0
    resumed = resumed_at("B", 1, "claude", reason=PauseReason.RATE_LIMIT, why="rate limit", resume_at=until)

    play.feed(Began(START, play.plan, resumed))

    rest = play.loop.stage
    assert isinstance(rest, Resting) and (rest.until, rest.reason) == (until, PauseReason.RATE_LIMIT)
    assert [order.resume_at for order in play.ordered(SaveCheckpoint)] == [until]
    play.feed(Skipped(START + 1.0))
    assert (play.task, play.attempt.iteration.attempt) == ("B", 2)


def test_a_wait_that_is_over_when_the_loop_comes_back_is_over() -> None:
    play = Play("A", begin=False)
    resumed = resumed_at("A", 1, "claude", reason=PauseReason.RATE_LIMIT, resume_at=START - 1.0)

    play.feed(Began(START, play.plan, resumed))

    assert play.attempt.iteration.attempt == 2


def test_a_checkpoint_of_a_task_that_is_done_meanwhile_is_passed_over() -> None:
    play = Play("A", "B", begin=False)
    play.done.add("A")

    play.feed(Began(START, play.plan, resumed_at("A", attempt=2)))

    assert (play.task, play.attempt.iteration.attempt) == ("B", 1)


def test_an_agent_that_is_out_since_an_earlier_run_is_not_asked() -> None:
    play = Play("A", policy=TWO, begin=False)
    play.loop = Loop(memory=LoopState(out=(Cooldown("claude", "usage limit", START + 500.0),)))

    play.feed(Began(START, play.plan))

    assert play.agent == "codex"


def test_l2_a_fallback_in_whose_rest_the_loop_was_killed_goes_on_whatever_it_rested_for() -> None:
    at_it = resumed_at("A", 3, "codex", "s-1", PauseReason.ERROR, "codex failed")

    play = begun("A", memory=LoopState(last_agent="codex"), resumed=at_it)

    iteration = play.attempt.iteration
    assert (iteration.agent, iteration.attempt, iteration.session) == ("codex", 4, "s-1")


def test_an_agent_of_a_checkpoint_that_is_out_by_now_is_not_asked() -> None:
    memory = LoopState(out=(Cooldown("claude", "limit", FAR),))

    play = begun("A", memory=memory, resumed=resumed_at("A", 1, "claude", "s-1"))

    assert (play.agent, play.attempt.iteration.session) == ("codex", None)


def test_l3_a_turn_that_was_over_is_the_next_ones_that_is_not_out() -> None:
    policy = LoopPolicy(agents=("a", "b", "c"), rotates=True)
    memory = LoopState(last_agent="a", out=(Cooldown("b", "limit", FAR),))

    play = begun("A", policy=policy, memory=memory, resumed=resumed_at("A", 1, "a", reason=PauseReason.ERROR))

    assert play.agent == "c"


def test_t5_the_wait_in_which_a_loop_was_killed_is_waited_for_to_its_end_for_its_own_reason() -> None:
    why = "rate limit of claude"
    at_it = resumed_at("A", 1, "claude", None, PauseReason.RATE_LIMIT, why, START + 30.0)

    play = begun("A", resumed=at_it)

    (told,) = play.ordered(StartIteration)
    assert play.loop.stage == Resting(told.iteration, START, START + 30.0, PauseReason.RATE_LIMIT)
    assert play.latest == (
        SaveCheckpoint(PauseReason.RATE_LIMIT, told.iteration, START + 30.0, why),
        told,
        Rest(START + 30.0, PauseReason.RATE_LIMIT, why),
    )


def test_t5_a_wait_that_is_over_in_this_instant_is_over() -> None:
    at_it = resumed_at("A", 1, "claude", None, PauseReason.RATE_LIMIT, "rate limit", START)

    assert begun("A", resumed=at_it).agent == "claude"


def test_iterations_that_fail_running_are_followed_by_a_rest_that_says_so() -> None:
    play = begun("A", failing=3)

    why = "the last 3 iterations failed"
    assert play.ordered(Rest) == [Rest(START + 4.0, PauseReason.ERROR, why)]


def test_where_all_agents_are_out_the_iteration_that_waits_for_them_is_told() -> None:
    memory = LoopState(out=(Cooldown("claude", "limit", FAR), Cooldown("codex", "no login")))

    play = begun("A", memory=memory)

    (told,) = play.ordered(StartIteration)
    assert play.ordered(SaveCheckpoint)[0].iteration == told.iteration
    assert play.loop.stage == Resting(told.iteration, START, FAR, PauseReason.USAGE_LIMIT, for_an_agent=True)


def test_where_all_agents_are_out_a_loop_may_pause_at_its_beginning_already() -> None:
    policy = LoopPolicy(pause_when_exhausted=True)

    play = begun("A", policy=policy, memory=LoopState(out=(Cooldown("claude", "limit", FAR),)))

    assert (play.end.code, play.end.resume_at) == (75, FAR)


def test_h5_a_wait_that_was_saved_after_its_end_is_over() -> None:
    at_it = resumed_at(
        "A", 1, "claude", reason=PauseReason.RATE_LIMIT, resume_at=START + 30, saved_at=START + 60
    )

    assert begun("A", resumed=at_it).agent == "claude"
