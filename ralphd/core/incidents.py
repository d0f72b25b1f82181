"""One message per incident: when a person is called, what is held back, who is reminded, when it is over.

An incident opens with the first call of a ralph, and that is told. What calls while it is open is held back
and counted. It is over when the ralph has worked again. A person who starts it has taken the incident up:
what calls then is told, though never within ``QUIET_S`` of the last message; by then it is, if a person is
still needed. Once it is acknowledged and the ralph runs it is over too, and the next call is told at once.
A ralph that stops altogether is told though an incident is open over which it went on: that is worse.

Pure: moments come in as values.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from ralphd.core.calls import Call, Cause
from ralphd.core.events import (
    BaselineTested,
    Committed,
    Event,
    JudgementOver,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    StartRequested,
)
from ralphd.core.model import (
    Done,
    Failed,
    Goal,
    Moment,
    Outcome,
    Paused,
    Policy,
    Reason,
    Running,
    Stopped,
    Supervision,
    Waiting,
)
from ralphd.core.outcome import outcome
from ralphd.core.patience import was_healthy
from ralphd.core.reported import IterationFinished, Reported
from ralphd.core.reports import boundary_id, is_known
from ralphd.core.verdict import Result

QUIET_S = 900.0
"""Whoever starts a ralph that fails at once, again and again, is told so often at most."""
SHORTEST_S = 1.0
"""No reminder comes sooner after the last message, whatever is configured."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What a person was called for, as long as it is open.

    ``key`` is that of the message that opened it. ``told_at`` is when a person was last told, ``held_back``
    how many further calls were not. ``message`` is what happened first, ``latest`` what the last call said
    that was held back; ``call`` says what is needed now. ``taken_up``: a person has set the ralph to run
    since. ``due_at`` is when they hear of what called after that.
    """

    key: str
    opened_at: Moment
    told_at: Moment
    message: str
    call: Call
    run_id: str | None = None
    held_back: int = 0
    latest: str = ""
    reminders: int = 0
    acknowledged_at: Moment | None = None
    taken_up: bool = False
    due_at: Moment | None = None


class Over(StrEnum):
    """Why an incident is over."""

    WORKS = "works"
    KNOWN = "known"
    STOPPED = "stopped"


def called(now: Incident | None, call: Call, key: str, at: Moment, run_id: str | None) -> Incident:
    """The incident after a call. It was told where ``key`` is the incident's, else held back."""
    if now is None:
        return Incident(key, at, at, call.message, call, run_id)
    if key == now.key:  # told anew by a daemon that died before it had written it down
        return now
    if call.stands and not now.call.stands:
        return Incident(key, at, at, call.message, call, run_id, now.held_back, now.latest)
    if now.taken_up and not 0 <= at - now.told_at < QUIET_S:
        return Incident(key, at, at, call.message, call, run_id)
    due_at = now.told_at + QUIET_S if now.taken_up else now.due_at
    held_back = now.held_back + 1
    return replace(now, call=call, held_back=held_back, latest=call.message, taken_up=False, due_at=due_at)


def heeded(now: Incident, event: Event) -> Incident:
    """The incident after a person's request: who starts what stood still has taken it up."""
    starts = isinstance(event, StartRequested | ResumeRequested | RestartRequested | SkipWaitRequested)
    return replace(now, taken_up=True) if starts and now.call.stands else now


def acknowledged(now: Incident, at: Moment) -> Incident:
    """A person knows. What was acknowledged stays so, with its first moment."""
    return now if now.acknowledged_at is not None else replace(now, acknowledged_at=at, due_at=None)


def over(
    incident: Incident, before: Supervision, event: Event, after: Supervision, policy: Policy
) -> Over | None:
    """Whether ``event`` ends the incident, and why."""
    if isinstance(after.state, Done) or _works(incident, before, event, after, policy):
        return Over.WORKS
    return settled_by_a_person(incident, after)


def settled_by_a_person(incident: Incident, now: Supervision) -> Over | None:
    """A person has stopped the ralph, or has acknowledged the incident and the ralph is set to run."""
    if isinstance(now.state, Stopped) and not now.state.why and now.goal is Goal.STOPPED:
        return Over.STOPPED
    is_seen_to = incident.acknowledged_at is not None and now.goal is Goal.RUNNING
    return Over.KNOWN if is_seen_to and isinstance(now.state, Running) else None


