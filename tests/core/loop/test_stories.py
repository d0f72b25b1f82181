"""Bad nights, one story each: limits in the middle of things, lists that change, stale checkpoints."""

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import Reset
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import GateNews, RevertNotice
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    Began,
    Checkpoint,
    ClearCheckpoint,
    Cooldown,
    EndRest,
    Handoff,
    InFlight,
    Judged,
    Loop,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseAsked,
    PauseReason,
    ReportAgentBack,
    ReportAgentOut,
    ReportAttempt,
    ReportLost,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartIteration,
    StopAsked,
    TaskRecord,
    TaskState,
)
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.model import Next
from tests.core.loop.scenes import START, Play, begun, plan_of, reset_in, resumed_at, verdict_of

CRASH, INCOMPLETE = FailureKind.AGENT_CRASH, FailureKind.AGENT_INCOMPLETE
RATE, USAGE, TRANSIENT = FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT, FailureKind.TRANSIENT
TWO = LoopPolicy(agents=("claude", "codex"), jitter=0.0)


def test_a_fallback_that_fails_its_retries_puts_the_task_back_while_the_primary_is_out() -> None:
    play = Play("A", "B", policy=TWO)

    play.fails(USAGE, reset=reset_in(5000.0, START))
    for _ in range(2):
        play.fails(CRASH)
        play.wakes()
    play.fails(CRASH)

    assert play.ordered(ReportAttempt)[0].next == "the task is put back"
    play.judged()
    assert (play.agent, play.task) == ("codex", "B")


def test_who_comes_back_in_the_middle_of_an_iteration_and_is_asked_is_told_to_be_back() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0))

    play.fails(USAGE, reset=reset_in(10.0, START))
    play.now += 100.0
    play.fails(CRASH)

    assert play.agent == "claude"
    assert [order.agent for order in play.ordered(ReportAgentBack)] == ["claude"]
    play.fails(CRASH)
    play.judged()
    assert (play.agent, len(play.ordered(ReportAgentBack, ever=True))) == ("claude", 1)


def test_a_skipped_wait_for_an_agent_tells_that_it_is_back() -> None:
    play = Play("A")
    play.fails(USAGE, reset=reset_in(5000.0, START))

    play.feed(Skipped(play.now))

    assert [type(order) for order in play.latest][:2] == [EndRest, ReportAgentBack]
    play.fails(USAGE)
    assert play.wait_s == 30 * 60.0  # the second time that it did not work


def test_of_two_resets_and_an_unknown_one_the_first_is_waited_for_and_then_the_next() -> None:
    policy = LoopPolicy(agents=("claude", "codex", "gemini"), jitter=0.0)
    play = Play("A", policy=policy)

    play.fails(USAGE, reset=reset_in(4000.0, START), took_s=0.0)
    play.fails(USAGE, reset=reset_in(2000.0, START), took_s=0.0)
    play.fails(USAGE, took_s=0.0)
    assert play.wait_s == 900.0
    play.wakes()
    assert play.agent == "gemini"
    play.fails(USAGE, took_s=0.0)
    play.wakes()

    assert (play.agent, play.now) == ("codex", START + 2060.0)


def test_who_took_over_after_a_wait_has_all_its_tries() -> None:
    policy = LoopPolicy(agents=("claude", "codex"), jitter=0.0, max_task_failures=99)
    play = Play("A", policy=policy)

    play.fails(USAGE, reset=reset_in(100.0, START))
    for _ in range(2):
        play.fails(CRASH)
        play.wakes()
    play.fails(USAGE, reset=reset_in(9000.0, START))
    if isinstance(play.loop.stage, Resting):
        play.wakes()
    assert play.agent == "claude"
    for wait_s in (2.0, 4.0):
        play.fails(CRASH)
        assert play.wait_s == wait_s
        play.wakes()
        assert play.agent == "claude"


def test_a_fatal_primary_and_a_limited_fallback_wait_for_the_fallback() -> None:
    play = Play("A", policy=TWO)

    play.fails(FailureKind.FATAL)
    play.fails(USAGE, reset=reset_in(100.0, START + 2))

    assert play.wait_s == 160.0
    play.wakes()
    assert play.agent == "codex"


