"""The reports of a run: what each changes, and its reply (G1, H6, C3).

A report is acted upon once. The reply is kept by the report's id, and given again when it is sent again.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from ralphd.core.failures.kinds import hint, kind_of, meaning
from ralphd.core.supervision import model
from ralphd.core.supervision.model import Announce, Next, Policy, ReportedTask, RunReports, Step, Supervision
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

# The reports that a run can send (G1, H6, C3).

NO_REASON = "waiting"
_ATTEMPT_KEYS: Final = (
    *("iteration", "task", "attempt", "phase", "agent", "outcome", "failure_kind", "category", "hint"),
    *("rule", "why", "code", "cost_usd", "cost_source", "tokens_in", "tokens_out", "model", "session"),
    *("duration_s", "reset_at", "commits", "next"),
)


@dataclass(frozen=True, slots=True)
class Hello:
    """A run's first report. ``signals``: it handles SIGUSR1 (pause) and SIGUSR2 (skip the wait)."""

    signals: bool = False
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An iteration begins; ``number`` is the run's own count.

    ``head``, a full sha, and ``branch`` are where it begins; without them, where HEAD is on arrival.
    """

    number: int | None = None
    task: ReportedTask | None = None
    agent: str | None = None
    head: str | None = None
    branch: str | None = None


class CostSource(StrEnum):
    """Where a cost comes from."""

    TOLD = "told"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """One agent process has ended; ``kind`` is the failure kind, None for a success.

    ``rule`` and ``why`` tell how the kind was found, ``reset_at`` when the limit is over that it met,
    ``next`` what follows, in words. ``attempt`` counts those at one iteration, from 1; ``phase`` is which one
    of the attempt it was. A ``code`` below 0 is a signal. ``ended_at`` None: just before it was reported.
    """

    agent: str
    outcome: str
    kind: str | None = None
    code: int | None = None
    cost_usd: float | None = 0.0
    duration_s: float | None = None
    iteration: int | None = None
    task: ReportedTask | None = None
    attempt: int | None = None
    phase: str | None = None
    rule: str | None = None
    why: str | None = None
    cost_source: CostSource | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    model: str | None = None
    session: str | None = None
    reset_at: Moment | None = None
    commits: int | None = None
    next: str | None = None
    ended_at: Moment | None = None

    def data(self) -> Mapping[str, Any]:
        """Return what history and events keep of it, by their names; an unknown cost is None."""
        kind = kind_of(self.kind)
        return {name: getattr(self, name, None) for name in _ATTEMPT_KEYS} | {
            "task": task_data(self.task),
            "failure_kind": self.kind,
            "category": None if kind is None else meaning(kind).category.value,
            "hint": None if kind is None else hint(kind, reset_known=self.reset_at is not None).value,
            "cost_usd": None if self.cost_source is CostSource.UNKNOWN else self.cost_usd,
            "cost_source": None if self.cost_source is None else self.cost_source.value,
            "reset_at": None if self.reset_at is None else rfc3339(self.reset_at),
        }


@dataclass(frozen=True, slots=True)
class IterationFinished:
    """A boundary, answered with what to do next.

    ``complete``: its task is done. ``commits`` are abbreviated, oldest first. ``ended_at`` as in an attempt.
    ``waits``: the command waits for the reply, so its commits can be judged now.
    """

    number: int | None = None
    failed: bool = False
    summary: str | None = None
    task: ReportedTask | None = None
    complete: bool = False
    commits: tuple[str, ...] = ()
    ended_at: Moment | None = None
    waits: bool = True

    def data(self) -> Mapping[str, Any]:
        result = {"iteration": self.number, "failed": self.failed, "summary": self.summary}
        task = {"task": task_data(self.task), "complete": self.complete}
        return {**result, **task, "commits": [*self.commits]}


@dataclass(frozen=True, slots=True)
class WaitingUntil:
    """The run waits, for a rate limit for example, and does not stall before; None: no longer."""

    until: Moment | None
    reason: str = NO_REASON


@dataclass(frozen=True, slots=True)
class Cost:
    """What was spent since the last such report."""

    usd: float


@dataclass(frozen=True, slots=True)
class AgentExhausted:
    """An agent is out until ``until``; None: until you act (L3)."""

    agent: str
    reason: str
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class AgentReturned:
    """An agent may be used again."""

    agent: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The run lives. After the first one it stalls without them (H6)."""


