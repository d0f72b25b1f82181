"""The data of supervision: goal, state, counters, how a run ended, and the policy.

A moment is a ``Moment``: seconds since the epoch, UTC, by the wall clock. A duration is a float whose name
ends in ``_s``.
"""

from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, Literal, NewType, TypeAlias

from ralphd.core.limits import NO_SLOT, UserLimits
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

RunId = NewType("RunId", str)


class Goal(StrEnum):
    """What was requested. Kept apart from the state, on disk too."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"


class Restart(StrEnum):
    """``[ralph] restart``: what follows a run that ended with 0 (E1)."""

    ON_FAILURE = "on-failure"
    ALWAYS = "always"
    NEVER = "never"


class Mode(StrEnum):
    """``[ralph] mode``: one run loops by itself, or each run is one iteration (E4)."""

    LOOP = "loop"
    ITERATION = "iteration"


class Reason(StrEnum):
    """Why nothing runs until a moment."""

    CRASH = "crash"
    ITERATION_PAUSE = "iteration_pause"
    RESTART = "restart"
    RESTART_LIMIT = "restart_limit"
    RESOURCES = "resources"
    SCHEDULE = "schedule"
    USAGE_LIMIT = "usage_limit"


ADMISSION: Final = (Reason.RESOURCES, Reason.SCHEDULE, Reason.USAGE_LIMIT)
"""The reasons of a start that waits for its turn."""


class Outcome(StrEnum):
    """What the end of a run means (E1 to E3, L10, L11)."""

    DONE = "done"
    PAUSED = "paused"
    LIMIT = "limit"
    REFUSED = "refused"
    FAILED = "failed"
    STALLED = "stalled"
    TIMED_OUT = "timeout"
    LOST = "lost"
    ASKED = "asked"
    GAVE_UP = "gave_up"
    NO_PROGRESS = "no_progress"


class Overdue(StrEnum):
    """Why we ended a run ourselves: it hung (H4), or was longer than ``max_run_seconds`` (H6)."""

    STALL = "stall"
    TIMEOUT = "timeout"


class Next(StrEnum):
    """The reply to a run at a boundary: continue, end, or end until it is resumed."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class ExitFacts:
    """The end of a run, as its exit record or its absence tells it.

    ``code`` and ``signal`` are both None for a run that was lost: its shim is gone and left no record (S6).
    ``last_sign_at`` is the time of its last output, ``committed`` whether the repository's HEAD moved.
    ``pause_reason`` and ``resume_at`` come from the checkpoint of a run that ended with 75. ``uncommitted``
    names tracked files that differ from HEAD, and untracked files from the time of the work. ``unpushed`` is
    a line about commits that ``auto_push`` could not push.
    """

    run_id: RunId
    at: Moment
    code: int | None = None
    signal: int | None = None
    started_at: Moment | None = None
    last_sign_at: Moment | None = None
    committed: bool = False
    complete: bool = False
    pause_reason: str | None = None
    resume_at: Moment | None = None
    uncommitted: tuple[str, ...] = ()
    unpushed: str = ""

    @property
    def lost(self) -> bool:
        return self.code is None and self.signal is None


@dataclass(frozen=True, slots=True)
class Policy(UserLimits):
    """The rules of one ralph, from its pinned configuration. Defaults are the configuration's.

    ``own_loop``: it runs the built-in loop, which numbers its iterations across runs.
    """

    supervised: bool = True
    restart: Restart = Restart.ON_FAILURE
    mode: Mode = Mode.LOOP
    iteration_pause_s: float = 1.0
    max_retries: int = 3
    retry_backoff_s: float = 30.0
    retry_backoff_factor: float = 1.0
    retry_backoff_max_s: float = 600.0
    healthy_after_s: float = 600.0
    max_restarts_per_hour: int = 10
    stop_timeout_s: float = 30.0
    reset_margin_s: float = 60.0
    own_loop: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What is counted over a ralph's runs, since ``began_at``, when a person started it.

    ``restarted_at`` holds the newest crash restarts of the last hour, at most ``max_restarts_per_hour``.
    ``iteration`` counts those that are finished; of a command that does not report them, its commits.
    ``last_number`` is the number that the built-in loop gave the last one. ``reverts`` counts the iterations
    whose commits were reverted.
    ``called`` is why the last verdict called a person: the next one for the same reason does not.
    ``unscheduled_until``: the schedule does not apply before then: a person skipped the wait for it.
    """

    consecutive_errors: int = 0
    restarts: int = 0
    iteration: int = 0
    cost_usd: float = 0.0
    began_at: Moment | None = None
    restarted_at: tuple[Moment, ...] = ()
    last_number: int | None = None
    reverts: int = 0
    called: str | None = None
    unscheduled_until: Moment | None = None


@dataclass(frozen=True, slots=True)
class ReportedTask:
    """The task that a run works on."""

    id: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait and its reason: nothing starts, or the run gives no sign of life, before ``until``."""

    reason: str
    until: Moment

    @property
    def ends_at(self) -> Moment | None:
        """Return when it ends; None if nobody knows: a place, a slot or memory may be free at any time."""
        return None if self.reason == Reason.RESOURCES or NO_SLOT in self.reason else self.until


