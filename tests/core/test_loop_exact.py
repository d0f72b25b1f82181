"""The loop, order by order: how it begins, goes on, finishes an iteration, and ends (L1, L9 to L14)."""

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    ClearCheckpoint,
    EndLoop,
    EndRest,
    Finished,
    FinishIteration,
    Handoff,
    Loop,
    LoopPolicy,
    LoopWoke,
    PauseAsked,
    PendingRequest,
    Previous,
    Rest,
    Resting,
    Resumed,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
    TellAttempt,
)
from ralphd.core.loop.state import Cooldown, InFlight, Ledger, LoopState, PauseReason, TaskRecord, TaskState
from ralphd.core.plan import Plan
from ralphd.core.supervision.model import Next
from tests.core.loop_scenes import START, Play, plan_of, reset_in

CRASH, TRANSIENT = FailureKind.AGENT_CRASH, FailureKind.TRANSIENT
RATE, USAGE, FATAL = FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT, FailureKind.FATAL
TWO = LoopPolicy(agents=("claude", "codex"), jitter=0.0)
FAR = START + 1e6


def begun(
    *tasks: str,
    policy: LoopPolicy = TWO,
    done: tuple[str, ...] = (),
    memory: LoopState | None = None,
    ledger: Ledger | None = None,
    failing: int = 0,
    resumed: Resumed | None = None,
) -> Play:
    """A loop that begins with what an earlier one left behind."""
    play = Play(*tasks, policy=policy, begin=False)
    play.done = set(done)
    play.loop = Loop(memory or LoopState(), ledger or {}, failing=failing)
    play.feed(Began(play.now, play.plan, resumed))
    return play


# The beginning


def test_l1_an_iteration_saves_its_checkpoint_is_told_and_runs_its_agent() -> None:
    play = begun("A")

    saved, told, start = play.latest
    assert isinstance(told, StartIteration)
    iteration = told.iteration
    assert (iteration.number, iteration.task.id, iteration.agent, iteration.attempt) == (1, "A", "claude", 0)
    assert saved == SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration)
    assert start == StartAttempt(play.attempt.iteration, 600.0, 900.0)
    assert play.attempt.iteration.attempt == 1


def test_a_list_that_cannot_be_used_ends_the_loop_as_a_fault_of_the_configuration() -> None:
    play = Play("A", begin=False)

    play.feed(Began(START, Plan("prd.json", fault="prd.json is not JSON")))

    why = "the task list cannot be used: prd.json is not JSON"
    assert play.latest == (EndLoop(78, "configuration", why),)


def test_a_loop_that_ends_at_once_tells_a_lost_attempt_for_the_last_time_too() -> None:
    lost = InFlight(1, 1, "claude", "A", "do A", START - 9.0)

    play = begun("A", done=("A",), memory=LoopState(under_way=lost))

    assert play.end == EndLoop(0, "complete", "all tasks are done")
    assert play.loop.memory.under_way is None


def test_at_the_beginning_the_ledger_is_brought_abreast_of_the_list() -> None:
    left = {
        "A": TaskRecord("A", "old title", TaskState.IN_PROGRESS),
        "C": TaskRecord("C", "", TaskState.COMPLETE),
    }

    play = begun("A", "B", "C", done=("B",), ledger=left)

    stands = {id_: (record.title, record.standing) for id_, record in play.loop.ledger.items()}
    assert stands == {
        "A": ("do A", TaskState.IN_PROGRESS),  # it is under way again
        "B": ("do B", TaskState.COMPLETE),
        "C": ("do C", TaskState.PENDING),
    }


@pytest.mark.parametrize("reviews", [True, False])
def test_l14_a_ticked_task_whose_review_is_missing_is_open_only_where_there_are_reviews(
    reviews: bool,
) -> None:
    left = {"A": TaskRecord("A", unreviewed=True)}

    play = begun("A", done=("A",), ledger=left, policy=LoopPolicy(reviews=reviews))

    assert isinstance(play.loop.stage, Attempting if reviews else Finished)


@pytest.mark.parametrize("reviews", [True, False])
def test_l14_a_task_that_is_begun_waits_for_a_review_only_where_there_are_reviews(reviews: bool) -> None:
    play = begun("A", policy=LoopPolicy(reviews=reviews))

    assert play.loop.ledger["A"].unreviewed is reviews


# Going on from a checkpoint


def test_l2_a_fallback_in_whose_rest_the_loop_was_killed_goes_on_whatever_it_rested_for() -> None:
    at_it = Resumed("A", 3, "codex", "s-1", PauseReason.ERROR, "codex failed")

    play = begun("A", memory=LoopState(last_agent="codex"), resumed=at_it)

    iteration = play.attempt.iteration
    assert (iteration.agent, iteration.attempt, iteration.session) == ("codex", 4, "s-1")


def test_an_agent_of_a_checkpoint_that_is_out_by_now_is_not_asked() -> None:
    memory = LoopState(out=(Cooldown("claude", "limit", FAR),))

    play = begun("A", memory=memory, resumed=Resumed("A", 1, "claude", "s-1"))

    assert (play.agent, play.attempt.iteration.session) == ("codex", None)


