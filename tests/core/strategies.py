"""Anything that a Regent may be told, in any state, under any policy."""

from hypothesis import strategies as st

from ralphd.core.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    GraceOver,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.model import (
    Done,
    Ending,
    Failed,
    Goal,
    Idle,
    Mode,
    Paused,
    Pausing,
    Policy,
    Reason,
    Rest,
    Restart,
    Running,
    Starting,
    State,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Waiting,
)
from tests.core.scenes import NEXT_RUN, NOW, RUN

moments = st.integers(-10_000, 10_000).map(lambda s: NOW + s) | st.floats(0, 4e9)
durations = st.sampled_from([0.0, 1.0, 30.0]) | st.floats(0, 1e6)
run_ids = st.sampled_from([RUN, NEXT_RUN])
reasons = st.sampled_from(["usage_limit", "requested"])

policies = st.builds(
    Policy,
    supervised=st.booleans(),
    restart=st.sampled_from(Restart),
    mode=st.sampled_from(Mode),
    max_iterations=st.integers(0, 5),
    iteration_pause_s=durations,
    max_retries=st.integers(0, 100),
    retry_backoff_s=durations,
    retry_backoff_factor=st.floats(0, 1e6),
    retry_backoff_max_s=durations,
    healthy_after_s=durations,
    max_restarts_per_hour=st.integers(0, 12),
    stop_timeout_s=durations,
    reset_margin_s=durations,
)
tallies = st.builds(
    Tally,
    consecutive_errors=st.integers(0, 100),
    restarts=st.integers(0, 100),
    iteration=st.integers(0, 10),
    restarted_at=st.lists(moments, max_size=12).map(lambda all_moments: tuple(sorted(all_moments))),
)
settled_states: st.SearchStrategy[Rest] = st.one_of(
    st.just(Idle()),
    st.just(Stopped()),
    st.builds(Failed, st.just("exit 1")),
    st.builds(Done, st.sampled_from(["complete", "limit"])),
    st.builds(Paused, reasons),
)
states_with_a_run: st.SearchStrategy[State] = st.one_of(
    st.builds(Running, run_ids),
    st.builds(Pausing, run_ids, moments, moments),
    st.builds(Stopping, run_ids, moments, moments, st.booleans()),
)
resting_states: st.SearchStrategy[Rest] = st.one_of(
    settled_states,
    st.builds(Waiting, st.sampled_from(Reason), moments, moments),
    st.builds(Paused, reasons, moments),
)
births: st.SearchStrategy[State] = st.builds(Starting, st.none() | resting_states, st.booleans())
states: st.SearchStrategy[State] = st.one_of(
    states_with_a_run,
    resting_states,
    births,
)
supervisions = st.builds(Supervision, st.sampled_from(Goal), states, tallies)
endings = st.builds(
    Ending,
    run_ids,
    moments,
    code=st.none() | st.sampled_from([0, 1, 2, 5, 75, 78, 127]),
    signal=st.none() | st.sampled_from([9, 15]),
    started_at=st.none() | moments,
    last_sign_at=st.none() | moments,
    committed=st.booleans(),
    said_hello=st.booleans(),
    stalled=st.booleans(),
    complete=st.booleans(),
    pause_reason=st.none() | reasons,
    resume_at=st.none() | moments,
)
requests: st.SearchStrategy[Event] = st.one_of(
    st.builds(StartRequested, moments),
    st.builds(StopRequested, moments, st.booleans()),
    st.builds(PauseRequested, moments),
    st.builds(ResumeRequested, moments),
    st.builds(RestartRequested, moments),
    st.builds(SkipWaitRequested, moments),
)
passing_time: st.SearchStrategy[Event] = st.one_of(
    st.builds(Woke, moments), st.builds(GraceOver, moments, run_ids), st.builds(RunEnded, endings)
)
news: st.SearchStrategy[Event] = st.one_of(
    passing_time,
    st.builds(DaemonStopping, moments, st.booleans()),
    st.builds(DaemonStarted, moments, st.none() | run_ids),
    st.builds(Spawned, moments, run_ids),
    st.builds(SpawnFailed, moments, st.just("no such file")),
    st.builds(SpawnPostponed, moments, st.just("no memory")),
)
events: st.SearchStrategy[Event] = requests | news
