"""Parsers of an agent's output: plain text of any command, and JSON lines by the rules of a description.

Nothing here raises for what an agent prints, and all that is kept is bounded.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ralphd.agents import reading
from ralphd.agents.description import Description, EventRule, LineRule, Place
from ralphd.agents.reading import ALIVE, LAST_MESSAGE_CHARS, NOTHING, OwnLines, Signs, text
from ralphd.core.failures import agent_events
from ralphd.core.failures.agent_events import AgentEvent, AgentText, Figures, FinalEvent, ToolUse, Warned
from ralphd.core.failures.patterns import LONGEST_LINE, folded

_LAST_LINES: Final = 50
"""So many lines of plain text are the last message: a promise may stand in it (E4)."""
_FLUSH_CHARS: Final = 2000
_NO_REASON: Final = "ended with an error, without a message"
_TYPE: Final = re.compile(r'\{"type": ?"([\w.-]{1,60})"')
_FACTORS: Final[Mapping[str, float]] = {"": 1.0, "k": 1e3, "m": 1e6}
_NUMBER: Final = re.compile(r"([\d,]{1,15}(?:\.\d{1,6})?) ?([km]?)", re.IGNORECASE)


def described_parser(cli: Description, _sessions: reading.Sessions) -> "TextParser":
    """Return a parser that needs nothing but a description."""
    return EventParser(cli) if cli.format == "json" else TextParser(cli.line)


class TextParser:
    """Keep the last lines: each is the command's own word, except for those that a description names."""

    def __init__(self, rules: tuple[LineRule, ...] = ()) -> None:
        self.own = OwnLines()
        self._rules = rules
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def line(self, line: str) -> Iterable[AgentEvent]:
        """Return the events of a line of stdout. Lines come without their end, cut to MAX_LINE_CHARS."""
        if match := _matching(self._rules, line):
            if match[0].tells in ("quoted", "spent"):
                self._last.append(text(line, reading.OWN_LINE_CHARS))
            return _line_events(match, self.own, line)
        if not line.strip():
            self.own.gap()
            return NOTHING
        kept = text(line, reading.OWN_LINE_CHARS)
        self.own.add(kept)
        self._last.append(kept)
        return (AgentText(kept),)

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """Return the events of a line of stderr."""
        match = _matching(self._rules, line)
        return self.own.complaint(line) if match is None else _line_events(match, self.own, line)

    def own_lines(self) -> tuple[str, ...]:
        """Return the agent's own last lines, for patterns: no tool output, no echoed prompt (K2)."""
        return self.own.lines()

    def last_message(self) -> str:
        """Return the agent's last message: where a promise counts (L10)."""
        return "\n".join(self._last)[-LAST_MESSAGE_CHARS:]