def _works(incident: Incident, before: Supervision, event: Event, after: Supervision, policy: Policy) -> bool:
    """What the guard could not do it has to do again; else what resets the count of failures (C3)."""
    if incident.call.cause is Cause.GUARD:
        return _judges(event)
    match event:
        case Reported(report=IterationFinished(failed=False)) if isinstance(after.state, Running):
            reverted = before.said.reverted and before.said.judged == boundary_id(event)
            return not (reverted or is_known(before, event))
        case Committed():  # of a command that reports, the iteration counts
            return after.tally.iteration > before.tally.iteration
        case RunEnded(ending=ending) if before.state is not after.state:
            said = before.said
            if isinstance(after.state, Waiting) and after.state.reason in _GOES_ON:
                return not said.reverted
            return _has_a_run(before) and was_healthy(policy, ending, said, _meant(before, event))
        case _:
            return False


_GOES_ON = (Reason.ITERATION_PAUSE, Reason.RESTART)


def _has_a_run(now: Supervision) -> bool:
    return getattr(now.state, "run_id", None) is not None


def _meant(before: Supervision, event: RunEnded) -> Outcome:
    return outcome(before.state, event.ending, before.said)


def _judges(event: Event) -> bool:
    match event:
        case JudgementOver(verdict=verdict, tests=tests):
            return bool(tests) and not (verdict.calls or verdict.pauses)
        case BaselineTested(result=result):
            return result is Result.GREEN
        case _:
            return False


def has_come_through(
    incident: Incident,
    now: Supervision,
    *,
    started_at: Moment | None,
    last_sign_at: Moment | None,
    policy: Policy,
) -> bool:
    """Whether a run that lives has worked long enough, where no report and no commit can tell (C3)."""
    if (
        not isinstance(now.state, Running)
        or now.state.overdue is not None
        or incident.call.cause is Cause.GUARD
    ):
        return False
    if now.said.hello or now.said.iterates or started_at is None or last_sign_at is None:
        return False
    return last_sign_at - started_at > policy.healthy_after_s


def needs_a_person(incident: Incident, now: Supervision) -> bool:
    """Whether nothing goes on before a person acts, or the guard still cannot do its work."""
    if incident.acknowledged_at is not None or incident.taken_up:
        return False
    if isinstance(now.state, Failed) or (isinstance(now.state, Paused) and now.state.resume_at is None):
        return True
    return not incident.call.stands and isinstance(now.state, Running)


def by_the_clock(incident: Incident, at: Moment) -> Incident:
    """The same, as if told now, where the clock was set back: no message is further off than it was."""
    if incident.told_at <= at:
        return incident
    due_at = None if incident.due_at is None else at + (incident.due_at - incident.told_at)
    return replace(incident, told_at=at, due_at=due_at)


def tell_at(incident: Incident, now: Supervision, every_s: float) -> Moment | None:
    """When a person is to be told again; None for never as things are. ``every_s`` 0: no reminders."""
    if not needs_a_person(incident, now):
        return None
    reminder_at = incident.told_at + max(every_s, SHORTEST_S) if every_s > 0 else None
    return min((at for at in (incident.due_at, reminder_at) if at is not None), default=None)


def told_again(incident: Incident, at: Moment) -> Incident:
    """The incident after one more message; however many moments were missed, it is one."""
    return replace(incident, told_at=at, reminders=incident.reminders + 1, due_at=None)


def reminder_key(incident: Incident) -> str:
    """By what the last reminder is known again."""
    return f"{incident.key}/reminder/{incident.reminders}"


def reminder_text(incident: Incident, at: Moment) -> str:
    """What a person reads who is told again."""
    return f"Ralph still waits for you, for {lasted(at - incident.opened_at)}: {told_of(incident)}"


def told_of(incident: Incident) -> str:
    """What happened, and what was held back since."""
    if not incident.held_back:
        return incident.message
    times = "1 more call was" if incident.held_back == 1 else f"{incident.held_back} more calls were"
    latest = f", the last one: {incident.latest}" if incident.latest != incident.message else ""
    return f"{incident.message} — {times} held back{latest}"


_WHY = {
    Over.WORKS: "Ralph works again",
    Over.KNOWN: "Ralph runs again, and you know",
    Over.STOPPED: "Ralph was stopped",
}


def over_text(incident: Incident, why: Over, at: Moment) -> str:
    """What a person reads of the end of an incident."""
    after = f", {lasted(at - incident.opened_at)} after the call"
    return f"{_WHY[why]}{after}: {told_of(incident)}"


def lasted(seconds: float) -> str:
    """``under a minute``, ``40 min``, ``2 h 10 min``, ``3 d 4 h``."""
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 1:
        return "under a minute"
    days, hours, left = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {left} min" if left else f"{hours} h"
    return f"{left} min"
