"""Any command of the user's as an agent: it prints text, and ends.

All that it prints is its own word, so its last lines are looked at even when it exits with 0 (K2).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ralphd.agents.agent import Launch, Order, Parser
from ralphd.agents.cli import EXITS, QUIET, prompt_as
from ralphd.agents.reading import LAST_MESSAGE_CHARS, NOTHING, OWN_LINE_CHARS, OwnLines, text
from ralphd.config.specs import AgentSpec
from ralphd.core.classify import ExitMeaning
from ralphd.core.patterns import Patterns
from ralphd.core.signs import Sign, Text

_LAST_LINES: Final = 50
"""As much of stdout as counts as its last message: where a promise is looked for (E4)."""


class GeneralParser:
    """Keeps the last lines, whatever they are."""

    def __init__(self) -> None:
        self._own = OwnLines()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def line(self, line: str) -> Iterable[Sign]:
        """A line of stdout is the command's own word."""
        if not line.strip():
            self._own.gap()
            return NOTHING
        kept = text(line, OWN_LINE_CHARS)
        self._own.add(kept)
        self._last.append(kept)
        return (Text(kept),)

    def error_line(self, line: str) -> Iterable[Sign]:
        """A line of stderr as well."""
        return self._own.complaint(line)

    def own_lines(self) -> tuple[str, ...]:
        """The last lines of stdout and stderr."""
        return self._own.lines()

    def last_message(self) -> str:
        """The last lines of stdout."""
        return "\n".join(self._last)[-LAST_MESSAGE_CHARS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """``[agents.NAME]`` with a ``command``: started as it is, the prompt on stdin unless told otherwise.

    As an argument or a file's path the prompt is the last word of the command line.
    """

    name: str
    spec: AgentSpec
    patterns: Patterns = field(repr=False)

    @property
    def program(self) -> str:
        """What has to be found on PATH."""
        return self.spec.command[0]

    @property
    def has_verdict(self) -> bool:
        """Nobody knows what a final event of it would look like."""
        return False

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        """What exit statuses mean for any command."""
        return EXITS

    def launch(self, order: Order) -> Launch:
        """The command, its arguments, the prompt. Sessions are not known, so none is resumed."""
        argv = (*self.spec.command, *self.spec.args)
        environment = {**QUIET, **self.spec.env}
        if self.spec.prompt_via == "file":
            return Launch((*argv, str(order.prompt_file)), environment)
        words, stdin = prompt_as(self.spec.prompt_via, order)
        return Launch((*argv, *words), environment, stdin)

    def parser(self) -> Parser:
        """A reader for the lines of one attempt."""
        return GeneralParser()
