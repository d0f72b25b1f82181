"""Which news has a panel of its own, and what stands in it (VW-6, VW-7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from ralphctl.countdown import WORTH_A_LINE_S
from ralphctl.eventtext import said
from ralphctl.explanation import localised
from ralphctl.tell import clean
from ralphctl.words import clock, duration, moment

View: TypeAlias = Mapping[str, Any]
Event: TypeAlias = Mapping[str, Any]


class Kind(StrEnum):
    """What sort of news it is; the word stands in the panel, so that no colour is needed."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Panel:
    """One piece of news, clean of control characters."""

    kind: Kind
    title: str
    lines: tuple[str, ...] = ()


_FOLLOW = ("agent.exhausted", "wait.started")
"""They follow from the failure before them, and stand in its panel."""
_TITLES = {
    "ralph.retrying": (Kind.WARNING, "it failed, and is tried again"),
    "ralph.stall_warning": (Kind.WARNING, "silent"),
    "ralph.stalled": (Kind.WARNING, "stalled: its run is ended"),
    "commit.reverted": (Kind.WARNING, "commits that break the tests"),
    "guard.blocked": (Kind.WARNING, "the guard"),
    "agent.exhausted": (Kind.WARNING, "an agent is out"),
    "ralph.escalated": (Kind.ERROR, "a person is needed"),
    "daemon.degraded": (Kind.ERROR, "ralphd can do less than it should"),
}
_SETTLES = ("failed", "paused", "done", "stopped")
_OUT_OF_TIME = ("timeout", "stall")


def panels(events: Iterable[Event], view: View, now: float) -> list[Panel]:
    """The panels for what has just happened to the ralph of ``view``; of one matter there is one.

    How it ends is said by the last words, and has none here.
    """
    found: list[Panel] = []
    after_failure = False
    for event in events:
        panel = _panel(event, view, now)
        if panel is not None and after_failure and event["type"] in _FOLLOW:
            found[-1] = replace(found[-1], lines=(*found[-1].lines, *panel.lines))
        elif panel is not None:
            found.append(panel)
            after_failure = event["type"] == "attempt.finished"
    return found


def _panel(event: Event, view: View, now: float) -> Panel | None:
    kind, data = event["type"], event["data"]
    match kind:
        case "attempt.finished":
            return _attempt(data, view, now)
        case "wait.started":
            return _wait(event, now)
        case "ralph.escalated" if view.get("state") in _SETTLES:
            return None
    if kind not in _TITLES:
        return None
    sort, title = _TITLES[kind]
    return Panel(sort, title, (*_message(data, kind), *_until(data, now), *_do(data)))


def _attempt(data: Mapping[str, Any], view: View, now: float) -> Panel | None:
    failure = str(data.get("failure_kind") or "")
    if not failure and data.get("outcome") != "failed":
        return None
    who = f"attempt {data.get('attempt') or '?'}" + (f" by {data['agent']}" if data.get("agent") else "")
    lines = [str(data[key]) for key in ("why",) if data.get(key)]
    if failure in _OUT_OF_TIME:
        lines.append(_checkpoint(view, now))
    lines += [f"next: {data['next']}"] if data.get("next") else []
    title = f"{who} failed" + (f": {failure.replace('_', ' ')}" if failure else "")
    return Panel(Kind.WARNING, clean(title), tuple(map(clean, lines)))


def _checkpoint(view: View, now: float) -> str:
    """That what it was doing is kept [002-US-010.5]."""
    held = view.get("checkpoint")
    saved = moment(held.get("created_at")) if isinstance(held, dict) else None
    return "no checkpoint is known" if saved is None else f"its checkpoint is saved ({clock(saved, now)})"


def _wait(event: Event, now: float) -> Panel | None:
    data, at = event["data"], moment(event["at"])
    ends = moment(data.get("until"))
    message = str(data.get("message") or "")
    if not message or ends is None or at is None or ends - at < WORTH_A_LINE_S / 2:
        return None
    what = clean(localised(message.removeprefix("Ralph waits: "), now))
    return Panel(
        Kind.INFO, "waiting", (what, f"waits {duration(ends - at + 0.999)}, until {clock(ends, now)}")
    )


def _message(data: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    text = said(kind, data)
    return (clean(text),) if text else ()


def _until(data: Mapping[str, Any], now: float) -> tuple[str, ...]:
    ends = moment(data.get("until"))
    return () if ends is None or ends <= now else (f"until {clock(ends, now)}",)


def _do(data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}: {clean(str(data[key]))}" for key in ("needs", "do") if data.get(key))


_LAST = {"done": Kind.SUCCESS, "failed": Kind.ERROR, "paused": Kind.WARNING}


def last_words(view: View, lines: Iterable[str]) -> Panel:
    """How it ended; ``lines`` are clean, the first one is the title."""
    first, *rest = lines
    is_asked = view.get("pause_reason") in ("requested", "user_requested")
    kind = Kind.INFO if is_asked else _LAST.get(str(view.get("state")), Kind.INFO)
    return Panel(kind, first, tuple(line.strip() for line in rest))
