"""The pool of agents in words: who is in, who is out until when and why, who was asked last (L3).

Loaded by ``status`` where there is more than one agent, or one is out, so little is imported. Names and
reasons may be somebody else's text.
"""

from __future__ import annotations

from ralphctl.tell import clean
from ralphctl.words import clock, moment, wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

COLUMNS = 65
"""Beside the label, of a terminal with 80."""
_SEPARATOR = " · "
_HEADS = {"rotate": "rotation", "fallback": "in this order"}
_MOST_NAME_CHARS, _MOST_REASON_CHARS = 30, 120


def rows(pool: Mapping[str, Any], now: float, *, columns: int = COLUMNS) -> list[str]:
    """The pool in lines of so many characters. An agent whose time out has passed is in."""
    agents = [agent for agent in pool["agents"] if isinstance(agent, dict)]
    head = _HEADS.get(str(pool.get("strategy")), "")
    told = [_agent(agent, now) for agent in agents]
    if head and len(agents) > 1:
        told[0] = f"{head}: {told[0]}"
    return wrapped(_SEPARATOR.join(told), columns)


def _agent(agent: Mapping[str, Any], now: float) -> str:
    name = _cut(agent.get("name") or "?", _MOST_NAME_CHARS)
    until = moment(agent.get("until"))
    if agent.get("in") is False and (until is None or until > now):
        when = "until you act" if until is None else f"until {clock(until, now)}"
        reason = _cut(agent.get("reason") or "", _MOST_REASON_CHARS)
        return f"{name} out {when}" + (f" ({reason})" if reason else "")
    return f"{name} in" + (", asked last" if agent.get("last") is True else "")


def _cut(text: object, most: int) -> str:
    said = clean(str(text))
    return said if len(said) <= most else said[: most - 1] + "…"
