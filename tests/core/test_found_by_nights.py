"""What simulated nights have found (tests/sim), each as the example that it was."""

from dataclasses import replace

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.range import GateState, news_for
from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.gate.verdict_views import GateNews
from ralphd.core.loop import tasks
from ralphd.core.loop.model import (
    Began,
    Cooldown,
    InFlight,
    Loop,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseReason,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    TaskRecord,
    TaskState,
)
from ralphd.core.loop.step import IDLE_SUCCESSES
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    HistoryRewritten,
    RestartRequested,
    StopRequested,
)
from ralphd.core.supervision.model import ControlSignal, Escalate, PassOn, ReportedTask, RunReports, Stopping
from ralphd.core.supervision.step import step
from tests.core.loop.scenes import START, Play, reset_in, resumed_at
from tests.core.supervision.scenes import NOW, POLICY, RUN, RUNNING, orders, ralph, told

BUILT_IN = RunReports(hello=True, signals=True, beats=True, iterates=True)


@pytest.mark.parametrize("asks", [StopRequested(NOW), RestartRequested(NOW), DaemonStopping(NOW)])
def test_night_1657_a_stop_at_the_boundary_is_not_sent_twice_though_the_daemon_is_restarted(
    asks: Event,
) -> None:
    """The built-in loop ends its agent at once when it is asked to stop a second time."""
    now = told(ralph(RUNNING, said=BUILT_IN), [asks]).supervision

    adopted = step(now, DaemonStarted(NOW + 5, RUN), POLICY)

    assert isinstance(adopted.supervision.state, Stopping)
    assert orders(adopted) == (PassOn(RUN, ControlSignal.PAUSE),)


def test_night_2614_a_wait_is_as_long_as_it_was_when_the_clock_is_set_back() -> None:
    """A retry after 2 s came an hour and 2 s later."""
    play = Play("A")
    play.fails(FailureKind.AGENT_CRASH)
    assert play.wait_s == 2.0
    play.now -= 3600.0

    play.feed(LoopWoke(play.now))

    assert play.wait_s == 2.0
    assert [type(order) for order in play.latest] == [SaveCheckpoint, Rest]
    assert play.ordered(Rest)[0].reason is PauseReason.ERROR
    assert play.ordered(Rest)[0].why.startswith("retry 1 of 2: claude failed (agent crash)")
    play.wakes()
    assert play.now == START + 1.0 - 3600.0 + 2.0


def test_an_agent_that_is_back_at_a_moment_is_waited_for_until_then_by_any_clock() -> None:
    play = Play("A")
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, START))
    assert isinstance(play.loop.stage, Resting)
    until = play.loop.stage.until
    play.now -= 3600.0

    play.feed(LoopWoke(play.now))

    assert isinstance(play.loop.stage, Resting)
    assert (play.loop.stage.until, play.loop.stage.since) == (until, play.now)
    before = play.loop
    play.feed(LoopWoke(play.now + 30.0))
    assert play.loop == before


def test_a_wait_that_a_clock_has_made_short_by_less_than_a_second_goes_on_as_it_was() -> None:
    play = Play("A", policy=LoopPolicy(jitter=0.0))
    play.fails(FailureKind.AGENT_CRASH)
    before = play.loop

    play.feed(LoopWoke(play.now - 0.9))

    assert play.loop == before
    play.feed(Skipped(play.now))
    assert play.attempt.iteration.attempt == 2


@pytest.mark.parametrize("found", [None, Plan("prd.json"), Plan("prd.json", fault="it is no JSON")])
def test_night_12537_a_list_that_was_emptied_before_the_loop_was_killed_counts_as_it_was(
    found: Plan | None,
) -> None:
    """The next loop took it for no list, and was done though tasks were open."""
    play = Play("A", "B")
    play.succeeds()
    again = Play("A", "B", begin=False)
    again.loop = Loop(play.loop.memory, play.loop.ledger)

    again.feed(Began(play.now, found))

    assert again.task == "B"
    assert tasks.open_tasks(again.loop.plan, again.loop.ledger) == (Task("B", "do B", TaskStatus.PENDING),)


