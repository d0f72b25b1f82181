"""What the loop reports of itself: its orders and results in the words of the API (H6, L9)."""

import time
from concurrent.futures import Future
from typing import Any

from ralphd.core.boundary import Position
from ralphd.core.classify import Finding
from ralphd.core.ledger import UnderWay
from ralphd.core.loop_model import End, FinishIteration, Iteration, TellAttempt
from ralphd.core.model import Moment
from ralphd.core.moments import rfc3339
from ralphd.loop.attempt import AttemptResult
from ralphd.loop.link import Answer, Reports
from ralphd.loop.settings import Settings

MOST_LINE_CHARS = 500
MOST_COMMITS = 50


class Scribe:
    """Tells the Regent. ``commits`` are those of the iteration under way."""

    def __init__(self, reports: Reports, settings: Settings) -> None:
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

    def attempt_finished(self, order: TellAttempt, result: AttemptResult, finding: Finding) -> None:
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

    def attempt_lost(self, lost: UnderWay, now: Moment) -> None:
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

    def iteration_finished(self, order: FinishIteration) -> "Future[Answer]":
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

    def ending(self, order: End) -> None:
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
