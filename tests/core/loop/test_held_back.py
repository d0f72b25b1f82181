"""An attempt that its account does not permit: another agent continues, or the loop waits (Q2, Q3, Q6)."""

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    AccountFreed,
    Attempting,
    Began,
    EndLoop,
    HeldBack,
    Loop,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseAsked,
    PauseReason,
    ReportAgentOut,
    Resting,
    SaveCheckpoint,
)
from ralphd.core.loop.pool import pool_view
from tests.core.loop.scenes import START, TWO, Play, reset_in

WHY = "account work: usage limit (met by web)"
SLOT = "account work: 1 of 1 slots are in use; next after web"
PAUSES = LoopPolicy(pause_when_exhausted=True, jitter=0.0)


def held(play: Play, lasts_s: float = 500.0, *, brief: bool = False) -> None:
    play.feed(HeldBack(play.now, play.now + lasts_s, WHY, brief))


def test_the_next_agent_continues_at_once() -> None:
    play = Play("A", policy=TWO)
    held(play)
    assert (play.agent, play.attempt.iteration.attempt, play.loop.ledger["A"].attempts) == ("codex", 1, 1)
    assert play.ordered(ReportAgentOut) == [ReportAgentOut("claude", WHY, START + 500.0)]


def test_without_another_agent_it_waits_as_for_its_own_limit() -> None:
    play = Play("A")
    held(play)
    assert isinstance(play.loop.stage, Resting)
    assert (play.wait_s, play.loop.stage.reason) == (500.0, PauseReason.USAGE_LIMIT)
    assert play.loop.stage.for_an_agent is True
    [saved] = play.ordered(SaveCheckpoint)
    assert (saved.reason, saved.resume_at, saved.why) == (
        PauseReason.USAGE_LIMIT,
        START + 500.0,
        f"claude: {WHY}",
    )
    assert (play.loop.memory.in_flight, play.loop.ledger["A"].attempts, play.failures("A")) == (None, 0, 0)
    play.wakes()
    assert (play.agent, play.attempt.iteration.attempt) == ("claude", 1)


def test_a_freed_account_ends_the_wait_early() -> None:
    play = Play("A")
    held(play)
    play.now += 3.0
    play.feed(AccountFreed(play.now, "claude"))
    assert isinstance(play.loop.stage, Attempting)


def test_a_freed_account_does_not_end_another_wait() -> None:
    play = Play("A")
    play.fails(FailureKind.AGENT_CRASH)
    stage = play.loop.stage
    play.feed(AccountFreed(play.now, "claude"))
    assert isinstance(stage, Resting) and play.loop.stage == stage


def test_a_freed_account_ends_the_wait_for_a_rate_limit() -> None:
    play = Play("A")
    play.fails(FailureKind.RATE_LIMIT, reset=reset_in(50.0, START))
    play.feed(AccountFreed(play.now, "claude"))
    assert isinstance(play.loop.stage, Attempting) and play.agent == "claude"


def test_a_loop_that_pauses_does_so_for_a_limit_and_not_for_a_slot() -> None:
    play = Play("A", policy=PAUSES)
    held(play, brief=True)
    assert isinstance(play.loop.stage, Resting)
    assert play.ordered(ReportAgentOut) == []
    play.wakes()
    held(play)
    [end] = play.ordered(EndLoop)
    assert (end.code, end.reason, end.resume_at) == (75, "usage_limit", play.now + 500.0)


def held_for_a_slot(play: Play) -> None:
    play.feed(HeldBack(play.now, play.now + 600.0, SLOT, brief=True, for_slot=True))


def test_a_wait_for_a_slot_is_not_a_limit() -> None:
    play = Play("A", policy=PAUSES)
    held_for_a_slot(play)
    assert isinstance(play.loop.stage, Resting)
    assert (play.loop.stage.reason, play.loop.stage.why) == (PauseReason.RESOURCES, SLOT)
    assert play.loop.stage.for_an_agent is True
    [saved] = play.ordered(SaveCheckpoint)
    assert (saved.reason, saved.resume_at, saved.why) == (PauseReason.RESOURCES, None, SLOT)
    assert play.ordered(ReportAgentOut) == []
    view = pool_view(play.loop.memory, play.now)
    assert view is not None and view["agents"][0]["in"]


def test_a_limit_of_the_fallback_leaves_the_wait_for_a_slot() -> None:
    policy = LoopPolicy(agents=TWO.agents, pause_when_exhausted=True, jitter=0.0)
    play = Play("A", policy=policy)
    held_for_a_slot(play)
    held(play, lasts_s=5000.0)
    assert isinstance(play.loop.stage, Resting) and play.loop.stage.reason is PauseReason.RESOURCES


