"""The table of supervision (``states.toml``): what it is about, how it is written, and what ``step`` answers.

A row names scenes, events and policies, and what all of them lead to, down to the last field: the state, the
goal, the counts, what is remembered of the run, and every action. A pair without a row changes nothing.
Moments are seconds from ``T``; what a row leaves out stays as it is.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    Committed,
    CostSeen,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GateRunBegan,
    GraceOver,
    HistoryRewritten,
    LeftBehind,
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
    VerdictReached,
    Woke,
)
from ralphd.core.supervision.exit_policy import in_words
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    SETTLED,
    Action,
    Announce,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    KillAfter,
    KillTree,
    LastWord,
    Mode,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    Reason,
    Restart,
    RunId,
    Running,
    RunReports,
    Spawn,
    Starting,
    State,
    Step,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    Wait,
    Waiting,
    WakeAt,
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
from ralphd.core.supervision.requests import data_of, why_not
from ralphd.core.supervision.step import step
from ralphd.core.time import Moment

TABLE = Path(__file__).with_name("states.toml")
T: Moment = 1_800_000_000.0
RUN = RunId("r000001-3fa9c1d2")
OTHER = RunId("r000002-77aa01b3")
WORN = Tally(consecutive_errors=1, restarts=2, iteration=3, began_at=T - 600, restarted_at=(T - 60,))
SIGNALS = RunReports(hello=True, signals=True)
ITERATES = RunReports(iterates=True)
LOOP = RunReports(hello=True, signals=True, iterates=True)
CRASH_WAIT = Waiting(Reason.CRASH, T, T + 30)
LIMIT = Paused("usage_limit", T + 3600)


def scene(
    state: State, goal: Goal = Goal.RUNNING, said: RunReports | None = None, **tally: Any
) -> Supervision:
    """A ralph that has failed once in a row, was restarted twice, and has finished three iterations."""
    return Supervision(goal, state, replace(WORN, **tally), said or RunReports())


SCENES: Mapping[str, Supervision] = {
    "idle": Supervision(),
    "starting": scene(Starting()),
    "starting, requested": scene(Starting(before=Stopped())),
    "starting, wait skipped": scene(Starting(before=CRASH_WAIT)),
    "starting, limit skipped": scene(Starting(before=LIMIT)),
    "starting, tests running": scene(Starting(), said=RunReports(testing=True)),
    "starting, stop requested": scene(Starting(before=Stopped()), Goal.STOPPED),
    "starting, kill requested": scene(Starting(before=CRASH_WAIT, kill=True), Goal.STOPPED),
    "starting, pause requested": scene(Starting(before=Stopped()), Goal.PAUSED),
    "running": scene(Running(RUN)),
    "running, two failures": scene(Running(RUN), consecutive_errors=2),
    "running, iterates": scene(Running(RUN), said=ITERATES),
    "running, hello": scene(Running(RUN), said=RunReports(hello=True)),
    "running, signals": scene(Running(RUN), said=SIGNALS),
    "running, built-in loop": scene(Running(RUN), said=LOOP),
    "running, waits": scene(Running(RUN), said=replace(SIGNALS, wait=Wait("rate_limit", T + 30))),
    "running, waits without signals": scene(
        Running(RUN), said=RunReports(hello=True, wait=Wait("rate_limit", T + 30))
    ),
    "running, reverted": scene(Running(RUN), said=replace(LOOP, reverted=True)),
    "running, tests running": scene(Running(RUN), said=replace(LOOP, testing=True)),
    "running, gives up": scene(
        Running(RUN), said=replace(SIGNALS, last_word=LastWord(1, "no_agent", "no agent is left"))
    ),
    "running, no progress": scene(
        Running(RUN), said=replace(SIGNALS, last_word=LastWord(0, "no_progress", "nothing was committed"))
    ),
    "running, limit": scene(
        Running(RUN), said=replace(SIGNALS, last_word=LastWord(5, "limit", "two hours are over"))
    ),
    "running, stalled": scene(Running(RUN, Overdue.STALL), said=LOOP),
    "running, timed out": scene(Running(RUN, Overdue.TIMEOUT), said=LOOP),
    "running, stop wanted": scene(Running(RUN), Goal.STOPPED),
    "another run": scene(Running(OTHER), said=SIGNALS),
    "waiting": scene(CRASH_WAIT),
    "waiting, restart limit": scene(Waiting(Reason.RESTART_LIMIT, T, T + 30)),
    "waiting, resources": scene(Waiting(Reason.RESOURCES, T, T + 30)),
    "waiting, usage limit": scene(Waiting(Reason.USAGE_LIMIT, T, T + 30)),
    "waiting, schedule": scene(Waiting(Reason.SCHEDULE, T, T + 30, "outside", T - 9)),
    "waiting, restart": scene(Waiting(Reason.RESTART, T, T + 30)),
    "waiting, next iteration": scene(Waiting(Reason.ITERATION_PAUSE, T, T + 30)),
    "pausing": scene(Pausing(RUN, T, T + 30), Goal.PAUSED),
    "pausing, at the boundary": scene(Pausing(RUN, T, None, asked=False), Goal.PAUSED, ITERATES),
    "pausing, signalled": scene(Pausing(RUN, T, None), Goal.PAUSED, LOOP),
    "pausing, told at the boundary": scene(Pausing(RUN, T, T + 30, asked=False), Goal.PAUSED, ITERATES),
    "pausing, for the gate": scene(
        Pausing(RUN, T, None, asked=False), Goal.PAUSED, replace(ITERATES, guard="a conflict in a.py")
    ),
    "paused": scene(Paused("requested"), Goal.PAUSED),
    "paused, until a reset": scene(LIMIT),
    "paused, reset unknown": scene(Paused("usage_limit")),
    "stopping": scene(Stopping(RUN, T, T + 30), Goal.STOPPED, RunReports(hello=True)),
    "stopping, at the boundary": scene(Stopping(RUN, T, None, asked=False), Goal.STOPPED, ITERATES),
    "stopping, signalled": scene(Stopping(RUN, T, None), Goal.STOPPED, LOOP),
    "stopping, told at the boundary": scene(Stopping(RUN, T, T + 30, asked=False), Goal.STOPPED, ITERATES),
    "stopping, at a limit": scene(
        Stopping(RUN, T, T + 30, asked=False), said=replace(ITERATES, limit="5 iterations, as you asked")
    ),
    "stopping, to start again": scene(Stopping(RUN, T, T + 30, again=True)),
    "stopping, with the daemon": scene(Stopping(RUN, T, T + 30)),
    "another run, stopping": scene(Stopping(OTHER, T, T + 30), Goal.STOPPED),
    "stopped": scene(Stopped(), Goal.STOPPED),
    "stopped, with the daemon": scene(Stopped()),
    "failed": scene(Failed("exit 1")),
    "done": scene(Done()),
    "done, at a limit": scene(Done("limit")),
}


def _end(code: int | None = None, *, signal: int | None = None, **more: Any) -> Event:
    return RunEnded(replace(ExitFacts(RUN, T + 5, code=code, signal=signal), **more))


def _report(what: Report) -> Event:
    return Reported(T + 5, RUN, "1", "digest", what)


def _verdict(kind: VerdictKind, why: str, *, pauses: bool = False) -> Event:
    reverted = ("abc1234",) if kind is VerdictKind.REVERTED else ()
    verdict = Verdict(kind, why, Baseline.GREEN, pauses=pauses, run_id=RUN, number=4, at=T + 5)
    return VerdictReached(replace(verdict, commits=("abc1234",), reverted=reverted, tests=("green",)))


ENDS: Mapping[str, Event] = {
    "exit 0": _end(0),
    "exit 0, no open task": _end(0, complete=True),
    "exit 1": _end(1),
    "exit 1, after a commit": _end(1, committed=True),
    "exit 2": _end(2),
    "exit 5": _end(5),
    "exit 75": _end(75),
    "exit 75, requested": _end(75, pause_reason="requested", resume_at=T + 3600),
    "exit 75, reset known": _end(75, pause_reason="usage_limit", resume_at=T + 3600),
    "exit 75, reset unknown": _end(75, pause_reason="usage_limit"),
    "exit 78": _end(78),
    "exit 127": _end(127),
    "killed": _end(signal=9),
    "lost": _end(),
}
REPORTS: Mapping[str, Event] = {
    "report: hello": _report(Hello(signals=True)),
    "report: iteration started": _report(IterationStarted(4)),
    "report: attempt finished": _report(AttemptFinished("claude", "done")),
    "report: iteration finished": _report(IterationFinished(4)),
    "report: iteration failed": _report(IterationFinished(4, failed=True)),
    "report: waiting": _report(WaitingUntil(T + 60, "rate_limit")),
    "report: waiting, no reason": _report(WaitingUntil(T + 60)),
    "report: wait over": _report(WaitingUntil(None)),
    "report: cost": _report(Cost(0.5)),
    "report: agent exhausted": _report(AgentExhausted("claude", "usage limit", T + 3600)),
    "report: agent back": _report(AgentReturned("claude")),
    "report: last word": _report(LastWord(1, "no_agent", "no agent is left")),
    "report: heartbeat": _report(Heartbeat()),
}
REQUESTS: Mapping[str, Event] = {
    "start": StartRequested(T),
    "stop": StopRequested(T),
    "stop, later": StopRequested(T + 20),
    "stop --now": StopRequested(T, now=True),
    "stop --now, after the deadline": StopRequested(T + 50, now=True),
    "pause": PauseRequested(T),
    "pause, later": PauseRequested(T + 9),
    "resume": ResumeRequested(T),
    "restart": RestartRequested(T),
    "restart, later": RestartRequested(T + 9),
    "skip-wait": SkipWaitRequested(T),
}
EVENTS: Mapping[str, Event] = {
    **REQUESTS,
    "daemon stops": DaemonStopping(T),
    "daemon stops now": DaemonStopping(T + 1, now=True),
    "daemon starts": DaemonStarted(T + 10),
    "daemon starts, run alive": DaemonStarted(T + 10, RUN),
    "daemon starts late, run alive": DaemonStarted(T + 500, RUN),
    "daemon starts, run alive, clock set back": DaemonStarted(T - 86_400, RUN),
    "daemon starts, another run alive": DaemonStarted(T + 10, OTHER),
    "spawned": Spawned(T, RUN),
    "spawn failed": SpawnFailed(T, "why"),
    "spawn postponed": SpawnPostponed(T, "why"),
    "start outside the schedule": SpawnPostponed(T, "why", Reason.SCHEDULE, T + 900, T - 9),
    **ENDS,
    **REPORTS,
    "tests begin": GateRunBegan(T + 5, RUN),
    "first tests begin": GateRunBegan(T, None),
    "first tests green": BaselineTested(T, "t1", Result.GREEN),
    "first tests red": BaselineTested(T, "t1", Result.RED),
    "first tests timed out": BaselineTested(T, "t1", Result.TIMED_OUT, "exit 9"),
    "first tests cannot run": BaselineTested(T, "t1", Result.CANNOT_RUN, "exit 127"),
    "first tests cancelled": BaselineTested(T, "t1", None),
    "verdict: kept": _verdict(VerdictKind.KEPT, "the tests pass"),
    "verdict: reverted": _verdict(VerdictKind.REVERTED, "the tests failed, and pass without it"),
    "verdict: untested": _verdict(VerdictKind.UNTESTED, "a conflict in a.py"),
    "verdict: a person must look": _verdict(VerdictKind.UNTESTED, "a conflict in a.py", pauses=True),
    "commits restored": CommitsRestored(T + 5, "f1", RUN, 2, None, ("abc1234",), ("def5678",)),
    "repository repaired": LeftBehind(T + 5, RUN, ("removed .git/index.lock",), ("a rebase is half done",)),
    "history restored": HistoryRewritten(
        T + 5,
        RUN,
        "f1",
        "main",
        ("abc1234",),
        ref="refs/ralph/left/x",
        number=1,
        undo="ralphctl undo x --repair 1",
    ),
    "history lost": HistoryRewritten(T + 5, RUN, "f1", "main", ("abc1234",), why="a file is in the way"),
    "silent": FellSilent(T + 5, RUN, "what was seen"),
    "stalled": Overran(T + 5, RUN, Overdue.STALL, "what was seen"),
    "timed out": Overran(T + 5, RUN, Overdue.TIMEOUT, "what was seen"),
    "committed": Committed(T + 5, RUN, 2),
    "cost seen": CostSeen(T + 5, RUN, 0.5),
    "schedule ended": ScheduleEnded(T + 5, RUN),
    "grace over": GraceOver(T + 30, RUN),
    "woken early": Woke(T + 10),
    "woken early, it is its turn": Woke(T + 10, is_free=True),
    "woken": Woke(T + 30),
    "woken, at the reset": Woke(T + 3600),
    "woken late": Woke(T + 100_000),
    "woken, clock set back": Woke(T - 86_400),
}
DEFAULT = "default"
POLICIES: Mapping[str, Policy] = {
    DEFAULT: Policy(),
    'restart = "always"': Policy(restart=Restart.ALWAYS),
    'restart = "never"': Policy(restart=Restart.NEVER),
    'mode = "iteration"': Policy(mode=Mode.ITERATION),
    "max_iterations = 4": Policy(max_iterations=4),
    "max_cost_usd = 0.5": Policy(max_cost_usd=0.5),
    "max_retries = 0": Policy(max_retries=0),
    "enabled = false": Policy(supervised=False),
}
GROUPS: Mapping[str, frozenset[str]] = {
    "any state": frozenset(SCENES),
    "any run": frozenset(name for name, each in SCENES.items() if getattr(each.state, "run_id", None) == RUN),
    "no run": frozenset(name for name, each in SCENES.items() if not isinstance(each.state, HAS_A_RUN)),
    "settled": frozenset(name for name, each in SCENES.items() if isinstance(each.state, SETTLED)),
    **{
        f"any {kind}": frozenset(name for name in SCENES if name.split(",")[0] == kind)
        for kind in ("starting", "running", "waiting", "pausing", "paused", "stopping")
    },
    "any end": frozenset(ENDS),
    "any failure": frozenset({"exit 1", "exit 127", "killed", "lost"}),
    "any other failure": frozenset({"exit 2", "exit 5", "exit 78"}),
    "any report": frozenset(REPORTS),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What ``events`` lead to in ``scenes``, under ``policy``, in the notation of the table."""

    scenes: tuple[str, ...]
    events: tuple[str, ...]
    policies: tuple[str, ...]
    answer: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What the row is called in a report of pytest."""
        more = "" if self.policies == (DEFAULT,) else f" ({self.policies[0]})"
        return f"{self.scenes[0]}: {self.events[0]}{more}"

    def cases(self) -> Iterator[tuple[str, str, str]]:
        """Each scene with each event and each policy."""
        return product(expanded(self.scenes, SCENES), expanded(self.events, EVENTS), self.policies)


def expanded(names: tuple[str, ...], known: Mapping[str, object]) -> list[str]:
    """The names meant, in the order of ``known``: ``any ...`` is a group, ``not ...`` leaves one out."""
    wanted = {each for name in names for each in GROUPS.get(name, {name}) if not name.startswith("not ")}
    left_out = {name.removeprefix("not ") for name in names if name.startswith("not ")}
    assert wanted | left_out <= set(known), (wanted | left_out) - set(known)
    return [name for name in known if name in wanted - left_out]


def rows() -> list[Row]:
    """The rows of the table."""
    found = []
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]:
        row.pop("unchanged", None)
        policies = tuple(row.pop("policy", [DEFAULT]))
        found.append(Row(tuple(row.pop("in")), tuple(row.pop("on")), policies, row))
    return found


def replies() -> Mapping[str, list[str]]:
    """The scenes, by the reply that a run gets to its reports."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["replies"]
    return {reply: expanded(tuple(names), SCENES) for reply, names in table.items()}


