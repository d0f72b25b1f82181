"""Reports the loop to the Regent and to the log, in the terms of the API (H6, L9)."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.gate.verdict import Position, Verdict, VerdictKind
from ralphd.core.loop import model
from ralphd.core.loop.model import PauseReason
from ralphd.core.loop.phases import UNREVIEWED
from ralphd.core.loop.pool import rotation_words
from ralphd.core.loop.tasks import unreviewed
from ralphd.core.plan import Plan, list_words, parallel_words
from ralphd.core.text import one_line, truncate
from ralphd.core.time import Moment, rfc3339
from ralphd.loop.console import Console, span

if TYPE_CHECKING:
    from ralphd.core.failures.classify import Classification
    from ralphd.core.failures.resets import Reset
    from ralphd.loop.attempt.agent_run import AgentResult
    from ralphd.loop.attempt.agent_runner import AgentAnswer
    from ralphd.loop.report_client import RegentReply, Reports
    from ralphd.loop.settings import LoopSettings

MOST_LINE_CHARS = 500
MOST_COMMITS = 50
MOST_NAMED = 5
MOST_SHOWN_CHARS = 200
"""Of a reason in a line of the log; the events have all of it."""
LIMITS = (FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT)


class Reporter:
    """Sends reports to the Regent. ``commits`` are those of the iteration in progress."""

    def __init__(self, reports: "Reports", settings: "LoopSettings") -> None:
        self._reports, self._settings = reports, settings
        self.commits: tuple[str, ...] = ()
        self._agent: str | None = None

    def working(self, agent: str) -> None:
        """Report which agent works now, if that has changed. The first report announces the signals."""
        if agent != self._agent:
            self._agent = agent
            self._reports.report("hello", signals=True, agent=agent)

    def heartbeat(self) -> None:
        """Report that the loop is alive."""
        self._reports.report("heartbeat")

    def iteration_started(self, iteration: model.Iteration, position: "Position | None" = None) -> None:
        """Report the start of an iteration, and where HEAD is."""
        self.commits = ()
        self._agent = iteration.agent
        self._reports.report(
            "iteration-started",
            iteration=iteration.number,
            task=_task(iteration),
            agent=iteration.agent,
            head=None if position is None else position.head,
            branch=None if position is None else _line(position.branch),
        )

    def attempt_finished(
        self, order: model.ReportAttempt, result: "AgentResult", finding: "Classification"
    ) -> None:
        """Report the end of an attempt, and what follows."""
        iteration, evidence, used = order.iteration, result.evidence, result.figures
        self._reports.report(
            "attempt-finished",
            iteration=iteration.number,
            attempt=iteration.attempt,
            task=_task(iteration),
            agent=iteration.agent,
            phase=result.phase,
            outcome="asked" if finding.asked else "ok" if order.kind is None else "failed",
            failure_kind=order.kind,
            rule=_line(order.rule),
            why=_line(order.why),
            exit_code=evidence.code if evidence.signal is None else -evidence.signal,
            cost_usd=round(used.cost_usd or 0.0, 6),
            cost_source="unknown" if used.cost_usd is None else "told",
            tokens_in=used.tokens_in or None,  # every model uses some: 0 means that nobody reported them
            tokens_out=used.tokens_out or None,
            model=_line(result.model),
            session=_line(result.session),
            duration_s=round(max(result.ended_at - result.started_at, 0.0), 3),
            reset_at=None if finding.reset is None else rfc3339(finding.reset.until),
            commits=iteration.made,
            next=_line(order.next),
            ended_at=rfc3339(result.ended_at),
        )

    def attempt_lost(self, lost: model.InFlight, now: Moment) -> None:
        """Report an attempt that was cut off with an earlier loop; its end and its cost are not known."""
        self._reports.report(
            "attempt-finished",
            iteration=lost.iteration,
            attempt=lost.attempt,
            task={"id": _line(lost.task_id), "title": _line(lost.title)},
            agent=lost.agent,
            outcome="lost",
            why=f"it was interrupted together with its loop; it began at {rfc3339(lost.began_at)}",
            cost_source="unknown",
            next="the loop continues",
            ended_at=rfc3339(now),
        )

    def iteration_finished(self, order: model.FinishIteration) -> "Future[RegentReply]":
        """Report a boundary; the future holds what to do next, and the verdict."""
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
        """Report the start of an agent's cooldown."""
        self._reports.report("agent-exhausted", agent=agent, reason=_line(reason), until=_moment(until))

    def agent_back(self, agent: str) -> None:
        """Report the return of an agent to the pool."""
        self._reports.report("agent-returned", agent=agent)

    def waiting(self, until: Moment | None, why: str) -> None:
        """Report a wait; None: it is over."""
        self._reports.report("waiting", until=_moment(until), reason=_line(why) or "waiting")

    def ending(self, order: model.EndLoop) -> None:
        """Send the last report of the loop."""
        why, resume_at = _line(order.why), _moment(order.resume_at)
        self._reports.report("ending", code=order.code, reason=order.reason, why=why, resume_at=resume_at)

    def report_order(self, order: model.ReportOrder, latest: "AgentAnswer | None", console: Console) -> None:
        """Carry out an order that only reports. ``latest`` is the attempt that ended last."""
        now = time.time()
        match order:
            case model.ReportAttempt():
                assert latest is not None
                if order.kind is not None:
                    console.say(failure_line(order, latest.finding.reset, now, console.moment))
                self.attempt_finished(order, latest.result, latest.finding)
            case model.ReportLost(lost=lost):
                console.say(f"attempt {lost.attempt} by {lost.agent} was interrupted; its result is unknown")
                self.attempt_lost(lost, now)
            case model.ReportAgentOut(agent=agent, reason=reason, until=until):
                self.agent_out(agent, reason, until)
            case model.ReportAgentBack(agent=agent):
                self.agent_back(agent)
            case model.Rest(until=until, why=why):
                if order.reason is PauseReason.RESOURCES:
                    console.say(f"waiting: {why}")
                elif not order.logged:
                    console.say(f"waiting until {console.moment(until)} (for {span(until - now)}): {why}")
                self.waiting(until, why)
            case model.EndRest():
                self.waiting(None, "")
            case model.EndLoop():
                # The Regent logs every other end, if it receives reports now.
                has_regent = self._settings.is_supervised and not self._reports.is_away
                if not order.logged and (order.resume_at is not None or not has_regent):
                    console.say(_end_words(order, console.moment))
                self.ending(order)


