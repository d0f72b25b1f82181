"""What the parsers share: JSON that may be anything, the agent's own lines, its last message (K2).

Nothing here raises for what an agent prints. All that is kept is bounded.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from ralphd.core.failures.agent_events import AgentEvent, Alive, ToolUse, Warned

Signs = tuple[AgentEvent, ...]

NOTHING: Final[Signs] = ()
ALIVE: Final[Signs] = (Alive(),)

OWN_LINES: Final = 50
OWN_LINE_CHARS: Final = 4000
ABOUT_CHARS: Final = 200
NAME_CHARS: Final = 100
MESSAGE_CHARS: Final = 16_000
LAST_MESSAGE_CHARS: Final = 256_000
_BLOCKS: Final = 1000
_HEADERS: Final = 64
_SESSIONS_KEPT: Final = 200
_LARGEST_NUMBER: Final = 1e15

_decoded: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # there, and not in the stubs
"""Reads one value and says where it ends; without what json.loads does at each line besides."""

_ITS_OWN_ERROR: Final = re.compile(
    r'\{"(?:type": ?"(?:error|\w{1,40}_error)"|error": ?[{"])|\[(?!(?:true|false|null)\b)[A-Za-z]{2}'
)
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ABOUT_KEYS: Final = (
    "command",
    "file_path",
    "filePath",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
)


def record(line: str) -> dict[str, Any] | None:
    """The JSON object that a line holds; None for anything else, however broken."""
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


def looks_like_json(line: str) -> bool:
    """Whether a line that could not be read was meant as JSON: cut, or one of several.

    It may hold tool output, so it is never the agent's own word.
    """
    return line.lstrip()[:1] in ("{", "[", "}", "]", '"')


def is_own_error(line: str) -> bool:
    """Whether a line is an error as vendors and CLIs write it, in JSON or in brackets, perhaps cut."""
    return _ITS_OWN_ERROR.match(line) is not None


def table(value: object) -> Mapping[str, Any]:
    """``value`` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """``value`` where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object, most: int = MESSAGE_CHARS) -> str:
    """``value`` where it is a text, cut to ``most`` characters, else an empty one. It can be written."""
    if not isinstance(value, str):
        return ""
    cut = value[:most]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()  # JSON can hold half a character


def number(value: object) -> float | None:
    """``value`` where it is a number that makes sense, from 0 on, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST_NUMBER else None


def whole(value: object) -> int | None:
    """``value`` as a whole number from 0 on, else None."""
    found = number(value)
    return None if found is None else int(found)


def count(value: object) -> int:
    """``value`` as a count, 0 where it is none."""
    if type(value) is int and 0 <= value <= _LARGEST_NUMBER:  # nearly always, in nearly every line
        return value
    return whole(value) or 0


def http_status(value: object) -> int | None:
    """``value`` where it is an HTTP status, also as a text."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    status = whole(value)
    return status if status is not None and 100 <= status <= 599 else None


def epoch(value: object) -> float | None:
    """A moment from an epoch in seconds or milliseconds, else None."""
    found = number(value)
    if not found:
        return None
    return found / 1000 if found > 1e11 else found


def session_id(value: object) -> str | None:
    """``value`` where it can be a session's id: it goes onto a command line later, so it may be no flag."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else None


def headers(value: object) -> dict[str, str]:
    """HTTP headers with their names in lower case; odd ones left out."""
    pairs = list(table(value).items())[:_HEADERS]
    return {text(name, NAME_CHARS).lower(): text(held, 1000) for name, held in pairs if isinstance(held, str)}


def about(value: object) -> str:
    """A tool's input as a short text for people: its command, its file."""
    given = table(value)
    for key in _ABOUT_KEYS:
        said = given.get(key)
        if isinstance(said, list):  # a command by its words
            said = " ".join(text(word, ABOUT_CHARS) for word in said[:20])
        if shown := short(text(said)):
            return shown
    return ""


def short(said: str) -> str:
    """The first line that says something, cut."""
    head = said[: 4 * ABOUT_CHARS].strip()
    return head.split("\n", 1)[0].rstrip()[:ABOUT_CHARS]


