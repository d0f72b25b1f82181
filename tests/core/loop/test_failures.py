"""What follows a failed attempt, order by order: what is saved and told, and who goes on (L2, L3, L8)."""

from dataclasses import replace

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    AwaitingVerdict,
    Began,
    Cooldown,
    FinishIteration,
    Handoff,
    InFlight,
    Loop,
    LoopPolicy,
    LoopState,
    PauseReason,
    Previous,
    ReportAgentBack,
    ReportAgentOut,
    ReportAttempt,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    TaskState,
)
from ralphd.core.plan import parse
from tests.core.loop.scenes import START, TWO, Play, reset_in

CRASH, TRANSIENT = FailureKind.AGENT_CRASH, FailureKind.TRANSIENT
INCOMPLETE = FailureKind.AGENT_INCOMPLETE
RATE, USAGE, FATAL = FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT, FailureKind.FATAL
FAR = 1e6


def fallback(*agents: str, **rules: object) -> Play:
    """A loop at tasks A and B whose agents stand in for each other."""
    return Play("A", "B", policy=LoopPolicy(agents=agents, jitter=0.0, **rules))  # type: ignore[arg-type]


def rotation(*agents: str, out: tuple[Cooldown, ...] = (), **rules: object) -> Play:
    """A loop at tasks A and B whose agents take turns."""
    policy = LoopPolicy(agents=agents, rotates=True, jitter=0.0, **rules)  # type: ignore[arg-type]
    play = Play("A", "B", policy=policy, begin=False)
    play.loop = Loop(LoopState(out=out))
    play.feed(Began(play.now, play.plan))
    return play


def goes_through(play: Play, kind: FailureKind, times: int) -> None:
    """So many failures of a kind, one after the other, and each wait in between."""
    for _ in range(times):
        play.fails(kind)
        if isinstance(play.loop.stage, Resting):
            play.wakes()


# The same agent again


def test_l2_a_crash_is_saved_told_and_noted_before_the_same_agent_rests_and_tries_again() -> None:
    play = fallback("claude")
    tried = play.attempt.iteration

    play.fails(CRASH, lines=("boom",))

    assert isinstance(play.loop.stage, Resting)
    after = play.loop.stage.iteration
    assert (after.tries, after.previous) == (
        1,
        Previous(1, "claude", CRASH, "a agent_crash failure", ("boom",)),
    )
    why = "retry 1 of 2: claude failed (agent crash)"
    (told,) = play.ordered(ReportAttempt)
    assert (told.iteration.number, told.iteration.attempt) == (tried.number, tried.attempt)
    assert play.latest == (
        SaveCheckpoint(PauseReason.ERROR, after, play.now + 2.0, why),
        ReportAttempt(told.iteration, CRASH, "rule", "a agent_crash failure", "claude again in 2 s"),
        Handoff("Previous rotation crashed: a agent_crash failure"),
        Rest(play.now + 2.0, PauseReason.ERROR, why),
    )


def test_t7_an_agent_that_left_its_task_open_goes_on_in_the_same_instant() -> None:
    play = fallback("claude")

    play.fails(FailureKind.AGENT_INCOMPLETE)

    saved, told, start = play.latest
    assert isinstance(saved, SaveCheckpoint)
    assert (saved.reason, saved.why) == (PauseReason.ERROR, "a agent_incomplete failure")
    assert isinstance(told, ReportAttempt)
    assert told.next == "claude again now"
    assert isinstance(start, StartAttempt)
    assert play.loop.memory.in_flight == InFlight(1, 2, "claude", "A", "do A", play.now)


def test_a_rate_limit_says_whose_it_is_and_how_its_end_is_known() -> None:
    play = fallback("claude")

    play.fails(RATE, reset=reset_in(30.0, play.now + 1.0))

    assert play.ordered(Rest) == [
        Rest(play.now + 30.0, PauseReason.RATE_LIMIT, "rate limit of claude (test)")
    ]
    play.wakes()
    play.fails(RATE)
    assert play.ordered(Rest)[0].why == "rate limit of claude"