_OfWork: TypeAlias = IterationStarted | AttemptFinished | IterationFinished | Cost
Report: TypeAlias = (
    Hello | _OfWork | WaitingUntil | AgentExhausted | AgentReturned | model.LastWord | Heartbeat
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A report has arrived. ``digest`` stands for the whole report, to detect another one under its id."""

    at: Moment
    run_id: model.RunId
    id: str
    digest: str
    report: Report


def task_data(task: ReportedTask | None) -> dict[str, str] | None:
    return None if task is None else {"id": task.id, "title": task.title}


ANSWERS_KEPT = 64
"""A run sends one report after the other; more than a few are never under way."""
LONGEST_WAIT_S = 31 * 24 * 3600.0
"""Longer than any limit takes to reset: a run cannot talk itself out of the watch for good."""
LONGEST_UNGREETED_S = 24 * 3600.0
"""The same for a run that never sent ``hello``; a longer wait is reported as a warning."""


def why_not(current: Supervision, event: Reported) -> str | None:
    """Return why a report cannot be acted upon, or None."""
    if not isinstance(current.state, model.HAS_A_RUN):
        return f"{event.run_id} is not running: its ralph is {current.state.kind.replace('_', ' ')}"
    if current.state.run_id != event.run_id:
        return f"{event.run_id} has ended; the current run is {current.state.run_id}"
    known = _known(current.said, event.id)
    if known is not None and known.digest != event.digest:
        return f"the id {event.id} was already used for another report"
    return None


def is_known(current: Supervision, event: Reported) -> bool:
    """Whether it was acted upon before."""
    return _known(current.said, event.id) is not None


def answer(current: Supervision, report_id: str) -> Next:
    """Return the reply to a report; heartbeats are not kept and get the present one."""
    known = _known(current.said, report_id)
    return _next(current) if known is None else known.next


def _known(said: RunReports, report_id: str) -> model.AnsweredReport | None:
    return next((known for known in said.answered if known.id == report_id), None)


def reported(current: Supervision, event: Reported, policy: Policy) -> Step:
    """Act upon a report of the run that lives."""
    if is_known(current, event):
        return Step(current)
    done = _act(current, event, policy)
    if isinstance(event.report, Heartbeat):  # not kept: it is answered as things are
        return done
    supervision = done.supervision
    kept = (*supervision.said.answered, model.AnsweredReport(event.id, event.digest, _next(supervision)))
    said = replace(supervision.said, answered=kept[-ANSWERS_KEPT:])
    return Step(replace(supervision, said=said), done.actions)


def _act(current: Supervision, event: Reported, policy: Policy) -> Step:
    match event.report:
        case Hello(signals=signals, agent=agent):
            said = replace(current.said, hello=True, signals=signals, agent=agent or current.said.agent)
            return Step(replace(current, said=said))
        case IterationStarted() as report:
            return _started(current, event.at, report, policy)
        case AttemptFinished() as report:
            announcement = Announce("attempt.finished", data=tuple(report.data().items()))
            return Step(spent(current, report.cost_usd or 0.0), (announcement,))
        case IterationFinished() as report:
            was_reverted = current.said.reverted and current.said.judged == boundary_id(event)
            return _finished(current, event.at, report, policy, counts=not (report.failed or was_reverted))
        case WaitingUntil(until=until, reason=reason):
            if until is None or until <= event.at:
                return end_wait(current)
            return _wait(current, event.at, until, reason, policy)
        case Cost(usd=usd):
            return Step(spent(current, usd))
        case AgentExhausted() as report:
            return Step(current, (_exhausted(report, policy),))
        case AgentReturned(agent=agent):
            data = (("agent", agent),)
            return Step(current, (_told("agent.returned", f"{agent} is available again", policy, data),))
        case model.LastWord() as word:
            return Step(replace(current, said=replace(current.said, last_word=word)))
        case Heartbeat():
            return Step(replace(current, said=replace(current.said, beats=True)))


def _told(kind: str, text: str, policy: Policy, data: Any = (), until: Moment | None = None) -> Announce:
    """Announce a report. The built-in loop prints such a line itself: its text is only in the event."""
    told, inside = (None, (("message", text), *data)) if policy.own_loop else (text, data)
    return Announce(kind, told, until, inside)


def _exhausted(report: AgentExhausted, policy: Policy) -> Announce:
    until = None if report.until is None else rfc3339(report.until)
    back = "until you act" if until is None else f"until {until}"
    data = (("agent", report.agent), ("reason", report.reason), ("until", until))
    return _told("agent.exhausted", f"{report.agent} is not used {back}: {report.reason}", policy, data)


def spent(current: Supervision, usd: float) -> Supervision:
    """Return the supervision with this cost added."""
    return replace(current, tally=replace(current.tally, cost_usd=round(current.tally.cost_usd + usd, 6)))


def _started(current: Supervision, at: Moment, report: IterationStarted, policy: Policy) -> Step:
    agent = report.agent or current.said.agent
    said = replace(current.said, iterates=True, task=report.task, agent=agent, wait=None, last_word=None)
    data = (("iteration", report.number), ("task", task_data(report.task)))
    actions: list[model.Action] = [*wait_ended(current), Announce("iteration.started", data=data)]
    state = current.state
    if isinstance(state, model.Stopping | model.Pausing) and not state.asked and state.kill_at is not None:
        # It should have ended at its boundary, and began another iteration: terminate it like any command.
        actions += [model.Terminate(state.run_id), model.KillAfter(state.run_id, policy.stop_timeout_s)]
        state = replace(state, asked=True, kill_at=at + policy.stop_timeout_s)
    return Step(replace(current, said=said, state=state), tuple(actions))


def boundary_id(event: Reported) -> str:
    """Return the name of a reported boundary, unique within the ralph."""
    return f"{event.run_id}/{event.id}"


def _finished(
    current: Supervision, at: Moment, report: IterationFinished, policy: Policy, *, counts: bool
) -> Step:
    """Count a boundary (G1), and give a run that is to end its grace from here.

    With ``counts`` the count of errors is cleared (C3).
    """
    tally, said = current.tally, replace(current.said, iterates=True, wait=None)
    # The built-in loop, killed before it had noted that it was counted, finishes an iteration again.
    is_repeated = policy.own_loop and report.number is not None and report.number == tally.last_number
    if policy.mode is model.Mode.LOOP and not is_repeated:
        tally = replace(tally, iteration=tally.iteration + 1)
    if policy.own_loop:
        tally = replace(tally, last_number=report.number)
    if counts:
        said = replace(said, errors_cleared=said.errors_cleared + tally.consecutive_errors)
        tally = replace(tally, consecutive_errors=0)
    announcement = Announce("iteration.finished", data=tuple(report.data().items()))
    after = replace(current, tally=tally, said=said)
    is_bound = isinstance(current.state, model.Running) and policy.supervised
    if is_bound and (limit := limit_reached(tally, at, policy)):
        assert isinstance(current.state, model.Running)
        state = model.Stopping(current.state.run_id, at, None, asked=False)
        after = replace(after, said=replace(said, limit=limit), state=state)
    return _given_time(after, at, policy, (*wait_ended(current), announcement))


def _given_time(current: Supervision, at: Moment, policy: Policy, actions: tuple[Announce, ...]) -> Step:
    if not (isinstance(current.state, model.Stopping | model.Pausing) and current.state.kill_at is None):
        return Step(current, actions)
    state = replace(current.state, kill_at=at + policy.stop_timeout_s)
    return current.enter(state, *actions, model.KillAfter(state.run_id, policy.stop_timeout_s))


def limit_reached(tally: model.Tally, at: Moment, policy: Policy) -> str | None:
    """Return the user's own limit that is reached now, in words, or None (E4)."""
    return policy.reached(tally.iteration, tally.cost_usd, tally.began_at, at)


def _wait(current: Supervision, at: Moment, until: Moment, reason: str, policy: Policy) -> Step:
    wait = model.Wait(reason, bounded(until, at, current.said))
    text = "Ralph is waiting" + (f": {reason}" if reason != NO_REASON else "")
    announcement = _told("wait.started", text, policy, until=wait.ends_at)
    is_long, before = wait.until > at + LONGEST_UNGREETED_S, current.said.wait
    is_news = is_long and not (before and before.until > at + LONGEST_UNGREETED_S)
    text = f"Ralph waits until {rfc3339(wait.until)}, and is not watched for silence until then"
    warning = (Announce("ralph.stall_warning", text),) if is_news else ()
    said = replace(current.said, wait=wait)
    return Step(replace(current, said=said), (announcement, *warning, model.WakeAt(wait.until)))


def bounded(until: Moment, at: Moment, said: RunReports) -> Moment:
    return min(until, at + (LONGEST_WAIT_S if said.hello else LONGEST_UNGREETED_S))


def end_wait(current: Supervision) -> Step:
    """End a wait that a run reported."""
    return Step(replace(current, said=replace(current.said, wait=None)), wait_ended(current))


def wait_ended(current: Supervision) -> tuple[Announce, ...]:
    return () if current.said.wait is None else (Announce("wait.ended"),)


def _next(current: Supervision) -> Next:
    match current.state:
        case model.Stopping() | model.Running(overdue=model.Overdue()):
            return Next.STOP
        case model.Pausing():
            return Next.PAUSE
        case _:
            return Next.STOP if current.goal is model.Goal.STOPPED else Next.CONTINUE