def _task(iteration: model.Iteration) -> dict[str, Any]:
    return {"id": _line(iteration.task.id), "title": _line(iteration.task.title)}


def _moment(at: Moment | None) -> str | None:
    return None if at is None else rfc3339(at)


def _line(text: str | None) -> str | None:
    """Return ``text`` as the API accepts it: one line of printable characters, truncated."""
    return None if text is None else one_line(text, MOST_LINE_CHARS - 1)


def failure_line(
    order: model.ReportAttempt, reset: "Reset | None", now: Moment, shown: Callable[[Moment], str]
) -> str:
    """Return the one line about a failed attempt: what failed, until when, and what comes next."""
    iteration, kind = order.iteration, (order.kind or "").replace("_", " ")
    why = truncate(order.why.rstrip("."), MOST_SHOWN_CHARS)
    if order.kind not in LIMITS:
        return f"attempt {iteration.attempt} by {iteration.agent} failed ({kind}): {why}; next: {order.next}"
    what = why if "limit" in why.lower() else f"{kind}: {why}"
    when = ""
    if order.until is not None:
        verb = " until"
        if reset is None or reset.until <= now:
            verb = ", reset not known, next try"
        elif reset.confidence is Confidence.GUESSED:
            verb = ", probably until"
        when = f"{verb} {shown(order.until)} (in {span(order.until - now)})"
    follows = f". No{order.next[2:]}." if order.next.startswith("no ") else f"; {order.next}"
    return f"{iteration.agent}: {what}{when}{follows}"


def iteration_line(order: model.FinishIteration, verdict: "Verdict | None") -> str:
    """Return the line about the end of an iteration, after the verdict on its commits."""
    is_reverted = verdict is not None and verdict.kind is VerdictKind.REVERTED
    how = "failed" if order.failed else order.summary  # why, its last attempt's line has said
    how = "its commits were reverted, and its task is open again" if is_reverted else how
    return f"iteration {order.iteration.number}: {truncate(how, MOST_SHOWN_CHARS)}"


def begin_words(plan: Plan | None, ledger: model.Ledger, settings: "LoopSettings") -> list[str]:
    """Return the lines for the start: the task list, the rotation, the phases."""
    policy, lines = settings.policy, [list_words(plan)]
    if plan is not None and (marked := parallel_words(plan)):
        lines.append(marked)
    if policy.rotates:
        lines.append(rotation_words(policy.agents))
    if settings.configuration.phases.enabled and not policy.reviews:
        lines.append(UNREVIEWED)
    if policy.reviews and (waiting := unreviewed(plan, ledger)):
        lines.append(f"waiting for a review: {', '.join(waiting[:MOST_NAMED])}")
    return lines


def limit_words(timeout_s: float) -> str:
    """Return the time limit of an attempt, to be appended to a line."""
    return f", time limit {span(timeout_s)}" if timeout_s else ""


def _end_words(order: model.EndLoop, shown: Callable[[Moment], str]) -> str:
    by_reason = {"no_progress": "stopped", "review": "cannot continue", "limit": "stopped at your limit"}
    by_code = {0: "done", 1: "failed", 75: "paused", 78: "cannot start", 130: "stopped"}
    verb = by_reason.get(order.reason) or by_code.get(order.code, "ended")
    later = "" if order.resume_at is None else f" until {shown(order.resume_at)}"
    return f"{verb}: {order.why}{later}"