def content(value: object) -> tuple[str, Signs]:
    """The words and the tool uses of a message: a text, or blocks as in Anthropic's API."""
    if isinstance(value, str):
        return text(value, LAST_MESSAGE_CHARS), NOTHING
    said: list[str] = []
    tools: list[AgentEvent] = []
    for block in listed(value)[:_BLOCKS]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            said.append(text(block.get("text"), LAST_MESSAGE_CHARS))
        elif kind == "tool_use":
            tools.append(ToolUse(text(block.get("name"), NAME_CHARS), about(block.get("input"))))
    return "\n".join(filter(str.strip, said)), tuple(tools)


def vendor_error(said: str) -> tuple[str, str | None, int | None]:
    """Message, code and status of a vendor's error in JSON: ``{"error": {"message", "code", "type"}}``.

    The wrapper may be missing. A text that is no such JSON is its own message.
    """
    data = record(said) if said.lstrip().startswith("{") else None
    if data is None:
        return said, None, None
    error = table(data.get("error")) or data
    code, kind = error.get("code"), error.get("type") or error.get("status")
    name = text(code, NAME_CHARS) or text(kind, NAME_CHARS) or None
    return text(error.get("message")) or said, name, http_status(code)


class Sessions:
    """What sessions had come to when their last attempt ended.

    Some CLIs tell a resumed session's totals from its beginning; an attempt's part is what it added.
    """

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}

    def before(self, session: str | None) -> float:
        """What an attempt that resumes ``session`` begins with; 0 where nobody knows."""
        return self._totals.get(session, 0.0) if session else 0.0

    def note(self, session: str | None, total: float) -> None:
        """Keep what ``session`` has come to, of the last _SESSIONS_KEPT."""
        if session:
            self._totals.pop(session, None)
            self._totals[session] = total
            while len(self._totals) > _SESSIONS_KEPT:
                del self._totals[next(iter(self._totals))]


class SessionShare:
    """One attempt's part of what its session comes to."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._before: float | None = None

    def of(self, session: str | None, total: float) -> float:
        """How much of ``total`` came with this attempt; all of it where the session starts anew."""
        if self._before is None:
            self._before = self._sessions.before(session)
        self._sessions.note(session, total)
        return total - self._before if total >= self._before else total


class OwnLines:
    """The last of what the agent said on its own account, and its last message."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=OWN_LINES)
        self._in_json = False
        self.last_message = ""

    def add(self, said: str) -> None:
        """Keep the lines of ``said``; the same line twice in a row counts once."""
        for line in said[:MESSAGE_CHARS].splitlines():
            kept = line[:OWN_LINE_CHARS].rstrip()
            if kept and (not self._lines or self._lines[-1] != kept):
                self._lines.append(kept)

    def gap(self) -> None:
        """Keep one empty line, where lines are prose and the last paragraph counts."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def said(self, message: str) -> None:
        """Keep the agent's last message, its end where it is very long."""
        if message.strip():
            self.last_message = message[-LAST_MESSAGE_CHARS:]

    def plain(self, line: str) -> Signs:
        """What a line means that should have been an event and is none.

        A text is the CLI's own word, and so is a vendor's error in JSON, which it may print cut, and
        ``[API Error: …]``. What else was meant as JSON, and what follows it until the next whole event, is a
        sign of life at most.
        """
        if not line.strip():
            return NOTHING
        if self._in_json or (looks_like_json(line) and not is_own_error(line)):
            self._in_json = True
            return ALIVE
        return self.complaint(line)

    def event_seen(self) -> None:
        """A whole event has been read."""
        self._in_json = False

    def complaint(self, line: str) -> Signs:
        """A line of stderr: the agent's own, and shown."""
        if not line.strip():
            return NOTHING
        said = text(line, OWN_LINE_CHARS)
        self.add(said)
        return (Warned(said.strip()),)

    def lines(self) -> tuple[str, ...]:
        """The last OWN_LINES of them."""
        return tuple(self._lines)
