"""opencode: ``opencode run --format json``.

There is no final event: it ends by exiting, well when the last step finished with ``stop``. A stream that
breaks makes it take empty steps for ever, which are no progress (L6). Prices are per step.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ralphd.agents.agent import Ways
from ralphd.agents.reading import (
    ALIVE,
    LAST_MESSAGE_CHARS,
    NAME_CHARS,
    NOTHING,
    OwnLines,
    Sessions,
    Signs,
    about,
    count,
    headers,
    http_status,
    number,
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
    Empty,
    FinalEvent,
    Spent,
    Started,
    ToolUse,
)

_GOES_ON: Final = ("tool-calls", "unknown", "")
"""Reasons for the end of a step after which it takes another."""


class OpencodeParser:
    """Reads the events of ``--format json``. What tools printed is never looked at."""

    def __init__(self, _sessions: Sessions | None = None) -> None:
        self._own = OwnLines()
        self._session: str | None = None
        self._message = ""
        self._has_ended = False

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        data = record(line)
        if data is None:
            return self._own.plain(line)
        self._own.event_seen()
        return self._event(data) if self._session else (*self._started(data), *self._event(data))

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says."""
        return self._own.complaint(line)

    def own_lines(self) -> tuple[str, ...]:
        """The texts of its errors, stderr, lines that are no events."""
        return self._own.lines()

    def last_message(self) -> str:
        """What it said in its last step that said anything."""
        return self._own.last_message

    def _started(self, data: dict[str, Any]) -> Signs:
        """Every event carries the session; the first one is its start."""
        session = session_id(data.get("sessionID"))
        if session is None:
            return NOTHING
        self._session = session
        return (Started(session),)

    def _event(self, data: dict[str, Any]) -> Signs:
        part = table(data.get("part"))
        match data.get("type"):
            case "step_start":
                return self._begin()
            case "text":
                return self._text(text(part.get("text"), LAST_MESSAGE_CHARS))
            case "tool_use":
                state = table(part.get("state"))
                shown = about(state.get("input")) or short(text(state.get("title")))
                return (ToolUse(text(part.get("tool"), NAME_CHARS), shown),)
            case "step_finish":
                return self._finish(part)
            case "error":
                return (self._error(table(data.get("error"))),)
            case _:
                return ALIVE

    def _begin(self) -> Signs:
        """A step; after an end it is a new start, as when it has made room in its context and goes on."""
        self._message = ""
        begun: Signs = (Started(self._session),) if self._has_ended else ALIVE
        self._has_ended = False
        return begun

    def _text(self, said: str) -> Signs:
        if not said.strip():
            return ALIVE
        self._message = f"{self._message}\n{said}"[-LAST_MESSAGE_CHARS:].lstrip("\n")
        self._own.said(self._message)
        return (AgentText(said),)

    def _finish(self, part: Mapping[str, Any]) -> Signs:
        reason = text(part.get("reason"), NAME_CHARS)
        spent = _spent(part)
        if reason in _GOES_ON:
            return spent or ((Empty(),) if reason == "unknown" else ALIVE)
        self._has_ended = True
        good = reason == "stop"
        message = self._own.last_message if good else f"its last step ended for the reason {reason!r}"
        return (*spent, FinalEvent(good, message, code=None if good else reason))

    def _error(self, error: Mapping[str, Any]) -> FinalEvent:
        data = table(error.get("data")) or error  # a vendor's own, passed on as it came
        told, body = text(data.get("message")), text(data.get("responseBody"))
        message, code, status = vendor_error(told)
        code = vendor_error(body)[1] or code or text(error.get("name"), NAME_CHARS) or None
        message = message or code or "it ended with an error and did not say which"
        self._own.add(message)
        body = body or (told if told != message else "")
        status = http_status(data.get("statusCode")) or status
        return FinalEvent(False, message, status, code, headers(data.get("responseHeaders")), body)


def _spent(part: Mapping[str, Any]) -> Signs:
    tokens, cost = table(part.get("tokens")), number(part.get("cost"))
    cache = table(tokens.get("cache"))
    read = count(tokens.get("input")) + count(cache.get("read")) + count(cache.get("write"))
    spent = Spent(cost, read, count(tokens.get("output")) + count(tokens.get("reasoning")), total=False)
    return (spent,) if read or spent.tokens_out or cost else NOTHING


WAYS: Final = Ways(
    program="opencode",
    install="npm install -g opencode-ai",
    tells_costs=True,
    first_events=("step_start",),
    start=("run", "--format", "json"),
    bypass=("--auto",),
    model_flag="-m",
    resume=("-s",),
    parser=OpencodeParser,
    environment={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
)
