"""The parsers of CLIs that are described by data: of JSON lines by a table of events, and of plain text."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ralphd.agents.agent import EXITS, QUIET, Launch, LaunchSpec, Parser, Ways, prompt_as
from ralphd.agents.description import Description, EventRule, LineRule, Place, description_of
from ralphd.agents.reading import (
    ALIVE,
    LAST_MESSAGE_CHARS,
    NAME_CHARS,
    NOTHING,
    OWN_LINE_CHARS,
    OwnLines,
    Sessions,
    Signs,
    about,
    content,
    count,
    http_status,
    is_own_error,
    number,
    record,
    session_id,
    short,
    text,
    vendor_error,
    whole,
)
from ralphd.config.specs import AgentSpec
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
from ralphd.core.failures.kinds import ExitMeaning
from ralphd.core.failures.patterns import LONGEST_LINE, Patterns, folded

# Any command of the user's as an agent: it prints text, and ends.

_LAST_LINES: Final = 50
"""As much of stdout as counts as its last message: where a promise is looked for (E4)."""


class GeneralParser:
    """Keeps the last lines, whatever they are."""

    def __init__(self) -> None:
        self._own = OwnLines()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def line(self, line: str) -> Iterable[AgentEvent]:
        """A line of stdout is the command's own word."""
        if not line.strip():
            self._own.gap()
            return NOTHING
        kept = text(line, OWN_LINE_CHARS)
        self._own.add(kept)
        self._last.append(kept)
        return (AgentText(kept),)

    def error_line(self, line: str) -> Iterable[AgentEvent]:
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

    def launch(self, order: LaunchSpec) -> Launch:
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


_TYPE: Final = re.compile(r'\{"type": ?"([\w.-]{1,60})"')
_FACTORS: Final[Mapping[str, float]] = {"": 1.0, "k": 1e3, "m": 1e6}
_NUMBER: Final = re.compile(r"([\d,]{1,15}(?:\.\d{1,6})?) ?([km]?)", re.IGNORECASE)


def ways_of(name: str) -> Ways:
    """How one of the described CLIs is started and read. Raises ConfigFaults."""
    return ways_from(description_of(name))


def ways_from(given: Description) -> Ways:
    """The same of a description at hand."""
    start = given.start
    return Ways(
        program=given.program,
        install=given.install,
        start=start.args,
        bypass=start.bypass,
        bypass_instead=start.bypass_instead,
        model_flag=start.model,
        resume=start.resume,
        resume_first=start.resume_first,
        prompt_via=start.prompt,
        prompt_flag=start.prompt_flag,
        file_flag=start.file_flag,
        parser=_parser_of(given),
        first_events=tuple(event.type for event in given.event if event.tells == "start"),
        has_verdict=given.has_verdict,
        tells_costs=given.tells_costs,
        environment=given.environment,
        exits={code: ExitMeaning(said.kind, said.why) for code, said in given.exits.items()},
    )


def _parser_of(given: Description) -> Callable[[Sessions], Parser]:
    if given.format == "json":
        return lambda _: EventParser(given)
    return lambda _: TextParser(given)


class EventParser:
    """Reads JSON lines by the table of a description. What it does not name is a sign of life."""

    def __init__(self, given: Description) -> None:
        self._events = given.event
        self._types = frozenset(event.type for event in given.event)
        self._lines = given.line
        self._own = OwnLines()
        self._failed: FinalEvent | None = None

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        if self._is_unnamed(line):
            return ALIVE  # the bulk of all output
        data = record(line)
        if data is None:
            told = _told_by_line(self._lines, self._own, line)
            return self._own.plain(line) if told is None else told
        self._own.event_seen()
        event = next((each for each in self._events if _fits(each, data)), None)
        if event is not None:
            return (*_spent(event, data), *self._told(event, data)) or ALIVE
        return self._own.complaint(line) if is_own_error(line) else ALIVE

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says."""
        told = _told_by_line(self._lines, self._own, line)
        return self._own.complaint(line) if told is None else told

    def own_lines(self) -> tuple[str, ...]:
        """The texts of its errors, stderr, lines that are no events."""
        return self._own.lines()

    def last_message(self) -> str:
        """Its last message."""
        return self._own.last_message

    def _is_unnamed(self, line: str) -> bool:
        """Whether a whole event is of a type that the table does not have; errors are looked at."""
        found = _TYPE.match(line)
        return (
            found is not None and found[1] not in self._types and "error" not in found[1] and line[-1] == "}"
        )

    def _told(self, event: EventRule, data: dict[str, Any]) -> Signs:
        match event.tells:
            case "start":
                return (Started(session_id(at(data, event.session)), _name(data, event.model) or None),)
            case "message":
                return self._message(event, data)
            case "tool":
                name = _name(data, event.name) or _first_name(at(data, event.named))
                return (ToolUse(name, about(at(data, event.input))),)
            case "retry":
                return (_retry(event, data),)
            case "warning":
                said = text(at(data, event.text))
                self._own.add(said)
                return (Warned(said),) if said.strip() else ALIVE
            case "failure":
                self._failed = self._bad(event, data)
                return (Warned(self._failed.message),)
            case "end":
                return self._end(event, data)
            case "spent":
                return NOTHING

    def _message(self, event: EventRule, data: dict[str, Any]) -> Signs:
        said, tools = content(at(data, event.text))
        if said and not at(data, event.aside):
            self._own.said(said)
        return (*((AgentText(said),) if said.strip() else ()), *tools)

    def _end(self, event: EventRule, data: dict[str, Any]) -> Signs:
        session = session_id(at(data, event.session))
        begun: Signs = (Started(session),) if session else ()
        if not _is_good(event, data):
            return (*begun, self._bad(event, data))
        self._own.said(text(at(data, event.answer), LAST_MESSAGE_CHARS))
        return (*begun, FinalEvent(True, self._own.last_message))

    def _bad(self, event: EventRule, data: dict[str, Any]) -> FinalEvent:
        """A failure by what the event says, else by what was told of one before."""
        before = self._failed or FinalEvent(False)
        told = text(at(data, event.text)) or text(at(data, event.answer))
        message, code, status = vendor_error(told)
        message = message or before.message or "it ended with an error and did not say which"
        self._own.add(message)
        return FinalEvent(
            good=False,
            message=message,
            status=http_status(at(data, event.status)) or status or before.status,
            code=_name(data, event.code) or code or before.code,
            body=told if told not in ("", message) else before.body,
        )


class TextParser(GeneralParser):
    """Reads plain text as of any command, but for the lines that a description knows."""

    def __init__(self, given: Description) -> None:
        super().__init__()
        self._lines = given.line

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        found = _line_of(self._lines, line)
        if found is None:
            return super().line(line)
        entry, _ = found
        if entry.tells in ("quoted", "spent"):
            self._last.append(text(line, OWN_LINE_CHARS))
        return _told_by_line(self._lines, self._own, line) or NOTHING

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says."""
        told = _told_by_line(self._lines, self._own, line)
        return super().error_line(line) if told is None else told


