"""What the loop reports of itself: its orders and results in the words of the API (H6, L9)."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ralphd.core.failures.classify import Classification
from ralphd.core.gate.verdict import Position
from ralphd.core.loop.model import (
    EndLoop,
    EndRest,
    FinishIteration,
    Iteration,
    LoopOrder,
    Rest,
    TellAgentBack,
    TellAgentOut,
    TellAttempt,
    TellLost,
)
from ralphd.core.loop.phases import UNREVIEWED
from ralphd.core.loop.pool import rotation_words
from ralphd.core.loop.state import InFlight, Ledger
from ralphd.core.loop.tasks import unreviewed
from ralphd.core.plan import Plan, parallel_words
from ralphd.core.time import Moment, rfc3339
from ralphd.loop.attempt.agent_run import AttemptResult
from ralphd.loop.attempt.agent_runner import AgentAnswer
from ralphd.loop.console import Console, day_and_time, span
from ralphd.loop.report_client import Reports
from ralphd.loop.settings import LoopSettings

MOST_LINE_CHARS = 500
MOST_COMMITS = 50


class Reporter:
    """Tells the Regent. ``commits`` are those of the iteration under way."""

    def __init__(self, reports: Reports, settings: LoopSettings) -> None:
        self._reports = reports
        self._settings = settings
        self.commits: tuple[str, ...] = ()
        self._agent: str | None = None

    def hello(self) -> None:
        """The first report: which signals are known."""
        self.working(self._settings.policy.agents[0])

    def working(self, agent: str) -> None:
        """Which agent works now, where that is another one than was told."""
        if agent != self._agent:
            self._agent = agent
            self._reports.report("hello", signals=True, agent=agent)

    def heartbeat(self) -> None:
        """The loop lives."""
        self._reports.report("heartbeat")

    def iteration_started(self, iteration: Iteration, position: Position | None = None) -> None:
        """An iteration begins, with the repository where it is."""
        self.commits = ()
        task = _task(iteration)
        self._agent = iteration.agent
        self._reports.report(
            "iteration-started",
            iteration=iteration.number,
            task=task,
            agent=iteration.agent,
            head=None if position is None else position.head,
            branch=None if position is None else _line(position.branch),
        )

    def attempt_finished(self, order: TellAttempt, result: AttemptResult, finding: Classification) -> None:
        """What an attempt was, and what follows."""
        iteration, evidence = order.iteration, result.evidence
        ended_well = order.kind is None and not finding.asked
        told = "unknown" if result.cost_usd is None else "told"
        code = evidence.code if evidence.signal is None else -evidence.signal
        self._reports.report(
            "attempt-finished",
            iteration=iteration.number,
            attempt=iteration.attempt,
            task=_task(iteration),
            agent=iteration.agent,
            phase=result.phase,
            outcome="ok" if ended_well else "asked" if finding.asked else "failed",
            failure_kind=order.kind,
            rule=_line(order.rule),
            why=_line(order.why),
            exit_code=code,
            cost_usd=round(result.cost_usd or 0.0, 6),
            cost_source=told,
            tokens_in=result.tokens_in or None,  # no model works without any: then nobody told
            tokens_out=result.tokens_out or None,
            model=_line(result.model),
            session=_line(result.session),
            duration_s=round(max(result.ended_at - result.started_at, 0.0), 3),
            reset_at=None if finding.reset is None else rfc3339(finding.reset.until),
            commits=iteration.commits,
            next=_line(order.next),
            ended_at=rfc3339(result.ended_at),
        )

    def attempt_lost(self, lost: InFlight, now: Moment) -> None:
        """An attempt was cut off with an earlier loop: that it was there, and what is not known of it."""
        self._reports.report(
            "attempt-finished",
            iteration=lost.iteration,
            attempt=lost.attempt,
            task={"id": _line(lost.task_id), "title": _line(lost.title)},
            agent=lost.agent,
            outcome="lost",
            why=f"it was cut off with the loop that ran it; it began at {rfc3339(lost.began_at)}",
            cost_source="unknown",
            next="the loop goes on",
            ended_at=rfc3339(now),
        )

    def iteration_finished(self, order: FinishIteration) -> "Future[ReportReply]":
        """A boundary; the future is what to do next, and the verdict."""
        return self._reports.report(
            "iteration-finished",
            slowly=self._settings.has_gate,
            iteration=order.iteration.number,
            task=_task(order.iteration),
            failed=order.failed,
            complete=order.complete,
            commits=list(self.commits[-MOST_COMMITS:]),
            summary=_line(order.summary),
            ended_at=rfc3339(time.time()),
        )

    def agent_out(self, agent: str, reason: str, until: Moment | None) -> None:
        """An agent is out of the pool."""
        when = None if until is None else rfc3339(until)
        self._reports.report("agent-exhausted", agent=agent, reason=_line(reason), until=when)

    def agent_back(self, agent: str) -> None:
        """An agent may be asked again."""
        self._reports.report("agent-returned", agent=agent)

    def waiting(self, until: Moment | None, why: str) -> None:
        """The loop waits; None: no longer."""
        when = None if until is None else rfc3339(until)
        self._reports.report("waiting", until=when, reason=_line(why) or "waiting")

    def ending(self, order: EndLoop) -> None:
        """The loop's last word."""
        when = None if order.resume_at is None else rfc3339(order.resume_at)
        why = _line(order.why)
        self._reports.report("ending", code=order.code, reason=order.reason, why=why, resume_at=when)


def _task(iteration: Iteration) -> dict[str, Any]:
    return {"id": _line(iteration.task.id), "title": _line(iteration.task.title)}


def _line(text: str | None) -> str | None:
    """A text as the API takes it: one line of printable characters, not too long."""
    if text is None:
        return None
    plain = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return plain[: MOST_LINE_CHARS - 1]


# The orders that only tell something: a line for the log, a report for the Regent.

MOST_NAMED = 5


class OrderReporter:
    """Tells whoever reads the log, and the Regent."""

    def __init__(self, console: Console, scribe: Reporter, now: Callable[[], Moment]) -> None:
        self._console = console
        self._scribe = scribe
        self._now = now

    def tell(self, order: LoopOrder, latest: AgentAnswer | None) -> None:
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
            case EndLoop():
                self._console.say(_end_words(order, self._now()))
                self._scribe.ending(order)
            case _:
                raise AssertionError(f"nobody carries out {order!r}")

    def _tell_attempt(self, order: TellAttempt, answer: AgentAnswer) -> None:
        iteration = order.iteration
        if order.kind is not None:
            kind = order.kind.replace("_", " ")
            self._console.say(
                f"attempt {iteration.attempt} by {iteration.agent} failed ({kind}): {order.why}"
            )
            self._console.say(f"next: {order.next}")
        self._scribe.attempt_finished(order, answer.result, answer.finding)


def begin_words(plan: Plan | None, ledger: Ledger, settings: LoopSettings) -> list[str]:
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


def _end_words(order: EndLoop, now: Moment) -> str:
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