class EventParser(TextParser):
    """Read JSON lines by the rules of a description. An event without a rule is a sign of life.

    A parser of one CLI overrides the methods for events that rules cannot express.
    """

    def __init__(self, cli: Description) -> None:
        super().__init__(cli.line)
        self.session: str | None = None
        self._event_rules: dict[str, list[EventRule]] = {}
        for rule in cli.event:
            self._event_rules.setdefault(rule.type, []).append(rule)
        self._stdout_rules = tuple(rule for rule in cli.line if rule.stream == "both")
        self._failed: FinalEvent | None = None
        self._message = self._unshown = ""
        self._has_steps = any(rule.tells == "step" for rule in cli.event)
        self._in_pieces = self._has_ended = False

    def line(self, line: str) -> Iterable[AgentEvent]:
        if self.is_bulk(line):
            return self._flushed(ALIVE)
        if (data := reading.record(line)) is None:
            match = _matching(self._stdout_rules, line)
            return self.own.plain(line) if match is None else _line_events(match, self.own, line)
        return self.event(data, line)

    def event(self, data: dict[str, Any], line: str) -> Iterable[AgentEvent]:
        """Return the events of a line that holds the object ``data``."""
        self.own.event_seen()
        if (rule := self._rule(data)) is None:
            return self._flushed(self.own.complaint(line) if reading.is_own_error(line) else ALIVE)
        if rule.tells == "piece":
            return self._piece(text(at(data, rule.text), LAST_MESSAGE_CHARS))
        spent = self._spent(rule, data) if rule.cost_usd or rule.tokens_in else NOTHING
        begun = self._begun(rule, data)
        events = NOTHING if spent and rule.tells == "empty" else self._events(rule, data)
        return self._flushed((*begun, *spent, *events)) or ALIVE

    def last_message(self) -> str:
        return self.own.last_message

    def is_bulk(self, line: str) -> bool:
        """Whether a whole event has no rule by its type: most of all output.

        Errors are read all the same.
        """
        kind = match[1] if (match := _TYPE.match(line)) and line[-1] == "}" else None
        return kind is not None and kind not in self._event_rules and "error" not in kind

    def own_event(self, data: dict[str, Any]) -> Signs:
        """Read an event that only code can read (``tells = "own"``); a CLI without such code ignores it."""
        return NOTHING

    def figures(self, rule: EventRule, data: dict[str, Any]) -> Figures:
        read = sum(reading.count(at(data, place)) for place in rule.tokens_in)
        written = sum(reading.count(at(data, place)) for place in rule.tokens_out)
        return Figures(reading.number(at(data, rule.cost_usd), reading.MAX_COST_USD), read, written)

    def end(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        if not self.is_good(rule, data):
            return (self.bad_end(rule, data),)
        self.own.said(text(at(data, rule.answer), LAST_MESSAGE_CHARS))
        return (FinalEvent(True, self.own.last_message),)

    def is_good(self, rule: EventRule, data: dict[str, Any]) -> bool:
        return _has(data, rule.good) and not any(at(data, place) for place in rule.good_without)

    def bad_end(self, rule: EventRule, data: dict[str, Any]) -> FinalEvent:
        """Return a failure by what the event says, else by what an earlier one said."""
        words = text(at(data, rule.text)) or text(at(data, rule.answer))
        earlier = FinalEvent(False) if words or self._failed is None else self._failed
        inside = rule.inside.match(words) if rule.inside else None
        message, code, status = reading.vendor_error(inside[1] if inside else words)
        body = text(at(data, rule.body))
        named = _name(data, rule.code) or reading.vendor_error(body)[1] or code
        code = named or _name(data, rule.name) or earlier.code
        message = message or earlier.message or rule.why.format(code=code) or code or _NO_REASON
        self.own.add(message)
        status = reading.http_status(at(data, rule.status)) or status or earlier.status
        body = body or (words if words not in ("", message) else earlier.body)
        return FinalEvent(False, message, status, code, reading.headers(at(data, rule.headers)), body)

    def _rule(self, data: dict[str, Any]) -> EventRule | None:
        kind = data.get("type")
        rules = self._event_rules.get(kind, ()) if isinstance(kind, str) else ()
        return next((rule for rule in rules if not rule.where or _has(data, rule.where)), None)

    def _spent(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        figures = self.figures(rule, data)
        if not (figures.cost_usd or figures.tokens_in or figures.tokens_out):
            return NOTHING
        return (agent_events.Spent(figures, total=rule.spends == "total"),)

    def _begun(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        """Return a start: for a start event, the first session, a step after an end."""
        session = reading.session_id(at(data, rule.session)) if rule.session else None
        if rule.tells == "start" or (session and not self.session):
            self.session = session
            return (agent_events.Started(session, _name(data, rule.model) or None),)
        return (agent_events.Started(self.session),) if rule.tells == "step" and self._has_ended else NOTHING

    def _events(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        match rule.tells:
            case "step":
                alive = NOTHING if self._has_ended else ALIVE
                self._message, self._has_ended = "", False
                return alive
            case "message":
                return self._words(rule, data)
            case "tool":
                named = at(data, rule.named)
                first = next(iter(named), "") if isinstance(named, dict) else ""
                name = _name(data, rule.name) or text(first, reading.NAME_CHARS)
                about = reading.about(at(data, rule.input)) or reading.short(text(at(data, rule.about)))
                return (ToolUse(name, about),)
            case "retry":
                return (_retry(rule, data),)
            case "warning":
                words = text(at(data, rule.text))
                return (Warned(words),) if words.strip() else ALIVE
            case "failure":
                self._failed = self.bad_end(rule, data)
                return (Warned(self._failed.message),)
            case "end":
                self._has_ended = self._has_ended or bool(rule.good)  # not by an error: it may get over it
                return self.end(rule, data)
            case "empty":
                return (agent_events.Empty(),)
            case "own":
                return self.own_event(data)
            case _:
                return NOTHING

    def _words(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        words, tools = reading.content(at(data, rule.text))
        if words.strip() and not at(data, rule.aside):
            if self._has_steps:  # a step's messages are one
                self._message = f"{self._message}\n{words}"[-LAST_MESSAGE_CHARS:].lstrip("\n")
            self.own.said(self._message if self._has_steps else words)
        return (*((AgentText(words),) if words.strip() else ()), *tools)

    def _piece(self, piece: str) -> Signs:
        """Add a piece of a message. Whole lines are shown, and what is left when the message is over."""
        if not self._in_pieces:
            self._message, self._in_pieces = "", True
        self._message = (self._message + piece)[-LAST_MESSAGE_CHARS:]
        self.own.said(self._message)
        unshown = self._unshown + piece
        lines, _, self._unshown = unshown.rpartition("\n")
        if len(self._unshown) > _FLUSH_CHARS:
            lines, self._unshown = unshown, ""
        return (AgentText(lines),) if lines.strip() else ALIVE

    def _flushed(self, signs: Signs) -> Signs:
        rest, self._unshown, self._in_pieces = self._unshown, "", False
        return (AgentText(rest), *signs) if rest.strip() else signs


def at(data: object, place: Place) -> object:
    """Return what lies at a place of an event; None where nothing does."""
    for path in place:
        value = data
        for name in path:
            if not isinstance(value, dict):
                value = None
            else:
                value = next(iter(value.values()), None) if name == "*" else value.get(name)
        if value is not None:
            return value
    return None


def _has(data: dict[str, Any], wanted: Mapping[Place, object]) -> bool:
    """Whether every place holds the value that is wanted there; ``true`` is not 1."""
    for place, value in wanted.items():
        actual = at(data, place)
        if actual != value or type(actual) is not type(value):
            return False
    return True


def _name(data: dict[str, Any], place: Place) -> str:
    return text(at(data, place), reading.NAME_CHARS)


def _retry(rule: EventRule, data: dict[str, Any]) -> agent_events.RetryingItself:
    reason = reading.vendor_error(text(at(data, rule.reason)))[0]
    status, delay_ms = reading.http_status(at(data, rule.status)), reading.number(at(data, rule.delay_ms))
    attempt, most = (reading.whole(at(data, place)) for place in (rule.attempt, rule.most))
    return agent_events.RetryingItself(reason, status, attempt, most, delay_ms and delay_ms / 1000)


def _matching(rules: Iterable[LineRule], line: str) -> tuple[LineRule, re.Match[str]] | None:
    if not rules:
        return None
    plain = line[:LONGEST_LINE] if line.isascii() and "\x1b" not in line else folded(line)
    return next(((rule, match) for rule in rules if (match := rule.match.match(plain))), None)


def _line_events(matched: tuple[LineRule, re.Match[str]], own: OwnLines, line: str) -> Signs:
    rule, match = matched
    kept = text(line, reading.OWN_LINE_CHARS)
    if rule.tells == "noise":
        return NOTHING
    if rule.tells == "quoted":
        return (AgentText(kept),)
    own.add(kept)
    groups = {name: value for name, value in match.groupdict().items() if value}
    amounts = {name: _amount(value) for name, value in groups.items()}
    match rule.tells:
        case "evidence":
            return NOTHING
        case "retry":
            attempt, most = (int(amounts[name]) if name in groups else None for name in ("attempt", "most"))
            reason, status = groups.get("reason", "").strip(), reading.http_status(groups.get("status"))
            return (agent_events.RetryingItself(reason, status, attempt, most, amounts.get("delay_s")),)
        case "tool":
            about = reading.short(groups.get("about", ""))
            return (ToolUse(groups.get("name", "")[: reading.NAME_CHARS], about),)
        case _:
            read, written = (int(amounts.get(name, 0)) for name in ("tokens_in", "tokens_out"))
            figures = Figures(amounts.get("cost_usd"), read, written)
            return AgentText(kept), agent_events.Spent(figures, total=rule.spends == "total")


def _amount(words: str) -> float:
    """Return ``1.2k``, ``12,345``, ``0.04`` as a number; 0 for anything else."""
    amount = _NUMBER.fullmatch(words.strip())
    if amount is None or not amount[1].strip(","):
        return 0.0
    return float(amount[1].replace(",", "")) * _FACTORS[amount[2].lower()]