def answer(scene_name: str, event_name: str, policy: str = DEFAULT) -> dict[str, Any]:
    """What ``step`` answers, in the notation of the table; empty where nothing changes."""
    before, event = SCENES[scene_name], EVENTS[event_name]
    done = step(before, event, POLICIES[policy])
    if (why := why_not(before, event)) is not None:
        assert done == Step(before)
        return {"refused": why.replace(before.state.kind.replace("_", " "), "{state}")}
    after, words = done.supervision, Notation(event)
    found: dict[str, Any] = {}
    if after.state != before.state:
        found["next"] = words.of(after.state, before.state)
    if after.goal is not before.goal or (done != Step(before) and event_name in REQUESTS):
        found["goal"] = str(after.goal)
    if after.tally != before.tally:
        fresh = after.tally == Tally(began_at=words.at)
        found["tally"] = "afresh" if fresh else words.changes(before.tally, after.tally)
    found.update(_remembered(before, after, words))
    if done.actions:
        found["do"] = [words.order(action) for action in done.actions]
    return found


def _remembered(before: Supervision, after: Supervision, words: "Notation") -> dict[str, str]:
    """What is known of the run; its end is the end of that too."""
    if after.said == RunReports() and isinstance(before.state, HAS_A_RUN):
        if not isinstance(after.state, HAS_A_RUN):
            return {}
        return {} if before.said == RunReports() else {"run": "forgotten"}
    found: dict[str, str] = {}
    said = after.said
    if said.answered:  # the reply depends on the state alone: ``replies`` in the table
        assert [(each.id, each.digest) for each in said.answered] == [("1", "digest")]
        said = replace(said, answered=())
    if isinstance(words.event, VerdictReached | BaselineTested) and said.testing:
        assert after == before
    elif isinstance(words.event, VerdictReached | BaselineTested):  # the tests are over, each time
        said = replace(said, testing=before.said.testing)
    if said != before.said:
        found["run"] = words.changes(before.said, said)
    return found


