"""One message per incident: when a person is called, what is held back, who is reminded, when it closes.

The first escalation of a ralph opens an incident and is sent; what follows while it is open is held back
and counted. A ralph that works again closes it. Starting the ralph takes it up: the next escalation is
sent, but not within ``QUIET_S`` of the last message. Acknowledged, it closes as soon as the ralph runs.
A ralph that stops for good is reported even if an incident is open over which it had continued.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from ralphd.core.gate.verdict import Result
from ralphd.core.supervision import events, model
from ralphd.core.supervision.backoff import was_healthy
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.exit_policy import TASK_LIST, last_word
from ralphd.core.supervision.model import Goal, Policy, Step, Supervision
from ralphd.core.supervision.reports import IterationFinished, Reported, boundary_id, is_known
from ralphd.core.time import Moment, in_minutes
from ralphd.dataclass import dataclass

# The message of an escalation: what happened, what is needed, and the command to type.

_PLAIN = re.compile(r"[\w@%+=:,./~-]+", re.ASCII)


class Cause(StrEnum):
    """What escalates: the supervision of the runs, or the gate."""

    RUN = "run"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Escalation:
    """One message. ``stands``: nothing continues before a person acts."""

    message: str
    needs: str
    do: str
    cause: Cause = Cause.RUN
    stands: bool = True


@dataclass(frozen=True, slots=True)
class EscalationContext:
    """The ralph that escalates. ``logins`` are the login commands of those agents that need one.

    ``is_built``: its daemon belongs to a ``ralphctl build`` (P5), and has gone when this is read.
    """

    name: str
    directory: str
    logins: Mapping[str, str]
    is_built: bool = False

    @property
    def start(self) -> str:
        return self._here("build") if self.is_built else f"ralphctl start {self.name}"

    @property
    def resume(self) -> str:
        return self.start if self.is_built else f"ralphctl resume {self.name}"

    @property
    def explain(self) -> str:
        return self._here("logs") if self.is_built else f"ralphctl explain {self.name}"

    def look(self, what: str) -> str:
        """Return a command that works without a daemon too."""
        return self._here(what) if self.is_built else f"ralphctl {what} {self.name}"

    def _here(self, what: str) -> str:
        return f"ralphctl -C {shell_word(self.directory)} {what}"


def call_of(
    text: str, event: Event, before: Supervision, after: Supervision, place: EscalationContext
) -> Escalation:
    """Compose the message of an escalation: its ``text``, what is needed, and the command to type."""
    runs = getattr(after.state, "run_id", None) is not None
    stands = isinstance(after.state, model.Failed | model.Paused) or not runs
    match event:
        case events.VerdictReached():
            see = place.look("verdicts")
            if event.verdict.pauses:
                needs = f"a review of its commits; when the repository is as you want it: {place.resume}"
                return Escalation(text, needs, see, Cause.GUARD)
            needs = "a review when you have time: Ralph continues, and these commits are not judged"
            return Escalation(text, needs, see, Cause.GUARD, stands=False)
        case events.BaselineTested():
            needs = "a fix of [regent] test_command in ralph.toml; then start it again"
            return Escalation(text, needs, place.start, Cause.GUARD)
        case events.SpawnFailed():
            return Escalation(text, "a fix of its command; then start it again", place.start)
        case events.RunEnded():
            return _of_end(text, event, before, place)
        case _:
            return Escalation(text, "a look at the cause; then start it again", place.explain, stands=stands)


def _of_end(text: str, event: events.RunEnded, before: Supervision, place: EscalationContext) -> Escalation:
    start = place.start
    word = last_word(event.ending, before.said)
    if word is not None and word.reason == "no_agent":
        if not place.logins:
            return Escalation(text, "a working agent; then start it again", start)
        agents = " and ".join(place.logins)
        needs = f"a login of {agents}; then start it again"
        return Escalation(text, needs, " && ".join([*place.logins.values(), start]))
    if word is not None and word.reason == "tasks_failed":
        needs = f"a review of the failed tasks in .ralph/progress.md, then: {start}"
        return Escalation(text, needs, f"less {shell_word(place.directory + '/.ralph/progress.md')}")
    if word is not None and word.reason == TASK_LIST:
        needs = f"a look at the task list; when it is as you want it: {place.resume}"
        return Escalation(text, needs, place.look("logs"))
    if event.ending.code == 78 and (word is None or word.reason == "configuration"):
        needs = f"a fix of its configuration, then: {start}"
        return Escalation(text, needs, f"ralphctl -C {shell_word(place.directory)} config check")
    if event.ending.code in (2, 126, 127):
        return Escalation(text, f"a fix of its command; then start it again: {start}", place.look("logs"))
    return Escalation(text, f"a look at why it failed, then: {start}", place.explain)


def of_a_bug(text: str) -> Escalation:
    return Escalation(text, "a look at the log of ralphd, which has the traceback", "ralphctl regent logs")


def of_an_end(run_id: str, name: str, pid: int, command: str) -> Escalation:
    """Return the message about a run that may have had the daemon ended (A4)."""
    text = f"ralphd received SIGTERM while run {run_id} ran {command} (pid {pid}), which may have caused it"
    return Escalation(text, "a look at what the run did", f"ralphctl logs {name}", stands=False)


def shell_word(text: str) -> str:
    """Quote ``text`` as one word of a shell."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


