"""Turn events into the panels of the live view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from ralphctl.format import event_text, explanation
from ralphctl.format.humanize import View, clock, duration, moment, part
from ralphctl.format.output import clean
from ralphctl.live.screen import WORTH_A_LINE_S
from ralphd.dataclass import dataclass
from ralphd.overview import LIMITS
from ralphd.wire import SETTLED_STATES

Event: TypeAlias = View


class PanelKind(StrEnum):
    """The kind of a panel; its word is in the title, so that no colour is needed."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel's text, free of control characters."""

    kind: PanelKind
    title: str
    lines: tuple[str, ...] = ()


_FOLLOW = ("agent.exhausted", "wait.started")
"""Consequences of the failure before them: they go into its panel."""
_TITLES = {
    "ralph.retrying": (PanelKind.WARNING, "failed, will be retried"),
    "ralph.stall_warning": (PanelKind.WARNING, "silent"),
    "ralph.stalled": (PanelKind.WARNING, "stalled: the run is killed"),
    "commit.reverted": (PanelKind.WARNING, "reverted: the tests fail"),
    "guard.blocked": (PanelKind.WARNING, "the guard"),
    "sandbox.degraded": (PanelKind.WARNING, "sandbox"),
    "tests.weakened": (PanelKind.WARNING, "tests weakened"),
    "landing.queued": (PanelKind.INFO, "landing queue"),
    "landing.landed": (PanelKind.SUCCESS, "landed"),
    "landing.refused": (PanelKind.WARNING, "does not land"),
    "agent.exhausted": (PanelKind.WARNING, "agent unavailable"),
    "ralph.escalated": (PanelKind.ERROR, "needs you"),
    "daemon.degraded": (PanelKind.ERROR, "ralphd works with restrictions"),
}
_OUT_OF_TIME = ("timeout", "stall")


def panels(events: Iterable[Event], view: View, now: float) -> list[Panel]:
    """Return the panels for what has just happened to the ralph of ``view``.

    Its end has none here: ``last_words`` are made from the state, not from an event.
    """
    result: list[Panel] = []
    after_failure = False
    for event in events:
        panel = _panel(event, view, now)
        if panel is not None and after_failure and event["type"] in _FOLLOW:
            # The panel of the failure has the reason.
            result[-1] = replace(result[-1], lines=(*result[-1].lines, *panel.lines[-1:]))
        elif panel is not None:
            result.append(panel)
            after_failure = event["type"] == "attempt.finished"
    return result


def _panel(event: Event, view: View, now: float) -> Panel | None:
    kind, data = event["type"], event["data"]
    match kind:
        case "attempt.finished":
            return _attempt(data, view, now)
        case "wait.started":
            return _wait(event, now)
        case "ralph.escalated" if view.get("state") in SETTLED_STATES:
            return None
        case "agent.exhausted" if data.get("until"):
            return None  # a limit: the log line says all of it, and nobody has to act
    if kind not in _TITLES:
        return None
    panel_kind, title = _TITLES[kind]
    lines = [clean(text)] if (text := event_text.event_words(kind, data)) else []
    ends = moment(data.get("until"))
    if ends is not None and ends > now:
        lines.append(f"until {clock(ends, now)}")
    lines += [f"{key}: {clean(str(data[key]))}" for key in ("needs", "do") if data.get(key)]
    return Panel(panel_kind, title, tuple(lines))


def _attempt(data: View, view: View, now: float) -> Panel | None:
    failure = str(data.get("failure_kind") or "")
    if failure in LIMITS or (not failure and data.get("outcome") != "failed"):
        return None  # the log line of a limit says all of it
    who = f"attempt {data.get('attempt') or '?'}" + (f" ({data['phase']})" if data.get("phase") else "")
    who += f" by {data['agent']}" if data.get("agent") else ""
    lines = [str(data["why"])] if data.get("why") else []
    if failure in _OUT_OF_TIME:
        lines.append(_checkpoint(view, now))
    lines += [f"next: {data['next']}"] if data.get("next") else []
    title = f"{who} failed" + (f": {failure.replace('_', ' ')}" if failure else "")
    return Panel(PanelKind.WARNING, clean(title), tuple(map(clean, lines)))


def _checkpoint(view: View, now: float) -> str:
    saved = moment(part(view, "checkpoint").get("created_at"))
    return "no checkpoint" if saved is None else f"checkpoint saved ({clock(saved, now)})"


def _wait(event: Event, now: float) -> Panel | None:
    data, at = event["data"], moment(event["at"])
    ends = moment(data.get("until"))
    message = str(data.get("message") or "")
    what = clean(explanation.localised(message.removeprefix("Ralph is waiting: "), now))
    if message and ends is None:
        return Panel(PanelKind.INFO, "waiting", (what,))
    if not message or ends is None or at is None or ends - at < WORTH_A_LINE_S / 2:
        return None
    lines = what, f"waits {duration(ends - at + 0.999)}, until {clock(ends, now)}"
    return Panel(PanelKind.INFO, "waiting", lines)


def terminal_alert(event: Event) -> str:
    """Return the sequence (OSC 9) by which a terminal notifies of an alert; empty for other events."""
    text = clean(f"{event['ralph']}: {event['data'].get('message')}")
    return f"\x1b]9;{text}\x07" if event["data"].get("desktop") else ""


_LAST = {"done": PanelKind.SUCCESS, "failed": PanelKind.ERROR, "paused": PanelKind.WARNING}


def last_words(view: View, lines: Iterable[str]) -> Panel:
    """Return the panel about its end; ``lines`` are free of control characters, the first is the title."""
    first, *rest = lines
    is_asked = view.get("pause_reason") in ("requested", "user_requested")
    is_limit = view.get("state") == "done" and bool(view.get("message"))
    kind = PanelKind.INFO if is_asked or is_limit else _LAST.get(str(view.get("state")), PanelKind.INFO)
    return Panel(kind, first, tuple(line.strip() for line in rest))
