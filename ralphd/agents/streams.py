"""Recognise agents' event streams in the output of any command, and turn their events into text and figures.

A user's own loop often runs ``claude -p --output-format stream-json`` and prints what it prints. Each line is
recognised by itself: streams may be mixed with each other and with plain lines, and may begin anywhere.
Nothing here raises for what a command prints, and all that is kept is bounded.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final

from ralphd.agents.reading import Signs, listed, record, table, text
from ralphd.core.explanation import in_seconds
from ralphd.core.failures import agent_events
from ralphd.core.failures.agent_events import Figures, FinalEvent, Limited, RetryingItself
from ralphd.core.failures.classify import Evidence, Rules, classify
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.text import one_line, plain, plain_lines
from ralphd.core.time import Moment, parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from ralphd.agents.agent import Agent
    from ralphd.agents.parsers import EventParser

logger = logging.getLogger(__name__)

_SHAPES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "claude": {
        "system": ("session_id", "subtype"),
        "assistant": ("session_id", "message"),
        "user": ("session_id", "message"),
        "result": ("session_id", "subtype"),
        "rate_limit_event": ("session_id", "rate_limit_info"),
        "stream_event": ("session_id", "event"),
    },
    "codex": {
        "thread.started": ("thread_id",),
        "turn.started": (),
        "turn.completed": ("usage",),
        "turn.failed": ("error",),
        "item.started": ("item",),
        "item.updated": ("item",),
        "item.completed": ("item",),
        "error": ("message",),
    },
    "gemini": {
        "init": ("timestamp", "session_id", "model"),
        "message": ("timestamp", "role", "content"),
        "tool_use": ("timestamp", "tool_name"),
        "tool_result": ("timestamp", "tool_id"),
        "error": ("timestamp", "severity", "message"),
        "result": ("timestamp", "stats"),
    },
    "opencode": {
        **dict.fromkeys(
            ("step_start", "step_finish", "text", "tool_use", "reasoning"), ("sessionID", "part")
        ),
        "error": ("sessionID", "error"),
    },
}
"""The keys that an event of each type has, beside others: a type alone is found in many programs' logs."""
_VARIANTS: Final = ("qwen", "amp")
"""CLIs that print claude's events, and can be told apart by the first one."""
_SESSION_KEYS: Final = {"claude": "session_id", "opencode": "sessionID"}
_MOST_STREAMS: Final = 64
_MOST_NAME_CHARS: Final = 100
_LIMITS: Final = {"five_hour": "5-hour limit", "seven_day": "7-day limit"}
_INDENT: Final = "    "
_OLD: Final = ("old_string", "oldString")
_NEW: Final = ("new_string", "newString", "content")


