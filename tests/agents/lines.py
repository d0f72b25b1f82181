"""Lines of agents for the tests of their parsers."""

import json
from collections.abc import Iterable
from typing import Any

from ralphd.agents.known import agent_of
from ralphd.agents.parsers import TextParser
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import AgentEvent, FinalEvent


def parser_of(name: str) -> TextParser:
    """Return the parser of a known CLI."""
    return agent_of(name, AgentSpec(), outside={}).parser()


def event(kind: str, **fields: Any) -> str:
    """A line as the CLIs print it: JSON without spaces, its type first."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":"), ensure_ascii=False)


def heard(parser: TextParser, *lines: str) -> list[AgentEvent]:
    """What the parser makes of lines of stdout."""
    return [sign for line in lines for sign in parser.line(line)]


def complained(parser: TextParser, *lines: str) -> list[AgentEvent]:
    """What the parser makes of lines of stderr."""
    return [sign for line in lines for sign in parser.error_line(line)]


def last_verdict(signs: Iterable[AgentEvent]) -> FinalEvent:
    """The verdict that counts."""
    return [sign for sign in signs if isinstance(sign, FinalEvent)][-1]
