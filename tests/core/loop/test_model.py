"""The loop's nouns as they are where nothing more is said."""

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import GateNews
from ralphd.core.loop.model import (
    AttemptOver,
    Began,
    Begin,
    Checkpoint,
    EndLoop,
    Iteration,
    Judged,
    Loop,
    LoopPolicy,
    LoopState,
    LoopStep,
    PauseReason,
    PendingRequest,
    Previous,
    Resting,
    SaveCheckpoint,
    StartAttempt,
)
from ralphd.core.plan import Task, TaskStatus
from ralphd.core.supervision.model import Next

TASK = Task("A", "do A", TaskStatus.PENDING)
HERE = Iteration(1, TASK, "claude")


def test_a_policy_without_configuration_has_one_agent() -> None:
    assert LoopPolicy() == LoopPolicy(
        agents=("claude",),
        rotates=False,
        reviews=False,
        retries_before_fallback=2,
        max_task_failures=5,
        timeout_s=600.0,
        iteration_timeout_s=900.0,
        same_agent_base_s=2.0,
        transient_retries=3,
        base_s=1.0,
        max_s=60.0,
        jitter=0.1,
        rate_limit_s=60.0,
        max_rate_limit_wait_s=3600.0,
        reset_margin_s=60.0,
        outage_max_wait_s=900.0,
        pause_when_exhausted=False,
        max_iterations=0,
        max_cost_usd=0.0,
        max_runtime_s=0.0,
    )


def test_a_loop_begins_empty() -> None:
    assert Loop() == Loop(LoopState(), {}, None, Begin(), PendingRequest.NONE, failing=0, shaky=())
    assert [wish.value for wish in PendingRequest] == ["none", "pause", "stop"]
    assert LoopStep(Loop()).orders == ()


def test_an_iteration_begins_empty() -> None:
    assert Iteration(1, TASK, "claude") == Iteration(
        1,
        TASK,
        "claude",
        attempt=0,
        tries=0,
        transient_tries=0,
        outage=0,
        rate_waited_s=0.0,
        passed=(),
        shaky=(),
        session=None,
        previous=None,
        commits=0,
        nth=0,
        last_session=None,
    )
    crash = FailureKind.AGENT_CRASH
    assert Previous(1, "claude", crash, "why") == Previous(1, "claude", crash, "why", lines=())


def test_an_attempt_has_no_commit_cost_or_session() -> None:
    finding = Classification(None, "rule", "why")
    assert AttemptOver(1.0, finding, None) == AttemptOver(
        1.0,
        finding,
        None,
        commits=0,
        cost_usd=0.0,
        session=None,
        worked=False,
        promised=False,
        lines=(),
        chance=0.5,
        halted="",
    )
    assert Judged(1.0, Next.CONTINUE, None) == Judged(1.0, Next.CONTINUE, None, verdict=None, unheard=False)
    assert Began(1.0, None) == Began(1.0, None, resumed=None, gate=GateNews(None, (), settled=False))


def test_a_checkpoint_has_no_end_reason_or_session() -> None:
    boundary = PauseReason.ITERATION_BOUNDARY
    assert Checkpoint(1.0, 1, boundary) == Checkpoint(
        1.0,
        1,
        boundary,
        max_iterations=0,
        task=None,
        agent=None,
        resume_at=None,
        session_id=None,
        why="",
    )
    assert SaveCheckpoint(boundary, HERE) == SaveCheckpoint(boundary, HERE, None, "")
    assert StartAttempt(HERE, 600.0) == StartAttempt(HERE, 600.0, 0.0)
    assert EndLoop(0, "complete", "why") == EndLoop(0, "complete", "why", None)


def test_waits_are_compared_without_their_words() -> None:
    wait = Resting(HERE, 100.0, 160.0, PauseReason.OUTAGE)
    assert wait == Resting(HERE, 100.0, 160.0, PauseReason.OUTAGE, for_an_agent=False, why="no network")
    assert wait.why == ""
    assert wait.lasts_s == 60.0
