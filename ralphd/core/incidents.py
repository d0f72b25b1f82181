"""One message per incident: when a person is called, what is held back, who is reminded, when it is over.

An incident opens with the first call of a ralph, and that is told. What calls while it is open is held back
and counted. It is over when the ralph has worked again. A person who starts it has taken the incident up:
what calls then is told, though never within ``QUIET_S`` of the last message; by then it is, if a person is
still needed. Once it is acknowledged and the ralph runs it is over too, and the next call is told at once.
A ralph that stops altogether is told though an incident is open over which it went on: that is worse.

Pure: moments come in as values.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ralphd.core.backoff import was_healthy
from ralphd.core.gate.verdict import Result
from ralphd.core.supervision.events import (
    BaselineTested,
    Committed,
    Event,
    JudgementOver,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    SpawnFailed,
    StartRequested,
)
from ralphd.core.supervision.exit_policy import last_word, outcome
from ralphd.core.supervision.model import (
    Done,
    Failed,
    Goal,
    LastWord,
    Outcome,
    Paused,
    Policy,
    Reason,
    Running,
    Stopped,
    Supervision,
    Waiting,
)
from ralphd.core.supervision.reports import IterationFinished, Reported, boundary_id, is_known
from ralphd.core.time import Moment

# What a person is told who is called: what happened, what it needs from them, and the command to type.

_PLAIN = re.compile(r"[\w@%+=:,./~-]+", re.ASCII)


class Cause(StrEnum):
    """Who calls: the supervision of the runs, or the guard, which cannot judge what was committed."""

    RUN = "run"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Escalation:
    """One call. ``stands``: nothing goes on before a person acts."""

    message: str
    needs: str
    do: str
    cause: Cause = Cause.RUN
    stands: bool = True


@dataclass(frozen=True, slots=True)
class EscalationContext:
    """The ralph that calls. ``logins`` are the commands by which those of its agents log in that have to.

    ``is_built``: its daemon is that of a ``ralphctl build`` (P5), which has gone when somebody reads this.
    """

    name: str
    directory: str
    logins: Mapping[str, str]
    is_built: bool = False

    @property
    def start(self) -> str:
        """The command that has it work again."""
        return self._here("build") if self.is_built else f"ralphctl start {self.name}"

    @property
    def resume(self) -> str:
        """The command that has it go on after a pause."""
        return self.start if self.is_built else f"ralphctl resume {self.name}"

    @property
    def explain(self) -> str:
        """The command that shows why."""
        return self._here("logs") if self.is_built else f"ralphctl explain {self.name}"

    def look(self, what: str) -> str:
        """A command that works without a daemon too."""
        return self._here(what) if self.is_built else f"ralphctl {what} {self.name}"

    def _here(self, what: str) -> str:
        return f"ralphctl -C {shell_word(self.directory)} {what}"


def call_of(
    text: str, event: Event, before: Supervision, after: Supervision, place: EscalationContext
) -> Escalation:
    """What to tell of an escalation: its ``text``, and what follows from the event that led to it."""
    stands = isinstance(after.state, Failed | Paused) or not _goes_on(after)
    match event:
        case JudgementOver():
            return _of_guard(text, place, pauses=event.verdict.pauses)
        case BaselineTested():
            needs = "[regent] test_command has to be put right in ralph.toml; then start it again"
            return Escalation(text, needs, place.start, Cause.GUARD)
        case SpawnFailed():
            needs = "its command has to be put right; then start it again"
            return Escalation(text, needs, place.start)
        case RunEnded():
            return _of_end(text, event, before, place)
        case _:
            needs = "a look at why; then start it again"
            return Escalation(text, needs, place.explain, stands=stands)


def _goes_on(now: Supervision) -> bool:
    return getattr(now.state, "run_id", None) is not None


def _of_guard(text: str, place: EscalationContext, *, pauses: bool) -> Escalation:
    see = place.look("verdicts")
    if pauses:
        needs = f"a look at its commits; when the repository is as you want it: {place.resume}"
        return Escalation(text, needs, see, Cause.GUARD)
    needs = "a look when you have time: Ralph goes on, and these commits are not judged"
    return Escalation(text, needs, see, Cause.GUARD, stands=False)


def _of_end(text: str, event: RunEnded, before: Supervision, place: EscalationContext) -> Escalation:
    start = place.start
    word = last_word(event.ending, before.said)
    if word is not None and word.reason == "no_agent":
        return _of_no_agent(text, place)
    if word is not None and word.reason == "tasks_failed":
        needs = f"a look at the tasks that failed, which progress.md tells; then start it again: {start}"
        return Escalation(text, needs, f"less {shell_word(place.directory + '/.ralph/progress.md')}")
    if _is_configuration(event, word):
        needs = f"its configuration has to be put right; then start it again: {start}"
        return Escalation(text, needs, f"ralphctl -C {shell_word(place.directory)} config check")
    if event.ending.code in (2, 126, 127):
        needs = f"its command has to be put right; then start it again: {start}"
        return Escalation(text, needs, place.look("logs"))
    needs = f"a look at why it failed; then start it again: {start}"
    return Escalation(text, needs, place.explain)


def _is_configuration(event: RunEnded, word: LastWord | None) -> bool:
    return event.ending.code == 78 and (word is None or word.reason == "configuration")


def _of_no_agent(text: str, place: EscalationContext) -> Escalation:
    start = place.start
    if not place.logins:
        return Escalation(text, "an agent that can work; then start it again", start)
    agents = " and ".join(place.logins)
    needs = f"{agents} {'has' if len(place.logins) == 1 else 'have'} to be logged in; then start it again"
    return Escalation(text, needs, " && ".join([*place.logins.values(), start]))


def of_a_bug(text: str) -> Escalation:
    """The Regent itself has failed."""
    return Escalation(text, "a look at the log of ralphd: it has the traceback", "ralphctl regent logs")


def shell_word(text: str) -> str:
    """``text`` as one word of a shell."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


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
    call: Escalation
    run_id: str | None = None
    held_back: int = 0
    latest: str = ""
    reminders: int = 0
    acknowledged_at: Moment | None = None
    taken_up: bool = False
    due_at: Moment | None = None


class CloseReason(StrEnum):
    """Why an incident is over."""

    WORKS = "works"
    KNOWN = "known"
    STOPPED = "stopped"


def called(now: Incident | None, call: Escalation, key: str, at: Moment, run_id: str | None) -> Incident:
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
) -> CloseReason | None:
    """Whether ``event`` ends the incident, and why."""
    if isinstance(after.state, Done) or _works(incident, before, event, after, policy):
        return CloseReason.WORKS
    return settled_by_a_person(incident, after)


def settled_by_a_person(incident: Incident, now: Supervision) -> CloseReason | None:
    """A person has stopped the ralph, or has acknowledged the incident and the ralph is set to run."""
    if isinstance(now.state, Stopped) and not now.state.why and now.goal is Goal.STOPPED:
        return CloseReason.STOPPED
    is_seen_to = incident.acknowledged_at is not None and now.goal is Goal.RUNNING
    return CloseReason.KNOWN if is_seen_to and isinstance(now.state, Running) else None


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
    CloseReason.WORKS: "Ralph works again",
    CloseReason.KNOWN: "Ralph runs again, and you know",
    CloseReason.STOPPED: "Ralph was stopped",
}


def over_text(incident: Incident, why: CloseReason, at: Moment) -> str:
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