def test_a_list_that_a_person_emptied_before_a_start_is_empty() -> None:
    play = Play("A", "B")
    again = Play(begin=False)
    again.loop = Loop(LoopState(), play.loop.ledger)

    again.feed(Began(play.now, None))

    assert again.task == "prompt"


@pytest.mark.parametrize(
    ("at", "wait_s"), [(START + 10.0, 50.0), (START, 60.0), (START - 3000.0, 60.0), (START + 60.0, 0.0)]
)
def test_night_59169_a_wait_of_an_old_checkpoint_is_worth_its_length_when_the_clock_is_set_back(
    at: float, wait_s: float
) -> None:
    """A rate limit of a minute, long over, was waited for again for 51."""
    play = Play("A", begin=False)
    waited = resumed_at(
        "A", 1, "claude", reason=PauseReason.RATE_LIMIT, resume_at=START + 60.0, saved_at=START
    )

    play.feed(Began(at, play.plan, waited))

    assert (play.ordered(Rest)[0].until - at if wait_s else len(play.ordered(Rest))) == wait_s


def guessed_out(until: float) -> LoopState:
    """Claude's service named no reset, so it is left alone until then."""
    return LoopState(out=(Cooldown("claude", "limit", until, guessed=True),))


@pytest.mark.parametrize(("at", "agent"), [(START + 100.0, "claude"), (START + 900.0, "codex")])
def test_night_4890_a_guessed_limit_is_asked_before_its_time_only_by_a_person(at: float, agent: str) -> None:
    """The Regent resumed when the first agent was due, and the other one was asked in its cooldown."""
    policy = LoopPolicy(agents=("codex", "claude"), pause_when_exhausted=True)
    waited = resumed_at("A", 1, "claude", reason=PauseReason.USAGE_LIMIT, resume_at=START + 900.0)
    play = Play("A", policy=policy, begin=False)
    play.loop = Loop(guessed_out(START + 1800.0))

    play.feed(Began(at, play.plan, waited))

    assert play.agent == agent


def test_night_20485_a_restart_after_a_kill_asks_nobody_before_its_time() -> None:
    policy = LoopPolicy(agents=("claude", "codex"), pause_when_exhausted=True)
    handed_over = resumed_at("A", 2, "codex", reason=PauseReason.USAGE_LIMIT, resume_at=START + 900.0)
    play = Play("A", policy=policy, begin=False)
    killed = InFlight(1, 2, "codex", "A", "do A", START)
    play.loop = Loop(replace(guessed_out(START + 900.0), in_flight=killed))

    play.feed(Began(START + 30.0, play.plan, handed_over))

    assert play.agent == "codex"
    assert [(each.agent, each.until) for each in play.loop.memory.out] == [("claude", START + 900.0)]


def test_night_37848_a_loss_is_alerted_once_while_a_stop_waits_for_the_run() -> None:
    lost = [HistoryRewritten(NOW, RUN, each, "main", ("abc1234",), why="gone") for each in ("b1", "b2")]
    stopping = told(ralph(RUNNING, said=BUILT_IN), [StopRequested(NOW)]).supervision

    first = step(stopping, lost[0], POLICY)
    second = step(first.supervision, lost[1], POLICY)

    assert [isinstance(each, Escalate) for each in first.actions].count(True) == 1
    assert not any(isinstance(each, Escalate) for each in second.actions)
    assert isinstance(second.supervision.state, Stopping)


def test_night_377_a_revert_that_a_person_undid_is_no_failure_of_its_task() -> None:
    """The loop gave the task up for a revert that was undone, although the commit was back."""
    policy = LoopPolicy(agents=("claude",), max_task_failures=1)
    play = Play("A", policy=policy)
    for _ in range(2):
        play.succeeds(judged=False)
        play.judged(reopened=("A",))
    assert (play.end.code, play.end.reason) == (1, "tasks_failed")
    note = play.loop.ledger["A"].reverted
    assert note is not None

    play.loop = Loop(play.loop.memory, play.loop.ledger)
    play.feed(Began(play.now, play.plan, gate=GateNews(undone=(note.boundary,))))

    assert play.task == "A"
    assert (play.failures("A"), play.attempt.iteration.previous) == (0, None)


