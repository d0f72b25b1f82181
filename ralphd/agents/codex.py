"""Codex: ``codex exec --json``.

``turn.completed`` and ``turn.failed`` are the verdict; an ``error`` event may be a retry of its own, and an
``error`` item is a warning. It tells no price, and counts the tokens of a resumed thread from its beginning.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ralphd.agents.agent import Ways
from ralphd.agents.reading import (
    ALIVE,
    LAST_MESSAGE_CHARS,
    NAME_CHARS,
    NOTHING,
    OWN_LINES,
    OwnLines,
    Sessions,
    SessionShare,
    Signs,
    about,
    count,
    http_status,
    listed,
    record,
    session_id,
    short,
    table,
    text,
    vendor_error,
)
from ralphd.core.failures.agent_events import (
    AgentEvent,
    AgentText,
    FinalEvent,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Warned,
)
from ralphd.core.failures.kinds import ExitMeaning, FailureKind

_ITEM_DONE: Final = '{"type":"item.completed"'
_NO_EVIDENCE: Final = ('"type":"command_execution"', '"type":"reasoning"')
_HEAD_CHARS: Final = 120
_RECONNECTING: Final = re.compile(r"\s*(?:Reconnecting|Retrying)\b[. \u2026]*(?:(\d{1,4})/(\d{1,4}))?")
_STATUS: Final = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
_TRANSCRIPT: Final = "OpenAI Codex v"
_TRANSCRIPT_ERROR: Final = "ERROR: "
_TRANSCRIPT_END: Final = re.compile(r"\s*(?:tokens used:?)?\s*[\d,]*\s*")
_NOISE: Final = ("Reading additional input from stdin", "Reading prompt from stdin", "WARNING: proceeding,")
"""What it prints on stderr in good runs as well."""


class CodexParser:
    """Reads the events of ``--json``. What commands printed is never looked at."""

    def __init__(self, sessions: Sessions | None = None) -> None:
        self._own = OwnLines()
        self._thread: str | None = None
        known = sessions or Sessions()
        self._read, self._written = SessionShare(known), SessionShare(known)
        self._prints_transcript = False
        self._last_errors = OwnLines()

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        if line.startswith(_ITEM_DONE) and line.endswith("}"):
            head = line[:_HEAD_CHARS]
            if _NO_EVIDENCE[0] in head or _NO_EVIDENCE[1] in head:
                return ALIVE  # the bulk of all output
        data = record(line)
        if data is None:
            return self._own.plain(line)
        self._own.event_seen()
        match data.get("type"):
            case "thread.started":
                self._thread = session_id(data.get("thread_id"))
                return (Started(self._thread),)
            case "item.started":
                return _begun(table(data.get("item")))
            case "item.completed":
                return self._item(table(data.get("item")))
            case "error":
                return self._error(text(data.get("message")))
            case "turn.completed":
                return (*self._spent(table(data.get("usage"))), FinalEvent(True, self._own.last_message))
            case "turn.failed":
                return (self._failure(table(data.get("error"))),)
            case _:
                return ALIVE

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says; of the transcript, with tool output, only the errors it ends with."""
        if line.startswith(_TRANSCRIPT):
            self._prints_transcript = True
        if line.startswith(_NOISE):
            return NOTHING
        if not self._prints_transcript:
            return self._own.complaint(line)
        if line.startswith(_TRANSCRIPT_ERROR):
            self._last_errors.add(line)
        elif not _TRANSCRIPT_END.fullmatch(line):
            self._last_errors = OwnLines()
        return ALIVE

    def own_lines(self) -> tuple[str, ...]:
        """The texts of its errors, stderr but for a transcript, lines that are no events."""
        return (*self._own.lines(), *self._last_errors.lines())[-OWN_LINES:]

    def last_message(self) -> str:
        """Its last message."""
        return self._own.last_message

    def _item(self, item: Mapping[str, Any]) -> Signs:
        match item.get("type"):
            case "agent_message":
                said = text(item.get("text"), LAST_MESSAGE_CHARS)
                self._own.said(said)
                return (AgentText(said),) if said.strip() else ALIVE
            case "file_change":
                paths = [text(table(change).get("path")) for change in listed(item.get("changes"))[:20]]
                return (ToolUse("file_change", short(" ".join(filter(None, paths)))),)
            case "error":
                return (Warned(text(item.get("message"))),)
            case _:
                return ALIVE

    def _error(self, message: str) -> Signs:
        if again := _RECONNECTING.match(message):
            attempt, most = (int(part) if part else None for part in again.groups())
            reason = message[again.end() :].strip(" .()")
            return (RetryingItself(reason, _status(message), attempt, most),)
        self._own.add(vendor_error(message)[0])
        return (Warned(message),) if message.strip() else ALIVE

    def _spent(self, usage: Mapping[str, Any]) -> Signs:
        """Its tokens are the thread's so far."""
        read, written = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
        if self._thread:
            read = int(self._read.of(f"{self._thread} read", read))
            written = int(self._written.of(f"{self._thread} written", written))
        return (Spent(None, read, written),) if read or written else NOTHING

    def _failure(self, error: Mapping[str, Any]) -> FinalEvent:
        told = text(error.get("message")) or "the turn failed"
        message, code, status = vendor_error(told)
        self._own.add(message)
        code = code or text(error.get("code"), NAME_CHARS) or None
        return FinalEvent(False, message, status or _status(told), code, body=told if told != message else "")


def _begun(item: Mapping[str, Any]) -> Signs:
    match item.get("type"):
        case "command_execution" | "web_search" as name:
            return (ToolUse(name, about(item)),)
        case "mcp_tool_call" | "collab_tool_call" as name:
            return (ToolUse(text(item.get("tool"), NAME_CHARS) or name, about(item.get("arguments"))),)
        case _:
            return ALIVE


def _status(message: str) -> int | None:
    found = _STATUS.search(message[:2000])
    return http_status(found[1]) if found else None


WAYS: Final = Ways(
    program="codex",
    install="npm install -g @openai/codex",
    first_events=("thread.started",),
    start=("exec", "--json", "--skip-git-repo-check"),
    bypass=("--dangerously-bypass-approvals-and-sandbox",),
    bypass_instead=(
        "-s",
        "--sandbox",
        "--full-auto",
        "--yolo",
        "-a",
        "--ask-for-approval",
        "--approve-for-me",
    ),
    model_flag="-m",
    resume=("resume",),
    from_stdin=("-",),
    parser=CodexParser,
    exits={2: ExitMeaning(FailureKind.FATAL, "it does not understand its command line")},
)
