"""What the loop knows of an agent: how it is started, how its lines are read, what its exits mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ralphd.core.classify import ExitMeaning
from ralphd.core.patterns import Patterns
from ralphd.core.signs import Sign


@dataclass(frozen=True, slots=True)
class Launch:
    """How one attempt is started. ``stdin`` None: from ``/dev/null``; else these bytes, then closed.

    ``environment`` is what is added to the loop's own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None


class Parser(Protocol):
    """Reads the lines of one attempt. Keeps only what is bounded; no line is fatal to it."""

    def line(self, line: str) -> Iterable[Sign]:
        """What a line of stdout says. Lines come without their end, cut to MAX_LINE_CHARS."""
        ...

    def error_line(self, line: str) -> Iterable[Sign]:
        """What a line of stderr says."""
        ...

    def own_lines(self) -> tuple[str, ...]:
        """The agent's own last lines, for patterns: no tool output, no echoed prompt (K2)."""
        ...

    def last_message(self) -> str:
        """The agent's last message: where a promise counts (L10)."""
        ...


MAX_LINE_CHARS = 8 << 20
"""A longer line is cut, and read as far as it goes."""


@dataclass(frozen=True, slots=True)
class Order:
    """What an attempt is to be started with. ``prompt_file`` holds the prompt as well, for ``file``."""

    prompt: str
    prompt_file: Path
    session: str | None = None


class Agent(Protocol):
    """A coding-agent CLI."""

    @property
    def name(self) -> str:
        """What it is called in ``ralph.toml``."""
        ...

    @property
    def program(self) -> str:
        """What has to be found on PATH."""
        ...

    @property
    def has_verdict(self) -> bool:
        """Whether it ends with a structured final event."""
        ...

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        """Its exit table."""
        ...

    @property
    def patterns(self) -> Patterns:
        """Its patterns."""
        ...

    def launch(self, order: Order) -> Launch:
        """How an attempt is started."""
        ...

    def parser(self) -> Parser:
        """A reader for the lines of one attempt."""
        ...