def test_where_none_is_left_only_those_are_named_that_are_configured() -> None:
    play = Play("A", policy=TWO)
    play.fails(FailureKind.FATAL)
    play.policy = LoopPolicy(agents=("codex",))

    play.fails(FailureKind.FATAL)

    assert play.end.reason == "no_agent"
    assert "claude" not in play.end.why
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.ERROR


def test_a_rate_limit_between_transient_failures_begins_their_retries_anew() -> None:
    play = Play("A")
    waits = []
    for kind in (TRANSIENT, TRANSIENT, RATE, TRANSIENT):
        play.fails(kind, chance=0.5)
        waits.append(play.wait_s)
        play.wakes()

    assert waits == [1.0, 2.0, 60.0, 1.0]


@pytest.mark.parametrize("over_s", [0.0, 3600.0, -0.001])
def test_a_rate_limit_that_is_over_by_what_it_says_is_never_asked_without_a_pause(over_s: float) -> None:
    play = Play("A")
    waits = []
    for _ in range(10):
        reset = Reset(play.now + 1.0 - over_s, "test", Confidence.EXACT)
        play.fails(RATE, reset=reset)
        waits.append(play.wait_s)
        play.wakes()

    assert waits == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_nothing_is_asked_without_a_pause_though_each_wait_is_set_to_0() -> None:
    policy = LoopPolicy(
        same_agent_base_s=0.0,
        base_s=0.0,
        max_s=0.0,
        rate_limit_s=0.0,
        outage_max_wait_s=0.0,
        transient_retries=0,
        retries_before_fallback=0,
        max_task_failures=0,
    )
    for kind in (RATE, TRANSIENT, CRASH, INCOMPLETE):
        play = Play("A", policy=policy)
        for _ in range(20):
            if isinstance(play.loop.stage, Attempting):
                play.fails(kind, took_s=0.0)
            elif isinstance(play.loop.stage, Resting):
                play.wakes()
            else:
                play.judged()

        assert play.now - START >= 5.0, kind


def test_a_wait_for_a_rate_limit_that_was_skipped_was_not_waited() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), max_rate_limit_wait_s=100.0))

    play.fails(RATE)
    play.now += 20.0
    play.feed(Skipped(play.now))
    play.fails(RATE)

    assert play.wait_s == 60.0
    assert not play.ordered(ReportAgentOut, ever=True)


def test_a_rate_limit_that_lasts_too_long_is_a_usage_limit_at_once_with_its_reset() -> None:
    play = Play("A")

    play.fails(RATE, reset=reset_in(7200.0, START + 1))

    assert play.ordered(ReportAgentOut)[0].until == START + 1 + 7200.0 + 60.0
    assert play.ordered(ReportAttempt)[0].kind is RATE


def test_iterations_that_fail_running_are_followed_by_growing_waits_and_none_after_a_good_one() -> None:
    policy = LoopPolicy(retries_before_fallback=0, max_task_failures=0, max_s=10.0, jitter=0.0)
    play = Play("A", policy=policy)
    waits = []
    for _ in range(6):
        play.fails(INCOMPLETE)
        play.judged()
        waits.append(play.wait_s if isinstance(play.loop.stage, Resting) else 0.0)
        if isinstance(play.loop.stage, Resting):
            saves = play.ordered(SaveCheckpoint)
            assert [order.resume_at for order in saves] == [play.loop.stage.until]
            assert len(play.ordered(StartIteration)) == 1
            play.wakes()

    assert waits == [0.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    play.ids = ("A", "B")
    play.succeeds()
    assert play.task == "B"
    play.fails(INCOMPLETE)
    play.judged()
    assert isinstance(play.loop.stage, Attempting)


def test_t7_a_tasks_time_grows_over_agents_and_iterations_and_begins_anew_with_the_next_task() -> None:
    policy = LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0, timeout_s=100.0)
    play = Play("A", policy=policy)

    limits = []
    for _ in range(4):
        limits.append((play.agent, play.attempt.timeout_s))
        play.fails(FailureKind.TIMEOUT)
        if not isinstance(play.loop.stage, Attempting):
            play.judged()
            if isinstance(play.loop.stage, Resting):
                play.wakes()

    assert limits == [("claude", 100.0), ("codex", 150.0), ("claude", 225.0), ("codex", 337.5)]
    play.ids = ("A", "B")
    play.succeeds()
    assert (play.task, play.attempt.timeout_s) == ("B", 100.0)


