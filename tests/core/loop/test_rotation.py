"""Rotation: each iteration is one agent's turn; what fails is a reason to go on with the next (L3, 003)."""

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Began,
    FinishIteration,
    Handoff,
    Loop,
    LoopPolicy,
    PauseReason,
    ReportAgentBack,
    ReportAgentOut,
    ReportAttempt,
    Resting,
    TaskState,
)
from ralphd.core.loop.pool import Pool
from ralphd.core.loop.prompt import previous_of
from ralphd.core.supervision.model import Next
from tests.core.loop.scenes import Play, reset_in, resumed_at

A_TURN_IS_OVER = [
    FailureKind.AGENT_CRASH,
    FailureKind.AGENT_INCOMPLETE,
    FailureKind.TIMEOUT,
    FailureKind.STALL,
    FailureKind.CONTEXT,
    FailureKind.UNKNOWN,
    FailureKind.TRANSIENT,
]


def rotation(*tasks: str, agents: tuple[str, ...] = ("a", "b", "c"), **rules: object) -> Play:
    """A loop whose agents take turns."""
    policy = LoopPolicy(agents=agents, rotates=True, jitter=0.0, **rules)  # type: ignore[arg-type]
    return Play(*(tasks or ("A", "B")), policy=policy)


def test_every_iteration_is_the_turn_of_the_next_agent() -> None:
    play = rotation("A", "B", "C", "D")
    turns = []
    for _ in range(4):
        turns.append((play.agent, play.task))
        play.succeeds()
    assert turns == [("a", "A"), ("b", "B"), ("c", "C"), ("a", "D")]
    assert play.end.code == 0


@pytest.mark.parametrize("kind", A_TURN_IS_OVER)
def test_a_failed_turn_rotates_at_once_and_the_counter_goes_on(kind: FailureKind) -> None:
    play = rotation()
    play.fails(kind)
    (finish,) = play.ordered(FinishIteration)
    assert finish.failed
    assert play.loop.memory.iteration == 1
    play.judged()
    assert (play.agent, play.task) == ("b", "A")
    assert play.attempt.iteration.number == 2


def test_the_next_agent_is_told_what_crashed_and_what_was_printed_last() -> None:
    play = rotation()
    play.fails(FailureKind.AGENT_CRASH, lines=("Traceback", "boom"))
    (note,) = play.ordered(Handoff)
    assert note.note == "Previous rotation crashed: a agent_crash failure"
    assert play.ordered(ReportAttempt)[0].next == "rotation: b continues"
    play.judged()
    told = previous_of(play.attempt.iteration)
    assert "Attempt 1, by a, failed (agent crash)" in told
    assert "boom" in told


def test_what_the_last_turn_printed_is_not_told_to_one_at_another_task() -> None:
    play = rotation("A", "B", max_task_failures=1)
    for _ in range(2):
        play.fails(FailureKind.AGENT_CRASH, lines=("boom",))
        play.judged()
    play.wakes()
    assert (play.agent, play.task) == ("c", "B")
    assert play.attempt.iteration.previous is None


def test_a_crashed_agent_stays_and_has_its_turn_again() -> None:
    play = rotation(agents=("a", "b"), max_task_failures=9)
    for agent in ("a", "b"):
        assert play.agent == agent
        play.fails(FailureKind.AGENT_CRASH)
        play.judged()
    assert play.wait_s == 2.0, "two failed running: a short rest, no halt"
    play.wakes()
    assert play.agent == "a"
    assert not play.ordered(ReportAgentOut, ever=True)


def test_a_task_is_put_back_when_all_had_it_in_hand() -> None:
    play = rotation("A", "B", max_task_failures=9)
    for _ in range(3):
        assert play.task == "A"
        play.fails(FailureKind.AGENT_CRASH)
        assert play.loop.ledger["A"].state is not TaskState.IN_PROGRESS
        play.judged()
        if isinstance(play.loop.stage, Resting):
            play.wakes()
    assert play.task == "B"
    assert play.agent == "a"


def test_an_exhausted_agent_leaves_the_pool_and_the_next_goes_on_in_the_same_iteration() -> None:
    play = rotation()
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(600.0, play.now + 1))
    assert play.ordered(ReportAgentOut)[0].agent == "a"
    assert (play.agent, play.attempt.iteration.number) == ("b", 1)
    play.succeeds()
    assert play.agent == "c"
    play.succeeds()
    assert play.end.code == 0


def test_it_comes_back_by_itself_when_its_limit_is_over() -> None:
    play = rotation("A", "B", "C", "D", agents=("a", "b"))
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(600.0, play.now + 1))
    play.succeeds()
    assert play.agent == "b", "a is out"
    play.now += 700.0
    play.succeeds()
    assert play.ordered(ReportAgentBack) == [ReportAgentBack("a")]
    assert play.agent == "a"


def test_a_failure_that_only_a_person_can_mend_takes_an_agent_out_for_good() -> None:
    play = rotation("A", "B", "C", agents=("a", "b"))
    play.fails(FailureKind.FATAL)
    assert play.ordered(ReportAgentOut)[0].until is None
    play.succeeds()
    play.succeeds()
    assert play.agent == "b"


def test_an_empty_pool_waits_for_the_first_that_comes_back() -> None:
    play = rotation(agents=("a", "b"))
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(6000.0, play.now + 1))
    play.fails(FailureKind.USAGE_LIMIT, reset=reset_in(600.0, play.now + 1))
    assert play.wait_s == 660.0
    play.wakes()
    assert play.agent == "b"