@dataclass(frozen=True, slots=True)
class AnsweredReport:
    """A report that was acted on, by its id; ``digest`` detects another report under the same id."""

    id: str
    digest: str
    next: Next


@dataclass(frozen=True, slots=True)
class LastWord:
    """What a run announces before it ends: its code, and why, in a word and in a sentence.

    ``resume_at`` is when its limit resets. It counts only where the run ends with ``code``.
    """

    code: int
    reason: str
    why: str = ""
    resume_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class RunReports:
    """What the run that lives has reported, and the replies it got.

    ``signals``: it handles SIGUSR1 and SIGUSR2; ``beats``: it sends heartbeats, and stalls without them (H6);
    ``iterates``: it reports its iterations, and so has boundaries. ``errors_cleared`` were cleared by them:
    a run that hangs in the end has not earned that (C3). ``limit`` is the limit that it was stopped for.
    ``testing``: its commits are being tested, and it waits. ``guard`` is why a person has to look at them.
    ``judged`` is the boundary of the last verdict, ``reverted`` whether that reverted something.
    ``off_schedule``: it was stopped for its ralph's schedule, and the next run follows in time. ``seen_usd``:
    what its output shows that it cost.
    """

    hello: bool = False
    signals: bool = False
    beats: bool = False
    iterates: bool = False
    agent: str | None = None
    task: ReportedTask | None = None
    wait: Wait | None = None
    errors_cleared: int = 0
    limit: str | None = None
    seen_usd: float = 0.0
    off_schedule: bool = False
    last_word: LastWord | None = None
    testing: bool = False
    guard: str | None = None
    judged: str = ""
    reverted: bool = False
    answered: tuple[AnsweredReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """Registered, never started."""

    kind: Literal["idle"] = "idle"


@dataclass(frozen=True, slots=True)
class Running:
    """A run lives. ``overdue``: we have ended it, and wait for the end to be seen."""

    run_id: RunId
    overdue: Overdue | None = None
    kind: Literal["running"] = "running"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing runs until ``until``; then a run starts. ``since`` tells when the clock was set back.

    ``why`` is what a start waits for, in words, with one of the reasons ``ADMISSION``. ``queued_at``:
    it waits since then for its turn to start, which may come before ``until``.
    """

    reason: Reason
    since: Moment
    until: Moment
    why: str = ""
    queued_at: Moment | None = None
    kind: Literal["waiting_for_retry"] = "waiting_for_retry"


@dataclass(frozen=True, slots=True)
class Pausing:
    """A run lives and is to end, for a pause. Fields as in ``Stopping``."""

    run_id: RunId
    since: Moment
    kill_at: Moment | None
    asked: bool = True
    kind: Literal["pausing"] = "pausing"


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing runs, until ``resume_at`` or a request; ``why`` is the reason in words."""

    reason: str
    resume_at: Moment | None = None
    why: str = ""
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True)
class Stopping:
    """A run lives and was asked to end. Its tree is killed at ``kill_at``; ``again`` starts the next at once.

    A run that reports its iterations ends at the next boundary: ``kill_at`` is None until then, and ``asked``
    False as long as no signal was sent to it (G1). A daemon that ends takes its runs along as a stop does,
    and leaves the goal as it is (G2).
    """

    run_id: RunId
    since: Moment
    kill_at: Moment | None
    again: bool = False
    asked: bool = True
    kind: Literal["stopping"] = "stopping"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing runs: a person stopped it, or the daemon ended; with ``why``, it stopped by itself (L10)."""

    why: str = ""
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing runs and nothing will until you act."""

    why: str
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done, or a limit of the user's own was reached; ``limit`` says which, where we know.

    ``uncommitted`` is a line about what was not committed or not pushed.
    """

    why: str = "complete"
    limit: str | None = None
    uncommitted: str = ""
    kind: Literal["done"] = "done"


Rest: TypeAlias = Idle | Waiting | Paused | Stopped | Failed | Done
"""Nothing runs."""


@dataclass(frozen=True, slots=True)
class Starting:
    """A spawn has been ordered and nothing has come back yet.

    ``before`` is what it was when a person asked for it: to that it goes back when the command cannot be
    started. Where nobody asked it is None. With ``kill`` the tree is to be killed as soon as it is there.
    ``queued_at``: it has waited for its turn since then, and keeps it. ``skips``: a person does not want it
    to wait for its account.
    """

    before: Rest | None = None
    kill: bool = False
    queued_at: Moment | None = None
    skips: bool = False
    kind: Literal["starting"] = "starting"


State: TypeAlias = Rest | Starting | Running | Pausing | Stopping
HAS_A_RUN = (Running, Pausing, Stopping)
SETTLED = (Idle, Stopped, Failed, Done)
"""Nothing runs, and nothing will before a person acts."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """All that a Regent knows of its ralph: goal, state, counters, and the reports of its run."""

    goal: Goal = Goal.STOPPED
    state: State = field(default_factory=Idle)
    tally: Tally = field(default_factory=Tally)
    said: RunReports = field(default_factory=RunReports)

    @property
    def wait(self) -> Wait | None:
        """What is waited for: by the Regent, between two runs; or by the run that lives, as it reported."""
        match self.state:
            case Waiting(reason=reason, until=until):
                return Wait(reason.value, until)
            case Paused(reason=why, resume_at=float() as until):
                return Wait(why, until)
            case _:
                return self.said.wait

    def has_run(self, run_id: RunId) -> bool:
        """Whether this run lives."""
        return isinstance(self.state, HAS_A_RUN) and self.state.run_id == run_id

    def enter(self, state: State, *actions: "Action") -> "Step":
        """Return the step into ``state``, with all else as it is."""
        return Step(replace(self, state=state), actions)


# The orders that a Regent gives. The state that goes with them is written down first.


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a run. Answered by ``Spawned`` or ``SpawnFailed``."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the run's command to end (SIGTERM, SIGCONT)."""

    run_id: RunId


