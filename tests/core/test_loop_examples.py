"""Ralph's rules, one example each: which task, which agent, how long to wait, when it is over (L1 to L13)."""

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    ClearCheckpoint,
    Finished,
    FinishIteration,
    Handoff,
    Loop,
    LoopPolicy,
    LoopWoke,
    PauseAsked,
    PendingRequest,
    Rest,
    Resting,
    Resumed,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
    TellAgentBack,
    TellAgentOut,
    TellAttempt,
)
from ralphd.core.loop.state import Cooldown, LoopState, PauseReason, TaskState
from ralphd.core.plan import Plan
from ralphd.core.supervision.model import Next
from tests.core.loop_scenes import START, Play, plan_of, reset_in

CRASH, INCOMPLETE = FailureKind.AGENT_CRASH, FailureKind.AGENT_INCOMPLETE
TWO = LoopPolicy(agents=("claude", "codex"), jitter=0.0)


def test_l1_an_iteration_begins_with_a_checkpoint_and_the_first_open_task() -> None:
    play = Play("A", "B")

    kinds = [type(order) for order in play.latest]
    assert kinds == [SaveCheckpoint, StartIteration, StartAttempt]
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.ITERATION_BOUNDARY
    assert (play.task, play.agent, play.attempt.iteration.attempt) == ("A", "claude", 1)


def test_l10_when_all_tasks_are_done_the_loop_is() -> None:
    play = Play("A", "B")

    play.succeeds()
    assert play.task == "B"
    play.succeeds()

    assert (play.end.code, play.end.reason) == (0, "complete")
    assert play.loop.ledger["A"].standing is TaskState.COMPLETE


def test_us002_the_checkpoint_is_cleared_when_the_task_is_done_and_only_then() -> None:
    play = Play("A", "B")

    play.fails(CRASH)
    assert not play.ordered(ClearCheckpoint, ever=True)
    play.wakes()
    play.succeeds(judged=False)

    assert play.ordered(ClearCheckpoint)


def test_l1_a_task_that_failed_is_tried_again_only_after_all_that_were_not_tried() -> None:
    play = Play("A", "B", policy=LoopPolicy(retries_before_fallback=0, jitter=0.0))

    play.fails(CRASH)
    play.judged()
    assert play.task == "B"
    play.succeeds()

    assert play.task == "A"
    assert play.failures("A") == 1


def test_l1_a_task_that_failed_too_often_is_left_alone_and_told() -> None:
    play = Play("A", policy=LoopPolicy(max_task_failures=3, retries_before_fallback=1, jitter=0.0))

    play.fails(CRASH)
    play.wakes()
    play.fails(CRASH)
    play.judged()
    play.fails(CRASH)
    play.judged()

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")
    assert "A failed 3 times" in play.end.why


def test_l2_the_same_agent_tries_again_after_2_4_8_s_and_then_it_is_the_next_ones_turn() -> None:
    policy = LoopPolicy(agents=("claude", "codex"), retries_before_fallback=3, max_task_failures=9)
    play = Play("A", "B", policy=policy)

    waits = []
    for _ in range(3):
        play.fails(CRASH)
        waits.append(play.wait_s)
        play.wakes()
        assert play.agent == "claude"
    play.fails(CRASH)

    assert waits == [2.0, 4.0, 8.0]
    assert (play.agent, play.task) == ("codex", "A")
    play.succeeds()
    assert (play.agent, play.task) == ("claude", "B")  # a new task starts over with the primary


def test_t7_an_agent_that_left_its_task_open_tries_again_at_once() -> None:
    play = Play("A", policy=TWO)

    play.succeeds(ticks=False)

    assert play.ordered(TellAttempt)[0].kind is INCOMPLETE
    assert (play.agent, play.attempt.iteration.attempt) == ("claude", 2)
    assert "A is still open in prd.json" in play.ordered(TellAttempt)[0].why


def test_l10_a_false_promise_is_an_unfinished_task() -> None:
    play = Play("A", "B")

    play.succeeds(ticks=False, promised=True)

    assert play.ordered(TellAttempt)[0].kind is INCOMPLETE
    assert "promised that all is done while 2 tasks are open" in play.ordered(TellAttempt)[0].why


def test_an_agent_that_did_another_task_than_its_own_has_failed_nothing() -> None:
    play = Play("A", "B")

    play.done.add("B")
    play.succeeds(ticks=False)

    assert play.task == "A"
    assert play.failures("A") == 0
    assert play.loop.memory.iteration == 1


def test_t5_a_rate_limit_is_waited_out_by_the_same_agent_at_the_same_task_and_counts_for_nothing() -> None:
    play = Play("A", "B", policy=TWO)

    play.fails(FailureKind.RATE_LIMIT, reset=reset_in(7.0, START + 1))

    assert play.wait_s == 7.0
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.RATE_LIMIT
    play.wakes()
    assert (play.agent, play.task, play.failures("A")) == ("claude", "A", 0)


