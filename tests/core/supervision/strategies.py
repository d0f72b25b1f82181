"""Anything that a Regent may be told, in any state, under any policy."""

from dataclasses import replace

from hypothesis import strategies as st

from ralphd.core.supervision.events import (
    Committed,
    CostSeen,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GraceOver,
    Overran,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    ScheduleEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    AnsweredReport,
    Done,
    ExitFacts,
    Failed,
    Goal,
    Idle,
    LastWord,
    Mode,
    Next,
    Overdue,
    Paused,
    Pausing,
    Policy,
    Reason,
    ReportedTask,
    Rest,
    Restart,
    Running,
    RunReports,
    Starting,
    State,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Wait,
    Waiting,
)
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Cost,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    Reported,
    WaitingUntil,
)
from tests.core.supervision.scenes import NEXT_RUN, NOW, RUN

moments = st.integers(-10_000, 10_000).map(lambda s: NOW + s) | st.floats(0, 4e9)
durations = st.sampled_from([0.0, 1.0, 30.0]) | st.floats(0, 1e6)
run_ids = st.sampled_from([RUN, RUN, RUN, NEXT_RUN])
reasons = st.sampled_from(["usage_limit", "requested"])

policies = st.builds(
    Policy,
    supervised=st.booleans(),
    restart=st.sampled_from(Restart),
    mode=st.sampled_from(Mode),
    max_iterations=st.integers(0, 5),
    max_cost_usd=st.sampled_from([0.0, 0.5, 10.0]),
    max_runtime_s=durations,
    iteration_pause_s=durations,
    max_retries=st.integers(0, 100),
    retry_backoff_s=durations,
    retry_backoff_factor=st.floats(0, 1e6),
    retry_backoff_max_s=durations,
    healthy_after_s=durations,
    max_restarts_per_hour=st.integers(0, 12),
    stop_timeout_s=durations,
    reset_margin_s=durations,
    own_loop=st.booleans(),
)
tallies = st.builds(
    Tally,
    consecutive_errors=st.integers(0, 100),
    restarts=st.integers(0, 100),
    iteration=st.integers(0, 10),
    cost_usd=st.floats(0, 20),
    began_at=st.none() | moments,
    last_number=st.none() | st.integers(1, 9),
    restarted_at=st.lists(moments, max_size=12).map(lambda all_moments: tuple(sorted(all_moments))),
)
settled_states: st.SearchStrategy[Rest] = st.one_of(
    st.just(Idle()),
    st.builds(Stopped, st.sampled_from(["", "no progress"])),
    st.builds(Failed, st.just("exit 1")),
    st.builds(Done, st.sampled_from(["complete", "limit"]), uncommitted=st.sampled_from(["", "1 file"])),
    st.builds(Paused, reasons),
)
states_with_a_run: st.SearchStrategy[State] = st.one_of(
    st.builds(Running, run_ids, st.none() | st.sampled_from(Overdue)),
    st.builds(Pausing, run_ids, moments, st.none() | moments, st.booleans()),
    st.builds(Stopping, run_ids, moments, st.none() | moments, st.booleans(), st.booleans()),
)
resting_states: st.SearchStrategy[Rest] = st.one_of(
    settled_states,
    st.builds(Waiting, st.sampled_from(Reason), moments, moments, st.just(""), st.none() | moments),
    st.builds(Paused, reasons, moments),
)
births: st.SearchStrategy[State] = st.builds(
    Starting, st.none() | resting_states, st.booleans(), st.none() | moments, st.booleans()
)
states: st.SearchStrategy[State] = st.one_of(
    states_with_a_run,
    resting_states,
    births,
)
tasks = st.none() | st.builds(ReportedTask, st.just("3"), st.sampled_from(["", "Write it down"]))
agents = st.none() | st.just("claude")
report_ids = st.sampled_from(["1", "2", "3"])
last_words = st.builds(
    LastWord,
    st.sampled_from([0, 1, 5, 75]),
    st.sampled_from(["no_progress", "no_agent", "usage_limit"]),
    st.sampled_from(["", "in words"]),
    st.none() | moments,
)
said = st.builds(
    RunReports,
    hello=st.booleans(),
    signals=st.booleans(),
    beats=st.booleans(),
    iterates=st.booleans(),
    agent=agents,
    task=tasks,
    wait=st.none() | st.builds(Wait, reasons, moments),
    errors_cleared=st.integers(0, 3),
    limit=st.none() | st.just("5 iterations, as you asked"),
    off_schedule=st.booleans(),
    last_word=st.none() | last_words,
    answered=st.lists(
        st.builds(AnsweredReport, report_ids, st.sampled_from(["a", "b"]), st.sampled_from(Next)),
        max_size=2,
        unique_by=lambda answered: answered.id,
    ).map(tuple),
)