def test_a_loop_that_begins_again_asks_for_its_slot_at_once() -> None:
    play = Play("A")
    held_for_a_slot(play)
    play.loop = Loop(memory=play.loop.memory)
    play.feed(Began(play.now + 1.0, play.plan))
    assert isinstance(play.loop.stage, Attempting)


def test_a_slot_is_asked_for_at_once_when_the_clock_is_set_back() -> None:
    """The wait for a slot has no known end, and was as much longer as the clock was set back."""
    play = Play("A")
    held_for_a_slot(play)
    play.now -= 7200.0

    play.feed(LoopWoke(play.now))

    assert isinstance(play.loop.stage, Attempting)
    held_for_a_slot(play)
    assert isinstance(play.loop.stage, Resting)
    assert play.loop.stage.until == play.now + 600.0


def test_a_request_made_meanwhile_ends_the_loop() -> None:
    play = Play("A")
    play.feed(PauseAsked(play.now))
    held(play)
    assert play.end.code == 75


def test_a_limit_of_the_user_ends_it_before_any_wait() -> None:
    policy = LoopPolicy(max_runtime_s=10.0, jitter=0.0)
    play = Play("A", policy=policy)
    assert isinstance(play.loop.memory, LoopState)
    play.now += 20.0
    held(play)
    assert play.end.code == 5


def test_it_is_held_back_only_before_an_attempt() -> None:
    play = Play("A")
    held(play)
    stage = play.loop.stage
    held(play)
    assert play.loop.stage == stage


def test_an_attempt_that_was_held_back_is_not_counted() -> None:
    play = Play("A", policy=TWO)
    held(play)
    assert (play.attempt.iteration.attempt, play.attempt.iteration.nth) == (1, 1)

    play = Play("A", policy=TWO)
    play.fails(FailureKind.AGENT_CRASH)
    play.wakes()
    assert (play.attempt.iteration.attempt, play.attempt.iteration.nth) == (2, 2)
    held(play)
    assert (play.agent, play.loop.ledger["A"].attempts) == ("codex", 2)
    assert (play.attempt.iteration.attempt, play.attempt.iteration.nth) == (2, 2)


def test_who_had_its_turn_at_this_task_does_not_continue_for_the_one_that_is_held_back() -> None:
    play = Play("A", policy=LoopPolicy(agents=TWO.agents, retries_before_fallback=0, jitter=0.0))
    play.fails(FailureKind.AGENT_CRASH)
    assert play.agent == "codex"

    held(play)

    assert isinstance(play.loop.stage, Resting)


def test_in_a_rotation_the_next_one_continues_for_the_one_that_is_held_back() -> None:
    play = Play("A", "B", policy=LoopPolicy(agents=("claude", "codex", "gemini"), rotates=True, jitter=0.0))
    play.succeeds()
    assert play.agent == "codex"

    held(play)

    assert play.agent == "gemini"


def test_a_pause_that_was_asked_for_meanwhile_is_saved_with_the_iteration() -> None:
    play = Play("A", policy=TWO)
    play.feed(PauseAsked(play.now))

    held(play)

    [saved] = play.ordered(SaveCheckpoint)
    assert saved.iteration is not None and saved.iteration.task.id == "A"
    assert play.end.code == 75


def test_a_clock_that_is_set_back_ends_the_wait_for_a_slot_and_no_cooldown_of_another() -> None:
    play = Play("A", policy=TWO)
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(5000.0, START))
    assert play.agent == "codex"
    held_for_a_slot(play)
    assert isinstance(play.loop.stage, Resting)

    play.feed(LoopWoke(START - 3600.0))

    assert (play.agent, isinstance(play.loop.stage, Attempting)) == ("codex", True)


def test_in_a_rotation_an_outage_is_one_where_the_account_of_the_next_has_no_slot() -> None:
    play = Play("A", "B", policy=LoopPolicy(agents=("claude", "codex"), rotates=True, jitter=0.0))
    play.fails(FailureKind.TRANSIENT)
    play.judged()
    assert play.agent == "codex"
    held_for_a_slot(play)
    assert play.agent == "claude"

    play.fails(FailureKind.TRANSIENT)

    assert isinstance(play.loop.stage, Resting)
    assert (play.loop.stage.reason, play.wait_s) == (PauseReason.OUTAGE, 60.0)
    play.wakes()
    assert play.agent == "claude"
