"""A wait in one line, for as long as it lasts (RT-12, LI-7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralphctl.show import wait_of
from ralphctl.tell import clean
from ralphctl.words import clock, duration, moment, wait_words

_WORTH_A_LINE_S = 2.0
"""A shorter wait is over before anybody has read of it."""


def end_of(view: Mapping[str, Any]) -> float | None:
    """Until when it waits; None when it does not, or nobody knows."""
    waits = view.get("state") in ("running", "pausing", "stopping", "waiting_for_retry")
    return moment(wait_of(view).get("until")) if waits else None


def line(view: Mapping[str, Any], now: float, *, has_keys: bool) -> str:
    """What to show now: what it waits for and how long still; empty where it does not wait."""
    ends = end_of(view)
    if ends is None or ends <= now:
        return ""
    key = ", s: do not wait" if has_keys else ""
    return f"waiting {_what(view)}: {duration(ends - now + 0.999)} left (until {clock(ends, now)}){key}"


def beginning(view: Mapping[str, Any], now: float) -> str:
    """What to say once, where no line can be counted down; empty for a wait that the Regent tells itself."""
    ends = end_of(view)
    if view.get("state") == "waiting_for_retry" or ends is None or ends - now < _WORTH_A_LINE_S:
        return ""
    left = duration(ends - now + 0.999)
    return f"waiting {_what(view)}, {left} until {clock(ends, now)}; ralphctl skip-wait ends the wait"


def _what(view: Mapping[str, Any]) -> str:
    return clean(wait_words(wait_of(view).get("reason", "unknown")))