def test_t5_a_rate_limit_that_does_not_say_how_long_is_waited_for_60_s() -> None:
    play = Play("A")

    play.fails(FailureKind.RATE_LIMIT)

    assert play.wait_s == 60.0


def test_rate_limits_that_take_longer_than_they_may_in_all_count_as_a_usage_limit() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), max_rate_limit_wait_s=100.0))

    play.fails(FailureKind.RATE_LIMIT)
    play.wakes()
    play.fails(FailureKind.RATE_LIMIT)

    assert play.agent == "codex"
    assert play.ordered(TellAgentOut)[0].agent == "claude"


def test_a_usage_limit_saves_the_checkpoint_first_and_hands_the_task_to_the_next_agent() -> None:
    play = Play("A", "B", policy=TWO)

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(3600.0, START + 1))

    assert isinstance(play.latest[0], SaveCheckpoint)
    assert play.ordered(TellAgentOut)[0].until == START + 1 + 3600.0 + 60.0
    assert (play.agent, play.task, play.failures("A")) == ("codex", "A", 0)
    play.succeeds()
    assert play.agent == "codex"  # the primary is still out


def test_an_agent_comes_back_by_itself_when_its_limit_has_reset() -> None:
    play = Play("A", "B", policy=TWO)
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(20.0, START + 1))
    play.now += 100.0

    play.succeeds()

    assert play.ordered(TellAgentBack)[0].agent == "claude"
    assert (play.agent, play.task) == ("claude", "B")
    play.succeeds()
    assert play.loop.memory.out == ()


def test_where_no_agent_is_left_the_loop_waits_for_the_first_that_comes_back() -> None:
    play = Play("A", policy=TWO)

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(1000.0, START + 1))
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(100.0, START + 2))

    assert play.wait_s == 160.0
    play.wakes()
    assert play.agent == "codex"


def test_us008_or_pauses_until_then_with_75() -> None:
    play = Play("A", policy=LoopPolicy(pause_when_exhausted=True))

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(1000.0, START + 1))

    assert (play.end.code, play.end.reason, play.end.resume_at) == (75, "usage_limit", START + 1001.0)
    assert play.ordered(SaveCheckpoint)[0].resume_at == START + 1001.0


def test_an_unknown_reset_is_looked_at_after_15_30_60_minutes() -> None:
    play = Play("A")

    waits = []
    for _ in range(3):
        play.fails(FailureKind.USAGE_LIMIT)
        waits.append(play.wait_s / 60)
        play.wakes()

    assert waits == [15.0, 30.0, 60.0]


def test_us006_a_transient_failure_is_tried_again_after_1_2_4_s_and_is_not_the_tasks_fault() -> None:
    play = Play("A", policy=TWO)

    waits = []
    for _ in range(3):
        play.fails(FailureKind.TRANSIENT)
        waits.append(play.wait_s)
        play.wakes()
    play.fails(FailureKind.TRANSIENT)

    assert waits == [1.0, 2.0, 4.0]
    assert (play.agent, play.failures("A")) == ("codex", 0)


def test_us006_the_wait_varies_by_a_tenth() -> None:
    waits = []
    for chance in (0.0, 0.5, 1.0):
        play = Play("A", policy=LoopPolicy())
        play.fails(FailureKind.TRANSIENT, chance=chance)
        waits.append(round(play.wait_s, 6))

    assert waits == [0.9, 1.0, 1.1]


def test_an_outage_of_20_minutes_costs_no_task_and_no_failure() -> None:
    play = Play("A", "B", policy=TWO)

    outage_until = START + 20 * 60
    while play.now < outage_until:
        play.fails(FailureKind.TRANSIENT)
        if isinstance(play.loop.stage, Resting):
            play.wakes()
    play.succeeds()
    play.succeeds()

    assert play.end.code == 0
    assert (play.failures("A"), play.failures("B")) == (0, 0)
    waits = [order.until for order in play.ordered(Rest, ever=True) if order.reason is PauseReason.OUTAGE]
    assert len(waits) == 5  # 1, 2, 4, 8, 15 minutes


def test_an_outage_asks_each_agent_in_turn() -> None:
    play = Play("A", policy=TWO)
    for _ in range(7):
        play.fails(FailureKind.TRANSIENT)
        if isinstance(play.loop.stage, Resting):
            play.wakes()

    asked = []
    for _ in range(4):
        play.fails(FailureKind.TRANSIENT)
        play.wakes()
        asked.append(play.agent)

    assert asked == ["claude", "codex", "claude", "codex"]


