"""Codex: what the rules of ``clis/codex.toml`` cannot express.

An ``error`` event may be one of its own retries. It counts the tokens of a resumed thread from the thread's
beginning, and prints a whole transcript on stderr where ``--json`` is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from ralphd.agents import reading
from ralphd.agents.description import Description, EventRule
from ralphd.agents.parsers import EventParser
from ralphd.agents.reading import ALIVE, NOTHING, OwnLines, Sessions, SessionShare, Signs, text
from ralphd.core.failures.agent_events import AgentEvent, Figures, FinalEvent, RetryingItself, ToolUse, Warned

_ITEM_DONE: Final = '{"type":"item.completed"'
_NO_EVIDENCE: Final = ('"type":"command_execution"', '"type":"reasoning"')
_HEAD_CHARS: Final = 120
_RECONNECTING: Final = re.compile(r"\s*(?:Reconnecting|Retrying)\b[. \u2026]*(?:(\d{1,4})/(\d{1,4}))?")
_STATUS: Final = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
_NOISE: Final = ("Reading additional input from stdin", "Reading prompt from stdin", "WARNING: proceeding,")
"""Printed in good runs as well, also amid a transcript."""
_TRANSCRIPT: Final = "OpenAI Codex v"
_TRANSCRIPT_ERROR: Final = "ERROR: "
_TRANSCRIPT_END: Final = re.compile(r"\s*(?:tokens used:?)?\s*[\d,]*\s*")


class CodexParser(EventParser):
    def __init__(self, cli: Description, sessions: Sessions) -> None:
        super().__init__(cli)
        self._read, self._written = SessionShare(sessions), SessionShare(sessions)
        self._prints_transcript = False
        self._last_errors = OwnLines()

    def is_bulk(self, line: str) -> bool:
        """Whether an event needs no reading: what commands printed, and reasoning, are most of all output."""
        if line.startswith(_ITEM_DONE) and line.endswith("}"):
            head = line[:_HEAD_CHARS]
            return _NO_EVIDENCE[0] in head or _NO_EVIDENCE[1] in head
        return super().is_bulk(line)

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """Read stderr; of a transcript, which holds tool output, only the errors that it ends with."""
        if line.startswith(_TRANSCRIPT):
            self._prints_transcript = True
        if line.startswith(_NOISE):
            return NOTHING
        if not self._prints_transcript:
            return super().error_line(line)
        if line.startswith(_TRANSCRIPT_ERROR):
            self._last_errors.add(line)
        elif not _TRANSCRIPT_END.fullmatch(line):
            self._last_errors = OwnLines()
        return ALIVE

    def own_lines(self) -> tuple[str, ...]:
        return (*self.own.lines(), *self._last_errors.lines())[-reading.OWN_LINES :]

    def own_event(self, data: dict[str, Any]) -> Signs:
        if data.get("type") == "item.completed":
            changes = reading.listed(reading.table(data.get("item")).get("changes"))[:20]
            paths = [text(reading.table(change).get("path")) for change in changes]
            return (ToolUse("file_change", reading.short(" ".join(filter(None, paths)))),)
        message = text(data.get("message"))
        if again := _RECONNECTING.match(message):
            attempt, most = (int(part) if part else None for part in again.groups())
            reason = message[again.end() :].strip(" .()")
            return (RetryingItself(reason, _status(message), attempt, most),)
        self.own.add(reading.vendor_error(message)[0])
        return (Warned(message),) if message.strip() else ALIVE

    def figures(self, rule: EventRule, data: dict[str, Any]) -> Figures:
        figures = super().figures(rule, data)
        if not self.session or not (figures.tokens_in or figures.tokens_out):
            return figures
        read = self._read.of(f"{self.session} read", figures.tokens_in)
        return Figures(None, int(read), int(self._written.of(f"{self.session} written", figures.tokens_out)))

    def bad_end(self, rule: EventRule, data: dict[str, Any]) -> FinalEvent:
        end = super().bad_end(rule, data)
        return replace(end, status=end.status or _status(end.body or end.message))


def _status(message: str) -> int | None:
    found = _STATUS.search(message[:2000])
    return reading.http_status(found[1]) if found else None