QUIET_S = 900.0
"""The shortest time between two messages about a ralph that is started and fails again at once."""
SHORTEST_S = 1.0
"""No reminder comes sooner after the last message, whatever is configured."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What a person was called for, as long as it is open.

    ``key`` is that of the message that opened it. ``told_at`` is when the last message was sent,
    ``held_back`` counts those that were not. ``message`` is the first one, ``latest`` the last one held
    back; ``call`` is what is needed now. ``taken_up``: a person has set the ralph to run since. ``due_at``
    is when an escalation after that is sent.
    """

    key: str
    opened_at: Moment
    told_at: Moment
    message: str
    call: Escalation
    run_id: str | None = None
    held_back: int = 0
    latest: str = ""
    reminders: int = 0
    acknowledged_at: Moment | None = None
    taken_up: bool = False
    due_at: Moment | None = None


class CloseReason(StrEnum):
    """Why an incident closes."""

    WORKS = "works"
    KNOWN = "known"
    STOPPED = "stopped"


def called(incident: Incident | None, call: Escalation, key: str, at: Moment, run_id: str | None) -> Incident:
    """Return the incident after an escalation: sent if ``key`` is the incident's, else held back."""
    if incident is None:
        return Incident(key, at, at, call.message, call, run_id)
    if key == incident.key:  # sent before by a daemon that died before it saved that
        return incident
    if call.stands and not incident.call.stands:
        return Incident(key, at, at, call.message, call, run_id, incident.held_back, incident.latest)
    if incident.taken_up and not 0 <= at - incident.told_at < QUIET_S:
        return Incident(key, at, at, call.message, call, run_id)
    due_at = incident.told_at + QUIET_S if incident.taken_up else incident.due_at
    kept = replace(incident, held_back=incident.held_back + 1, latest=call.message)
    return replace(kept, call=call, taken_up=False, due_at=due_at)


def heeded(incident: Incident, event: Event) -> Incident:
    """Return the incident after a request: starting what stood still takes it up."""
    starts = isinstance(event, events.Starts)
    return replace(incident, taken_up=True) if starts and incident.call.stands else incident


def acknowledged(incident: Incident, at: Moment) -> Incident:
    """Mark the incident as known to a person; the first moment stays."""
    if incident.acknowledged_at is not None:
        return incident
    return replace(incident, acknowledged_at=at, due_at=None)


def over(
    incident: Incident, before: Supervision, event: Event, answer: Step, policy: Policy
) -> CloseReason | None:
    """Return why ``event`` ends the incident, or None; ``answer`` is the step that it led to."""
    is_done = isinstance(answer.supervision.state, model.Done) and incident.call.cause is Cause.RUN
    if is_done or _works(incident, before, event, answer, policy):
        return CloseReason.WORKS
    return settled_by_a_person(incident, answer.supervision)


def settled_by_a_person(incident: Incident, current: Supervision) -> CloseReason | None:
    """Whether a person has stopped the ralph, or has acknowledged the incident and set it to run."""
    if isinstance(current.state, model.Stopped) and not current.state.why and current.goal is Goal.STOPPED:
        return CloseReason.STOPPED
    is_seen_to = incident.acknowledged_at is not None and current.goal is Goal.RUNNING
    return CloseReason.KNOWN if is_seen_to and isinstance(current.state, model.Running) else None


