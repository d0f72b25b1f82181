"""What a vendor answers: well, with one of the failures that its real service knows, or not at all."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class How(Enum):
    """The ways of answering a request."""

    OK = auto()
    RATE_LIMIT = auto()  # 429 that is over in moments
    USAGE_LIMIT = auto()  # 429 of a plan's window
    OVERLOADED = auto()  # 529, or what stands for it
    UNAVAILABLE = auto()  # 503
    UNAUTHORISED = auto()  # 401, or what stands for it
    RESET = auto()  # the connection is reset; of a stream, after its first event
    HANG = auto()  # taken, and never answered


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request is answered.

    ``retry_after_s``: what a rate limit says of its own length, None where it says nothing. ``reset_at``:
    the epoch at which a usage limit is over.
    """

    how: How
    retry_after_s: int | None = None
    reset_at: float | None = None


OK = Answer(How.OK)
OVERLOADED = Answer(How.OVERLOADED)
UNAVAILABLE = Answer(How.UNAVAILABLE)
UNAUTHORISED = Answer(How.UNAUTHORISED)
RESET = Answer(How.RESET)
HANG = Answer(How.HANG)


def rate_limit(retry_after_s: int | None = None) -> Answer:
    """A 429, with or without Retry-After."""
    return Answer(How.RATE_LIMIT, retry_after_s=retry_after_s)


def usage_limit(reset_in_s: float) -> Answer:
    """The plan is used up for so many seconds from now."""
    return Answer(How.USAGE_LIMIT, reset_at=time.time() + reset_in_s)


class Script:
    """What one vendor answers next. Changed by the test and asked by the server, at any time.

    An answer with ``reset_at`` holds until then, however often it is asked; the others are one request each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: deque[Answer] = deque()
        self._then = OK

    def set(self, answers: Iterable[Answer], then: Answer) -> None:
        """These, one a request; after them ``then``, for ever."""
        with self._lock:
            self._first, self._then = deque(answers), then

    def next(self) -> Answer:
        """What this request gets."""
        with self._lock:
            while self._first and (self._first[0].reset_at is None or _is_over(self._first[0])):
                answer = self._first.popleft()
                if answer.reset_at is None:
                    return answer
            answer = self._first[0] if self._first else self._then
            return OK if _is_over(answer) else answer


def _is_over(answer: Answer) -> bool:
    return answer.reset_at is not None and time.time() >= answer.reset_at


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants: ``tools`` by name, each with its JSON schema.

    ``result``: what it brings of a tool call, None where it brings none. ``streams``: as server-sent events.
    """

    model: str
    streams: bool
    result: str | None
    tools: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the agent is to use; codex has those of a server in a ``namespace``."""

    name: str
    arguments: Mapping[str, Any]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


Event = tuple[str | None, Any]
"""A server-sent event: its name, where the format has names, and its data (a text is sent as it is)."""


class ServerCalls:
    """Tools of an MCP server that the model uses, one after the other; ``results`` is what they answered.

    Until the agent offers a tool, because the server is still starting, the model waits in the shell.
    """

    def __init__(self, server: str, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self.results: list[str] = []
        self._prefix, self._calls = f"mcp__{server}", deque(calls)
        self._waits = False

    def next(self, asked: Asked) -> Call | None:
        """Take the result that a request brings, and return the next call; None when all are made."""
        if not asked.tools:  # a request for a title, or the like
            return None
        if self._waits:
            self.results.append(asked.result or "")
            self._waits = False
        if not self._calls:
            return None
        tool, arguments = self._calls[0]
        name = f"{self._prefix}__{tool}"
        if "ToolSearch" in asked.tools and name not in asked.tools and name not in (asked.result or ""):
            return Call("ToolSearch", {"query": f"select:{name}", "max_results": 5})
        if self._prefix not in asked.tools and "ToolSearch" not in asked.tools:
            return shell_call(asked.tools, "sleep 0.5")
        self._calls.popleft()
        self._waits = True
        if self._prefix in asked.tools:
            return Call(tool, arguments, self._prefix)
        return Call(name, arguments)


_SHELLS = ("Bash", "exec_command", "shell_command", "shell", "run_shell_command", "bash")
_WAITED_MS = 30_000
_EMPTY: Mapping[str, Any] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}


def shell_call(tools: Mapping[str, Mapping[str, Any]], command: str) -> Call | None:
    """The CLI's own shell tool with a command in it; None when it offers none."""
    name = next((shell for shell in _SHELLS if shell in tools), None)
    if name is None:
        return None
    known = tools[name].get("properties") or {}
    required = set(tools[name].get("required") or ())
    arguments: dict[str, Any] = {}
    for key, schema in known.items():
        kind = schema.get("type")
        if key in ("command", "cmd"):
            arguments[key] = ["sh", "-c", command] if kind == "array" else command
        elif key == "yield_time_ms":  # codex's: how long it waits before it lets the model look
            arguments[key] = _WAITED_MS
        elif key in required:
            arguments[key] = _EMPTY.get(kind, "work")
    return Call(name, arguments)