class Notation:
    """How the table writes states, changes and actions; moments count from that of the event."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.at = event.ending.at if isinstance(event, RunEnded) else event.at
        self._run_id = OTHER if isinstance(event, DaemonStarted) and event.living == OTHER else RUN
        self._end = f"({in_words(event.ending)})" if isinstance(event, RunEnded) else ""
        self._data: tuple[tuple[str, object], ...] = ()
        if isinstance(event, VerdictReached):
            self._data = data_of(event.verdict)
        elif isinstance(event, Reported) and isinstance(event.report, IterationFinished | AttemptFinished):
            self._data = tuple(event.report.data().items())

    def changes(self, before: Any, after: Any) -> str:
        """``iteration=4, cost_usd=0.5``: the fields that are not what they were."""
        names = [field.name for field in fields(after)]
        changed = [name for name in names if getattr(before, name) != getattr(after, name)]
        return ", ".join(f"{name}={self.of(getattr(after, name))}" for name in changed)

    def of(self, value: object, before: object = None) -> str:
        """``stopping(since=now, kill_at=now+30)``, without defaults and the id of its run."""
        if value is before is not None:
            return "as before"
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, str):
            return value.replace(self._end, "({end})") if self._end else value
        if is_dataclass(value):
            shown = [
                f"{field.name}={self.of(getattr(value, field.name), before)}"
                for field in fields(value)
                if field.name != "kind" and getattr(value, field.name) not in (field.default, self._run_id)
            ]
            return getattr(value, "kind", "") + (f"({', '.join(shown)})" if shown else "")
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, float) and value > 1e9:
            return "now" if value == self.at else f"now{value - self.at:+g}"
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, float) else str(value)

    def order(self, action: Action) -> str:
        """``announce TYPE until MOMENT [DATA]: TEXT``, ``kill after 30 s``; ``*``: the event's own data."""
        match action:
            case Spawn():
                return "spawn"
            case Terminate(run_id=run_id):
                return "terminate" + self._of(run_id)
            case PassOn(run_id=run_id, wish=wish):
                return f"signal {wish}{self._of(run_id)}"
            case KillTree(run_id=run_id):
                return f"kill{self._of(run_id)}"
            case KillAfter(run_id=run_id, delay_s=delay_s):
                return f"kill after {delay_s:g} s{self._of(run_id)}"
            case WakeAt(at=at):
                return f"wake at {self.of(at)}"
            case Escalate(text=text):
                return f"escalate: {self.of(text)}"
            case Announce():
                return self._announcement(action)

    def _announcement(self, action: Announce) -> str:
        until = "" if action.wait_until is None else f" until {self.of(action.wait_until)}"
        own = bool(self._data) and action.data[-len(self._data) :] == self._data
        more = action.data[: -len(self._data)] if own else action.data
        known = [*(f"{name}={self.of(value)}" for name, value in more), *(["*"] if own else [])]
        data = f" [{', '.join(known)}]" if known else ""
        text = "" if action.text is None else f": {self.of(action.text)}"
        return f"announce {action.type}{until}{data}{text}"

    def _of(self, run_id: RunId) -> str:
        return "" if run_id == self._run_id else f" {run_id}"