def at(data: object, place: Place) -> object:
    """What lies at a place of an event; None where nothing does, or no place is known."""
    if not place:
        return None
    for name in place:
        if not isinstance(data, dict):
            return None
        data = next(iter(data.values()), None) if name == "*" else data.get(name)
    return data


def _fits(event: EventRule, data: dict[str, Any]) -> bool:
    return data.get("type") == event.type and _holds(data, event.where)


def _holds(data: dict[str, Any], wanted: Mapping[Place, object]) -> bool:
    """Whether all is there as it is wanted; ``true`` is no 1."""
    return all(
        type(found := at(data, place)) is type(value) and found == value for place, value in wanted.items()
    )


def _is_good(event: EventRule, data: dict[str, Any]) -> bool:
    return _holds(data, event.good) and not any(at(data, place) for place in event.good_without)


def _name(data: dict[str, Any], place: Place) -> str:
    return text(at(data, place), NAME_CHARS)


def _first_name(value: object) -> str:
    return text(next(iter(value), ""), NAME_CHARS) if isinstance(value, dict) else ""


def _retry(event: EventRule, data: dict[str, Any]) -> RetryingItself:
    delay_ms = number(at(data, event.delay_ms))
    return RetryingItself(
        reason=vendor_error(text(at(data, event.reason)))[0],
        status=http_status(at(data, event.status)),
        attempt=whole(at(data, event.attempt)),
        most=whole(at(data, event.most)),
        delay_s=None if delay_ms is None else delay_ms / 1000,
    )


def _spent(event: EventRule, data: dict[str, Any]) -> Signs:
    cost = number(at(data, event.cost_usd))
    read, written = (
        sum(count(at(data, place)) for place in places) for places in (event.tokens_in, event.tokens_out)
    )
    spent = Spent(cost, read, written, total=event.spends == "total")
    return (spent,) if cost or read or written else NOTHING


def _line_of(lines: tuple[LineRule, ...], line: str) -> tuple[LineRule, re.Match[str]] | None:
    plain = line[:LONGEST_LINE] if line.isascii() and "\x1b" not in line else folded(line)
    for each in lines:
        if found := each.match.match(plain):
            return each, found
    return None


def _told_by_line(lines: tuple[LineRule, ...], own: OwnLines, line: str) -> Signs | None:
    """What a plain line says that a description knows; None where it knows none such."""
    found = _line_of(lines, line)
    if found is None:
        return None
    entry, match = found
    kept = text(line, OWN_LINE_CHARS)
    if entry.tells == "noise":
        return NOTHING
    if entry.tells == "quoted":
        return (AgentText(kept),)
    own.add(kept)
    groups = {name: held for name, held in match.groupdict().items() if held}
    match entry.tells:
        case "retry":
            return (_retry_of(groups),)
        case "tool":
            return (ToolUse(groups.get("name", "")[:NAME_CHARS], short(groups.get("about", ""))),)
        case _:
            cost = _amount(groups["cost_usd"]) if "cost_usd" in groups else None
            read, written = (int(_amount(groups.get(name, ""))) for name in ("tokens_in", "tokens_out"))
            return AgentText(kept), Spent(cost, read, written, total=entry.spends == "total")


def _retry_of(groups: Mapping[str, str]) -> RetryingItself:
    delay_s = _amount(groups["delay_s"]) if "delay_s" in groups else None
    attempt, most = (int(_amount(groups[name])) if name in groups else None for name in ("attempt", "most"))
    return RetryingItself(groups.get("reason", ""), http_status(groups.get("status")), attempt, most, delay_s)


def _amount(said: str) -> float:
    """``1.2k``, ``12,345``, ``0.04`` as a number; 0 for anything else."""
    found = _NUMBER.fullmatch(said.strip())
    if found is None or not found[1].strip(","):
        return 0.0
    return float(found[1].replace(",", "")) * _FACTORS[found[2].lower()]
