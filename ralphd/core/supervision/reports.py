"""What a run reports of itself, what that changes, and what it is answered (G1, H6, C3).

A report is acted upon once: its answer is kept by its id, and given again to whoever sends it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from ralphd.core.failures.kinds import hint, kind_of, meaning
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    AnsweredReport,
    Goal,
    KillAfter,
    LastWord,
    Mode,
    Next,
    Overdue,
    Pausing,
    Policy,
    ReportedTask,
    ReportedWait,
    RunId,
    Running,
    RunReports,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    WakeAt,
)
from ralphd.core.supervision.transitions import Step
from ralphd.core.time import Moment, rfc3339

# The reports that a run can send (G1, H6, C3).

NO_REASON = "waiting"


@dataclass(frozen=True, slots=True)
class Hello:
    """A run's first report. ``signals``: it knows SIGUSR1 (pause) and SIGUSR2 (skip the wait)."""

    signals: bool = False
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An iteration begins; ``number`` is the run's own count.

    ``head``, a full sha, and ``branch`` are where it begins; without them, where HEAD is when it is told.
    """

    number: int | None = None
    task: ReportedTask | None = None
    agent: str | None = None
    head: str | None = None
    branch: str | None = None


class CostSource(StrEnum):
    """Where a cost comes from: the agent told it, it was worked out, or nobody knows it."""

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
        """What history and events keep of it, by their names; a cost that nobody knows is none."""
        kind = kind_of(self.kind)
        return {
            "iteration": self.iteration,
            "task": task_data(self.task),
            "attempt": self.attempt,
            "phase": self.phase,
            "agent": self.agent,
            "outcome": self.outcome,
            "failure_kind": self.kind,
            "category": None if kind is None else meaning(kind).category.value,
            "hint": None if kind is None else hint(kind, reset_known=self.reset_at is not None).value,
            "rule": self.rule,
            "why": self.why,
            "code": self.code,
            "cost_usd": None if self.cost_source is CostSource.UNKNOWN else self.cost_usd,
            "cost_source": None if self.cost_source is None else self.cost_source.value,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "model": self.model,
            "session": self.session,
            "duration_s": self.duration_s,
            "reset_at": None if self.reset_at is None else rfc3339(self.reset_at),
            "commits": self.commits,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class IterationFinished:
    """A boundary: the tree may be judged. Answered with what to do next.

    ``complete``: its task is done. ``commits`` are those made in it, abbreviated, oldest first. ``ended_at``
    as in an attempt. ``waits``: nobody works on before the answer, so that its commits can be judged now.
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
        """What history and events keep of it, by their names."""
        return {
            "iteration": self.number,
            "failed": self.failed,
            "summary": self.summary,
            "task": task_data(self.task),
            "complete": self.complete,
            "commits": list(self.commits),
        }


@dataclass(frozen=True, slots=True)
class WaitingUntil:
    """The run waits, for a limit for example, and is not to be judged meanwhile; None: no longer."""

    until: Moment | None
    reason: str = NO_REASON


@dataclass(frozen=True, slots=True)
class Cost:
    """What was spent since the last such report."""

    usd: float


@dataclass(frozen=True, slots=True)
class AgentExhausted:
    """An agent is not asked any more before ``until``; None: before a person acts (L3)."""

    agent: str
    reason: str
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class AgentReturned:
    """An agent may be asked again."""

    agent: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The run lives. A run that sends one is judged by them from then on (H6)."""


Report: TypeAlias = (
    Hello
    | IterationStarted
    | AttemptFinished
    | IterationFinished
    | WaitingUntil
    | Cost
    | AgentExhausted
    | AgentReturned
    | LastWord
    | Heartbeat
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A run told its Regent something. ``digest`` stands for the whole report, to know it again."""

    at: Moment
    run_id: RunId
    id: str
    digest: str
    report: Report


def task_data(task: ReportedTask | None) -> dict[str, str] | None:
    """A task as it is written down."""
    return None if task is None else {"id": task.id, "title": task.title}


ANSWERS_KEPT = 64
"""A run sends one report after the other; more than a few are never under way."""
LONGEST_WAIT_S = 31 * 24 * 3600.0
"""Longer than any limit takes to reset: a run cannot talk itself out of the watch for good."""