def test_us006_a_transient_failure_says_which_retry_follows() -> None:
    play = fallback("claude")

    play.fails(TRANSIENT)

    why = "retry 1 of 3: a transient failure"
    assert play.ordered(Rest) == [Rest(play.now + 1.0, PauseReason.ERROR, why)]
    assert isinstance(play.loop.stage, Resting)
    assert play.loop.stage.since == play.now


def test_us006_a_failure_of_another_kind_begins_the_retries_anew() -> None:
    play = fallback("claude")
    goes_through(play, TRANSIENT, 2)
    goes_through(play, CRASH, 1)

    play.fails(TRANSIENT)

    assert play.ordered(Rest)[0].why.startswith("retry 1 of 3")


# A limit that is over


def test_t5_an_agent_that_comes_back_from_its_rate_limits_may_be_waited_for_as_long_again() -> None:
    play = fallback("claude", max_rate_limit_wait_s=100.0)
    play.fails(RATE, reset=reset_in(100.0, play.now + 1.0))
    play.wakes()
    play.fails(RATE, reset=reset_in(100.0, play.now + 1.0))
    assert play.ordered(Rest)[0].reason is PauseReason.USAGE_LIMIT
    play.wakes()

    play.fails(RATE, reset=reset_in(100.0, play.now + 1.0))

    assert play.ordered(Rest)[0].reason is PauseReason.RATE_LIMIT


def test_an_outage_can_follow_a_rate_limit() -> None:
    play = fallback("claude")
    goes_through(play, RATE, 1)
    goes_through(play, TRANSIENT, 3)

    play.fails(TRANSIENT)

    assert (play.ordered(Rest)[0].reason, play.wait_s) == (PauseReason.OUTAGE, 60.0)


# The next agent


@pytest.mark.parametrize(
    ("kind", "resets_s", "until_s", "why"),
    [
        (USAGE, 600.0, 660.0, "a usage_limit failure"),
        (USAGE, None, 900.0, "a usage_limit failure, reset not known"),
        (FATAL, None, None, "a fatal failure"),
    ],
)
def test_who_is_out_is_told_with_the_reason_and_the_next_one_begins_in_the_same_instant(
    kind: FailureKind, resets_s: float | None, until_s: float | None, why: str
) -> None:
    play = fallback("claude", "codex")

    play.fails(kind, reset=None if resets_s is None else reset_in(resets_s, play.now + 1.0))

    until = None if until_s is None else play.now + until_s
    assert play.ordered(ReportAgentOut) == [ReportAgentOut("claude", why, until)]
    assert play.loop.memory.out == (Cooldown("claude", why, until, guessed=until_s == 900.0),)
    assert play.loop.memory.in_flight == InFlight(1, 2, "codex", "A", "do A", play.now)


def test_the_sentence_of_a_limit_whose_reset_is_unknown_goes_on_where_its_full_stop_was() -> None:
    play = fallback("claude", "codex")

    play.fails(USAGE, finding=Classification(USAGE, "rule", "You are out of MAX."))

    assert play.ordered(ReportAgentOut)[0].reason == "You are out of MAX, reset not known"


def test_l2_a_fallback_takes_over_in_the_same_instant_after_the_last_retry() -> None:
    play = fallback("claude", "codex", transient_retries=0, retries_before_fallback=0)

    play.fails(TRANSIENT)
    assert play.loop.memory.in_flight == InFlight(1, 2, "codex", "A", "do A", play.now)
    play.fails(CRASH)
    assert play.loop.memory.in_flight == InFlight(1, 3, "claude", "A", "do A", play.now)


def test_an_agent_that_reached_its_service_in_between_makes_it_no_outage() -> None:
    play = fallback("claude", "codex", transient_retries=0)
    goes_through(play, TRANSIENT, 1)
    goes_through(play, CRASH, 1)

    play.fails(TRANSIENT)

    assert play.agent == "claude"


