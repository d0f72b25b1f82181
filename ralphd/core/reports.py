"""What a run reports of itself, what that changes, and what it is answered (G1, H6, C3).

A report is acted upon once: its answer is kept by its id, and given again to whoever sends it again.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ralphd.core.actions import Action, Announce, KillAfter, Terminate, WakeAt
from ralphd.core.model import (
    HAS_A_RUN,
    Answered,
    Goal,
    Mode,
    Moment,
    Next,
    Overdue,
    Pausing,
    Policy,
    ReportedWait,
    RunId,
    Running,
    Said,
    Stopping,
    Supervision,
    Tally,
    Task,
)
from ralphd.core.moments import rfc3339
from ralphd.core.steps import Step

ANSWERS_KEPT = 64
"""A run sends one report after the other; more than a few are never under way."""
NO_REASON = "waiting"
LONGEST_WAIT_S = 31 * 24 * 3600.0
"""Longer than any limit takes to reset: a run cannot talk itself out of the watch for good."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A run's first report. ``signals``: it knows SIGUSR1 (pause) and SIGUSR2 (skip the wait)."""

    signals: bool = False
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An iteration begins; ``number`` is the run's own count."""

    number: int | None = None
    task: Task | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """One agent process has ended; ``kind`` is the failure kind, None for a success."""

    agent: str
    outcome: str
    kind: str | None = None
    code: int | None = None
    cost_usd: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class IterationFinished:
    """A boundary: the tree may be judged. Answered with what to do next."""

    number: int | None = None
    failed: bool = False
    summary: str | None = None


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
class Heartbeat:
    """The run lives. A run that sends one is judged by them from then on (H6)."""


Report: TypeAlias = (
    Hello | IterationStarted | AttemptFinished | IterationFinished | WaitingUntil | Cost | Heartbeat
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A run told its Regent something. ``digest`` stands for the whole report, to know it again."""

    at: Moment
    run_id: RunId
    id: str
    digest: str
    report: Report


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


def _known(said: Said, report_id: str) -> Answered | None:
    return next((known for known in said.answered if known.id == report_id), None)


def reported(now: Supervision, event: Reported, policy: Policy) -> Step:
    """Act upon a report of the run that lives."""
    if isinstance(event.report, Heartbeat):
        beats = now if now.said.beats else replace(now, said=replace(now.said, beats=True))
        return Step(beats)
    if is_known(now, event):
        return Step(now)
    done = _act(now, event, policy)
    supervision = done.supervision
    kept = (*supervision.said.answered, Answered(event.id, event.digest, _next(supervision)))
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
            told = Announce("attempt.finished", data=_attempt_data(report))
            return Step(_spent(now, report.cost_usd), (told,))
        case IterationFinished() as report:
            return _finished(now, event.at, report, policy)
        case WaitingUntil(until=until, reason=reason):
            if until is None or until <= event.at:
                return end_wait(now)
            return _wait(now, event.at, until, reason)
        case Cost(usd=usd):
            return Step(_spent(now, usd))
        case Heartbeat():
            return Step(now)


def entry_of(event: Reported) -> tuple[str, dict[str, Any]] | None:
    """What the history keeps of a report: the kind of the entry and its data; None: nothing."""
    match event.report:
        case AttemptFinished() as report:
            return "attempt", dict(_attempt_data(report))
        case IterationFinished(number=number, failed=failed, summary=summary):
            return "iteration", {"iteration": number, "failed": failed, "summary": summary}
        case WaitingUntil(until=float() as until, reason=reason) if until > event.at:
            return "wait", {"reason": reason, "until": rfc3339(_bounded(until, event.at))}
        case _:
            return None


def _attempt_data(report: AttemptFinished) -> tuple[tuple[str, Any], ...]:
    return (
        ("agent", report.agent),
        ("outcome", report.outcome),
        ("failure_kind", report.kind),
        ("code", report.code),
        ("cost_usd", report.cost_usd),
        ("duration_s", report.duration_s),
    )


def _spent(now: Supervision, usd: float) -> Supervision:
    return replace(now, tally=replace(now.tally, cost_usd=round(now.tally.cost_usd + usd, 6)))


def _started(now: Supervision, at: Moment, report: IterationStarted, policy: Policy) -> Step:
    said = replace(now.said, iterates=True, task=report.task, agent=report.agent or now.said.agent, wait=None)
    told: list[Action] = [
        *wait_ended(now),
        Announce("iteration.started", data=(("iteration", report.number), ("task", _task(report.task)))),
    ]
    state = now.state
    if isinstance(state, Stopping | Pausing) and not state.asked and state.kill_at is not None:
        # It was told to end at its boundary, and goes on: now it is asked as any other command is.
        told += [Terminate(state.run_id), KillAfter(state.run_id, policy.stop_timeout_s)]
        state = replace(state, asked=True, kill_at=at + policy.stop_timeout_s)
    return Step(replace(now, said=said, state=state), tuple(told))


def _task(task: Task | None) -> dict[str, str] | None:
    return None if task is None else {"id": task.id, "title": task.title}


def _finished(now: Supervision, at: Moment, report: IterationFinished, policy: Policy) -> Step:
    """A boundary (G1): counted, and the moment at which a run that is to end is told so."""
    tally, said = now.tally, replace(now.said, iterates=True, wait=None)
    if policy.mode is Mode.LOOP:
        tally = replace(tally, iteration=tally.iteration + 1)
    if not report.failed:  # C3
        said = replace(said, errors_cleared=said.errors_cleared + tally.consecutive_errors)
        tally = replace(tally, consecutive_errors=0)
    told = Announce(
        "iteration.finished",
        data=(("iteration", report.number), ("failed", report.failed), ("summary", report.summary)),
    )
    after = replace(now, tally=tally, said=said)
    is_bound = isinstance(now.state, Running) and policy.supervised
    if is_bound and (limit := limit_reached(tally, at, policy)):
        assert isinstance(now.state, Running)
        state = Stopping(now.state.run_id, at, None, asked=False)
        after = replace(after, said=replace(said, limit=limit), state=state)
    return _given_time(after, at, policy, (*wait_ended(now), told))


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
    wait = ReportedWait(reason, _bounded(until, at))
    text = "Ralph waits" + (f": {reason}" if reason != NO_REASON else "")
    told = Announce("wait.started", text, wait_until=wait.until)
    return Step(replace(now, said=replace(now.said, wait=wait)), (told, WakeAt(wait.until)))


def _bounded(until: Moment, at: Moment) -> Moment:
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