def test_t7_an_iterations_own_limit_grows_where_it_is_the_only_one() -> None:
    play = Play("A", policy=LoopPolicy(timeout_s=0.0, iteration_timeout_s=100.0))

    play.fails(FailureKind.TIMEOUT)
    play.wakes()

    assert play.attempt.timeout_s == 150.0


def test_t2_a_task_that_is_tried_again_in_a_later_iteration_knows_what_went_wrong() -> None:
    play = Play("A", "B", policy=LoopPolicy(retries_before_fallback=0))

    play.fails(CRASH)
    play.judged()
    assert play.attempt.iteration.previous is None  # another task
    play.succeeds()

    previous = play.attempt.iteration.previous
    assert previous is not None
    assert (play.task, previous.attempt, previous.agent, previous.kind) == ("A", 1, "claude", CRASH)


@pytest.mark.parametrize(
    "record", [TaskRecord("A", "do A", TaskState.PENDING, 6), TaskRecord("A", "do A", TaskState.FAILED, 1)]
)
def test_a_checkpoint_of_a_task_that_failed_too_often_or_was_put_back_is_passed_over(
    record: TaskRecord,
) -> None:
    play = Play("A", "B", policy=TWO, begin=False)
    play.loop = Loop(ledger={"A": record})

    play.feed(Began(START, play.plan, resumed_at("A", attempt=5, agent="codex", session="s")))

    iteration = play.attempt.iteration
    assert (iteration.task.id, iteration.agent, iteration.attempt, iteration.session) == (
        "B",
        "claude",
        1,
        None,
    )


def test_a_checkpoint_with_an_agent_that_is_not_configured_any_more_goes_on_without_its_session() -> None:
    play = Play("A", "B", policy=TWO, begin=False)

    play.feed(Began(START, play.plan, resumed_at("B", attempt=7, agent="gemini", session="s")))

    iteration = play.attempt.iteration
    assert (iteration.task.id, iteration.agent, iteration.attempt, iteration.session) == (
        "B",
        "claude",
        8,
        None,
    )


@pytest.mark.parametrize("resumed", [resumed_at(None, 3, "codex"), resumed_at("gone", 3, "codex", "s")])
def test_a_checkpoint_that_names_no_task_of_the_list_says_nothing_about_the_next(resumed: Checkpoint) -> None:
    play = Play("A", policy=TWO, begin=False)

    play.feed(Began(START, play.plan, resumed))

    assert (play.task, play.agent, play.attempt.iteration.attempt) == ("A", "claude", 1)


def test_a_wait_in_a_checkpoint_that_is_longer_than_any_can_be_is_not_believed() -> None:
    play = Play("A", begin=False)
    resumed = resumed_at("A", 1, "claude", reason=PauseReason.RATE_LIMIT, resume_at=START + 3601.0)

    play.feed(Began(START, play.plan, resumed))

    assert isinstance(play.loop.stage, Attempting)


def test_where_all_tasks_are_done_at_the_start_nothing_is_asked() -> None:
    play = Play("A", begin=False)
    play.done.add("A")

    play.feed(Began(START, play.plan, resumed_at("A", 1)))

    assert (play.end.code, play.end.reason) == (0, "complete")
    assert play.ordered(ClearCheckpoint)


def test_an_empty_list_is_the_prompt_alone() -> None:
    play = Play(begin=False)

    play.feed(Began(START, Plan("TASKS.md")))

    assert play.task == "prompt"


def test_the_prompt_alone_ends_when_it_has_failed_too_often() -> None:
    play = Play(policy=LoopPolicy(retries_before_fallback=0, max_task_failures=2))

    for _ in range(2):
        play.fails(CRASH)
        play.judged()
    play.wakes()
    play.fails(CRASH)
    play.judged()

    assert play.end.reason == "tasks_failed"
    assert "the task failed with: " in play.end.why


def test_a_failed_iteration_in_between_makes_two_that_committed_nothing_no_end() -> None:
    play = Play(policy=LoopPolicy(retries_before_fallback=0))

    play.succeeds(commits=0)
    play.fails(CRASH)
    play.judged()
    play.succeeds(commits=0)

    assert isinstance(play.loop.stage, Attempting)


