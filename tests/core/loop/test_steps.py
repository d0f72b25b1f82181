"""The steps that several decisions take, order by order: an attempt, a wait, each end (L10 to L12)."""

from dataclasses import replace

import pytest

from ralphd.core.loop.model import (
    Attempting,
    Cooldown,
    EndLoop,
    Finished,
    Iteration,
    Loop,
    LoopOrder,
    LoopPolicy,
    LoopState,
    PauseReason,
    PendingRequest,
    Rest,
    Resting,
    SaveCheckpoint,
    StartAttempt,
    TaskRecord,
)
from ralphd.core.loop.transitions import attempt, end_now, exhausted, handed_to, rest
from ralphd.core.plan import Task, TaskStatus
from tests.core.loop.scenes import FAR, Play, begun, resumed_at

TASK = Task("A", "do A", TaskStatus.PENDING)
HERE = Iteration(3, TASK, "claude", attempt=2, session="s-1")
POLICY = LoopPolicy(agents=("claude", "codex"), reset_margin_s=60.0)


def out_until(until: float | None) -> Loop:
    """A loop whose only two agents are out; the second one until then."""
    return Loop(LoopState(out=(Cooldown("claude", "no login"), Cooldown("codex", "weekly limit", until))))


# Whoever takes over


def test_another_agent_begins_with_nothing_of_the_first_ones_tries_waits_and_session() -> None:
    tried = replace(HERE, tries=2, transient_tries=3, rate_waited_s=500.0, passed=("gemini",))

    assert handed_to("claude", tried) == tried
    assert handed_to("codex", tried) == Iteration(3, TASK, "codex", attempt=2, passed=("gemini",))


# An attempt


def limits(loop: Loop, at: float, policy: LoopPolicy) -> tuple[float, float]:
    """How long an agent may take, and the attempt with its phases."""
    (start,) = attempt(loop, HERE, at, policy).orders
    assert isinstance(start, StartAttempt)
    return start.timeout_s, start.budget_s


def test_l6_an_attempt_with_its_phases_has_a_limit_of_its_own_that_grows_with_the_agents() -> None:
    policy = replace(POLICY, timeout_s=600.0, iteration_timeout_s=1000.0)

    assert limits(Loop(), 0.0, policy) == (600.0, 1000.0)
    slow = Loop(ledger={"A": TaskRecord("A", timeout_factor=2.0)})
    assert limits(slow, 0.0, policy) == (1200.0, 1800.0)


def test_an_attempt_and_its_phases_end_with_the_whole_time_but_have_a_second_at_least() -> None:
    policy = replace(POLICY, timeout_s=600.0, iteration_timeout_s=1000.0, max_runtime_s=2000.0)
    loop = Loop(LoopState(began_at=100.0))

    assert limits(loop, 100.0, policy) == (600.0, 1000.0)
    assert limits(loop, 1300.0, policy) == (600.0, 800.0)
    assert limits(loop, 2090.0, policy) == (10.0, 10.0)
    assert limits(loop, 2099.5, policy) == (1.0, 1.0)


# A wait


def test_a_wait_is_kept_in_the_checkpoint_with_its_end_and_its_reason_before_it_begins() -> None:
    step = rest(Loop(), HERE, 100.0, Rest(160.0, PauseReason.OUTAGE, "no network"), POLICY)

    assert step.loop.stage == Resting(HERE, 100.0, 160.0, PauseReason.OUTAGE)
    assert step.orders == (
        SaveCheckpoint(PauseReason.OUTAGE, HERE, 160.0, "no network"),
        Rest(160.0, PauseReason.OUTAGE, "no network"),
    )


def test_where_all_agents_are_out_the_loop_waits_for_the_first_and_says_for_whom_and_why() -> None:
    step = exhausted(out_until(500.0), HERE, 100.0, POLICY)

    why = "codex: usage limit: weekly limit"
    assert step.loop.stage == Resting(HERE, 100.0, 500.0, PauseReason.USAGE_LIMIT, for_an_agent=True)
    assert step.orders == (
        SaveCheckpoint(PauseReason.USAGE_LIMIT, HERE, 500.0, why),
        Rest(500.0, PauseReason.USAGE_LIMIT, why),
    )


# The ends, each of which can be gone on from


def assert_ends(loop: Loop, orders: tuple[LoopOrder, ...], saved: SaveCheckpoint, end: EndLoop) -> None:
    """The checkpoint first, then the end; and nothing comes after it."""
    assert orders == (saved, end)
    assert loop.stage == Finished(end.code)


