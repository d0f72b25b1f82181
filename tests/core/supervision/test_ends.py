"""What the end of a run leads to, under policies and counts that the table of supervision lacks: E1 to E4."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.supervision.events import Event, RunEnded, Spawned, StartRequested, Woke
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    Idle,
    Mode,
    Outcome,
    Paused,
    Policy,
    Reason,
    Restart,
    RunId,
    Spawn,
    Starting,
    State,
    Tally,
    Waiting,
)
from ralphd.core.supervision.step import step
from ralphd.core.time import Moment
from ralphd.store.state import message
from tests.core.supervision.scenes import (
    EXIT_0,
    EXIT_1,
    LOST,
    NOW,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    USAGE_LIMIT,
    WAITING,
    after_end,
    ended,
    escalations,
    ralph,
    texts,
    told,
)

ITERATIONS = Policy(mode=Mode.ITERATION)
UNSUPERVISED = Policy(supervised=False)
TWO_FAILURES = Tally(consecutive_errors=2)


# E1: ends


def test_e1_the_reset_margin_is_as_configured() -> None:
    state = after_end(USAGE_LIMIT, Policy(reset_margin_s=5.0)).supervision.state

    assert state == Paused("usage_limit", NOW + 7205)


def test_e1_a_past_reset_is_tried_after_15_minutes() -> None:
    for passed_s in (0.0, 1.0):
        stale = replace(USAGE_LIMIT, resume_at=NOW - 60 - passed_s)
        assert after_end(stale).supervision.state == Paused("usage_limit", NOW + 900)
    ahead = replace(USAGE_LIMIT, resume_at=NOW - 59)
    assert after_end(ahead).supervision.state == Paused("usage_limit", NOW + 1)


@pytest.mark.parametrize("margin_s", [0.0, 60.0])
def test_e1_a_past_reset_never_causes_a_start_loop(margin_s: float) -> None:
    """A checkpoint that nobody renews says the same moment at every end."""
    policy = Policy(reset_margin_s=margin_s)
    now, clock = ralph(RUNNING), NOW
    starts = 0
    for _ in range(100):
        stale = ExitFacts(RUN, clock, code=75, pause_reason="usage_limit", resume_at=NOW - 86_400)
        answer = told(now, [RunEnded(stale), Woke(clock)], policy)
        starts += answer.actions.count(Spawn())
        now, clock = ralph(RUNNING), clock + 1.0
        if not isinstance(answer.supervision.state, Starting):
            break
        now = replace(answer.supervision, state=RUNNING)

    assert starts <= policy.max_restarts_per_hour


# E2, E3


@pytest.mark.parametrize(
    ("ending", "words"),
    [(ended(code=127), "exit 127: command not found"), (LOST, "lost: its exit status is unknown")],
)
def test_e2_a_failure_is_announced_in_words(ending: ExitFacts, words: str) -> None:
    assert texts(after_end(ending)) == [f"Ralph exited ({words}) — retrying in 30s (attempt 2/3)"]


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ((), "origin/main lacks 1 commit"),
        (("a.py",), "1 file was not committed: a.py; next: git status; origin/main lacks 1 commit"),
    ],
)
def test_done_names_commits_that_were_not_pushed(names: tuple[str, ...], line: str) -> None:
    ending = replace(EXIT_0, uncommitted=names, unpushed="origin/main lacks 1 commit")

    after = after_end(ending, replace(POLICY, restart=Restart.NEVER))

    assert after.supervision.state == Done(uncommitted=line)
    assert texts(after) == [f"Ralph is done, but {line}"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), ""),
        (("a.py",), "1 file was not committed: a.py; next: git status"),
        (("a.py", "b.py"), "2 files were not committed: a.py, b.py; next: git status"),
        (("a.py", "b.py", "c.py"), "3 files were not committed: a.py, b.py and 1 more; next: git status"),
        (("a.py", *"bcdefghijkl"), "12 files were not committed: a.py, b and 10 more; next: git status"),
        (("a\nb\x1b[2J",), "1 file was not committed: a b; next: git status"),
        (("a" * 80,), f"1 file was not committed: {'a' * 80}; next: git status"),
        (("a" * 81,), f"1 file was not committed: {'a' * 79}…; next: git status"),
    ],
)
def test_done_names_files_that_were_not_committed(names: tuple[str, ...], words: str) -> None:
    ending = replace(EXIT_0, uncommitted=names)
    policy = replace(POLICY, restart=Restart.NEVER)

    assert after_end(ending, policy).supervision.state == Done(uncommitted=words)
    assert texts(after_end(ending, policy)) == [f"Ralph is done, but {words}" if words else "Ralph is done"]
    limited = replace(POLICY, restart=Restart.ALWAYS, max_runtime_s=60)
    reached = after_end(ending, limited, Tally(began_at=ending.at - 60)).supervision
    assert isinstance(reached.state, Done) and (reached.state.why, reached.state.uncommitted) == (
        "limit",
        words,
    )
    assert str(message(reached)).endswith(f" ({words})" if words else "(max_runtime_seconds)")


# E4: each run one iteration


@pytest.mark.parametrize("ending", [EXIT_0, EXIT_1])
def test_e4_restarts_end_at_max_runtime(ending: ExitFacts) -> None:
    policy = replace(POLICY, restart=Restart.ALWAYS, max_runtime_s=60)
    over, not_yet = Tally(began_at=ending.at - 60), Tally(began_at=ending.at - 59)

    assert isinstance(after_end(ending, policy, over).supervision.state, Done)
    assert isinstance(after_end(ending, policy, not_yet).supervision.state, Waiting)


@pytest.mark.parametrize(("before", "done"), [(3, False), (4, True), (9, True)])
def test_e4_it_is_done_at_max_iterations(before: int, done: bool) -> None:
    answer = after_end(EXIT_0, replace(ITERATIONS, max_iterations=5), Tally(iteration=before))

    limit = "max_iterations = 5 reached"
    assert (answer.supervision.state == Done("limit", limit)) is done
    if done:
        assert texts(answer) == [f"Ralph stopped: {limit}"]


# C1 to C4


def test_c4_a_failing_loop_runs_three_times_and_escalates() -> None:
    """C1, C2, C4: three runs, then a person is called, once."""
    now, clock, heard, called, spawned = ralph(Idle(), Goal.STOPPED), NOW, list[str](), list[str](), 0
    events: list[Event] = [StartRequested(clock)]
    for number in range(1, 4):
        run_id = RunId(f"r{number:06}-00000000")
        events += [Spawned(clock, run_id), RunEnded(ExitFacts(run_id, clock, code=1)), Woke(clock + 30)]
        clock += 30
    answer = told(now, events)
    heard, called, spawned = texts(answer), escalations(answer), answer.actions.count(Spawn())

    assert heard == [
        "Ralph exited (exit 1) — retrying in 30s (attempt 2/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — retrying in 30s (attempt 3/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — giving up after 3 failures in a row",
    ]
    assert spawned == 3
    assert called == ["Ralph exited (exit 1) — giving up after 3 failures in a row"]
    assert answer.supervision.state == Failed("Ralph exited (exit 1) — giving up after 3 failures in a row")
    assert answer.supervision.tally.consecutive_errors == 3
    assert answer.supervision.tally.restarts == 2


@given(st.floats(1e9, 4e9, allow_nan=False))
def test_c4_the_message_is_the_same_any_time(at: Moment) -> None:
    assert texts(after_end(replace(EXIT_1, at=at))) == [
        "Ralph exited (exit 1) — retrying in 30s (attempt 2/3)"
    ]


@pytest.mark.parametrize(
    ("seconds", "said"), [(30, "30s"), (0.1, "0.1s"), (0.25, "0.25s"), (1_000_000, "1000000s"), (0, "0s")]
)
@given(at=st.floats(1e9, 4e9, allow_nan=False))
def test_c4_a_delay_is_printed_as_configured(seconds: float, said: str, at: Moment) -> None:
    policy = Policy(retry_backoff_s=seconds, retry_backoff_max_s=seconds)
    assert texts(after_end(replace(EXIT_1, at=at), policy)) == [
        f"Ralph exited (exit 1) — retrying in {said} (attempt 2/3)"
    ]


def test_c1_a_growing_backoff_is_announced() -> None:
    answer = after_end(EXIT_1, Policy(retry_backoff_factor=2.0), Tally(consecutive_errors=1))

    assert answer.supervision.state == Waiting(Reason.CRASH, NOW, NOW + 60)
    assert texts(answer) == ["Ralph exited (exit 1) — retrying in 60s (attempt 3/3)"]


@pytest.mark.parametrize("failures", [2, 3, 7])
def test_c2_giving_up_escalates_once_and_starts_nothing(failures: int) -> None:
    answer = after_end(EXIT_1, tally=Tally(consecutive_errors=failures))
    text = f"Ralph exited (exit 1) — giving up after {failures + 1} failures in a row"

    assert answer.supervision.state == Failed(text)
    assert answer.actions == (Announce("ralph.exited"), Escalate(text), Announce("ralph.failed"))


def test_c2_max_retries_one_fails_at_once() -> None:
    assert texts(after_end(EXIT_1, Policy(max_retries=1))) == [
        "Ralph exited (exit 1) — giving up after 1 failure"
    ]


@pytest.mark.parametrize("state", [RUNNING, STOPPING])
@pytest.mark.parametrize("code", [75, 143])
def test_c3_a_commit_resets_the_failures(state: State, code: int) -> None:
    """A run that works for hours and then reaches a usage limit is not a third failure in a row."""
    ending = replace(USAGE_LIMIT, code=code, committed=True)

    tally = step(ralph(state, tally=TWO_FAILURES), RunEnded(ending), POLICY).supervision.tally

    assert tally.consecutive_errors <= 1


def test_c3_a_healthy_run_resets_the_failures() -> None:
    """A command that does not report, at work for hours before it met a usage limit."""
    ending = replace(USAGE_LIMIT, started_at=NOW - 7200, last_sign_at=NOW)

    assert after_end(ending, tally=TWO_FAILURES).supervision.tally.consecutive_errors == 0


def test_c3_the_hourly_restart_limit_delays_the_retry() -> None:
    policy = Policy(max_retries=50, max_restarts_per_hour=2)
    answer = after_end(EXIT_1, policy, Tally(restarted_at=(NOW - 3000, NOW - 100)))

    assert answer.supervision.state == Waiting(Reason.RESTART_LIMIT, NOW, NOW + 600)
    assert texts(answer) == [
        "Ralph exited (exit 1) — max_restarts_per_hour = 2 reached, retrying in 600s (attempt 2/50)"
    ]


def test_c3_restarts_older_than_an_hour_expire() -> None:
    old = Tally(restarts=5, restarted_at=(NOW - 4000, NOW - 3000))

    tally = step(ralph(WAITING, tally=old), Woke(NOW + 30), POLICY).supervision.tally

    assert tally == Tally(restarts=6, restarted_at=(NOW - 3000, NOW + 30))


@pytest.mark.parametrize(("limit", "kept"), [(2, (NOW - 100, NOW + 30)), (0, ())])
def test_c3_no_more_restarts_are_kept_than_the_limit_asks_for(limit: int, kept: tuple[Moment, ...]) -> None:
    policy = replace(POLICY, max_restarts_per_hour=limit)
    crashed = ralph(WAITING, tally=Tally(restarted_at=(NOW - 3000, NOW - 100)))

    assert step(crashed, Woke(NOW + 30), policy).supervision.tally.restarted_at == kept


# P6: not supervised


@pytest.mark.parametrize(
    "policy", [replace(UNSUPERVISED, restart=Restart.ALWAYS), replace(UNSUPERVISED, mode=Mode.ITERATION)]
)
def test_p6_an_unsupervised_run_is_not_started_again(policy: Policy) -> None:
    assert after_end(EXIT_0, policy).supervision.state == Done("complete")


def test_the_answer_to_an_end_says_what_it_meant() -> None:
    assert after_end(EXIT_0).exit_meaning is Outcome.DONE
    assert after_end(EXIT_1).exit_meaning is Outcome.FAILED
