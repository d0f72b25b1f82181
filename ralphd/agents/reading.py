"""What parsers share: values of JSON that may be anything, the agent's own lines, its last message (K2).

Nothing here raises for what an agent prints. All that is kept is bounded.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ralphd.core.failures.agent_events import AgentEvent, Alive, ToolUse, Warned

Signs = tuple[AgentEvent, ...]

NOTHING: Final[Signs] = ()
ALIVE: Final[Signs] = (Alive(),)

MAX_LINE_CHARS = 8 << 20
"""A longer line is cut, and read as far as it goes."""
OWN_LINES: Final = 50
OWN_LINE_CHARS: Final = 4000
ABOUT_CHARS: Final = 200
NAME_CHARS: Final = 100
MESSAGE_CHARS: Final = 16_000
LAST_MESSAGE_CHARS: Final = 256_000
_MAX_BLOCKS: Final = 1000
_MAX_HEADERS: Final = 64
_MAX_SESSIONS: Final = 200
_MAX_NUMBER: Final = 1e15
_MAX_EPOCH: Final = 1e14  # in milliseconds: in the year 5138
MAX_COST_USD: Final = 1e6

# Reads one value and returns its end; without what json.loads does for each line besides.
_decoded: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # missing in the stubs

_OWN_ERROR: Final = re.compile(
    r'\{"(?:type": ?"(?:error|\w{1,40}_error)"|error": ?[{"])|\[(?!(?:true|false|null)\b)[A-Za-z]{2}'
)
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ABOUT_KEYS = ("command", "file_path", "filePath", "path", "pattern", "query", "url", "description", "prompt")


def record(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None for anything else, however broken."""
    if line[:1] != "{":
        line = line.strip()
        if line[:1] != "{":
            return None
    try:
        data, end = _decoded(line, 0)
    except (ValueError, RecursionError, StopIteration):
        return None
    if end != len(line) and line[end:].strip():
        return None
    return data if isinstance(data, dict) else None


def is_own_error(line: str) -> bool:
    """Whether a line is an error as vendors and CLIs write it, in JSON or in brackets, perhaps cut."""
    return _OWN_ERROR.match(line) is not None


def table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object, most: int = MESSAGE_CHARS) -> str:
    """Return a text, cut to ``most`` characters and fit to be written; empty for anything else."""
    if not isinstance(value, str):
        return ""
    cut = value[:most]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()  # JSON can hold half a character


def number(value: object, most: float = _MAX_NUMBER) -> float | None:
    """Return a number that makes sense, from 0 to ``most``; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None


def whole(value: object) -> int | None:
    amount = number(value)
    return None if amount is None else int(amount)


def count(value: object) -> int:
    if type(value) is int and 0 <= value <= _MAX_NUMBER:  # nearly always, in nearly every line
        return value
    return whole(value) or 0


def http_status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    status = whole(value)
    return status if status is not None and 100 <= status <= 599 else None


def epoch(value: object) -> float | None:
    """Return a moment from an epoch in seconds or milliseconds."""
    if not (moment := number(value, _MAX_EPOCH)):
        return None
    return moment / 1000 if moment > 1e11 else moment


def session_id(value: object) -> str | None:
    """Return what can be a session's id. It goes onto a command line, so it may not look like a flag."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else None


def headers(value: object) -> dict[str, str]:
    """Return HTTP headers with their names in lower case; odd ones are left out."""
    pairs = list(table(value).items())[:_MAX_HEADERS]
    return {text(name, NAME_CHARS).lower(): text(each, 1000) for name, each in pairs if isinstance(each, str)}


def about(value: object) -> str:
    """Return a tool's input as a short text for people: its command, its file."""
    values = table(value)
    for key in _ABOUT_KEYS:
        words = values.get(key)
        if isinstance(words, list):  # a command by its words
            words = " ".join(text(word, ABOUT_CHARS) for word in words[:20])
        if shown := short(text(words)):
            return shown
    return ""


def short(words: str) -> str:
    """Return the first line with words in it, cut."""
    return words[: 4 * ABOUT_CHARS].strip().split("\n", 1)[0].rstrip()[:ABOUT_CHARS]


def content(value: object) -> tuple[str, Signs]:
    """Return the words and the tool uses of a message: a text, or blocks as in Anthropic's API."""
    if isinstance(value, str):
        return text(value, LAST_MESSAGE_CHARS), NOTHING
    words: list[str] = []
    tools: list[AgentEvent] = []
    for block in listed(value)[:_MAX_BLOCKS]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            words.append(text(block.get("text"), LAST_MESSAGE_CHARS))
        elif kind == "tool_use":
            tools.append(ToolUse(text(block.get("name"), NAME_CHARS), about(block.get("input"))))
    return "\n".join(filter(str.strip, words)), tuple(tools)


def vendor_error(words: str) -> tuple[str, str | None, int | None]:
    """Return message, code and status of an error in JSON: ``{"error": {"message", "code", "type"}}``.

    The wrapper may be missing. Any other text is its own message.
    """
    data = record(words) if words.lstrip().startswith("{") else None
    if data is None:
        return words, None, None
    error = table(data.get("error")) or data
    code, kind = error.get("code"), error.get("type") or error.get("status")
    name = text(code, NAME_CHARS) or text(kind, NAME_CHARS) or None
    return text(error.get("message")) or words, name, http_status(code)


Sessions: TypeAlias = dict[str, float]
"""The totals of sessions when their last attempt ended.

Some CLIs report a resumed session's totals from its beginning; an attempt's share is what it added.
"""


class SessionShare:
    """One attempt's share of a session's total."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._before: float | None = None

    def of(self, session: str | None, total: float) -> float:
        """Return how much of ``total`` this attempt added; all of it if the session started from 0 again."""
        if self._before is None:
            self._before = self._sessions.get(session or "", 0.0)
        if session:
            self._sessions.pop(session, None)
            self._sessions[session] = total
            while len(self._sessions) > _MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return total - self._before if total >= self._before else total


class OwnLines:
    """The last lines that the agent wrote as itself, and its last message."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=OWN_LINES)
        self._in_json = False
        self.last_message = ""

    def add(self, words: str) -> None:
        """Keep the lines of a text; the same line twice in a row counts once."""
        for whole_line in words[:MESSAGE_CHARS].splitlines():
            line = whole_line[:OWN_LINE_CHARS].rstrip()
            if line and (not self._lines or self._lines[-1] != line):
                self._lines.append(line)

    def gap(self) -> None:
        """Keep one empty line: where lines are prose, the last paragraph counts."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def said(self, message: str) -> None:
        """Keep the agent's last message, or its end where it is very long."""
        if message.strip():
            self.last_message = message[-LAST_MESSAGE_CHARS:]

    def plain(self, line: str) -> Signs:
        """Read a line that should have been an event and is none.

        A text is the CLI's own word, and so is a vendor's error in JSON, which it may print cut, and
        ``[API Error: …]``. All else that was meant as JSON may be tool output: it, and what follows it until
        the next whole event, is a sign of life at most.
        """
        if not line.strip():
            return NOTHING
        is_json = line.lstrip()[:1] in ("{", "[", "}", "]", '"')
        if self._in_json or (is_json and not is_own_error(line)):
            self._in_json = True
            return ALIVE
        return self.complaint(line)

    def event_seen(self) -> None:
        self._in_json = False

    def complaint(self, line: str) -> Signs:
        """Keep and show a line, as of stderr."""
        if not line.strip():
            return NOTHING
        words = text(line, OWN_LINE_CHARS)
        self.add(words)
        return (Warned(words.strip()),)

    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)
