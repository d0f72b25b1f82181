"""Scenes for the tests of the core: a ralph in a state, the ways a run can end, and what came of it."""

from collections.abc import Iterable
from dataclasses import replace

from ralphd.core.supervision.events import Event, RunEnded
from ralphd.core.supervision.model import (
    Action,
    Announce,
    Escalate,
    ExitFacts,
    Goal,
    Overdue,
    Pausing,
    Policy,
    Reason,
    RunId,
    Running,
    RunReports,
    State,
    Step,
    Stopping,
    Supervision,
    Tally,
    Waiting,
)
from ralphd.core.supervision.reports import Report, Reported
from ralphd.core.supervision.step import step
from ralphd.core.time import Moment

NOW: Moment = 1_795_291_200.0
"""2026-11-21T20:00:00Z."""
RUN = RunId("r000001-3fa9c1d2")
NEXT_RUN = RunId("r000002-77aa01b3")
POLICY = Policy()
RUNNING = Running(RUN)
HUNG = Running(RUN, Overdue.STALL)
TOO_LONG = Running(RUN, Overdue.TIMEOUT)
HELLO = RunReports(hello=True)
STOPPING = Stopping(RUN, since=NOW, kill_at=NOW + 30)
PAUSING = Pausing(RUN, since=NOW, kill_at=NOW + 30)
WAITING = Waiting(Reason.CRASH, since=NOW, until=NOW + 30)

EXIT_0 = ExitFacts(RUN, NOW, code=0)
EXIT_1 = ExitFacts(RUN, NOW, code=1)
LOST = ExitFacts(RUN, NOW)
USAGE_LIMIT = ExitFacts(RUN, NOW, code=75, pause_reason="usage_limit", resume_at=NOW + 7200)


def ralph(
    state: State, goal: Goal = Goal.RUNNING, tally: Tally | None = None, said: RunReports | None = None
) -> Supervision:
    """A ralph in ``state``, wanted to be running unless said otherwise, whose run has ``said`` so much."""
    return Supervision(goal, state, tally or Tally(), said or RunReports())


def ended(*, code: int | None = None, signal: int | None = None) -> ExitFacts:
    """The end of ``RUN``, just now."""
    return ExitFacts(RUN, NOW, code=code, signal=signal)


def after_end(
    ending: ExitFacts,
    policy: Policy = POLICY,
    tally: Tally | None = None,
    *,
    said: RunReports | None = None,
    state: State = RUNNING,
) -> Step:
    """What comes of ``ending`` for a ralph that was running."""
    return step(ralph(state, tally=tally, said=said), RunEnded(ending), policy)


def report(what: Report, report_id: str = "1", *, at: Moment = NOW, run_id: RunId = RUN) -> Reported:
    """A report of ``RUN``; its digest is that of another one only where it says something else."""
    return Reported(at, run_id, report_id, repr(what), what)


def told(now: Supervision, events: Iterable[Event], policy: Policy = POLICY) -> Step:
    """What is so after ``events``, one after the other, and all the orders that they led to."""
    answer = Step(now)
    for event in events:
        following = step(answer.supervision, event, policy)
        answer = replace(following, actions=answer.actions + following.actions)
    return answer


def texts(answer: Step) -> list[str]:
    """What a person reads of an answer, in order."""
    return [a.text for a in answer.actions if isinstance(a, Announce | Escalate) and a.text is not None]


def orders(answer: Step) -> tuple[Action, ...]:
    """What is to be done, without what is to be told."""
    return tuple(action for action in answer.actions if not isinstance(action, Announce | Escalate))


def escalations(answer: Step) -> list[str]:
    """What a person was called for."""
    return [action.text for action in answer.actions if isinstance(action, Escalate)]


def types(answer: Step) -> list[str]:
    """The events told, in order."""
    return [action.type for action in answer.actions if isinstance(action, Announce)]