def test_t7_after_a_time_out_the_next_try_has_half_as_much_time_again_four_times_at_most() -> None:
    play = Play("A", policy=LoopPolicy(retries_before_fallback=9, max_task_failures=99, timeout_s=100.0))

    limits = [play.attempt.timeout_s]
    for kind in (FailureKind.TIMEOUT, FailureKind.STALL) * 3:
        play.fails(kind)
        play.wakes()
        limits.append(play.attempt.timeout_s)

    assert limits == [100.0, 150.0, 225.0, 337.5, 400.0, 400.0, 400.0]


def test_a_fatal_failure_is_not_the_tasks_and_puts_the_agent_out_until_a_person_acts() -> None:
    play = Play("A", policy=TWO)

    play.fails(FailureKind.FATAL)

    assert play.ordered(TellAgentOut)[0].until is None
    assert (play.agent, play.failures("A")) == ("codex", 0)
    play.fails(FailureKind.FATAL)
    assert (play.end.code, play.end.reason) == (1, "no_agent")
    assert "claude" in play.end.why
    assert "codex" in play.end.why


def test_a_prompt_that_was_too_long_is_tried_again_in_a_fresh_session() -> None:
    play = Play("A")

    play.fails(FailureKind.CONTEXT, session="s1", worked=True)

    assert play.attempt.iteration.session is None
    assert play.failures("A") == 1


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.RATE_LIMIT, FailureKind.TRANSIENT])
def test_a_session_that_had_begun_to_work_is_gone_on_with(kind: FailureKind) -> None:
    play = Play("A")

    play.fails(kind, session="s1", worked=True)
    play.wakes()

    assert play.attempt.iteration.session == "s1"
    play.fails(kind, session="s2", worked=False)
    play.wakes()
    assert play.attempt.iteration.session is None


def test_003_a_crash_leaves_a_note_for_the_next_agent_and_success_clears_it() -> None:
    play = Play("A", "B")

    play.fails(CRASH)
    assert play.ordered(Handoff)[0].note == "Previous rotation crashed: a agent_crash failure"
    play.wakes()
    play.succeeds(judged=False)

    assert play.ordered(Handoff)[0].note == ""


def test_t2_the_next_attempt_knows_the_one_before() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0))

    play.fails(CRASH, lines=tuple(map(str, range(80))))

    previous = play.attempt.iteration.previous
    assert previous is not None
    assert (previous.attempt, previous.agent, previous.kind) == (1, "claude", CRASH)
    assert previous.lines == tuple(map(str, range(30, 80)))
    assert play.agent == "codex"


def test_l12_a_pause_waits_for_the_iteration_and_ends_with_75_and_a_checkpoint() -> None:
    play = Play("A", "B")

    play.feed(PauseAsked(play.now))
    assert isinstance(play.loop.stage, Attempting)
    play.succeeds()

    assert (play.end.code, play.end.reason) == (75, "user_requested")
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.USER_REQUESTED


def test_l12_a_pause_asked_for_by_the_answer_to_a_boundary_counts_as_well() -> None:
    play = Play("A", "B")

    play.succeeds(judged=False)
    play.judged(Next.PAUSE)

    assert play.end.code == 75


def test_a_pause_does_not_begin_another_attempt() -> None:
    play = Play("A")

    play.feed(PauseAsked(play.now))
    play.fails(CRASH)

    assert play.end.code == 75
    assert play.ordered(SaveCheckpoint)[0].iteration is not None


def test_us006_a_stop_during_a_wait_ends_at_once_and_keeps_a_checkpoint() -> None:
    play = Play("A")
    play.fails(FailureKind.RATE_LIMIT)

    play.feed(StopAsked(play.now))

    assert (play.end.code, play.end.reason) == (130, "interrupted")
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.INTERRUPTED


def test_a_stop_outweighs_a_pause() -> None:
    play = Play("A", "B")

    play.feed(StopAsked(play.now))
    play.feed(PauseAsked(play.now))

    assert play.loop.wish is PendingRequest.STOP


def test_an_attempt_that_was_ended_as_asked_is_no_failure() -> None:
    play = Play("A")

    play.feed(StopAsked(play.now))
    play.feed(AttemptOver(play.now, Classification(None, "asked", "ended as asked", asked=True), play.plan))

    assert play.end.code == 130
    assert play.failures("A") == 0


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


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (LoopPolicy(max_iterations=1), "1 iteration, as you asked"),
        (LoopPolicy(max_cost_usd=0.5), "$0.60 spent, of $0.50 allowed"),
        (LoopPolicy(max_runtime_s=1.0), "it has run for 1 s, of 1 s allowed"),
    ],
)
def test_l10_a_limit_of_the_users_own_ends_the_loop_with_5(policy: LoopPolicy, words: str) -> None:
    play = Play("A", "B", policy=policy)

    play.succeeds(cost_usd=0.6)

    assert (play.end.code, play.end.reason, play.end.why) == (5, "limit", words)