def _works(incident: Incident, before: Supervision, event: Event, answer: Step, policy: Policy) -> bool:
    """C3: what resets the count of failures closes it; one of the gate's closes when the gate works again."""
    if incident.call.cause is Cause.GUARD:
        return _judges(event)
    after = answer.supervision
    match event:
        case Reported(report=IterationFinished(failed=False)) if isinstance(after.state, model.Running):
            reverted = before.said.reverted and before.said.judged == boundary_id(event)
            return not (reverted or is_known(before, event))
        case events.Committed():  # of a command that reports, the iteration counts
            return after.tally.iteration > before.tally.iteration
        case events.RunEnded(ending=ending) if before.state is not after.state:
            said = before.said
            if isinstance(after.state, model.Waiting) and after.state.reason in _GOES_ON:
                return not said.reverted
            meant = answer.exit_meaning
            return meant is not None and was_healthy(policy, ending, said, meant)
        case _:
            return False


_GOES_ON = (model.Reason.ITERATION_PAUSE, model.Reason.RESTART)


def _judges(event: Event) -> bool:
    if isinstance(event, events.VerdictReached):
        return bool(event.verdict.tests) and not (event.verdict.calls or event.verdict.pauses)
    return isinstance(event, events.BaselineTested) and event.result is Result.GREEN


def has_come_through(
    incident: Incident, current: Supervision, *,
    started_at: Moment | None, last_sign_at: Moment | None, policy: Policy,
) -> bool:  # fmt: skip
    """Whether a run has worked for long enough, where no report and no commit can show it (C3)."""
    state, said = current.state, current.said
    shows_otherwise = said.hello or said.iterates or incident.call.cause is Cause.GUARD
    if shows_otherwise or not isinstance(state, model.Running) or state.overdue is not None:
        return False
    if started_at is None or last_sign_at is None:
        return False
    return last_sign_at - started_at > policy.healthy_after_s


def needs_a_person(incident: Incident, current: Supervision) -> bool:
    """Whether the ralph stands still, or its gate still cannot judge."""
    if incident.acknowledged_at is not None or incident.taken_up:
        return False
    is_paused = isinstance(current.state, model.Paused) and current.state.resume_at is None
    if is_paused or isinstance(current.state, model.Failed):
        return True
    return not incident.call.stands and isinstance(current.state, model.Running)


def by_the_clock(incident: Incident, at: Moment) -> Incident:
    """Return the incident as if the last message were sent now, where the clock was set back."""
    if incident.told_at <= at:
        return incident
    due_at = None if incident.due_at is None else at + (incident.due_at - incident.told_at)
    return replace(incident, told_at=at, due_at=due_at)


def tell_at(incident: Incident, current: Supervision, every_s: float) -> Moment | None:
    """Return when the next message is due, or None. ``every_s`` 0: no reminders."""
    if not needs_a_person(incident, current):
        return None
    reminder_at = incident.told_at + max(every_s, SHORTEST_S) if every_s > 0 else None
    return min((at for at in (incident.due_at, reminder_at) if at is not None), default=None)


def told_again(incident: Incident, at: Moment) -> Incident:
    """Return the incident after a reminder; missed moments count as one."""
    return replace(incident, told_at=at, reminders=incident.reminders + 1, due_at=None)


def reminder_key(incident: Incident) -> str:
    return f"{incident.key}/reminder/{incident.reminders}"


def reminder_text(incident: Incident, at: Moment) -> str:
    return f"Ralph has needed you for {in_minutes(at - incident.opened_at)}: {told_of(incident)}"


def told_of(incident: Incident) -> str:
    """Return the message, and what was held back since."""
    if not incident.held_back:
        return incident.message
    times = "1 more alert was" if incident.held_back == 1 else f"{incident.held_back} more alerts were"
    latest = f", the last one: {incident.latest}" if incident.latest != incident.message else ""
    return f"{incident.message} — {times} held back{latest}"


_WHY = {
    CloseReason.WORKS: "Ralph works again",
    CloseReason.KNOWN: "Ralph runs again, acknowledged",
    CloseReason.STOPPED: "Ralph was stopped",
}


def over_text(incident: Incident, why: CloseReason, at: Moment) -> str:
    after = f", {in_minutes(at - incident.opened_at)} after the alert"
    return f"{_WHY[why]}{after}: {told_of(incident)}"
