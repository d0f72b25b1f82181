"""The orders that only tell something: a line for the log, a report for the Regent."""

from collections.abc import Callable

from ralphd.core.ledger import Ledger
from ralphd.core.loop_model import (
    End,
    EndRest,
    LoopOrder,
    Rest,
    TellAgentBack,
    TellAgentOut,
    TellAttempt,
    TellLost,
)
from ralphd.core.model import Moment
from ralphd.core.phases import UNREVIEWED
from ralphd.core.plan import Plan, parallel_words
from ralphd.core.pool import rotation_words
from ralphd.core.tasks import unreviewed
from ralphd.loop.asking import Answer
from ralphd.loop.console import Console, day_and_time, span
from ralphd.loop.scribe import Scribe
from ralphd.loop.settings import Settings

MOST_NAMED = 5


class Teller:
    """Tells whoever reads the log, and the Regent."""

    def __init__(self, console: Console, scribe: Scribe, now: Callable[[], Moment]) -> None:
        self._console = console
        self._scribe = scribe
        self._now = now

    def tell(self, order: LoopOrder, latest: Answer | None) -> None:
        """Carry out an order that only tells. ``latest`` is the attempt that ended last."""
        match order:
            case TellAttempt() if latest is not None:
                self._tell_attempt(order, latest)
            case TellLost(lost=lost):
                which = f"attempt {lost.attempt} by {lost.agent}"
                self._console.say(f"{which} was cut off with the loop; nobody knows how it ended")
                self._scribe.attempt_lost(lost, self._now())
            case TellAgentOut(agent=agent, reason=reason, until=until):
                when = "until a person acts" if until is None else f"until {day_and_time(until, self._now())}"
                self._console.say(f"{agent} is out {when}: {reason}")
                self._scribe.agent_out(agent, reason, until)
            case TellAgentBack(agent=agent):
                self._console.say(f"{agent} may be asked again")
                self._scribe.agent_back(agent)
            case Rest(until=until, why=why):
                left = span(until - self._now())
                self._console.say(f"waits {left}, until {day_and_time(until, self._now())}: {why}")
                self._scribe.waiting(until, why)
            case EndRest():
                self._scribe.waiting(None, "")
            case End():
                self._console.say(_end_words(order, self._now()))
                self._scribe.ending(order)
            case _:
                raise AssertionError(f"nobody carries out {order!r}")

    def _tell_attempt(self, order: TellAttempt, answer: Answer) -> None:
        iteration = order.iteration
        if order.kind is not None:
            kind = order.kind.replace("_", " ")
            self._console.say(
                f"attempt {iteration.attempt} by {iteration.agent} failed ({kind}): {order.why}"
            )
            self._console.say(f"next: {order.next}")
        self._scribe.attempt_finished(order, answer.result, answer.finding)


def begin_words(plan: Plan | None, ledger: Ledger, settings: Settings) -> list[str]:
    """What the loop has before it, and who does it."""
    policy = settings.policy
    marked = "" if plan is None else parallel_words(plan)
    turns = rotation_words(policy.agents) if policy.rotates else ""
    phases = UNREVIEWED if settings.configuration.phases.enabled and not policy.reviews else ""
    waiting = unreviewed(plan, ledger) if policy.reviews else ()
    review = f"not done before a review says so: {', '.join(waiting[:MOST_NAMED])}" if waiting else ""
    return [list_words(plan), *filter(None, (marked, turns, phases, review))]


def list_words(plan: Plan | None) -> str:
    """Which list there is, and how much of it is open."""
    if plan is None:
        return "no task list: the prompt alone says what is to be done"
    if not plan.tasks:
        return f"{plan.file} lists no task: the prompt alone says what is to be done"
    return f"{plan.file}: {len(plan.open)} of {len(plan.tasks)} tasks are open"


def limit_words(timeout_s: float) -> str:
    """How long an attempt may take."""
    return f", {span(timeout_s)} at most" if timeout_s else ""


def _end_words(order: End, now: Moment) -> str:
    words = {
        0: "done",
        1: "failed",
        5: "ends at a limit of yours",
        75: "pauses",
        78: "cannot go on" if order.reason == "review" else "cannot begin",
        130: "ends",
    }
    later = "" if order.resume_at is None else f"; the limit is over at {day_and_time(order.resume_at, now)}"
    said = "stops" if order.reason == "no_progress" else words.get(order.code, "ends")
    return f"{said}: {order.why}{later}"