def test_us008_a_loop_that_pauses_instead_resumes_when_its_agent_returns() -> None:
    policy = replace(POLICY, pause_when_exhausted=True)

    step = exhausted(out_until(500.0), HERE, 100.0, policy)

    why = "codex: usage limit: weekly limit"
    saved = SaveCheckpoint(PauseReason.USAGE_LIMIT, HERE, 500.0, why)
    assert_ends(step.loop, step.orders, saved, EndLoop(75, "usage_limit", why, 500.0))


def test_us008_a_reset_that_is_reached_already_is_waited_for_and_not_paused_for() -> None:
    policy = replace(POLICY, pause_when_exhausted=True)

    assert isinstance(exhausted(out_until(160.0), HERE, 100.0, policy).loop.stage, Resting)
    assert isinstance(exhausted(out_until(161.0), HERE, 100.0, policy).loop.stage, Finished)


def resumed_before_its_limit_is_over(*, guessed: bool, pauses: bool) -> Play:
    """A loop that ended to wait for its only agent, and that a person resumes."""
    memory = LoopState(out=(Cooldown("claude", "limit", FAR, guessed=guessed),))
    checkpoint = resumed_at("A", 1, "claude", reason=PauseReason.USAGE_LIMIT, resume_at=FAR)
    policy = LoopPolicy(pause_when_exhausted=pauses)
    return begun("A", policy=policy, memory=memory, resumed=checkpoint)


def test_us008_a_guessed_limit_is_asked_again_when_a_person_resumes() -> None:
    play = resumed_before_its_limit_is_over(guessed=True, pauses=True)

    assert isinstance(play.loop.stage, Attempting) and play.agent == "claude"


def test_us008_a_limit_that_the_service_named_pauses_again_when_a_person_resumes() -> None:
    play = resumed_before_its_limit_is_over(guessed=False, pauses=True)

    assert (play.end.code, play.end.resume_at) == (75, FAR)


def test_a_guessed_limit_is_waited_for_where_the_loop_does_not_pause() -> None:
    play = resumed_before_its_limit_is_over(guessed=True, pauses=False)

    assert isinstance(play.loop.stage, Resting) and play.loop.stage.until == FAR


def test_where_no_agent_comes_back_by_itself_the_loop_ends_and_says_what_each_of_them_lacks() -> None:
    step = exhausted(out_until(None), HERE, 100.0, POLICY)

    why = "no agent is available: claude: no login; codex: weekly limit"
    saved = SaveCheckpoint(PauseReason.ERROR, HERE, None, why)
    assert_ends(step.loop, step.orders, saved, EndLoop(1, "no_agent", why))


@pytest.mark.parametrize("iteration", [HERE, None])
def test_a_limit_of_the_users_own_ends_the_loop_wherever_it_is(iteration: Iteration | None) -> None:
    step = end_now(Loop(LoopState(iteration=3)), iteration, 0.0, replace(POLICY, max_iterations=3))

    assert step is not None
    why = "max_iterations = 3 reached"
    saved = SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration, None, why)
    assert_ends(step.loop, step.orders, saved, EndLoop(5, "limit", why))


@pytest.mark.parametrize(
    ("wish", "reason", "why", "code"),
    [
        (PendingRequest.PAUSE, PauseReason.USER_REQUESTED, "paused as requested", 75),
        (PendingRequest.STOP, PauseReason.INTERRUPTED, "stopped as requested", 130),
    ],
)
@pytest.mark.parametrize("iteration", [HERE, None])
def test_l12_a_pause_and_a_stop_end_the_loop_wherever_it_is(
    iteration: Iteration | None, wish: PendingRequest, reason: PauseReason, why: str, code: int
) -> None:
    step = end_now(Loop(request=wish), iteration, 0.0, POLICY)

    assert step is not None
    assert_ends(
        step.loop, step.orders, SaveCheckpoint(reason, iteration, None, why), EndLoop(code, reason, why)
    )


def test_without_a_limit_and_without_a_wish_nothing_ends() -> None:
    assert end_now(Loop(LoopState(iteration=9, cost_usd=9.0, began_at=0.0)), HERE, 1e9, POLICY) is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (LoopPolicy(max_iterations=1), "max_iterations = 1 reached"),
        (LoopPolicy(max_cost_usd=2.5), "$2.50 of $2.50 spent (max_cost_usd)"),
        (LoopPolicy(max_runtime_s=60.0), "60 s of 60 s used (max_runtime_seconds)"),
    ],
)
def test_l10_a_limit_is_reached_at_its_number_and_not_before(policy: LoopPolicy, words: str) -> None:
    assert policy.reached(1, 2.5, 100.0, 160.0) == words
    assert policy.reached(0, 2.49, 100.0, 159.9) is None