def test_l3_a_turn_that_was_over_is_the_next_ones_that_is_not_out() -> None:
    policy = LoopPolicy(agents=("a", "b", "c"), rotates=True)
    memory = LoopState(last_agent="a", out=(Cooldown("b", "limit", FAR),))

    play = begun("A", policy=policy, memory=memory, resumed=Resumed("A", 1, "a", reason=PauseReason.ERROR))

    assert play.agent == "c"


def test_t5_the_wait_in_which_a_loop_was_killed_is_waited_for_to_its_end_for_its_own_reason() -> None:
    why = "rate limit of claude"
    at_it = Resumed("A", 1, "claude", None, PauseReason.RATE_LIMIT, why, START + 30.0)

    play = begun("A", resumed=at_it)

    (told,) = play.ordered(StartIteration)
    assert play.loop.stage == Resting(told.iteration, START, START + 30.0, PauseReason.RATE_LIMIT)
    assert play.latest == (
        SaveCheckpoint(PauseReason.RATE_LIMIT, told.iteration, START + 30.0, why),
        told,
        Rest(START + 30.0, PauseReason.RATE_LIMIT, why),
    )


def test_t5_a_wait_that_is_over_in_this_instant_is_over() -> None:
    at_it = Resumed("A", 1, "claude", None, PauseReason.RATE_LIMIT, "rate limit", START)

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

    assert (play.end.code, play.end.resume_at) == (75, FAR - policy.reset_margin_s)


# The end of an attempt


def test_an_iteration_that_got_its_task_done_is_told_cleared_and_finished() -> None:
    play = begun("A")

    play.succeeds(judged=False, commits=2)

    assert isinstance(play.loop.stage, AwaitingVerdict)
    iteration = play.loop.stage.iteration
    assert (iteration.number, iteration.attempt, iteration.commits) == (1, 1, 2)
    assert play.latest == (
        TellAttempt(iteration, None, "rule", "it ended well", "the iteration is finished"),
        Handoff(""),
        ClearCheckpoint(),
        FinishIteration(iteration, failed=False, complete=True, summary="A is done"),
    )
    assert play.loop.stage == AwaitingVerdict(iteration, promised=False)


def test_an_iteration_that_got_another_task_done_leaves_its_own_with_its_failures_and_its_checkpoint() -> (
    None
):
    play = begun("A", "B")
    play.fails(FailureKind.AGENT_INCOMPLETE)
    play.done.add("B")

    play.succeeds(ticks=False, judged=False)

    told, note, finish = play.latest
    assert isinstance(told, TellAttempt)
    assert note == Handoff("")
    assert isinstance(finish, FinishIteration)
    assert (finish.failed, finish.complete) == (False, False)
    assert finish.summary == "another task than A was done"
    assert play.failures("A") == 1
    assert play.loop.ledger["A"].standing is TaskState.PENDING
    assert play.loop.ledger["B"].standing is TaskState.COMPLETE


def test_without_a_list_an_iteration_is_finished_when_its_agent_ended_well() -> None:
    play = begun()

    play.succeeds(judged=False)

    (finish,) = play.ordered(FinishIteration)
    assert (finish.complete, finish.summary) == (True, "the agent ended well")


def test_commits_and_costs_of_all_attempts_of_an_iteration_count() -> None:
    play = begun("A")
    play.fails(FailureKind.AGENT_INCOMPLETE, commits=2, cost_usd=1 / 3)

    play.succeeds(judged=False, commits=1, cost_usd=1.0)

    assert play.ordered(FinishIteration)[0].iteration.commits == 3
    assert play.loop.memory.cost_usd == 1.333333, "sums are kept to a millionth"


@pytest.mark.parametrize(("open_", "words"), [("A", "1 task is"), ("AB", "2 tasks are")])
def test_l10_a_false_promise_is_told_with_the_number_of_open_tasks(open_: str, words: str) -> None:
    play = begun(*open_)

    play.succeeds(ticks=False, promised=True)

    (told,) = play.ordered(TellAttempt)
    assert (told.kind, told.why) == (
        FailureKind.AGENT_INCOMPLETE,
        f"the agent promised that all is done while {words} open",
    )


@pytest.mark.parametrize("worked", [True, False])
def test_an_attempt_that_was_ended_as_asked_is_told_and_its_session_kept_where_it_had_worked(
    worked: bool,
) -> None:
    play = begun("A")

    asked = Classification(None, "stop", "it was asked to end", asked=True)
    play.feed(AttemptOver(play.now, asked, play.plan, session="s-1", worked=worked))

    told, saved, end = play.latest
    assert isinstance(told, TellAttempt)
    assert (told.kind, told.rule, told.why) == (None, "stop", "it was asked to end")
    assert told.next == "ended as asked"
    assert isinstance(saved, SaveCheckpoint)
    assert saved.iteration is not None
    assert (saved.reason, saved.iteration.attempt) == (PauseReason.INTERRUPTED, told.iteration.attempt)
    assert saved.iteration.session == ("s-1" if worked else None)
    assert end == EndLoop(130, "interrupted", "stopped as you asked")