def test_a_promise_in_a_failed_attempt_is_none() -> None:
    play = Play(policy=LoopPolicy(retries_before_fallback=0))

    play.fails(CRASH, promised=True)
    play.judged()

    assert isinstance(play.loop.stage, Attempting)


def test_a_promise_with_a_task_of_its_own_done_and_others_open_is_not_the_end() -> None:
    play = Play("A", "B")

    play.succeeds(promised=True)

    assert play.task == "B"


def test_a_failed_iteration_counts_toward_their_number() -> None:
    play = Play("A", "B", policy=LoopPolicy(retries_before_fallback=0, max_iterations=1))

    play.fails(CRASH)
    play.judged()

    assert (play.end.code, play.end.why) == (5, "max_iterations = 1 reached")


def test_all_done_outweighs_a_pause_a_stop_and_a_limit() -> None:
    for answer in (Next.PAUSE, Next.STOP, Next.CONTINUE):
        play = Play("A", policy=LoopPolicy(max_iterations=1))
        play.succeeds(judged=False)
        play.judged(answer)

        assert (play.end.code, play.end.reason) == (0, "complete")


def test_a_stop_while_the_verdict_is_awaited_counts_after_it_whatever_it_says() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)

    play.feed(StopAsked(play.now))
    assert play.latest == ()
    play.judged(Next.PAUSE)

    assert play.end.code == 130


def test_a_stop_in_the_answer_outweighs_a_pause_that_was_asked_for_before() -> None:
    play = Play("A", "B")
    play.feed(PauseAsked(play.now))
    play.succeeds(judged=False)

    play.judged(Next.STOP)

    assert play.end.code == 130


def test_a_wish_in_the_instant_in_which_a_wait_is_over_begins_nothing() -> None:
    play = Play("A")
    play.fails(RATE)
    assert isinstance(play.loop.stage, Resting)
    over_at = play.loop.stage.until

    play.feed(PauseAsked(over_at))
    play.feed(LoopWoke(over_at))

    assert play.end.code == 75
    assert play.latest == ()


def test_a_skip_where_nothing_waits_is_nothing() -> None:
    play = Play("A", "B")
    before = play.loop

    play.feed(Skipped(play.now))
    assert (play.loop, play.latest) == (before, ())
    play.succeeds(judged=False)
    play.feed(Skipped(play.now))
    assert play.latest == ()


def test_a_pause_that_was_asked_for_ends_an_agent_that_was_ended_too() -> None:
    play = Play("A")
    play.feed(PauseAsked(play.now))
    asked = Classification(None, "asked", "it was asked to end", asked=True)

    play.feed(AttemptOver(play.now, asked, play.plan, session="s", worked=True))

    assert play.end.code == 75
    saved = play.ordered(SaveCheckpoint)[0].iteration
    assert saved is not None and saved.session == "s"


def test_a_runtime_that_is_over_in_an_outage_ends_the_loop_then() -> None:
    play = Play("A", policy=LoopPolicy(transient_retries=0, max_runtime_s=100.0))

    play.fails(TRANSIENT)
    play.wakes()
    play.fails(TRANSIENT)
    assert play.wait_s == START + 100.0 - play.now
    play.wakes()

    assert (play.end.code, play.end.reason) == (5, "limit")


def test_the_time_counts_from_when_the_loop_was_first_started() -> None:
    play = Play("A", "B", policy=LoopPolicy(max_runtime_s=100.0), begin=False)
    play.loop = Loop(memory=LoopState(began_at=START - 90.0))

    play.feed(Began(START, play.plan))

    assert play.attempt.timeout_s == 10.0


@pytest.mark.parametrize(("own_s", "limit_s"), [(0.0, 100.0), (30.0, 30.0), (300.0, 100.0)])
def test_an_attempt_has_its_own_limit_or_what_is_left_of_all_the_time(own_s: float, limit_s: float) -> None:
    policy = LoopPolicy(timeout_s=own_s, iteration_timeout_s=0.0, max_runtime_s=100.0)

    assert Play("A", policy=policy).attempt.timeout_s == limit_s


def titled(*titles: str) -> Plan:
    """A check list, whose tasks are known by their titles."""
    return Plan("TASKS.md", tuple(Task(title, title, TaskStatus.PENDING) for title in titles))


