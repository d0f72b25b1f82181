"""A wait in one line, for as long as it lasts (RT-12, LI-7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralphctl.show import wait_of
from ralphctl.tell import clean
from ralphctl.words import clock, duration, moment, wait_words

WORTH_A_LINE_S = 2.0
"""A shorter wait is over before anybody has read of it."""


def end_of(view: Mapping[str, Any]) -> float | None:
    """Until when it waits; None when it does not, or nobody knows."""
    waits = view.get("state") in ("running", "pausing", "stopping", "waiting_for_retry")
    return moment(wait_of(view).get("until")) if waits else None


def lines(view: Mapping[str, Any], now: float, *, has_keys: bool) -> list[str]:
    """What to show now: what it waits for and how long still; the longest first, none where it waits not."""
    left = left_of(view, now)
    ends = end_of(view)
    if not left or ends is None:
        return []
    said, key = f"waiting {_what(view)}: {left} left", ", s: do not wait" if has_keys else ""
    return [f"{said} (until {clock(ends, now)}){key}", said + key, said]


def line(view: Mapping[str, Any], now: float, *, has_keys: bool) -> str:
    """The longest of these; empty where it does not wait."""
    return next(iter(lines(view, now, has_keys=has_keys)), "")


def shortest(view: Mapping[str, Any], now: float) -> str:
    """How long still, then what for: to be cut; empty where it does not wait."""
    left = left_of(view, now)
    return f"{left} left: waiting {_what(view)}" if left else ""


def left_of(view: Mapping[str, Any], now: float) -> str:
    """How long it waits still; empty where it does not."""
    ends = end_of(view)
    return "" if ends is None or ends <= now else duration(ends - now + 0.999)


def beginning(view: Mapping[str, Any], now: float) -> str:
    """What to say once, where no line can be counted down; empty for a wait that the Regent tells itself."""
    ends = end_of(view)
    if view.get("state") == "waiting_for_retry" or ends is None or ends - now < WORTH_A_LINE_S:
        return ""
    left = duration(ends - now + 0.999)
    return f"waiting {_what(view)}, {left} until {clock(ends, now)}; ralphctl skip-wait ends the wait"


def _what(view: Mapping[str, Any]) -> str:
    return clean(wait_words(wait_of(view).get("reason", "unknown")))