@pytest.mark.parametrize("kind", [None, CRASH])
def test_l14_where_a_person_has_to_act_first_the_loop_ends_however_the_attempt_did(
    kind: FailureKind | None,
) -> None:
    play = begun("A")
    iteration = play.attempt.iteration

    finding = Classification(kind, "rule", "why")
    play.feed(AttemptOver(play.now, finding, play.plan, halted="the review cannot be run"))

    assert play.latest == (
        SaveCheckpoint(PauseReason.ERROR, iteration, None, "the review cannot be run"),
        TellAttempt(iteration, kind, "rule", "why", "the end: a person has to act"),
        EndLoop(78, "review", "the review cannot be run"),
    )


# The end of a wait


def test_l12_a_stop_in_a_wait_keeps_the_iteration_that_waited() -> None:
    play = begun("A")
    play.fails(CRASH)
    assert isinstance(play.loop.stage, Resting)
    waited = play.loop.stage.iteration

    play.feed(StopAsked(play.now))

    why = "stopped as you asked"
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
    why = "claude is out: limit"
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


# The answer to a boundary


def test_a_task_that_is_in_the_list_only_after_the_boundary_is_done_as_well() -> None:
    play = begun("A")
    play.succeeds(judged=False)

    play.judged_with(plan_of("A", "B", "C", done=("A", "C")))

    assert play.task == "B"
    assert play.loop.ledger["C"].standing is TaskState.COMPLETE


def test_a_list_that_is_gone_at_the_boundary_counts_as_it_was() -> None:
    play = begun("A", "B")
    play.succeeds(judged=False)

    play.judged_with(None)

    assert play.task == "B"


def test_l10_a_promise_without_a_list_is_the_end_and_nothing_is_left_to_go_on_from() -> None:
    play = begun()

    play.succeeds(promised=True)

    assert play.latest == (
        ClearCheckpoint(),
        EndLoop(0, "complete", "the agent promised that all is done"),
    )


def test_l10_two_iterations_that_commit_nothing_are_the_end_and_nothing_is_left_to_go_on_from() -> None:
    play = begun()
    play.succeeds(commits=0)

    play.succeeds(commits=0)

    why = "the last 2 iterations ended well and committed nothing"
    assert play.latest == (ClearCheckpoint(), EndLoop(0, "no_progress", why))


def test_l3_what_a_turn_left_to_the_next_one_is_told_once() -> None:
    policy = LoopPolicy(agents=("a", "b", "c"), rotates=True)
    play = begun("A", "B", policy=policy)
    play.fails(TRANSIENT, lines=("boom",))
    play.judged()
    assert play.attempt.iteration.previous == Previous(1, "a", TRANSIENT, "a transient failure", ("boom",))
    assert play.loop.rotation is None

    play.succeeds()

    assert play.attempt.iteration.shaky == ()


# The end


def test_after_the_end_not_even_a_wish_changes_anything() -> None:
    play = begun("A", done=("A",))
    ended = play.loop

    play.feed(PauseAsked(play.now))
    play.feed(StopAsked(play.now))

    assert play.loop == ended
    assert ended.wish is PendingRequest.NONE


@pytest.mark.parametrize(("many", "more"), [(2, ""), (3, ""), (4, "; and 1 more"), (5, "; and 2 more")])
def test_l1_tasks_that_failed_too_often_are_told_and_three_of_them_by_name(many: int, more: str) -> None:
    ids = "ABCDE"[:many]
    failed = {each: TaskRecord(each, "", TaskState.FAILED, 5, CRASH, f"{each} is hard") for each in ids}

    play = begun(*ids, ledger=failed)

    told = "; ".join(f"{each} failed 5 times, last: {each} is hard" for each in ids[:3])
    assert play.latest == (EndLoop(1, "tasks_failed", f"no task is left to try: {told}{more}"),)


def test_l1_of_a_failure_without_words_its_kind_is_told() -> None:
    failed = {"A": TaskRecord("A", "", TaskState.FAILED, 1, CRASH)}

    play = begun("A", ledger=failed, policy=LoopPolicy(max_task_failures=1))

    assert play.end.why == "no task is left to try: A failed once, last: agent_crash"


def test_us008_a_pause_in_the_answer_to_a_boundary_keeps_no_iteration() -> None:
    play = begun("A", "B")
    play.succeeds(judged=False)

    play.judged(Next.PAUSE)

    why = "paused as you asked"
    assert play.latest == (
        SaveCheckpoint(PauseReason.USER_REQUESTED, None, None, why),
        EndLoop(75, "user_requested", why),
    )


def test_h5_a_wait_that_begins_anew_twice_says_once_that_the_clock_was_set_back() -> None:
    play = begun("A", failing=3)

    play.feed(LoopWoke(START - 500.0))
    play.feed(LoopWoke(START - 1000.0))

    assert play.ordered(Rest)[0].why == "the last 3 iterations failed (the clock was set back)"