def silent_without_a_run(now: Supervision) -> Supervision:
    """The same; but nothing is said where no run lives that could have said it."""
    return now if isinstance(now.state, HAS_A_RUN) else replace(now, said=RunReports())


supervisions = st.builds(Supervision, st.sampled_from(Goal), states, tallies, said).map(silent_without_a_run)
endings = st.builds(
    ExitFacts,
    run_ids,
    moments,
    code=st.none() | st.sampled_from([0, 1, 2, 5, 75, 78, 127]),
    signal=st.none() | st.sampled_from([9, 15]),
    started_at=st.none() | moments,
    last_sign_at=st.none() | moments,
    committed=st.booleans(),
    complete=st.booleans(),
    pause_reason=st.none() | reasons,
    resume_at=st.none() | moments,
    uncommitted=st.just(()) | st.just(("a.py", "b.py", "c.py")),
)
requests: st.SearchStrategy[Event] = st.one_of(
    st.builds(StartRequested, moments),
    st.builds(StopRequested, moments, st.booleans()),
    st.builds(PauseRequested, moments),
    st.builds(ResumeRequested, moments),
    st.builds(RestartRequested, moments),
    st.builds(SkipWaitRequested, moments),
)
reports: st.SearchStrategy[Report] = st.one_of(
    st.builds(Hello, st.booleans(), agents),
    st.builds(IterationStarted, st.none() | st.integers(1, 9), tasks, agents),
    st.builds(AttemptFinished, st.just("claude"), st.just("failed"), cost_usd=st.floats(0, 5)),
    st.builds(IterationFinished, st.none() | st.integers(1, 9), st.booleans()),
    st.builds(WaitingUntil, st.none() | moments, reasons),
    st.builds(Cost, st.floats(0, 5)),
    st.builds(AgentExhausted, st.just("claude"), reasons, st.none() | moments),
    st.just(AgentReturned("claude")),
    last_words,
    st.just(Heartbeat()),
)
reported: st.SearchStrategy[Reported] = st.builds(
    Reported, moments, run_ids, report_ids, st.sampled_from(["a", "b"]), reports
)
watched: st.SearchStrategy[Event] = st.one_of(
    st.builds(FellSilent, moments, run_ids, st.just("silent")),
    st.builds(Overran, moments, run_ids, st.sampled_from(Overdue), st.just("hung")),
    st.builds(Committed, moments, run_ids, st.integers(1, 3)),
    st.builds(ScheduleEnded, moments, run_ids),
    st.builds(CostSeen, moments, run_ids, st.floats(0, 5)),
    reported,
)
passing_time: st.SearchStrategy[Event] = st.one_of(
    st.builds(Woke, moments, st.booleans()),
    st.builds(GraceOver, moments, run_ids),
    st.builds(RunEnded, endings),
)
news: st.SearchStrategy[Event] = st.one_of(
    passing_time,
    watched,
    st.builds(DaemonStopping, moments, st.booleans()),
    st.builds(DaemonStarted, moments, st.none() | run_ids),
    st.builds(Spawned, moments, run_ids),
    st.builds(SpawnFailed, moments, st.just("no such file")),
    st.builds(
        SpawnPostponed,
        moments,
        st.just("no memory"),
        st.sampled_from([Reason.RESOURCES, Reason.SCHEDULE, Reason.USAGE_LIMIT]),
        st.none() | moments,
        st.none() | moments,
    ),
)
events: st.SearchStrategy[Event] = requests | news