def test_a_task_beside_which_an_agent_wrote_how_far_it_is_has_failed_and_is_tried_on() -> None:
    play = Play(begin=False)
    play.feed(Began(START, titled("login", "mail")))

    for share in range(3):
        now = titled(f"login ({share} of 9)", "mail")
        play.feed(AttemptOver(play.now, Classification(None, "rule", "well"), now))

    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE
    assert play.failures("login (2 of 9)") == 3
    assert "login" not in play.loop.ledger
    play.judged_with(titled("login (2 of 9)", "mail"))
    assert play.task == "mail"


def test_a_list_that_grows_shrinks_and_is_turned_round_is_followed() -> None:
    play = Play(begin=False)
    play.feed(Began(START, titled("A", "B")))

    play.feed(
        AttemptOver(play.now, Classification(None, "rule", "well"), titled("D", "C", "B"))
    )  # A was taken off
    play.judged_with(titled("D", "C", "B"))

    assert play.task == "D"
    assert play.loop.ledger["A"].state is TaskState.COMPLETE


def test_r9_a_reverted_task_that_nobody_committed_anything_for_is_not_done() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    play.succeeds(commits=0)
    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE
    assert "reverted" in play.ordered(ReportAttempt)[0].why
    play.succeeds(commits=1)

    assert play.task == "B"


def test_r9_a_task_that_is_reverted_for_ever_is_put_back_after_a_round_and_then_left_alone() -> None:
    play = Play(
        "A", "B", policy=LoopPolicy(agents=("claude",), retries_before_fallback=1, max_task_failures=2)
    )

    for count in (1, 2):
        assert play.task == "A"
        play.succeeds(judged=False)
        play.judged(reopened=("A",))
        assert play.failures("A") == count

    assert play.task == "B"  # A had its round
    play.succeeds()
    assert play.task == "A"
    assert play.attempt.iteration.reverted is not None
    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")
    assert "1 of 2 tasks failed with: its commit was reverted (abc1234): the tests failed" in play.end.why


def test_r9_an_agent_that_always_does_another_task_is_not_run_for_ever() -> None:
    policy = LoopPolicy(agents=("claude",), retries_before_fallback=1, max_task_failures=2)
    play, iterations = Play("A", "B", policy=policy), 0

    while isinstance(play.loop.stage, Attempting) and iterations < 20:
        iterations, given = iterations + 1, play.task
        play.done.add("A")
        play.succeeds(ticks=False, judged=False)
        play.done.clear()  # the revert takes the tick
        play.judged(reopened=(given,))

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")
    assert (play.failures("A"), play.failures("B")) >= (3, 3)


def test_r9_a_reverted_task_that_is_redone_in_place_of_another_one_is_done() -> None:
    play = Play("A", "B", policy=LoopPolicy(agents=("claude",), retries_before_fallback=0))
    play.succeeds(judged=False)
    play.done.clear()
    play.judged(reopened=("A",))
    assert play.task == "B"  # A had its round

    play.done.add("A")
    play.succeeds(ticks=False, judged=False)
    verdict = verdict_of("r1/9", VerdictKind.KEPT, "green", "B", ("def5678",))
    play.feed(Judged(play.now, Next.CONTINUE, play.plan, verdict))
    play.succeeds()

    assert play.end.code == 0
    assert play.loop.ledger["A"] == TaskRecord("A", "do A", TaskState.COMPLETE)


def test_r9_a_revert_is_told_until_the_task_is_kept_and_then_all_is_forgotten() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    play.fails(CRASH)
    play.wakes()
    note = play.attempt.iteration.reverted
    assert note is not None
    assert note == RevertNotice(("abc1234",), "the tests failed", ("1 failed",), note.boundary)
    play.succeeds()

    assert play.loop.ledger["A"] == TaskRecord("A", "do A", TaskState.COMPLETE)
    assert play.attempt.iteration.reverted is None


def test_r9_a_verdict_that_no_loop_has_heard_is_acted_upon_at_the_next_begin_and_only_once() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)
    verdict = verdict_of("r1/7", VerdictKind.REVERTED, "the tests failed", "A", ("abc1234",), ("abc1234",))

    for _ in range(2):
        play.loop = Loop(play.loop.memory, play.loop.ledger)
        play.feed(Began(play.now, play.plan, gate=GateNews(verdict)))

        assert play.task == "A"
        assert (play.failures("A"), play.loop.memory.judged) == (1, "r1/7")