def test_all_exhausted_with_unknown_resets_are_tried_again_after_a_quarter_of_an_hour() -> None:
    play = rotation(agents=("a", "b"))
    play.fails(FailureKind.USAGE_LIMIT)
    play.fails(FailureKind.USAGE_LIMIT)
    assert play.wait_s == 15 * 60 - 1
    assert all(out.reason.endswith(", reset not known") for out in play.loop.memory.out)
    play.wakes()
    assert play.agent == "a"


def test_when_no_agent_is_left_for_good_the_loop_ends() -> None:
    play = rotation(agents=("a", "b"))
    play.fails(FailureKind.FATAL)
    play.fails(FailureKind.FATAL)
    assert (play.end.code, play.end.reason) == (1, "no_agent")


def test_transient_failures_of_all_at_hand_are_an_outage_in_one_iteration() -> None:
    play = rotation(agents=("a", "b"))
    play.fails(FailureKind.TRANSIENT)
    play.judged()
    assert play.agent == "b"
    play.fails(FailureKind.TRANSIENT)
    assert play.wait_s == 60.0
    play.wakes()
    assert play.agent == "a"
    play.fails(FailureKind.TRANSIENT)
    assert play.wait_s == 120.0
    assert play.loop.memory.iteration == 1
    assert play.failures("A") == 0


def test_one_transient_failure_among_others_is_no_outage() -> None:
    play = rotation(agents=("a", "b"), max_task_failures=9)
    play.fails(FailureKind.TRANSIENT)
    play.judged()
    play.fails(FailureKind.AGENT_CRASH)
    play.judged()
    assert play.agent == "a"
    play.fails(FailureKind.TRANSIENT)
    play.judged()
    assert play.agent == "b"


def test_a_pool_of_one_goes_up_the_ladder_before_it_is_an_outage() -> None:
    play = rotation(agents=("a",))
    waits = []
    for _ in range(4):
        play.fails(FailureKind.TRANSIENT)
        waits.append(play.wait_s)
        play.wakes()
    assert waits == [1.0, 2.0, 4.0, 60.0]


def test_a_pool_of_one_rests_between_turns_that_crash() -> None:
    play = rotation("A", "B", agents=("a",), max_task_failures=0)
    waits = []
    for _ in range(4):
        play.fails(FailureKind.AGENT_CRASH)
        play.judged()
        waits.append(play.wait_s if isinstance(play.loop.stage, Resting) else 0.0)
        if waits[-1]:
            play.wakes()
    assert waits == [0.0, 2.0, 4.0, 8.0]
    assert play.task == "B", "after three tries the other task has its turn"


def test_a_rate_limit_is_waited_out_by_the_same_agent() -> None:
    play = rotation()
    play.fails(FailureKind.RATE_LIMIT, reset=reset_in(30.0, play.now + 1))
    assert play.wait_s == 30.0
    play.wakes()
    assert (play.agent, play.attempt.iteration.number) == ("a", 1)


def test_a_loop_that_begins_again_goes_on_with_the_agent_after_the_last() -> None:
    play = rotation("A", "B", "C")
    play.succeeds()
    play.succeeds(judged=False)
    play.judged(Next.PAUSE)
    again = Play("A", "B", "C", policy=play.policy, begin=False)
    again.done = play.done
    again.loop = Loop(play.loop.memory, play.loop.ledger)
    again.feed(Began(again.now, again.plan, resumed_at(None)))
    assert again.agent == "c"


@pytest.mark.parametrize(
    ("agents", "reason", "goes_on"),
    [
        (("a", "b", "c"), PauseReason.ITERATION_BOUNDARY, "a"),  # in the middle of its turn
        (("a", "b", "c"), PauseReason.RATE_LIMIT, "a"),
        (("a", "b", "c"), PauseReason.ERROR, "b"),
        (("a", "b", "c"), PauseReason.TIMEOUT, "b"),
        (("a", "b", "c"), PauseReason.STALL, "b"),
        (("a",), PauseReason.ERROR, "a"),
    ],
)
def test_a_loop_that_was_killed_goes_on_with_whose_turn_it_is(
    agents: tuple[str, ...], reason: PauseReason, goes_on: str
) -> None:
    before = rotation("A", "B", agents=agents)
    assert before.agent == "a"
    again = Play("A", "B", policy=before.policy, begin=False)
    again.loop = Loop(before.loop.memory, before.loop.ledger)

    again.feed(Began(again.now, again.plan, resumed_at("A", attempt=1, agent="a", reason=reason)))

    assert (again.agent, again.task) == (goes_on, "A")


def test_a_good_end_is_no_crash_whatever_was_printed() -> None:
    play = rotation()
    play.succeeds(lines=("ECONNRESET", "No messages returned"))
    assert not play.ordered(Handoff, ever=True)[0].note
    assert play.failures("A") == 0


def test_a_turned_pool_begins_after_the_last_one() -> None:
    pool = Pool(("a", "b", "c"))
    assert pool.turned("a").agents == ("b", "c", "a")
    assert pool.turned("c").agents == ("a", "b", "c")
    assert pool.turned(None) == pool
    assert pool.turned("somebody else") == pool


def test_the_memory_tells_who_is_in_the_pool() -> None:
    memory = rotation().loop.memory
    assert (memory.agents, memory.rotates, memory.last_agent) == (("a", "b", "c"), True, "a")


def test_an_event_for_an_attempt_counts_its_cost_in_every_turn() -> None:
    play = rotation()
    play.fails(FailureKind.AGENT_CRASH, cost_usd=0.5)
    play.judged()
    play.fails(FailureKind.AGENT_CRASH, cost_usd=0.25)
    assert play.loop.memory.cost_usd == 0.75
