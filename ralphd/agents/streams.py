"""Recognise agents' event streams in the output of any command, and turn their events into text and figures.

A user's own loop often runs ``claude -p --output-format stream-json`` and prints what it prints. Each line is
recognised by itself: streams may be mixed with each other and with plain lines, and may begin anywhere.
Nothing here raises for what a command prints, and all that is kept is bounded.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, cast

from ralphd.agents.reading import Signs, listed, record, session_id, table, text
from ralphd.core.explanation import in_seconds
from ralphd.core.failures import agent_events
from ralphd.core.failures.agent_events import AgentEvent, Figures, FinalEvent, Limited, RetryingItself
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.text import one_line, plain, plain_lines
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.dataclass import dataclass

if TYPE_CHECKING:
    from ralphd.agents.agent import Agent
    from ralphd.agents.parsers import EventParser

logger = logging.getLogger(__name__)

_SHAPES: Final = tuple(
    (name, {*kinds.split()}, key, {*others.split()})
    for name, kinds, key, others in (
        ("claude", "system assistant user result rate_limit_event stream_event", "session_id",
         "subtype message rate_limit_info event"),
        ("codex", "thread.started turn.started turn.completed turn.failed item.started item.updated"
         " item.completed error", "type", "type"),
        ("gemini", "init message tool_use tool_result error result", "timestamp",
         "session_id role tool_name tool_id severity stats"),
        ("opencode", "step_start step_finish text tool_use reasoning error", "sessionID", "part error"),
    )
)  # fmt: skip
"""By agent the types of its events, a key that each of them has, and keys of which each has at least one."""
_SESSION_KEYS: Final = {"claude": "session_id", "opencode": "sessionID"}
_MOST_STREAMS: Final = 64
_MOST_NAME_CHARS: Final = 100
_EDITS: Final = (("-", ("old_string", "oldString")), ("+", ("new_string", "newString", "content")))
_LIMITS: Final = {"five_hour": "5-hour limit", "seven_day": "7-day limit"}


@dataclass(slots=True)
class AgentStream:
    """One run of one agent, as far as its events were seen.

    ``problem`` is the last complaint that was shown: an end that repeats it does not show it again.
    """

    agent: "Agent"
    parser: "EventParser"
    figures: Figures = field(default_factory=Figures)
    problem: str = ""


class EventStreams:
    """The event streams of one log."""

    def __init__(self) -> None:
        self._spent = Figures()  # by streams that are over
        self._has_failed = False
        self._streams: dict[tuple[str, str], AgentStream] = {}
        self._agents: dict[str, Agent] = {}  # their parsers know what earlier sessions had cost

    def line(self, line: str, at: str) -> str | None:
        """Return the text for a line that was printed ``at``; None if no known agent prints such a line."""
        try:
            data = record(line) if line.startswith('{"') and '"type"' in line else None
            name = None if data is None else self._agent_of(data)
            if data is None or name is None:
                return None
            return self._on_event(*self._read(name, data, line), data, parse_rfc3339(at))
        except Exception:  # a parser that cannot read a line must not hide it
            if not self._has_failed:  # a flood of such lines must not fill the daemon's log
                logger.exception("an event of an agent cannot be read")
            self._has_failed = True
            return None

    def _on_event(self, stream: AgentStream, signs: Signs, data: dict[str, Any], at: Moment) -> str:
        raise NotImplementedError

    def _agent_of(self, data: dict[str, Any]) -> str | None:
        if not isinstance(kind := data.get("type"), str):
            return None
        fitting = (each for each in _SHAPES if kind in each[1] and each[2] in data and each[3] & data.keys())
        name = next((each[0] for each in fitting), None)
        is_anybodys = (name, kind) == ("codex", "error") and (name, "") not in self._streams
        return None if is_anybodys else name

    def _read(self, name: str, data: dict[str, Any], line: str) -> tuple[AgentStream, Signs]:
        key = (name, text(data.get(_SESSION_KEYS.get(name, "")), _MOST_NAME_CHARS))
        before = self._streams.get(key)
        stream = before or self._begin(key)
        signs = tuple(stream.parser.event(data, line))
        if before and any(isinstance(sign, agent_events.Started) for sign in signs):
            stream = self._begin(key)  # a new run of the same agent: its figures are added
            signs = tuple(stream.parser.event(data, line))
        for sign in signs:
            if isinstance(sign, agent_events.Spent):
                stream.figures = sign.after(stream.figures)
        return stream, signs

    def _begin(self, key: tuple[str, str]) -> AgentStream:
        if (agent := self._agents.get(key[0])) is None:
            from ralphd.agents.known import agent_of  # with the descriptions, which most logs do not need
            from ralphd.config.specs import AgentSpec

            agent = self._agents[key[0]] = agent_of(key[0], AgentSpec(), outside={})
        over = [key] if key in self._streams else list(self._streams)[: 1 - _MOST_STREAMS]
        self._spent = _sum(self._spent, *(self._streams.pop(each).figures for each in over))
        parser = cast("EventParser", agent.parser())  # each of them prints events
        return self._streams.setdefault(key, AgentStream(agent, parser))


def _sum(*every: Figures) -> Figures:
    prices = [each.cost_usd for each in every if each.cost_usd is not None]
    read, written = sum(each.tokens_in for each in every), sum(each.tokens_out for each in every)
    return Figures(sum(prices) if prices else None, read, written)


class EventText(EventStreams):
    """Word the events of one log for people, as the built-in loop does.

    ``verbose`` adds edits and the results of tools. With ``grep`` all lines that hold it are shown, no other.
    """

    def __init__(self, *, verbose: bool = False, grep: str | None = None) -> None:
        super().__init__()
        self._verbose, self._grep = verbose or bool(grep), grep or ""

    def _on_event(self, stream: AgentStream, signs: Signs, data: dict[str, Any], at: Moment) -> str:
        lines = [line for sign in signs for line in _lines(stream, sign, at)]
        if self._verbose:
            lines += ("    " + line for words in _details(data) for line in plain_lines(words))
        return "\n".join(line for line in lines if self._grep in line)


def _lines(stream: AgentStream, sign: AgentEvent, at: Moment) -> Iterator[str]:
    yield from agent_events.shown_lines(sign)
    if words := _report(stream, sign, at):
        yield plain(f"{stream.agent.name}: {words}".replace("\n", " "))


def _report(stream: AgentStream, sign: AgentEvent, at: Moment) -> str:
    """Return what is shown of an event that is neither text nor tool use; the same words only once."""
    before = stream.problem
    match sign:
        case agent_events.Started(model=str() as model):
            return f"started, {model}"
        case Limited(resets_at=resets_at, name=name):
            stream.problem = "limit"
            name = _LIMITS.get(name, one_line(name.replace("_", " "), 40) or "limit")
            soon = f", resets in {in_seconds(resets_at - at)}" if resets_at and resets_at > at else ""
            return "" if before == "limit" else f"{name} reached{soon}"
        case agent_events.Warned(text=words):
            stream.problem = words.strip()
            return "" if before in ("limit", words.strip()) else words
        case RetryingItself():
            count = f" {sign.attempt} of {sign.most}" if sign.attempt and sign.most else ""
            soon = f", in {in_seconds(sign.delay_s)}" if sign.delay_s else ""
            return f"retry{count}{soon}" + (f": {sign.reason}" if sign.reason else "")
        case FinalEvent(good=good, status=status, message=message):
            stream.problem = ""
            if good:
                return " · ".join(("finished", *_spent(stream.figures)))
            failed = f"failed (HTTP {status})" if status else "failed"
            return failed if message.strip() == before else f"{failed}: {message}"
        case _:
            return ""


def _spent(figures: Figures) -> Iterator[str]:
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
            for mark, keys in _EDITS:
                changed = next(filter(None, (text(edit.get(key)) for key in keys)), "")
                yield from (f"{mark} {line}" for line in changed.splitlines())
    results = [block.get("content") for block in blocks if block.get("type") == "tool_result"]
    printed = item.get("aggregated_output") if data.get("type") == "item.completed" else None
    for result in (*results, data.get("output"), state.get("output"), printed):
        parts = [table(part).get("text") for part in listed(result)] if isinstance(result, list) else [result]
        yield from filter(str.strip, map(text, parts))


def without_past_limit(seen: dict[str, Any] | None, now: Moment) -> dict[str, Any] | None:
    """Return what was seen, without a limit whose reset is past."""
    until = ((seen or {}).get("limit") or {}).get("resets_at")
    return seen | {"limit": None} if seen and until and until <= rfc3339(now) else seen


class EventCounter(EventStreams):
    """Count what the events of a run's output report: ``seen``, as the API shows it.

    Nothing acts on it: it may be an old log that somebody prints.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        super().__init__()
        self.seen: dict[str, Any] | None = None
        self._zone = zone
        self._limit: dict[str, Any] | None = None

    def _on_event(self, stream: AgentStream, signs: Signs, data: dict[str, Any], at: Moment) -> str:
        name = stream.agent.name
        for sign in signs:
            if isinstance(sign, Limited):
                self._reached(name, sign.name, sign.resets_at, at)
            elif isinstance(sign, FinalEvent) and not sign.good:
                self._look_for_limit(stream, sign, at)
            elif isinstance(sign, FinalEvent):
                self._limit = None
        figures = _sum(self._spent, *(each.figures for each in self._streams.values()))
        cost = figures.cost_usd and round(figures.cost_usd, 6)
        session = session_id(data.get(_SESSION_KEYS.get(name, "")) or stream.parser.session)
        tokens = {"tokens_in": figures.tokens_in, "tokens_out": figures.tokens_out}
        self.seen = {"agent": name, "session_id": session, "limit": self._limit, "cost_usd": cost, **tokens}
        return ""

    def _reached(self, agent: str, limit: str, until: Moment | None, at: Moment) -> None:
        from ralphd.core.failures.resets import LONGEST_S

        until = None if until and until - at > LONGEST_S else until
        self._limit = {"agent": agent, "name": limit, "resets_at": until and rfc3339(until)}

    def _look_for_limit(self, stream: AgentStream, end: FinalEvent, at: Moment) -> None:
        from ralphd.core.failures.classify import Evidence, Rules, classify  # needed for few streams

        agent = stream.agent
        rules = Rules(agent.name, agent.patterns, agent.exits, has_verdict=True, zone=self._zone)
        evidence = Evidence(verdict=end, own_lines=stream.parser.own_lines(), partial=True)
        found = classify(evidence, rules, now=at)
        if found.kind is FailureKind.USAGE_LIMIT and not (self._limit and self._limit["agent"] == agent.name):
            self._reached(agent.name, "", None if found.reset is None else found.reset.until, at)