HALF_REVERTED = verdict_of("r1/9", VerdictKind.REVERTED, "the tests failed", "A", ("b", "c"), ("c",))


def test_r9_of_two_other_tasks_only_the_one_whose_tick_a_revert_took_is_open_again() -> None:
    play = Play("A", "B", "C")
    play.done = {"B", "C"}
    play.succeeds(ticks=False, judged=False)

    play.feed(Judged(play.now, Next.CONTINUE, plan_of("A", "B", "C", done="B"), HALF_REVERTED))

    assert [play.failures(task) for task in "ABC"] == [1, 0, 1]
    assert play.loop.ledger["B"].state is TaskState.COMPLETE


def test_r9_it_is_so_as_well_where_a_loop_hears_the_verdict_at_its_beginning() -> None:
    play = Play("A", "B", "C")
    play.done = {"B", "C"}
    play.succeeds(ticks=False, judged=False)
    play.loop = Loop(play.loop.memory, play.loop.ledger)

    play.feed(Began(play.now, plan_of("A", "B", "C", done="B"), gate=GateNews(HALF_REVERTED)))

    assert [play.failures(task) for task in "ABC"] == [0, 0, 1]
    assert play.loop.ledger["B"].state is TaskState.COMPLETE


def test_r9_a_tick_that_a_person_took_before_the_revert_is_no_failure() -> None:
    unticked = TaskRecord("C", "do C", TaskState.COMPLETE, unjudged=True)
    play = begun("A", "B", "C", ledger={"C": unticked})
    play.done = {"B"}
    play.succeeds(ticks=False, judged=False)

    play.feed(Judged(play.now, Next.CONTINUE, plan_of("A", "B", "C"), HALF_REVERTED))

    assert [play.failures(task) for task in "ABC"] == [1, 1, 0]


def test_a_task_that_a_revert_opened_is_not_believed_because_another_one_was_done() -> None:
    opened = {id_: TaskRecord(id_, f"do {id_}", TaskState.PENDING, reopened=True) for id_ in "AB"}
    play = begun("A", "B", ledger=opened)
    assert play.task == "A"

    play.succeeds(judged=False)

    assert [play.loop.ledger[task].reopened for task in "AB"] == [False, True]


def test_r9_what_a_person_has_put_back_is_looked_at_once_more_and_needs_no_new_commit() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)
    play.judged(reopened=("A",))
    note = play.attempt.iteration.reverted
    assert note is not None

    play.loop = Loop(play.loop.memory, play.loop.ledger)
    play.feed(Began(play.now, play.plan, gate=GateNews(undone=("r0/1", note.boundary))))
    assert (play.task, play.attempt.iteration.reverted) == ("A", None)
    play.succeeds(commits=0)

    assert play.task == "B"


def test_r9_commits_that_stay_of_an_attempt_that_failed_are_enough_for_the_next_one() -> None:
    policy = LoopPolicy(agents=("claude",), retries_before_fallback=0, max_task_failures=9)
    play = Play("A", policy=policy)
    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    play.fails(CRASH, commits=1)
    play.feed(
        Judged(play.now, Next.CONTINUE, play.plan, verdict_of("r1/8", VerdictKind.KEPT, "green", "A", ("b",)))
    )
    assert play.task == "A"
    play.succeeds(commits=0)

    assert play.end.code == 0


def test_r9_a_promise_whose_commits_were_reverted_ends_nothing() -> None:
    play = Play()
    play.succeeds(promised=True, judged=False)

    play.judged(reopened=("prompt",))

    assert isinstance(play.loop.stage, Attempting)
    assert play.failures("prompt") == 1


def test_what_the_guard_wants_a_person_to_see_is_why_it_pauses_and_what_nobody_heard_stays_open() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)
    untested = verdict_of("r1/7", VerdictKind.UNTESTED, "a rebase is under way", "A", ("abc1234",))
    play.feed(Judged(play.now, Next.PAUSE, play.plan, untested))
    assert (play.end.code, play.end.why) == (75, "needs your review: a rebase is under way")

    play = Play("A", "B")
    play.succeeds(judged=False)
    play.feed(StopAsked(play.now))
    play.feed(Judged(play.now, Next.CONTINUE, play.plan, unheard=True))
    assert play.end.code == 130
    assert play.loop.ledger["A"].unjudged


