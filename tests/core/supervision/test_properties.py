"""What holds of every answer, whatever the state, the event and the policy."""

from dataclasses import replace
from typing import get_args

from hypothesis import example, given
from hypothesis import strategies as st

from ralphd.core.supervision.backoff import HOUR_S
from ralphd.core.supervision.events import (
    DaemonStarted,
    Event,
    Overran,
    PauseRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Announce,
    ControlSignal,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    KillAfter,
    KillTree,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    RunId,
    Running,
    RunReports,
    Spawn,
    Starting,
    State,
    Step,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import ANSWERS_KEPT, Heartbeat, IterationFinished, Reported, answer
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import has_boundaries
from ralphd.core.time import Moment
from tests.core.supervision import strategies as some
from tests.core.supervision.scenes import EXIT_1, NOW, RUN, RUNNING, orders, ralph, types

EVENT_TYPES = {
    "ralph.started", "ralph.adopted", "ralph.exited", "ralph.retrying", "ralph.pausing", "ralph.paused",
    "ralph.resumed",
    "ralph.stopped", "ralph.done", "ralph.failed", "wait.started", "wait.ended", "ralph.stall_warning",
    "ralph.stalled", "attempt.finished", "iteration.started", "iteration.finished", "agent.exhausted",
    "agent.returned",
}  # fmt: skip


def waits_until(state: State) -> Moment | None:
    """The moment at which a state ends by itself."""
    match state:
        case Waiting(until=until):
            return until
        case Paused(resume_at=resume_at):
            return resume_at
        case _:
            return None


def waited_for(now: Supervision) -> Moment | None:
    """The moment at which a state ends by itself, or a wait that a run told us of."""
    if isinstance(now.state, HAS_A_RUN):
        return None if now.said.wait is None else now.said.wait.until
    return waits_until(now.state)


def is_overdue(state: State) -> bool:
    return isinstance(state, Running) and state.overdue is not None


def is_to_end(state: State) -> bool:
    """Whether a run lives that will be ended, by a signal or at its boundary."""
    return isinstance(state, Pausing | Stopping) or is_overdue(state)


def has_run(state: State) -> RunId | None:
    return state.run_id if isinstance(state, HAS_A_RUN) else None


@given(some.supervisions, some.events, some.policies)
def test_every_event_has_an_answer_in_every_state(now: Supervision, event: Event, policy: Policy) -> None:
    answer = step(now, event, policy)

    assert isinstance(answer.supervision.state, get_args(State))
    assert answer == step(now, event, policy)


@given(
    some.settled_states, st.sampled_from(Goal), some.tallies, some.passing_time | some.watched, some.policies
)
def test_what_is_settled_stays_settled_until_someone_asks(
    state: State, goal: Goal, tally: Tally, event: Event, policy: Policy
) -> None:
    now = ralph(state, goal, tally)

    assert step(now, event, policy) == Step(now)


@given(some.supervisions, some.requests, some.policies)
def test_a_request_that_does_not_fit_changes_nothing(now: Supervision, event: Event, policy: Policy) -> None:
    if why_not(now, event) is not None:
        assert step(now, event, policy) == Step(now)


@given(some.supervisions, some.news, some.policies)
def test_only_requests_change_the_goal_and_a_start_that_fails_may_take_its_own_back(
    now: Supervision, event: Event, policy: Policy
) -> None:
    if not isinstance(event, SpawnFailed):
        assert step(now, event, policy).supervision.goal is now.goal


@given(st.sampled_from(Goal), some.births, some.policies)
def test_e5_a_start_that_fails_takes_back_no_stop_and_lets_nothing_run_that_was_paused(
    goal: Goal, state: State, policy: Policy
) -> None:
    after = step(ralph(state, goal), SpawnFailed(NOW, "gone"), policy).supervision

    assert not isinstance(after.state, Starting)
    if goal is Goal.STOPPED:
        assert after.goal is Goal.STOPPED
    if goal is not Goal.RUNNING:
        assert after.goal is not Goal.RUNNING
        assert waits_until(after.state) is None


@given(some.supervisions, some.events, some.policies)
def test_a_start_is_ordered_once_and_only_into_starting(
    now: Supervision, event: Event, policy: Policy
) -> None:
    answer = step(now, event, policy)
    spawns = answer.actions.count(Spawn())

    assert spawns <= 1
    if spawns:
        assert isinstance(answer.supervision.state, Starting)
        assert answer.supervision.goal is not Goal.STOPPED or now.goal is Goal.STOPPED
    elif isinstance(answer.supervision.state, Starting):
        assert isinstance(now.state, Starting)


@given(some.supervisions, some.events, some.policies)
def test_p1_nothing_is_started_while_a_run_lives_or_is_being_born(
    now: Supervision, event: Event, policy: Policy
) -> None:
    if Spawn() not in step(now, event, policy).actions:
        return
    if isinstance(now.state, HAS_A_RUN):
        assert isinstance(event, RunEnded)
        assert event.ending.run_id == now.state.run_id
    if isinstance(now.state, Starting):
        assert isinstance(event, DaemonStarted)
    if isinstance(event, DaemonStarted):
        assert event.living is None


@given(some.supervisions, some.events, some.policies)
def test_p1_a_run_is_watched_until_its_end_is_known(now: Supervision, event: Event, policy: Policy) -> None:
    state = step(now, event, policy).supervision.state

    match event:
        case RunEnded(ending) if ending.run_id == has_run(now.state):
            assert has_run(state) is None
        case Spawned(run_id=run_id) | DaemonStarted(living=str() as run_id):
            assert has_run(state) == run_id
        case _:
            assert has_run(state) == has_run(now.state)


@given(some.supervisions, some.events, some.policies)
def test_every_order_to_end_a_run_names_the_run_that_is_there(
    now: Supervision, event: Event, policy: Policy
) -> None:
    answer = step(now, event, policy)
    for order in orders(answer):
        if isinstance(order, Terminate | KillTree | KillAfter | PassOn):
            assert order.run_id == has_run(answer.supervision.state)
        if isinstance(order, Terminate | KillTree | KillAfter):
            assert is_to_end(answer.supervision.state)


@given(some.supervisions, some.events, some.policies)
def test_s5_only_who_said_so_is_asked_by_our_signals(now: Supervision, event: Event, policy: Policy) -> None:
    for order in orders(step(now, event, policy)):
        if isinstance(order, PassOn):
            assert now.said.signals
            assert (order.wish is ControlSignal.SKIP_WAIT) is isinstance(event, SkipWaitRequested)


@given(some.supervisions, some.events, some.policies)
def test_g1_a_run_is_never_asked_to_end_without_a_moment_at_which_it_is_killed(
    now: Supervision, event: Event, policy: Policy
) -> None:
    """But for one that ends at its boundary, and is told so there."""
    answer = step(now, event, policy)
    kinds = [type(order) for order in orders(answer)]
    state = answer.supervision.state

    assert kinds.count(Terminate) <= 1
    assert kinds.count(KillAfter) <= 1
    if isinstance(state, Pausing | Stopping) and state.kill_at is None:
        assert KillAfter not in kinds
        assert Terminate not in kinds or now.said.signals
    elif Terminate in kinds:
        assert KillAfter in kinds
    if not is_to_end(now.state) and is_to_end(state):
        assert KillAfter in kinds or KillTree in kinds or has_boundaries(now)
    for order in orders(answer):
        if isinstance(order, KillAfter):
            assert 0 <= order.delay_s <= policy.stop_timeout_s


@given(some.supervisions, some.events, some.policies)
def test_g1_a_run_that_has_no_boundary_is_never_left_without_a_deadline(
    now: Supervision, event: Event, policy: Policy
) -> None:
    state = step(now, event, policy).supervision.state
    if isinstance(now.state, Running | Starting) and isinstance(state, Pausing | Stopping):
        at_boundary = isinstance(event, Reported) and isinstance(event.report, IterationFinished)
        assert state.kill_at is not None or (has_boundaries(now) and not at_boundary)
        assert state.asked or has_boundaries(now) or at_boundary


@given(some.supervisions, some.moments, st.sampled_from(Overdue), some.policies)
def test_h4_a_run_whose_watch_has_ended_is_ended(
    now: Supervision, at: Moment, overdue: Overdue, policy: Policy
) -> None:
    """The watch over a run goes on until it is to be ended: nobody looks at it again."""
    run_id = has_run(now.state)
    if run_id is None or not policy.supervised or is_overdue(now.state):
        return
    answer = step(now, Overran(at, run_id, overdue, "hung"), policy)

    state = answer.supervision.state
    assert (
        KillTree(run_id) in answer.actions or is_overdue(state) or getattr(state, "kill_at", None) is not None
    )
    assert (KillTree(run_id) in answer.actions) is (overdue is Overdue.STALL)


@given(some.supervisions, some.events, some.policies)
def test_g1_a_deadline_is_never_put_off(now: Supervision, event: Event, policy: Policy) -> None:
    after = step(now, event, policy).supervision.state

    if (
        isinstance(now.state, Pausing | Stopping)
        and isinstance(after, Pausing | Stopping)
        and after.run_id == now.state.run_id
        and not isinstance(event, Spawned)
    ):
        assert after.since == now.state.since
        assert after.asked or not now.state.asked
        if after.asked is now.state.asked and now.state.kill_at is not None:
            assert after.kill_at is not None
            assert after.kill_at <= now.state.kill_at


@given(some.supervisions, some.events, some.policies)
def test_c2_a_person_is_called_at_most_once_and_only_for_a_failure(
    now: Supervision, event: Event, policy: Policy
) -> None:
    answer = step(now, event, policy)
    called = [action for action in answer.actions if isinstance(action, Escalate)]

    assert len(called) <= 1
    if called:
        assert isinstance(answer.supervision.state, Failed)
        assert not isinstance(now.state, Failed)
        assert "ralph.failed" in types(answer)


@given(some.supervisions, some.events, some.policies)
def test_every_failure_is_told_in_the_words_that_the_state_keeps(
    now: Supervision, event: Event, policy: Policy
) -> None:
    answer = step(now, event, policy)
    if isinstance(answer.supervision.state, Failed) and not isinstance(now.state, Failed):
        told = [a.text for a in answer.actions if isinstance(a, Announce | Escalate) and a.text]
        assert told == [answer.supervision.state.why]


@given(some.supervisions, some.events, some.policies)
def test_a_wait_is_never_without_its_wake_up_call(now: Supervision, event: Event, policy: Policy) -> None:
    answer = step(now, event, policy)
    until = waited_for(answer.supervision)
    calls = [order.at for order in orders(answer) if isinstance(order, WakeAt)]

    assert calls == [until] * len(calls)
    assert len(calls) <= 1
    if until is not None and until != waited_for(now):
        assert calls == [until]
    if until is not None and isinstance(event, Woke):
        assert calls == [until]
    watched = has_run(now.state) is None or (isinstance(event, DaemonStarted) and event.living is not None)
    if until is not None and isinstance(event, DaemonStarted) and watched:
        assert calls == [until]


@given(some.supervisions, some.events, some.policies)
def test_a_wait_ends_in_the_future_of_its_own_beginning(
    now: Supervision, event: Event, policy: Policy
) -> None:
    before, after = now.state, step(now, event, policy).supervision.state
    if isinstance(after, Waiting) and not isinstance(before, Waiting):
        assert after.since <= after.until


@given(some.supervisions, some.events, some.policies)
def test_only_events_that_have_a_name_are_told(now: Supervision, event: Event, policy: Policy) -> None:
    assert set(types(step(now, event, policy))) <= EVENT_TYPES


@given(some.supervisions, some.events, some.policies)
def test_an_end_is_told_with_the_run_that_ended_and_never_otherwise(
    now: Supervision, event: Event, policy: Policy
) -> None:
    ours = isinstance(event, RunEnded) and event.ending.run_id == has_run(now.state)

    assert types(step(now, event, policy)).count("ralph.exited") == int(ours)


@given(some.supervisions, some.moments, st.booleans(), some.policies)
def test_g1_nothing_starts_after_a_stop_whatever_was_going_on(
    now: Supervision, at: Moment, kill: bool, policy: Policy
) -> None:
    answer = step(now, StopRequested(at, kill), policy)
    assert Spawn() not in answer.actions

    later: list[Event] = [Woke(at + 1e10)]
    if run_id := has_run(answer.supervision.state):
        later.append(RunEnded(replace(EXIT_1, run_id=run_id)))
    for event in [*later, SpawnFailed(at, "gone"), Woke(at + 1e10), DaemonStarted(at), Woke(at + 2e10)]:
        answer = step(answer.supervision, event, policy)
        assert Spawn() not in answer.actions


@given(some.supervisions, some.moments, some.policies)
def test_g2_nothing_starts_after_a_pause_whatever_was_going_on(
    now: Supervision, at: Moment, policy: Policy
) -> None:
    event = PauseRequested(at)
    if why_not(now, event) is not None:
        return
    answer = step(now, event, policy)
    later: list[Event] = [Woke(at + 1e10), SpawnFailed(at, "gone"), DaemonStarted(at), Woke(at + 2e10)]
    for following in later:
        answer = step(answer.supervision, following, policy)
        assert Spawn() not in answer.actions


@given(some.endings, some.tallies, some.policies)
def test_p6_without_supervision_nothing_is_ordered_after_an_end_and_nobody_is_called(
    ending: ExitFacts, tally: Tally, policy: Policy
) -> None:
    ended = RunEnded(replace(ending, run_id=RUN))
    answer = step(ralph(RUNNING, tally=tally), ended, replace(policy, supervised=False))

    assert [a for a in answer.actions if not isinstance(a, Announce)] == []


@given(
    lives=st.lists(st.tuples(st.floats(0, 900), st.floats(0, 60), st.booleans()), min_size=5, max_size=60),
    limit=st.integers(1, 5),
    backoff_s=st.sampled_from([0.0, 1.0, 30.0, 600.0]),
)
@example(lives=[(0.0, 0.0, True)] * 60, limit=3, backoff_s=0.0)
def test_c3_no_hour_holds_more_restarts_than_max_restarts_per_hour(
    lives: list[tuple[float, float, bool]], limit: int, backoff_s: float
) -> None:
    """A run that always commits is never given up: only the limit keeps it from a life of restarts."""
    policy = Policy(max_restarts_per_hour=limit, retry_backoff_s=backoff_s, max_retries=1_000)
    now, clock = ralph(RUNNING), NOW
    restarts: list[Moment] = []
    for life_s, late_s, committed in lives:
        clock += life_s
        answer = step(now, RunEnded(ExitFacts(RUN, clock, code=1, committed=committed)), policy)
        assert isinstance(answer.supervision.state, Waiting)
        clock = answer.supervision.state.until + late_s
        answer = step(answer.supervision, Woke(clock), policy)
        assert Spawn() in answer.actions
        restarts.append(clock)
        now = step(answer.supervision, Spawned(clock, RUN), policy).supervision

    for first, following in zip(restarts, restarts[limit:], strict=False):
        assert following - first >= HOUR_S - 1e-3  # a moment is a float: exact to a microsecond


@given(st.integers(1, 12), st.lists(st.booleans(), min_size=1, max_size=60))
def test_c2_a_row_of_failures_is_never_longer_than_max_retries(max_retries: int, commits: list[bool]) -> None:
    policy = Policy(max_retries=max_retries, max_restarts_per_hour=0)
    now, row = ralph(RUNNING), 0
    for committed in commits:
        row = 1 if committed else row + 1
        answer = step(now, RunEnded(replace(EXIT_1, committed=committed)), policy)

        assert answer.supervision.tally.consecutive_errors == row
        assert isinstance(answer.supervision.state, Failed) is (row >= max_retries)
        if row >= max_retries:
            break
        now = replace(answer.supervision, state=RUNNING)


# what a run says


def test_a_run_inherits_no_reports_of_another() -> None:
    known = Supervision(Goal.RUNNING, Running(RunId("r000002-77aa01b3")), said=RunReports(iterates=True))
    assert step(known, Spawned(NOW, RunId("r000001-3fa9c1d2")), Policy()).supervision.said == RunReports()


@given(some.supervisions, some.events, some.policies)
def test_nothing_is_said_where_no_run_lives_that_could_have_said_it(
    now: Supervision, event: Event, policy: Policy
) -> None:
    after = step(now, event, policy).supervision

    if has_run(after.state) is None or has_run(after.state) != has_run(now.state):
        assert after.said == RunReports()
    assert len(after.said.answered) <= ANSWERS_KEPT


@given(some.supervisions, some.reported, some.policies)
def test_a_report_is_acted_upon_once_and_answered_the_same_ever_after(
    now: Supervision, event: Reported, policy: Policy
) -> None:
    first = step(now, event, policy)
    again = step(first.supervision, event, policy)

    assert again == Step(first.supervision)
    assert answer(again.supervision, event.id) is answer(first.supervision, event.id)


@given(some.supervisions, some.reported, some.policies)
def test_a_report_that_was_acted_upon_is_kept_by_its_id_unless_it_is_a_heartbeat(
    now: Supervision, event: Reported, policy: Policy
) -> None:
    if why_not(now, event) is not None:
        return
    kept = {known.id: known for known in step(now, event, policy).supervision.said.answered}

    before = {known.id for known in now.said.answered}
    assert kept.keys() == before | (set() if isinstance(event.report, Heartbeat) else {event.id})


@given(some.supervisions, some.reported, some.policies)
def test_no_report_starts_a_run_kills_one_or_calls_a_person(
    now: Supervision, event: Reported, policy: Policy
) -> None:
    answer = step(now, event, policy)

    assert not [a for a in answer.actions if isinstance(a, Spawn | KillTree | Escalate | PassOn)]
    assert answer.supervision.goal is now.goal
    assert has_run(answer.supervision.state) == has_run(now.state)


@given(st.lists(some.reported, max_size=12), st.integers(0, 5), some.policies)
def test_c3_a_run_that_hangs_in_the_end_leaves_no_fewer_failures_than_before_whatever_it_reported(
    reports: list[Reported], errors: int, policy: Policy
) -> None:
    now = ralph(RUNNING, tally=Tally(consecutive_errors=errors))
    for number, event in enumerate(reports):
        now = step(now, replace(event, id=str(number)), policy).supervision
    hung = replace(now, state=Running(RUN, Overdue.STALL))
    killed = ExitFacts(RUN, NOW, signal=9, started_at=NOW - 9_000, last_sign_at=NOW, committed=True)

    after = step(hung, RunEnded(killed), replace(policy, supervised=True)).supervision

    assert after.tally.consecutive_errors == errors + 1