class ControlSignal(StrEnum):
    """What a command whose hello said ``signals`` can be asked for: SIGUSR1, SIGUSR2."""

    PAUSE = "pause"
    SKIP_WAIT = "skip_wait"


@dataclass(frozen=True, slots=True)
class PassOn:
    """Send a command one of the signals that it handles."""

    run_id: RunId
    wish: ControlSignal


@dataclass(frozen=True, slots=True)
class KillTree:
    """End the whole tree of a run."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class KillAfter:
    """Post ``GraceOver`` after ``delay_s`` seconds of the monotonic clock. Replaces an earlier one."""

    run_id: RunId
    delay_s: float


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Post ``Woke`` at this moment of the wall clock, or soon after."""

    at: Moment


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish an event. ``text`` is for people; without it the Regent prints nothing.

    ``data`` is added to the event, key by key.
    """

    type: str
    text: str | None = None
    wait_until: Moment | None = None
    data: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Escalate:
    """Escalate to a person, once: event, webhooks, live view, ``ralphd.log`` (C2)."""

    text: str


Action: TypeAlias = Spawn | Terminate | PassOn | KillTree | KillAfter | WakeAt | Announce | Escalate


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to an event: the next supervision, and the actions that follow, in order.

    ``refusal`` is why the event does not fit, in words. ``exit_meaning`` is that of the run whose end this
    step has answered. Both follow from the event, so equality does not ask for them.
    """

    supervision: Supervision
    actions: tuple[Action, ...] = ()
    refusal: str | None = field(default=None, compare=False)
    exit_meaning: Outcome | None = field(default=None, compare=False)