def test_a_list_that_was_emptied_is_told_as_what_it_is() -> None:
    play = Play("A", "B")

    play.feed(AttemptOver(play.now, Classification(None, "rule", "well"), Plan("prd.json")))

    assert "prd.json lists nothing" in play.ordered(ReportAttempt)[0].why


def test_a_limit_of_the_agent_that_took_over_does_not_keep_the_task_while_the_others_had_their_turn() -> None:
    play = Play("A", "B", policy=LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0))

    play.fails(CRASH)
    assert play.agent == "codex"
    play.fails(USAGE, reset=reset_in(9000.0, START))

    assert play.ordered(ReportAttempt)[0].next == "the task is put back"
    play.judged()
    assert (play.agent, play.task) == ("claude", "B")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (RATE, PauseReason.RATE_LIMIT),
        (USAGE, PauseReason.USAGE_LIMIT),
        (FailureKind.TIMEOUT, PauseReason.TIMEOUT),
        (FailureKind.STALL, PauseReason.STALL),
        (CRASH, PauseReason.ERROR),
    ],
)
def test_us002_the_checkpoint_of_a_failure_says_what_it_was_where_no_wait_says_more(
    kind: FailureKind, reason: PauseReason
) -> None:
    policy = LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0, max_rate_limit_wait_s=1.0)
    play = Play("A", policy=policy)

    play.fails(kind)

    assert play.agent == "codex"
    assert [order.reason for order in play.ordered(SaveCheckpoint)] == [reason]


@pytest.mark.parametrize("kind", list(FailureKind))
def test_003_whatever_ended_an_agent_without_its_will_is_noted_for_the_next(kind: FailureKind) -> None:
    play = Play("A")

    play.fails(kind)

    crashed = {CRASH, FailureKind.UNKNOWN, TRANSIENT, FailureKind.TIMEOUT, FailureKind.STALL}
    assert bool(play.ordered(Handoff)) == (kind in crashed)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_after_a_limit_a_weak_service_or_too_long_a_time_a_session_is_gone_on_with(
    kind: FailureKind,
) -> None:
    play = Play("A")

    play.fails(kind, session="s", worked=True)

    saved = play.ordered(SaveCheckpoint)[0].iteration
    resumed = {RATE, USAGE, TRANSIENT, FailureKind.TIMEOUT, FailureKind.STALL}
    assert saved is not None and (saved.session == "s") == (kind in resumed)


def test_another_agent_begins_a_session_of_its_own() -> None:
    play = Play("A", policy=TWO)

    play.fails(USAGE, session="s", worked=True)

    assert (play.agent, play.attempt.iteration.session) == ("codex", None)


def test_a_failure_that_counts_ends_an_outage_and_a_usage_limit_in_it_does_not() -> None:
    policy = LoopPolicy(agents=("claude", "codex"), transient_retries=0, jitter=0.0, max_task_failures=99)
    play = Play("A", policy=policy)
    play.fails(TRANSIENT)
    play.fails(TRANSIENT)
    assert play.wait_s == 60.0

    play.wakes()
    play.fails(USAGE, reset=reset_in(9000.0, START))
    assert play.agent == "codex"
    play.fails(TRANSIENT)
    assert play.wait_s == 120.0
    play.wakes()
    play.fails(CRASH)
    play.wakes()
    play.fails(TRANSIENT)
    assert play.wait_s == 60.0


def test_a_rate_limit_ends_an_outage_and_all_agents_may_be_tried_anew() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), transient_retries=0, jitter=0.0))
    play.fails(TRANSIENT)
    play.fails(TRANSIENT)
    play.wakes()

    play.fails(RATE)
    play.wakes()
    play.fails(TRANSIENT)

    assert isinstance(play.loop.stage, Attempting), "the other agent is asked before it is an outage"


def test_an_outage_says_who_cannot_be_reached() -> None:
    for agents, words in (
        (("claude",), "claude cannot reach its service"),
        (("claude", "codex"), "no agent can reach its service"),
    ):
        play = Play("A", policy=LoopPolicy(agents=agents, transient_retries=0))
        for _ in agents:
            play.fails(TRANSIENT)

        assert play.ordered(Rest)[0].why == words