# An outage


def test_an_outage_asks_the_agents_in_their_order_from_the_first_on() -> None:
    play = fallback("claude", "codex", "gemini", transient_retries=0)
    goes_through(play, TRANSIENT, 2)

    asked = []
    for _ in range(4):
        play.fails(TRANSIENT)
        assert isinstance(play.loop.stage, Resting)
        assert play.loop.stage.since == play.now
        play.wakes()
        asked.append(play.agent)

    assert asked == ["claude", "codex", "gemini", "claude"]


def test_a_clock_that_is_set_back_leaves_an_outage_with_the_agent_it_has() -> None:
    play = Play("A", policy=LoopPolicy(transient_retries=0), begin=False)
    play.loop = Loop(LoopState(out=(Cooldown("claude", "limit", START),)), failing=2)
    play.feed(Began(START, play.plan))
    play.feed(Skipped(START - 500.0))
    play.now = START - 500.0

    play.fails(TRANSIENT)

    assert play.ordered(Rest)[0].why == "claude cannot reach its service"


# Turns


def test_l3_whoever_comes_after_the_one_that_is_out_goes_on() -> None:
    play = rotation("a", "b", "c")
    play.succeeds()
    assert play.agent == "b"

    play.fails(USAGE, reset=reset_in(FAR, play.now))

    assert play.agent == "c"


@pytest.mark.parametrize("kind", [CRASH, TRANSIENT])
def test_l3_a_turn_is_over_for_the_one_after_it_that_is_not_out(kind: FailureKind) -> None:
    play = rotation("a", "b", "c", out=(Cooldown("b", "limit", START + FAR),))

    play.fails(kind)

    assert play.ordered(ReportAttempt)[0].next == "rotation: c continues"
    assert play.loop.ledger["A"].state is TaskState.PENDING


def test_l3_those_who_are_out_do_not_keep_an_outage_from_being_one() -> None:
    play = rotation("a", "b", "c", out=(Cooldown("c", "limit", START + FAR),))
    play.fails(TRANSIENT)
    play.judged()

    play.fails(TRANSIENT)

    assert play.ordered(Rest)[0].why == "no agent can reach its service"


def test_l3_transient_failures_with_another_one_in_between_are_no_outage() -> None:
    play = rotation("a", "b", max_task_failures=0)
    for kind in (TRANSIENT, CRASH, CRASH):
        play.fails(kind)
        play.judged()
        if isinstance(play.loop.stage, Resting):
            play.wakes()
    assert play.agent == "b"

    play.fails(TRANSIENT)

    assert play.ordered(FinishIteration), "the turn is over, and a continues"


def test_l3_when_all_had_the_task_in_hand_it_is_told_that_it_is_put_back() -> None:
    play = rotation("a", "b", retries_before_fallback=0)
    told = []
    for _ in range(2):
        play.fails(CRASH)
        told.append(play.ordered(ReportAttempt)[0].next)
        play.judged()

    assert told == ["rotation: b continues", "the task is put back; rotation: a continues"]


# The task is put back


def test_an_iteration_that_failed_is_finished_as_failed_with_what_went_wrong_last() -> None:
    play = fallback("claude", retries_before_fallback=0)

    play.fails(CRASH)

    (told,) = play.ordered(ReportAttempt)
    assert play.loop.stage == AwaitingVerdict(play.ordered(FinishIteration)[0].iteration, promised=False)
    (finish,) = play.ordered(FinishIteration)
    assert finish.iteration.number == told.iteration.number == 1
    assert finish == FinishIteration(
        finish.iteration, failed=True, complete=False, summary="failed: a agent_crash failure"
    )


# From the failure to the next try


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

    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE
    assert (play.agent, play.attempt.iteration.attempt) == ("claude", 2)
    assert "the task is not checked off in prd.json" in play.ordered(ReportAttempt)[0].why


