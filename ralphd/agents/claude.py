"""Claude Code: what the rules of ``clis/claude.toml`` cannot express.

``subtype`` is ``success`` for API failures as well: ``is_error`` and the fields beside it are the verdict.
"""

from dataclasses import replace
from typing import Any, Final

from ralphd.agents import reading
from ralphd.agents.description import Description, EventRule
from ralphd.agents.parsers import EventParser
from ralphd.agents.reading import ALIVE, NAME_CHARS, NOTHING, Sessions, SessionShare, Signs, text
from ralphd.core.failures.agent_events import Figures, FinalEvent, Limited, Warned, WindowUsed

_MOST_WINDOWS: Final = 8
_BAD_ENDS: Final = ("prompt_too_long", "max_turns", "budget_exhausted")


class ClaudeParser(EventParser):
    def __init__(self, cli: Description, sessions: Sessions) -> None:
        super().__init__(cli)
        self._cost = SessionShare(sessions)
        self._error_name = ""

    def own_event(self, data: dict[str, Any]) -> Signs:
        if data.get("type") == "rate_limit_event":
            return (*(_limited(data) or ALIVE), *_windows(data))
        if data.get("error") != "unknown":  # a message that the CLI wrote in the model's place
            self._error_name = text(data.get("error"), NAME_CHARS) or self._error_name
        words, _ = reading.content(reading.table(data.get("message")).get("content"))
        self.own.add(words)
        return (*_limited(data), *((Warned(words),) if words else ())) or ALIVE

    def figures(self, rule: EventRule, data: dict[str, Any]) -> Figures:
        """Return the figures of the attempt: the price is reported for the session so far."""
        figures = super().figures(rule, data)
        if figures.cost_usd is None:
            return figures
        session = reading.session_id(data.get("session_id"))
        return replace(figures, cost_usd=self._cost.of(session, figures.cost_usd))

    def end(self, rule: EventRule, data: dict[str, Any]) -> Signs:
        return (*_limited(data), *super().end(rule, data))

    def is_good(self, rule: EventRule, data: dict[str, Any]) -> bool:
        return data.get("terminal_reason") not in ("api_error", *_BAD_ENDS) and super().is_good(rule, data)

    def bad_end(self, rule: EventRule, data: dict[str, Any]) -> FinalEvent:
        keys = ("api_error", "terminal_reason", "subtype", "api_error_type")
        code, reason, subtype, kind = (text(data.get(key), NAME_CHARS) for key in keys)
        if reason not in _BAD_ENDS:  # an end that is not an API's failure has a name of its own
            reason = subtype.removeprefix("error_") if subtype.startswith("error_max") else ""
        errors = "\n".join(filter(None, map(text, reading.listed(data.get("errors"))[:20])))
        message = text(data.get("result"), reading.LAST_MESSAGE_CHARS) or errors or subtype
        self.own.add(message)
        status = reading.http_status(data.get("api_error_status"))
        return FinalEvent(False, message, status, code or reason or kind or self._error_name or None)


def _windows(data: dict[str, Any]) -> Signs:
    """Return the used shares of the plan's windows, which come in good runs as well (Q4)."""
    info = reading.table(data.get("rate_limit_info"))
    windows = {text(info.get("rateLimitType"), NAME_CHARS): info, **reading.table(info.get("unifiedWindows"))}
    return tuple(
        WindowUsed(text(name, NAME_CHARS), min(used, 1.0), reading.epoch(reading.table(each).get("resetsAt")))
        for name, each in list(windows.items())[:_MOST_WINDOWS]
        if name and (used := reading.number(reading.table(each).get("utilization"))) is not None
    )


def _limited(data: dict[str, Any]) -> Signs:
    """Return a limit that is reached; the same event with another status comes in good runs."""
    source = data if "rate_limit_info" in data else reading.table(data.get("api_error_params"))
    info = reading.table(source.get("rate_limit_info"))
    if info.get("status") != "rejected":
        return NOTHING
    return (Limited(reading.epoch(info.get("resetsAt")), text(info.get("rateLimitType"), NAME_CHARS)),)