def test_rate_limits_may_take_just_as_long_as_they_may() -> None:
    play = Play("A", policy=LoopPolicy(max_rate_limit_wait_s=120.0))

    play.fails(RATE)
    play.wakes()
    play.fails(RATE)

    assert play.wait_s == 60.0


def test_a_usage_limit_that_is_over_by_what_it_says_is_one_without_a_reset() -> None:
    play = Play("A")

    play.fails(USAGE, reset=reset_in(1.0, START))

    assert play.wait_s == 900.0


def test_without_a_limit_a_task_may_fail_as_often_as_it_likes() -> None:
    play = Play("A", policy=LoopPolicy(max_task_failures=0, retries_before_fallback=1))

    play.fails(CRASH)

    assert play.wait_s == 2.0


@pytest.mark.parametrize(
    ("resumed", "waits"),
    [
        (resumed_at("A", 1, "claude", reason=PauseReason.OUTAGE, resume_at=START + 900.0), True),
        (resumed_at("A", 1, "claude", reason=PauseReason.ERROR, resume_at=START + 9.0), False),
        (resumed_at("A", 1, "codex", reason=PauseReason.RATE_LIMIT, resume_at=START + 9.0), False),
        (resumed_at("A", 1, "claude", reason=PauseReason.RATE_LIMIT), False),
    ],
)
def test_only_the_wait_for_a_service_or_its_limit_is_gone_on_with_and_only_by_who_waited(
    resumed: Checkpoint, waits: bool
) -> None:
    play = Play("A", begin=False, policy=LoopPolicy(max_rate_limit_wait_s=10.0))

    play.feed(Began(START, play.plan, resumed))

    assert isinstance(play.loop.stage, Resting) == waits


def test_where_all_agents_are_out_since_an_earlier_run_the_first_is_waited_for() -> None:
    play = Play("A", begin=False)
    play.loop = Loop(memory=LoopState(out=(Cooldown("claude", "limit", START + 500.0),)))

    play.feed(Began(START, play.plan))

    assert [type(order) for order in play.latest] == [SaveCheckpoint, StartIteration, Rest]
    assert play.wait_s == 500.0
    assert play.loop.ledger["A"].state is TaskState.IN_PROGRESS


def test_of_many_tasks_that_failed_without_words_the_number_is_told() -> None:
    play = Play(*"ABCDE", begin=False)
    play.loop = Loop(ledger={id_: TaskRecord(id_, "", TaskState.FAILED, 6) for id_ in "ABCDE"})

    play.feed(Began(START, play.plan))

    assert play.end.why == "5 of 5 tasks failed, all with: unknown"


def test_an_attempt_that_was_cut_off_with_its_loop_is_told_by_the_next_loop_once() -> None:
    play = Play("A")
    cut_off = Loop(play.loop.memory, play.loop.ledger)

    again = Play("A", begin=False)
    again.loop = cut_off
    again.feed(Began(START + 60.0, again.plan, resumed_at("A", 0, "claude")))

    assert again.ordered(ReportLost) == [ReportLost(InFlight(1, 1, "claude", "A", "do A", START))]
    assert again.loop.memory.in_flight == InFlight(1, 2, "claude", "A", "do A", START + 60.0)
    again.succeeds()
    assert again.loop.memory.in_flight is None


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_an_attempt_whose_end_was_told_is_not_under_way(ends: str) -> None:
    play = Play("A")
    if ends == "well":
        play.succeeds(ticks=True, judged=False)
    else:
        play.fails(CRASH)
    assert play.loop.memory.in_flight is None


def test_r9_a_revert_is_told_in_the_next_rotation_too() -> None:
    policy = LoopPolicy(agents=("a", "b"), rotates=True, retries_before_fallback=0, max_task_failures=9)
    play = Play("A", policy=policy)
    play.succeeds(judged=False)
    play.judged(reopened=("A",))
    note = play.attempt.iteration.reverted

    play.fails(CRASH)
    play.judged()
    while isinstance(play.loop.stage, Resting):
        play.wakes()

    assert note is not None and play.attempt.iteration.number == 3
    assert play.attempt.iteration.reverted == note