def why_not(now: Supervision, event: Reported) -> str | None:
    """Why a report cannot be acted upon, or None when it can."""
    if not isinstance(now.state, HAS_A_RUN):
        return f"no run lives that {event.run_id} could be: it is {now.state.kind.replace('_', ' ')}"
    if now.state.run_id != event.run_id:
        return f"{event.run_id} is over; the run that lives is {now.state.run_id}"
    known = _known(now.said, event.id)
    if known is not None and known.digest != event.digest:
        return f"the id {event.id} was used for another report already"
    return None


def is_known(now: Supervision, event: Reported) -> bool:
    """Whether it was acted upon before: then it is only answered."""
    return _known(now.said, event.id) is not None


def answer(now: Supervision, report_id: str) -> Next:
    """The answer to a report that was acted upon; heartbeats are not kept, and answered as things are."""
    known = _known(now.said, report_id)
    return _next(now) if known is None else known.next


def _known(said: RunReports, report_id: str) -> AnsweredReport | None:
    return next((known for known in said.answered if known.id == report_id), None)


def reported(now: Supervision, event: Reported, policy: Policy) -> Step:
    """Act upon a report of the run that lives."""
    if is_known(now, event):
        return Step(now)
    done = _act(now, event, policy)
    if isinstance(event.report, Heartbeat):  # not kept: it is answered as things are
        return done
    supervision = done.supervision
    kept = (*supervision.said.answered, AnsweredReport(event.id, event.digest, _next(supervision)))
    said = replace(supervision.said, answered=kept[-ANSWERS_KEPT:])
    return Step(replace(supervision, said=said), done.actions)


def _act(now: Supervision, event: Reported, policy: Policy) -> Step:
    match event.report:
        case Hello(signals=signals, agent=agent):
            said = replace(now.said, hello=True, signals=signals, agent=agent or now.said.agent)
            return Step(replace(now, said=said))
        case IterationStarted() as report:
            return _started(now, event.at, report, policy)
        case AttemptFinished() as report:
            told = Announce("attempt.finished", data=tuple(report.data().items()))
            return Step(_spent(now, report.cost_usd or 0.0), (told,))
        case IterationFinished() as report:
            was_reverted = now.said.reverted and now.said.judged == boundary_id(event)
            return _finished(now, event.at, report, policy, counts=not (report.failed or was_reverted))
        case WaitingUntil(until=until, reason=reason):
            if until is None or until <= event.at:
                return end_wait(now)
            return _wait(now, event.at, until, reason)
        case Cost(usd=usd):
            return Step(_spent(now, usd))
        case AgentExhausted() as report:
            return Step(now, (_exhausted(report),))
        case AgentReturned(agent=agent):
            told = Announce("agent.returned", f"{agent} may be asked again", data=(("agent", agent),))
            return Step(now, (told,))
        case LastWord() as word:
            return Step(replace(now, said=replace(now.said, last_word=word)))
        case Heartbeat():
            return Step(replace(now, said=replace(now.said, beats=True)))


def _exhausted(report: AgentExhausted) -> Announce:
    until = None if report.until is None else rfc3339(report.until)
    back = "until a person acts" if until is None else f"until {until}"
    data = (("agent", report.agent), ("reason", report.reason), ("until", until))
    return Announce("agent.exhausted", f"{report.agent} is not asked {back}: {report.reason}", data=data)


def _spent(now: Supervision, usd: float) -> Supervision:
    return replace(now, tally=replace(now.tally, cost_usd=round(now.tally.cost_usd + usd, 6)))


def _started(now: Supervision, at: Moment, report: IterationStarted, policy: Policy) -> Step:
    agent = report.agent or now.said.agent
    said = replace(now.said, iterates=True, task=report.task, agent=agent, wait=None, last_word=None)
    told: list[Action] = [
        *wait_ended(now),
        Announce("iteration.started", data=(("iteration", report.number), ("task", task_data(report.task)))),
    ]
    state = now.state
    if isinstance(state, Stopping | Pausing) and not state.asked and state.kill_at is not None:
        # It was told to end at its boundary, and goes on: now it is asked as any other command is.
        told += [Terminate(state.run_id), KillAfter(state.run_id, policy.stop_timeout_s)]
        state = replace(state, asked=True, kill_at=at + policy.stop_timeout_s)
    return Step(replace(now, said=said, state=state), tuple(told))


