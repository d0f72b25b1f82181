"""What a person was called for, in words, as ``status`` and ``ack`` say it.

Loaded by ``status`` where an incident is open, so little is imported. Texts may be somebody else's.
"""

from __future__ import annotations

from ralphctl.tell import clean
from ralphctl.words import ago, count, duration, moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphctl.show import View

_AT_REST = frozenset({"failed", "paused"})


def open_incident(view: View) -> View:
    """What a person was called for and is not over; empty where nothing is."""
    incident = view.get("incident")
    return incident if isinstance(incident, dict) else {}


def rows(view: View, now: float, *, daemon: bool = True) -> list[tuple[str, str]]:
    """Since when a person is called, whether they know, and what it needs from them.

    Without a ``daemon`` nobody can be told that they know.
    """
    incident = open_incident(view)
    at_rest = view.get("state") in _AT_REST
    ack = f": ralphctl ack {clean(str(view.get('name') or ''))}" if daemon else ""
    found = [("called you", _called(incident, ack, now, at_rest=at_rest))]
    if not at_rest and view.get("state") != "stopped" and incident.get("message"):
        found.append(("", f"for: {clean(str(incident['message']))}"))
    needs = clean(str(incident.get("needs") or ""))
    return [*found, ("needs", needs)] if needs and at_rest else found


def _called(incident: View, ack: str, now: float, *, at_rest: bool) -> str:
    parts = [ago(incident.get("opened_at"), now), *held_back(incident)]
    if reminders := incident.get("reminders"):
        parts.append(f"reminded {_times(reminders)}")
    if (known := moment(incident.get("acknowledged_at"))) is not None:
        parts.append(f"acknowledged {duration(now - known)} ago")
    elif at_rest:
        parts.append(f"not acknowledged{ack}")
    else:
        parts.append("over when it has worked")
    return ", ".join(parts)


def held_back(incident: View) -> list[str]:
    """``2 more calls held back``, as a list of one or none."""
    number = incident.get("held_back")
    return [f"{count(number, 'more call')} held back"] if isinstance(number, int) and number > 0 else []


def _times(number: object) -> str:
    return "once" if number == 1 else f"{clean(str(number))} times"