def test_a_cost_limit_counts_in_the_middle_of_an_iteration() -> None:
    play = Play("A", policy=LoopPolicy(max_cost_usd=1.0))

    play.fails(CRASH, cost_usd=1.0)

    assert play.end.code == 5


def test_a_wait_does_not_outlast_the_runtime() -> None:
    play = Play("A", policy=LoopPolicy(max_runtime_s=100.0))

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, START))
    play.wakes()

    assert play.end.code == 5
    assert play.now == START + 100.0


def test_an_attempt_does_not_outlast_the_runtime() -> None:
    play = Play("A", policy=LoopPolicy(max_runtime_s=100.0))

    assert play.attempt.timeout_s == 100.0


def test_l10_without_a_list_the_promise_is_the_end() -> None:
    play = Play()

    play.succeeds(promised=True)

    assert (play.end.code, play.end.reason) == (0, "complete")


def test_l10_without_a_list_two_iterations_that_commit_nothing_are_the_end() -> None:
    play = Play()

    play.succeeds(commits=0)
    play.succeeds(commits=1)
    play.succeeds(commits=0)
    play.succeeds(commits=0)

    assert (play.end.code, play.end.reason) == (0, "no_progress")
    assert play.loop.memory.iteration == 4


def test_a_list_that_cannot_be_read_at_the_start_is_a_fault_of_the_configuration() -> None:
    play = Play("A", begin=False)

    play.feed(Began(START, Plan("prd.json", fault="prd.json is not JSON: a comma in line 3")))

    assert play.end.code == 78
    assert "line 3" in play.end.why


@pytest.mark.parametrize("found", [None, Plan("prd.json"), Plan("prd.json", fault="prd.json is not JSON")])
def test_a_list_that_an_agent_breaks_counts_as_it_was(found: Plan | None) -> None:
    play = Play("A", "B")

    play.feed(AttemptOver(play.now, Classification(None, "rule", "well"), found))

    assert play.ordered(TellAttempt)[0].kind is INCOMPLETE
    assert play.loop.plan == plan_of("A", "B")


def test_r9_a_task_whose_commits_were_reverted_is_open_again() -> None:
    play = Play("A", "B")

    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    assert play.task == "A"
    play.succeeds()
    assert play.task == "B"


def test_us003_a_resumed_loop_goes_on_with_its_task_its_agent_and_its_session() -> None:
    play = Play("A", "B", policy=TWO, begin=False)

    play.feed(Began(START, play.plan, Resumed("B", attempt=2, agent="codex", session="s9")))

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
    resumed = Resumed("B", 1, "claude", reason=PauseReason.RATE_LIMIT, why="rate limit", resume_at=until)

    play.feed(Began(START, play.plan, resumed))

    rest = play.loop.stage
    assert isinstance(rest, Resting) and (rest.until, rest.reason) == (until, PauseReason.RATE_LIMIT)
    assert [order.resume_at for order in play.ordered(SaveCheckpoint)] == [until]
    play.feed(Skipped(START + 1.0))
    assert (play.task, play.attempt.iteration.attempt) == ("B", 2)


def test_a_wait_that_is_over_when_the_loop_comes_back_is_over() -> None:
    play = Play("A", begin=False)
    resumed = Resumed("A", 1, "claude", reason=PauseReason.RATE_LIMIT, resume_at=START - 1.0)

    play.feed(Began(START, play.plan, resumed))

    assert play.attempt.iteration.attempt == 2


def test_a_checkpoint_of_a_task_that_is_done_meanwhile_is_passed_over() -> None:
    play = Play("A", "B", begin=False)
    play.done.add("A")

    play.feed(Began(START, play.plan, Resumed("A", attempt=2)))

    assert (play.task, play.attempt.iteration.attempt) == ("B", 1)


def test_an_agent_that_is_out_since_an_earlier_run_is_not_asked() -> None:
    play = Play("A", policy=TWO, begin=False)
    play.loop = Loop(memory=LoopState(out=(Cooldown("claude", "usage limit", START + 500.0),)))

    play.feed(Began(START, play.plan))

    assert play.agent == "codex"


def test_after_the_end_nothing_is_done_any_more() -> None:
    play = Play("A")
    play.succeeds()

    play.feed(LoopWoke(play.now))

    assert isinstance(play.loop.stage, Finished)
    assert play.latest == ()


def test_an_iteration_is_finished_once_and_told_with_its_outcome() -> None:
    play = Play("A", policy=LoopPolicy(retries_before_fallback=0))

    play.fails(CRASH)

    assert isinstance(play.loop.stage, AwaitingVerdict)
    (finish,) = play.ordered(FinishIteration)
    assert (finish.failed, finish.complete) == (True, False)