def test_l10_a_false_promise_is_an_unfinished_task() -> None:
    play = Play("A", "B")

    play.succeeds(ticks=False, promised=True)

    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE
    assert "declared that all is done while 2 tasks are open" in play.ordered(ReportAttempt)[0].why


def test_an_agent_that_did_another_task_than_its_own_has_failed_nothing() -> None:
    play = Play("A", "B")

    play.done.add("B")
    play.succeeds(ticks=False)

    assert play.task == "A"
    assert play.failures("A") == 0
    assert play.loop.memory.iteration == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("link it / write pages (1 of 5)", "link it / write pages (2 of 5)"),  # the other has progress
        ("link it / link it", "link it, begun / link it"),  # the first of two with one title
    ],
)
def test_a_task_with_a_changed_title_is_not_done(before: str, after: str) -> None:
    was, now = (
        parse("TASKS.md", "".join(f"- [ ] {title}\n" for title in titles.split(" / ")))
        for titles in (before, after)
    )
    play = Play(begin=False)
    play.feed(Began(play.now, was))

    play.succeeds(ticks=False, plan=now)

    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE


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
    assert play.ordered(ReportAgentOut)[0].agent == "claude"


def test_a_usage_limit_saves_the_checkpoint_first_and_hands_the_task_to_the_next_agent() -> None:
    play = Play("A", "B", policy=TWO)

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(3600.0, START + 1))

    assert isinstance(play.latest[0], SaveCheckpoint)
    assert play.ordered(ReportAgentOut)[0].until == START + 1 + 3600.0 + 60.0
    assert (play.agent, play.task, play.failures("A")) == ("codex", "A", 0)
    play.succeeds()
    assert play.agent == "codex"  # the primary is still out


def test_an_agent_comes_back_by_itself_when_its_limit_has_reset() -> None:
    play = Play("A", "B", policy=TWO)
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(20.0, START + 1))
    play.now += 100.0

    play.succeeds()

    assert play.ordered(ReportAgentBack)[0].agent == "claude"
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

    until = START + 1001.0 + LoopPolicy().reset_margin_s
    assert (play.end.code, play.end.reason, play.end.resume_at) == (75, "usage_limit", until)
    assert play.ordered(SaveCheckpoint)[0].resume_at == until


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

    assert play.ordered(ReportAgentOut)[0].until is None
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


def test_a_fatal_failure_of_a_resumed_session_is_tried_again_in_a_new_one() -> None:
    play = Play("A")
    play.fails(TRANSIENT, session="s1", worked=True)
    play.wakes()

    play.fails(FATAL)

    assert (play.agent, play.attempt.iteration.session) == ("claude", None)
    assert play.ordered(ReportAttempt)[0].next == "claude again now, in a new session"
    assert (play.ordered(ReportAgentOut), play.failures("A")) == ([], 0)
    play.fails(FATAL)
    assert play.end.reason == "no_agent"


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


def test_l8_a_transient_failure_is_told_with_its_wait_and_its_count() -> None:
    play = Play("A", policy=LoopPolicy(agents=("claude",), jitter=0.0, transient_retries=3))

    play.fails(FailureKind.TRANSIENT)

    assert play.ordered(ReportAttempt)[0].next == f"claude again in {play.wait_s:.1f} s (retry 1 of 3)"


def test_the_line_of_a_failure_says_until_when_it_waits_and_the_wait_is_not_told_again() -> None:
    play = fallback("claude")
    play.fails(CRASH)
    [report], [wait] = play.ordered(ReportAttempt), play.ordered(Rest)
    assert (report.until, wait.until, wait.logged) == (START + 3.0, START + 3.0, True)

    play = fallback("claude", pause_when_exhausted=True)
    play.fails(USAGE, reset=reset_in(5000.0, START))
    [report] = play.ordered(ReportAttempt)
    assert report.until == START + 5060.0
    assert report.next == "no other agent is available; pausing"
    assert play.end.logged is True


