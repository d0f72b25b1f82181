"""Open incidents, and the pool of agents, in words. Any text in them may be somebody else's."""

from __future__ import annotations

from ralphctl.format.humanize import View, ago, clock, count, cut, duration, moment, part, wrapped
from ralphctl.format.output import clean

_AT_REST = frozenset({"failed", "paused"})


def incident_rows(view: View, now: float, *, daemon: bool = True) -> list[tuple[str, str]]:
    """Return since when a person is called, whether that is acknowledged, and what is needed.

    Without a ``daemon`` nothing can be acknowledged.
    """
    if not (incident := part(view, "incident")):
        return []
    at_rest = view.get("state") in _AT_REST
    ack = f": ralphctl ack {clean(view.get('name') or '')}" if daemon else ""
    rows = [("alert", _called(incident, ack, now, at_rest=at_rest))]
    if not at_rest and view.get("state") != "stopped" and incident.get("message"):
        rows.append(("", f"for: {clean(incident['message'])}"))
    needs = clean(incident.get("needs") or "")
    return [*rows, ("needs", needs)] if needs and at_rest else rows


def _called(incident: View, ack: str, now: float, *, at_rest: bool) -> str:
    parts = [ago(incident.get("opened_at"), now), *held_back(incident)]
    if reminders := incident.get("reminders"):
        parts.append(f"reminded {count(reminders, 'time')}")
    if (known := moment(incident.get("acknowledged_at"))) is not None:
        parts.append(f"acknowledged {duration(now - known)} ago")
    elif at_rest:
        parts.append(f"not acknowledged{ack}")
    else:
        parts.append("closes when an iteration succeeds")
    return ", ".join(parts)


def held_back(incident: View) -> list[str]:
    """Return ``2 more calls held back``, as a list of one or none."""
    number = incident.get("held_back")
    return [f"{count(number, 'more alert')} held back"] if isinstance(number, int) and number > 0 else []


_POOL_COLUMNS = 65
"""Next to the label, of a terminal with 80."""
_STRATEGIES = {"rotate": "rotation", "fallback": "in this order"}
_MOST_NAME_CHARS, _MOST_REASON_CHARS = 30, 120


def pool_rows(pool: View, now: float) -> list[str]:
    """Return the pool in lines. An agent whose time out has passed is in."""
    texts = [_agent(agent, now) for agent in pool["agents"] if isinstance(agent, dict)]
    head = _STRATEGIES.get(str(pool.get("strategy")), "")
    if head and len(texts) > 1:
        texts[0] = f"{head}: {texts[0]}"
    return wrapped(" · ".join(texts), _POOL_COLUMNS)


def _agent(agent: View, now: float) -> str:
    name = cut(clean(agent.get("name") or "?"), _MOST_NAME_CHARS)
    until = moment(agent.get("until"))
    if agent.get("in") is False and (until is None or until > now):
        when = "until you act" if until is None else f"until {clock(until, now)}"
        reason = cut(clean(agent.get("reason") or ""), _MOST_REASON_CHARS)
        return f"{name} out {when}" + (f" ({reason})" if reason else "")
    return f"{name} in" + (", used last" if agent.get("last") is True else "")
