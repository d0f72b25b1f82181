"""Gemini CLI: ``gemini --output-format stream-json``.

Exit 0 proves nothing here, ``result.status`` is the verdict. Its exit status is the HTTP status modulo 256.
It tells no price, and of its own retries on stderr alone.
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
    OwnLines,
    Sessions,
    Signs,
    about,
    count,
    record,
    session_id,
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

_TOOL_RESULT: Final = '{"type":"tool_result"'
_API_ERROR: Final = "[API Error: "
_FLUSH_CHARS: Final = 2000
_ATTEMPT: Final = re.compile(r"\s*Attempt (\d{1,4}) failed(?: with status (\d{3}))?[:.]?\s*")
_NOISE: Final = (
    "YOLO mode is enabled",
    "Warning: Basic terminal detected",
    "Warning: 256-color support not detected",
    "Ripgrep is not available",
    "Loaded cached credentials",
    "Error executing tool ",
    "    at ",
)
"""What it prints on stderr in good runs as well, and the frames of its own call stack."""
_INSIDES: Final = (" ", "}", "]")
"""How the lines of an error's own fields begin: evidence, and nothing to be shown."""


class GeminiParser:
    """Reads stream-json. Messages come in pieces; they are shown line by line."""

    def __init__(self, _sessions: Sessions | None = None) -> None:
        self._own = OwnLines()
        self._pieces: list[str] = []
        self._chars = 0
        self._unshown = ""
        self._in_message = False
        self._complaint = ""

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        if line.startswith(_TOOL_RESULT) and line.endswith("}"):
            return self._flushed(ALIVE)  # the bulk of all output, and nothing in it is evidence
        data = record(line)
        if data is None:
            return self._own.plain(line)
        self._own.event_seen()
        match data.get("type"):
            case "message" if data.get("role") == "assistant":
                return self._piece(data)
            case "init":
                model = text(data.get("model"), NAME_CHARS) or None
                return (Started(session_id(data.get("session_id")), model),)
            case "tool_use":
                name = text(data.get("tool_name"), NAME_CHARS)
                return self._flushed((ToolUse(name, about(data.get("parameters"))),))
            case "error":
                return self._flushed(self._error(data))
            case "result":
                return self._flushed(self._result(data))
            case _:
                return ALIVE

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says: its retries, and the cause of its end."""
        if line.startswith(_NOISE):
            return NOTHING
        signs = self._own.complaint(line)
        again = _ATTEMPT.match(line[:2000])
        if again is None:
            return NOTHING if line.startswith(_INSIDES) else signs
        status = int(again[2]) if again[2] else None
        return (RetryingItself(line[again.end() : 2000].strip(), status, int(again[1])),)

    def own_lines(self) -> tuple[str, ...]:
        """The texts of its errors, stderr, lines that are no events."""
        return self._own.lines()

    def last_message(self) -> str:
        """Its last message, as far as it got."""
        self._own.said("".join(self._pieces))
        return self._own.last_message

    def _piece(self, data: dict[str, Any]) -> Signs:
        piece = text(data.get("content"), LAST_MESSAGE_CHARS)
        if not (self._in_message and data.get("delta") is True):
            shown = self._flushed(NOTHING)
            self._begin()
        else:
            shown = NOTHING
        self._keep(piece)
        unshown = self._unshown + piece
        if "\n" not in piece and len(unshown) <= _FLUSH_CHARS:
            self._unshown = unshown
            return shown or ALIVE
        whole, _, self._unshown = unshown.rpartition("\n")
        if len(self._unshown) > _FLUSH_CHARS:
            whole, self._unshown = f"{whole}\n{self._unshown}".lstrip("\n"), ""
        return (*shown, *((AgentText(whole),) if whole.strip() else ())) or ALIVE

    def _begin(self) -> None:
        """A message; the one before it stays the last one until this one says something."""
        self._own.said("".join(self._pieces))
        self._pieces, self._chars, self._in_message = [], 0, True

    def _keep(self, piece: str) -> None:
        """Pieces are put together when somebody asks, or when they come to twice what is kept of it."""
        self._pieces.append(piece)
        self._chars += len(piece)
        if self._chars > 2 * LAST_MESSAGE_CHARS:
            self._pieces = ["".join(self._pieces)[-LAST_MESSAGE_CHARS:]]
            self._chars = LAST_MESSAGE_CHARS

    def _flushed(self, signs: Signs) -> Signs:
        """What is not shown yet of a message that is over, and then ``signs``."""
        rest, self._unshown, self._in_message = self._unshown, "", False
        return (AgentText(rest), *signs) if rest.strip() else signs

    def _error(self, data: dict[str, Any]) -> Signs:
        message = text(data.get("message"))
        if data.get("severity") != "warning":
            self._own.add(message)
            self._complaint = message or self._complaint
        return (Warned(message),) if message.strip() else ALIVE

    def _result(self, data: dict[str, Any]) -> Signs:
        stats = table(data.get("stats"))
        spent = Spent(None, count(stats.get("input_tokens")), count(stats.get("output_tokens")))
        return (*((spent,) if spent != Spent() else ()), self._verdict(data))

    def _verdict(self, data: dict[str, Any]) -> FinalEvent:
        error = table(data.get("error"))
        if data.get("status") == "success" and not error:
            return FinalEvent(True, self.last_message())
        told = text(error.get("message"))
        message, code, status = vendor_error(_unwrapped(told))
        message = message or self._complaint or "it ended with an error and did not say which"
        self._own.add(message)
        return FinalEvent(False, message, status, code, body=told if told != message else "")


def _unwrapped(told: str) -> str:
    """``[API Error: text]`` and the advice behind it as the text; the advice is no evidence."""
    if not told.startswith(_API_ERROR):
        return told
    inner, closed, _ = told.removeprefix(_API_ERROR).rpartition("]")
    return inner if closed else told.removeprefix(_API_ERROR)


def _http_exits() -> Mapping[int, ExitMeaning]:
    """An HTTP status modulo 256, as it comes out of ``process.exit``."""
    kinds = {
        429: FailureKind.RATE_LIMIT,
        **dict.fromkeys((400, 401, 402, 403, 404), FailureKind.FATAL),
        **dict.fromkeys((408, 500, 502, 503, 504, 529), FailureKind.TRANSIENT),
    }
    return {status % 256: ExitMeaning(kind, f"HTTP {status}") for status, kind in kinds.items()}


WAYS: Final = Ways(
    program="gemini",
    install="npm install -g @google/gemini-cli",
    first_events=("init",),
    start=("--output-format", "stream-json"),
    bypass=("--yolo",),
    bypass_instead=("-y", "--approval-mode", "--allowed-tools", "--policy"),
    model_flag="-m",
    resume=("--resume",),
    prompt_flag="--prompt=",
    parser=GeminiParser,
    environment={
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",  # as the flag --skip-trust, which older versions refuse
    },
    exits={
        **_http_exits(),
        41: ExitMeaning(FailureKind.FATAL, "it is not logged in"),
        42: ExitMeaning(FailureKind.FATAL, "it does not understand its input"),
        44: ExitMeaning(FailureKind.FATAL, "its sandbox does not work"),
        52: ExitMeaning(FailureKind.FATAL, "its configuration is wrong"),
        53: ExitMeaning(FailureKind.AGENT_INCOMPLETE, "it has used up its turns"),
        54: ExitMeaning(FailureKind.AGENT_CRASH, "one of its tools failed for good"),
        55: ExitMeaning(FailureKind.FATAL, "it does not trust this directory"),
    },
)