def test_without_an_agent_the_line_says_whether_the_loop_waits_or_ends() -> None:
    play = fallback("claude")
    play.fails(USAGE, reset=reset_in(5000.0, START))
    assert play.ordered(ReportAttempt)[0].next == "no other agent is available; waiting"

    play = fallback("claude")
    play.fails(FATAL)
    words = "no other agent is available; the loop ends; claude is not used until you act"
    assert play.ordered(ReportAttempt)[0].next == words
    assert play.end.logged is False, "that it ended is told"


@pytest.mark.parametrize("kind", [USAGE, RATE, FATAL, TRANSIENT, CRASH, FailureKind.TIMEOUT])
def test_a_task_that_was_committed_before_the_failure_is_done(kind: FailureKind) -> None:
    play = fallback("claude", "codex")
    play.done.add("A")

    play.fails(kind, commits=1)

    assert play.ordered(ReportAttempt)[0].next == "its task is done"
    [finish] = play.ordered(FinishIteration)
    assert (finish.failed, finish.complete, finish.summary) == (False, True, "done")
    assert (finish.iteration.task.id, finish.iteration.agent) == ("A", "claude")
    play.judged()
    assert play.task == "B"


@pytest.mark.parametrize(("kind", "until_s"), [(USAGE, 5060.0), (FATAL, None)])
def test_an_agent_that_is_out_after_it_was_done_is_not_asked_for_the_next_task(
    kind: FailureKind, until_s: float | None
) -> None:
    play = fallback("claude", "codex")
    play.done.add("A")
    play.loop = replace(play.loop, failing=2)

    play.fails(kind, commits=1, reset=reset_in(5000.0, play.now + 1.0))

    (out,) = play.ordered(ReportAgentOut)
    assert (out.agent, out.until) == ("claude", until_s and play.now + until_s)
    assert (play.ordered(ReportAttempt)[0].until, play.loop.failing) == (out.until, 0)
    play.judged()
    assert (play.task, play.agent) == ("B", "codex")


def test_no_limit_is_waited_for_if_nothing_is_left_to_do() -> None:
    play = fallback("claude")
    play.done |= {"A", "B"}
    play.fails(USAGE, commits=1, reset=reset_in(5000.0, play.now))
    play.judged()
    assert (play.end.code, play.end.reason) == (0, "complete")


def test_a_task_that_a_failed_attempt_ticked_without_a_commit_is_tried_again() -> None:
    play = fallback("claude")
    play.done.add("A")
    play.fails(CRASH)
    play.wakes()
    assert play.task == "A"


def test_a_task_that_is_removed_while_its_attempt_fails_is_not_tried_again() -> None:
    play = fallback("claude")
    play.ids = ("B",)
    play.fails(CRASH, commits=1)
    play.wakes()
    play.judged()
    assert play.task == "B"


def test_a_revert_of_a_task_that_was_done_before_a_failure_counts_once() -> None:
    play = fallback("claude", "codex")
    play.done.add("A")
    play.fails(USAGE, commits=1)
    play.done.clear()
    play.judged(reopened=("A",))
    assert (play.task, play.failures("A")) == ("A", 1)


def test_a_task_that_is_done_or_removed_in_a_wait_has_no_further_attempt() -> None:
    for ids, done in ((("A", "B"), {"A"}), (("B",), set())):
        play = fallback("claude")
        play.fails(USAGE, reset=reset_in(5000.0, play.now))
        play.ids, play.done = ids, done
        play.loop = replace(play.loop, plan=play.plan)

        play.wakes()

        (finish,) = play.ordered(FinishIteration)
        assert (finish.failed, finish.complete, finish.iteration.task.id) == (False, "A" in ids, "A")
        assert finish.summary == ("done" if "A" in ids else "its task is not in the list any more")
        play.judged()
        assert play.task == "B"