@dataclass(slots=True)
class Stream:
    """One run of one agent, as far as its events were seen."""

    name: str
    parser: "EventParser"
    figures: Figures = field(default_factory=Figures)
    is_used: bool = False
    problem: str = ""
    """The last complaint that was shown; an end that repeats it does not show it again."""

    def read(self, data: dict[str, Any], line: str) -> Signs:
        return tuple(self.parser.event(data, line))


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A line that an agent printed, and what it reports."""

    stream: Stream
    data: dict[str, Any]
    signs: Signs


class EventStreams:
    """The event streams of one log; ``spent`` is what the streams that are over have used."""

    def __init__(self) -> None:
        self.spent = Figures()
        self._streams: dict[tuple[str, str], Stream] = {}
        self._variants: dict[str, str] = {}
        self._agents: dict[str, Agent] = {}

    def read(self, line: str) -> StreamEvent | None:
        """Return the event that a line holds; None if no known agent prints such a line."""
        data = record(line) if line.startswith('{"') and '"type"' in line else None
        name = None if data is None else self._printer(data, line)
        if data is None or name is None:
            return None
        key = (name, text(data.get(_SESSION_KEYS.get(name, "")), _MOST_NAME_CHARS))
        stream = self._streams.get(key) or self._begin(key)
        signs = stream.read(data, line)
        if stream.is_used and any(isinstance(sign, agent_events.Started) for sign in signs):
            stream = self._begin(key)  # a new run of the same agent: its figures are added
            signs = stream.read(data, line)
        stream.is_used = True
        for sign in signs:
            if isinstance(sign, agent_events.Spent):
                stream.figures = sign.after(stream.figures)
        return StreamEvent(stream, data, signs)

    def figures(self) -> Figures:
        """Return what all streams have used."""
        return _sum(self.spent, *(stream.figures for stream in self._streams.values()))

    def agent(self, name: str) -> "Agent":
        """Return the agent of that name. Its parsers know what its earlier sessions had cost."""
        if name not in self._agents:
            from ralphd.agents.known import agent_of  # with the descriptions: most logs need none
            from ralphd.config.specs import AgentSpec

            self._agents[name] = agent_of(name, AgentSpec(), outside={})
        return self._agents[name]

    def _printer(self, data: dict[str, Any], line: str) -> str | None:
        kind = data.get("type")
        if not isinstance(kind, str):
            return None
        name = next((each for each, shapes in _SHAPES.items() if _fits(data, shapes.get(kind))), None)
        if kind == "error" and name == "codex" and ("codex", "") not in self._streams:
            return None  # too short to be known by itself
        if name != "claude":
            return name
        session = text(data["session_id"], _MOST_NAME_CHARS)
        if kind == "system" and data["subtype"] == "init" and (variant := _variant(line)):
            self._variants[session] = variant
            if len(self._variants) > _MOST_STREAMS:
                del self._variants[next(iter(self._variants))]
        return self._variants.get(session, name)

    def _begin(self, key: tuple[str, str]) -> Stream:
        over = [key] if key in self._streams else list(self._streams)[: 1 - _MOST_STREAMS]
        self.spent = _sum(self.spent, *(self._streams.pop(each).figures for each in over))
        parser = self.agent(key[0]).parser()
        if TYPE_CHECKING:
            assert isinstance(parser, EventParser)  # each of them prints events
        stream = self._streams[key] = Stream(key[0], parser)
        return stream


def _fits(data: Mapping[str, Any], keys: tuple[str, ...] | None) -> bool:
    return keys is not None and all(key in data for key in keys)


def _sum(*every: Figures) -> Figures:
    prices = [each.cost_usd for each in every if each.cost_usd is not None]
    read, written = sum(each.tokens_in for each in every), sum(each.tokens_out for each in every)
    return Figures(sum(prices) if prices else None, read, written)


def _variant(line: str) -> str | None:
    from ralphd.agents.description import description_of

    known_by = ((name, description_of(name).known_by) for name in _VARIANTS)
    return next((name for name, expression in known_by if expression and expression.match(line)), None)


class EventText:
    """Word the events of one log for people, as the built-in loop does.

    ``verbose`` adds edits and the results of tools. With ``grep`` all lines that hold it are shown, no other.
    """

    def __init__(self, *, verbose: bool = False, grep: str | None = None) -> None:
        self._streams, self._verbose, self._grep = EventStreams(), verbose or bool(grep), grep or ""

    def line(self, line: str, at: str) -> str | None:
        """Return the text of a line that was printed ``at``: lines, or nothing to show; None for no event."""
        try:
            event = self._streams.read(line)
            if event is None:
                return None
            lines = self._lines(event, parse_rfc3339(at))
            return "\n".join(each for each in lines if self._grep in each)
        except Exception:  # a parser that cannot read a line must not hide it
            logger.exception("an event of an agent cannot be read")
            return None

    def _lines(self, event: StreamEvent, at: Moment) -> Iterator[str]:
        for sign in event.signs:
            match sign:
                case agent_events.AgentText(text=words):
                    yield from plain_lines(words)
                case agent_events.ToolUse(name=name, about=about):
                    yield plain(f"[{name}] {about.partition(chr(10))[0]}".rstrip())
                case _:
                    if words := _complaint(event.stream, sign, at):
                        yield plain(f"{event.stream.name}: {words}".replace("\n", " "))
        if self._verbose:
            yield from (_INDENT + each for words in _details(event.data) for each in plain_lines(words))


def _complaint(stream: Stream, sign: agent_events.AgentEvent, at: Moment) -> str:
    """Return what is shown of an event that is neither text nor tool use; the same words only once."""
    before, shown = stream.problem, ""
    match sign:
        case agent_events.Started(model=model) if model:
            return f"started, {model}"
        case Limited():
            stream.problem, shown = "limit", "" if before == "limit" else _limit_words(sign, at)
        case agent_events.Warned(text=words):
            stream.problem, shown = words.strip(), "" if before in ("limit", words.strip()) else words
        case RetryingItself():
            count = f" {sign.attempt} of {sign.most}" if sign.attempt and sign.most else ""
            soon = f", in {in_seconds(sign.delay_s)}" if sign.delay_s else ""
            shown = f"retry{count}{soon}" + (f": {sign.reason}" if sign.reason else "")
        case FinalEvent(good=True):
            stream.problem, shown = "", " · ".join(("finished", *_spent_words(stream.figures)))
        case FinalEvent():
            status = f" (HTTP {sign.status})" if sign.status else ""
            message = sign.message.strip()
            stream.problem, shown = "", f"failed{status}" + ("" if message == before else f": {message}")
    return shown


def _limit_words(limit: Limited, at: Moment) -> str:
    name = _LIMITS.get(limit.name, one_line(limit.name.replace("_", " "), 40) or "limit")
    left = "" if limit.resets_at is None else f", resets in {in_seconds(limit.resets_at - at)}"
    return f"{name} reached{left}"


def _spent_words(figures: Figures) -> Iterator[str]:
    if figures.cost_usd:
        yield f"${figures.cost_usd:.2f}"
    if figures.tokens_in or figures.tokens_out:
        yield f"{figures.tokens_in} tokens in, {figures.tokens_out} out"


def _details(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the edits and the results of tools in an event of any agent."""
    item, state = table(data.get("item")), table(table(data.get("part")).get("state"))
    blocks = [table(each) for each in listed(table(data.get("message")).get("content"))]
    for given in (data.get("parameters"), state.get("input"), *(block.get("input") for block in blocks)):
        for edit in (table(given), *map(table, listed(table(given).get("edits")))):
            yield from _changed(edit)
    ended = data.get("type") == "item.completed"
    results = [block.get("content") for block in blocks if block.get("type") == "tool_result"]
    printed = item.get("aggregated_output") if ended else None
    for result in (*results, data.get("output"), state.get("output"), printed):
        parts = [table(part).get("text") for part in listed(result)] if isinstance(result, list) else [result]
        yield from filter(str.strip, map(text, parts))


