"""The way from a loop to its Regent: reports wait while the daemon is away, and are sent again (as ``link``).

What is said comes from the real ``Scribe``; here it is only put into the words of the core.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ralphd.core.supervision.model import LastWord, ReportedTask, RunId
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    WaitingUntil,
)
from ralphd.core.time import parse_rfc3339
from ralphd.loop.report_client import RegentReply, Reports
from tests.sim.world import Due

if TYPE_CHECKING:
    from tests.sim.night import Night

POST_S: Final = 0.01
RETRY_S: Final = 1.0


@dataclass(slots=True)
class Letter:
    """A report under way."""

    id: str
    report: Report
    answer: Future[RegentReply] = field(default_factory=Future)


class Mail(Reports):
    """Reports of one run; they die with it."""

    def __init__(self, night: Night, run_id: RunId) -> None:
        self._night, self._run_id = night, run_id
        self._letters: deque[Letter] = deque()
        self._count = 0
        self._due: Due | None = None
        self.is_away = False

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> Future[RegentReply]:
        """Queue a report; a heartbeat is not kept while others wait."""
        self._count += 1
        letter = Letter(str(self._count), in_core(kind, fields))
        if kind == "heartbeat" and self._letters:
            letter.answer.set_result(RegentReply())
            return letter.answer
        self._letters.append(letter)
        if self._due is None:
            self._due = self._night.agenda.after(POST_S, self._post)
        return letter.answer

    def close(self, limit_s: float) -> None:
        """Nothing to do: whoever ends looks whether ``is_empty``."""

    @property
    def is_empty(self) -> bool:
        """Whether all was answered."""
        return not self._letters

    def drop(self) -> None:
        """The run is over."""
        if self._due is not None:
            self._due.call_off()
        self._letters.clear()

    def daemon_is_back(self) -> None:
        """Within a second it is tried again."""
        if self._letters:
            self._again(RETRY_S / 2)

    def _post(self) -> None:
        self._due = None
        letter = self._letters[0]
        reply = self._night.report(self._run_id, letter)
        # Nobody knows when somebody will hear it: ``daemon_is_back`` tells; or when it is judged.
        self.is_away = reply is None and self._night.daemon is None
        if reply is not None:
            self.is_answered(letter, reply)

    def is_answered(self, letter: Letter, reply: RegentReply) -> None:
        """The Regent has answered, perhaps after a verdict."""
        if not self._letters or self._letters[0] is not letter:
            return
        self._letters.popleft()
        if self._letters:
            self._again(POST_S)
        letter.answer.set_result(reply)

    def _again(self, delay_s: float) -> None:
        if self._due is not None:
            self._due.call_off()
        self._due = self._night.agenda.after(delay_s, self._post)


def in_core(kind: str, fields: dict[str, Any]) -> Report:
    """A report of the loop in the words of the core, as the API does it."""
    match kind:
        case "hello":
            return Hello(fields["signals"], fields["agent"])
        case "heartbeat":
            return Heartbeat()
        case "iteration-started":
            return IterationStarted(
                fields["iteration"], _task(fields), fields["agent"], fields["head"], fields["branch"]
            )
        case "attempt-finished":
            return AttemptFinished(
                agent=fields["agent"],
                outcome=fields["outcome"],
                kind=fields.get("failure_kind"),
                code=fields.get("exit_code"),
                cost_usd=fields.get("cost_usd"),
                iteration=fields["iteration"],
                task=_task(fields),
                attempt=fields["attempt"],
                why=fields["why"],
                next=fields["next"],
            )
        case "iteration-finished":
            return IterationFinished(
                fields["iteration"],
                fields["failed"],
                fields["summary"],
                _task(fields),
                fields["complete"],
            )
        case "agent-exhausted":
            return AgentExhausted(fields["agent"], fields["reason"], _moment(fields["until"]))
        case "agent-returned":
            return AgentReturned(fields["agent"])
        case "waiting":
            return WaitingUntil(_moment(fields["until"]), fields["reason"])
        case "ending":
            when = _moment(fields["resume_at"])
            return LastWord(fields["code"], fields["reason"], fields["why"] or "", when)
        case _:
            raise AssertionError(f"nobody understands {kind}")


def _task(fields: dict[str, Any]) -> ReportedTask:
    return ReportedTask(fields["task"]["id"], fields["task"]["title"])


def _moment(text: str | None) -> float | None:
    return None if text is None else parse_rfc3339(text)