def boundary_id(event: Reported) -> str:
    """What a boundary that was reported is called: no other one of the ralph has the name."""
    return f"{event.run_id}/{event.id}"


def _finished(
    now: Supervision, at: Moment, report: IterationFinished, policy: Policy, *, counts: bool
) -> Step:
    """A boundary (G1): counted, and the moment at which a run that is to end is told so.

    One that ``counts`` clears the count of errors (C3).
    """
    tally, said = now.tally, replace(now.said, iterates=True, wait=None)
    if policy.mode is Mode.LOOP and not _is_repeated(tally, report, policy):
        tally = replace(tally, iteration=tally.iteration + 1)
    if policy.own_loop:
        tally = replace(tally, last_number=report.number)
    if counts:
        said = replace(said, errors_cleared=said.errors_cleared + tally.consecutive_errors)
        tally = replace(tally, consecutive_errors=0)
    told = Announce("iteration.finished", data=tuple(report.data().items()))
    after = replace(now, tally=tally, said=said)
    is_bound = isinstance(now.state, Running) and policy.supervised
    if is_bound and (limit := limit_reached(tally, at, policy)):
        assert isinstance(now.state, Running)
        state = Stopping(now.state.run_id, at, None, asked=False)
        after = replace(after, said=replace(said, limit=limit), state=state)
    return _given_time(after, at, policy, (*wait_ended(now), told))


def _is_repeated(tally: Tally, report: IterationFinished, policy: Policy) -> bool:
    """Whether it was counted: the built-in loop, killed before it had noted that, finishes it again."""
    return policy.own_loop and report.number is not None and report.number == tally.last_number


def _given_time(now: Supervision, at: Moment, policy: Policy, told: tuple[Announce, ...]) -> Step:
    """A run that hears that it is to end gets the usual time for it."""
    if not (isinstance(now.state, Stopping | Pausing) and now.state.kill_at is None):
        return Step(now, told)
    state = replace(now.state, kill_at=at + policy.stop_timeout_s)
    return Step(replace(now, state=state), (*told, KillAfter(state.run_id, policy.stop_timeout_s)))


def limit_reached(tally: Tally, at: Moment, policy: Policy) -> str | None:
    """The limit of the user's own that is reached now, in words, or None (E4)."""
    if policy.max_iterations and tally.iteration >= policy.max_iterations:
        return f"{tally.iteration} iteration{'' if tally.iteration == 1 else 's'}, as you asked"
    if policy.max_cost_usd and tally.cost_usd >= policy.max_cost_usd:
        return f"${tally.cost_usd:.2f} spent, of ${policy.max_cost_usd:.2f} allowed"
    if policy.max_runtime_s and tally.began_at is not None and at - tally.began_at >= policy.max_runtime_s:
        return f"it has run for {at - tally.began_at:.0f} s, of {policy.max_runtime_s:.0f} s allowed"
    return None


def _wait(now: Supervision, at: Moment, until: Moment, reason: str) -> Step:
    wait = ReportedWait(reason, bounded(until, at))
    text = "Ralph waits" + (f": {reason}" if reason != NO_REASON else "")
    told = Announce("wait.started", text, wait_until=wait.until)
    return Step(replace(now, said=replace(now.said, wait=wait)), (told, WakeAt(wait.until)))


def bounded(until: Moment, at: Moment) -> Moment:
    """A wait no longer than a run may ask for."""
    return min(until, at + LONGEST_WAIT_S)


def end_wait(now: Supervision) -> Step:
    """A wait that a run reported is over, by its own word or by the clock."""
    return Step(replace(now, said=replace(now.said, wait=None)), wait_ended(now))


def wait_ended(now: Supervision) -> tuple[Announce, ...]:
    """What is told when the wait that the run reported, if any, is over."""
    return () if now.said.wait is None else (Announce("wait.ended"),)


def _next(now: Supervision) -> Next:
    match now.state:
        case Stopping() | Running(overdue=Overdue()):
            return Next.STOP
        case Pausing():
            return Next.PAUSE
        case _:
            return Next.STOP if now.goal is Goal.STOPPED else Next.CONTINUE