def test_night_25816_commits_that_no_verdict_will_cover_are_not_reopened_by_the_next_one() -> None:
    """The loop was killed before the boundary, somebody committed, and the range began after both."""
    play = Play("A", "B")
    play.succeeds(judged=False)
    assert play.loop.ledger["A"].unjudged

    play.loop = Loop(play.loop.memory, play.loop.ledger)
    play.feed(Began(play.now, play.plan, gate=GateNews(settled=True)))
    play.succeeds(judged=False)
    play.judged(reopened=("B",))

    assert play.task == "B"
    assert play.loop.ledger["A"].state is TaskState.COMPLETE


def test_night_25816_commits_of_a_killed_loop_whose_range_is_open_wait_for_the_next_verdict() -> None:
    play = Play("A", "B")
    play.succeeds(judged=False)

    play.loop = Loop(play.loop.memory, play.loop.ledger)
    play.feed(Began(play.now, play.plan))
    play.succeeds(judged=False)
    play.judged(reopened=("B",))

    assert play.task == "A"


def test_night_54991_a_verdict_heard_late_is_as_final_as_it_was() -> None:
    """Somebody had committed since, which opens the range that comes after it."""
    kept = Verdict(VerdictKind.KEPT, "green", boundary_id="r1/7", task=ReportedTask("A"))
    state = GateState(last=kept, is_open=True)

    assert news_for(state, None, {"A"}).verdict == kept
    still_open = replace(kept, is_open=True)
    assert news_for(replace(state, last=still_open), None, {"A"}).verdict == still_open
    dropped = replace(state, last=still_open, is_open=False)
    assert news_for(dropped, None, {"A"}) == GateNews(kept, settled=True)


class WithoutList(Play):
    """The prompt, and a task that somebody added."""

    plan = Plan("", added=(Task("+1", "more", TaskStatus.PENDING, added=True),))


@pytest.mark.parametrize("promises", [True, False])
def test_night_86341_a_task_that_was_given_up_does_not_keep_a_loop_without_a_list_from_its_end(
    promises: bool,
) -> None:
    """The agent was asked again all night, although it had declared that all is done."""
    policy = LoopPolicy(agents=("claude",), retries_before_fallback=0, max_task_failures=1)
    play = WithoutList(policy=policy, begin=False)
    given_up = TaskRecord("+1", state=TaskState.FAILED, failure_count=2)
    play.loop = Loop(LoopState(began_at=play.now), {"+1": given_up})
    play.feed(Began(play.now, play.plan))

    for _ in range(1 if promises else IDLE_SUCCESSES):
        assert play.task == "prompt"
        play.succeeds(promised=promises, commits=0)

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")


def test_night_113467_a_restart_after_an_agent_took_over_asks_nobody_before_its_time() -> None:
    """The loop was killed after the attempt had ended, and before the checkpoint was cleared."""
    policy = LoopPolicy(agents=("claude", "codex"), pause_when_exhausted=True)
    handed_over = resumed_at("A", 2, "codex", reason=PauseReason.USAGE_LIMIT)
    play = Play("A", policy=policy, begin=False)
    play.loop = Loop(guessed_out(START + 900.0))

    play.feed(Began(START + 30.0, play.plan, handed_over))

    assert play.agent == "codex"
    assert not handed_over.waits_for_limit


def test_night_199254_a_slot_that_was_missing_before_an_attempt_is_asked_for_again_after_it() -> None:
    """The clock was set back in the attempt, so the look for a slot of the other agent was an hour away."""
    play = Play("A", policy=LoopPolicy(agents=("claude", "codex"), retries_before_fallback=0))
    no_slot = Cooldown("codex", "1 of 1 slots are in use", START + 600.0, for_slot=True)
    play.loop = replace(play.loop, memory=replace(play.loop.memory, out=(no_slot,)))
    play.now -= 3600.0

    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, play.now))

    assert play.agent == "codex"


def test_a_verdict_that_names_no_commit_takes_no_other_news_of_the_gate_away() -> None:
    broken = Verdict(
        VerdictKind.KEPT, "green", boundary_id="r1/8", task=ReportedTask("A"), commits=("not a commit",)
    )

    assert news_for(GateState(last=broken, undone=("r1/7",)), None, {"A"}) == GateNews(
        None, ("r1/7",), settled=True
    )