def _changed(edit: Mapping[str, Any]) -> Iterator[str]:
    for mark, keys in (("-", _OLD), ("+", _NEW)):
        lines = next(filter(None, (text(edit.get(key)) for key in keys)), "").splitlines()
        yield from (f"{mark} {line}" for line in lines)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run's output shows of its agents. Nothing acts on it: it may be an old log that is printed."""

    agent: str
    session_id: str | None = None
    figures: Figures = field(default_factory=Figures)
    limit: Limited | None = None

    def shown(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        limit, resets_at = self.limit, self.limit and self.limit.resets_at
        return {
            "agent": self.agent,
            "session_id": self.session_id,
            "cost_usd": self.figures.cost_usd and round(self.figures.cost_usd, 6),
            "tokens_in": self.figures.tokens_in,
            "tokens_out": self.figures.tokens_out,
            "limit": limit and {"name": limit.name, "resets_at": resets_at and rfc3339(resets_at)},
        }


class EventCounter:
    """Count what the events of a run's output report."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.seen: Seen | None = None
        self._streams, self._zone = EventStreams(), zone

    def line(self, line: str, at: str) -> None:
        """Count a line that was printed ``at``."""
        try:
            if (event := self._streams.read(line)) is not None:
                self._count(event, parse_rfc3339(at))
        except Exception:
            logger.exception("an event of an agent cannot be counted")

    def _count(self, event: StreamEvent, at: Moment) -> None:
        name = event.stream.name
        seen = self.seen if self.seen and self.seen.agent == name else Seen(name)
        session, limit = seen.session_id, seen.limit
        for sign in event.signs:
            match sign:
                case agent_events.Started(session=str() as begun):
                    session = begun
                case Limited():
                    limit = sign
                case FinalEvent(good=True):
                    limit = None
                case FinalEvent():
                    limit = limit or self._limit(event.stream, sign, at)
        self.seen = Seen(name, session, self._streams.figures(), limit)

    def _limit(self, stream: Stream, end: FinalEvent, at: Moment) -> Limited | None:
        agent = self._streams.agent(stream.name)
        rules = Rules(agent.name, agent.patterns, agent.exits, has_verdict=True, zone=self._zone)
        evidence = Evidence(verdict=end, own_lines=stream.parser.own_lines(), partial=True)
        finding = classify(evidence, rules, now=at)
        if finding.kind is not FailureKind.USAGE_LIMIT:
            return None
        return Limited(None if finding.reset is None else finding.reset.until)
