"""Times, waits, exits and causes in the words of the command line.

``now`` is always a parameter, in seconds since the epoch. Times are shown in local time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from datetime import datetime

from ralphctl.format.output import cells as cells
from ralphctl.format.output import clean, wrap
from ralphd.overview import part as part

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any

View = Mapping[str, "Any"]
"""What the API or a file holds about a ralph, or a part of that: anything may be missing."""

_EXITS = {
    2: "wrong usage",
    5: "a configured limit was reached",
    75: "paused, to be resumed later",
    78: "its configuration is wrong",
    124: "it ran out of time",
    126: "the command cannot be executed",
    127: "command not found",
    130: "interrupted",
}
_WAITS = {
    "crash": "to restart after a failure",
    "iteration_pause": "between two iterations",
    "restart": 'for its next run (restart = "always")',
    "resources": "for free memory, disk space, a place (max_running) or a slot",
    "schedule": "for the next time in its schedule",
    "restart_limit": "because of too many restarts within an hour",
    "usage_limit": "for the agent's usage limit to reset",
    "rate_limit": "for the agent's rate limit to pass",
    "transient": "to retry after a temporary error of the agent's service",
    "retry": "to retry the agent",
    "outage": "for an agent's service to return",
    "requested": "as requested",
    "no_daemon": "for a daemon to restart it",
    "unknown": "for an unknown reason",
}
_PAUSES = {
    "requested": "as requested",
    "user_requested": "as requested",
    "usage_limit": "the agent's usage limit is reached",
    "rate_limit": "the agent's rate limit is reached",
    "resources": "its agent's account has no free slot",
    "outage": "no agent's service could be reached",
    "timeout": "an agent timed out",
    "stall": "an agent hung",
    "error": "an error",
    "task_list": "the task list was lost repeatedly",
    "guard": "the guard needs you to review its commits",
    "interrupted": "interrupted",
    "iteration_boundary": "before an iteration",
    "unknown": "its command requested it",
}


def objects(view: View, key: str) -> list[View]:
    """Return the objects in the list under ``key``; an empty list for anything else."""
    value = view.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def moment(text: object) -> float | None:
    """Return seconds since the epoch for an RFC 3339 time in UTC (``…Z``); None for anything else."""
    if not isinstance(text, str) or not text.endswith("Z"):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def duration(seconds: float) -> str:
    """Return ``45s``, ``12m 5s``, ``2h 13m`` or ``3d 4h``: the two largest units, cut, not rounded."""
    left = max(0, int(seconds))
    for name, size, lower, step in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            rest = left % size // step
            return f"{left // size}{name} {rest}{lower}" if rest else f"{left // size}{name}"
    return f"{left}s"


def clock(at: float, now: float) -> str:
    """Return a moment in local time: ``07:00:25`` today, ``tomorrow 03:00``, ``Sun 22 Nov 03:00``."""
    local, today = time.localtime(at), time.localtime(now)
    if local[:3] == today[:3]:
        return time.strftime("%H:%M:%S", local)
    for name, shift in (("tomorrow", 86400), ("yesterday", -86400)):
        # From about noon: a day has 23 to 25 hours.
        if local[:3] == time.localtime(now + (12 - today.tm_hour) * 3600 + shift)[:3]:
            return f"{name} {time.strftime('%H:%M', local)}"
    return time.strftime("%a %d %b %H:%M" if local[0] == today[0] else "%d %b %Y %H:%M", local)


def minute(at: float, now: float) -> str:
    """Return a moment without its seconds: ``07:00``, ``tomorrow 03:00``."""
    words = clock(at, now)
    return words[:5] if words[2:3] == ":" else words


def last_evening(now: float) -> float:
    """Return 18:00 of the day before, in local time."""
    today = time.localtime(now)
    # mktime knows the length of a day on which clocks change; day 0 is the last of the month before.
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - 1, 18, 0, 0, 0, 0, -1))


def since_words(before: str, at: object, now: float, after: str = "") -> str:
    """Return how long ago something was, between two words; empty for no moment."""
    when = moment(at)
    return "" if when is None else f"{before}{duration(now - when)}{after}"


def ago(at: object, now: float) -> str:
    """Return ``12s ago (06:59:48)``; ``never`` for no moment."""
    when = moment(at)
    return "never" if when is None else f"{duration(now - when)} ago ({clock(when, now)})"


def until(at: object, now: float) -> str:
    """Return ``in 2h 13m (15:00:00)``, ``any moment now`` if it has passed, empty for no moment."""
    if (when := moment(at)) is None:
        return ""
    return f"in {duration(when - now + 0.999)} ({clock(when, now)})" if when > now else "any moment now"


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_words(code: object, signal: object) -> str:
    """Return ``exit 127 (command not found)``, ``killed by SIGKILL``, ``lost: …``."""
    if isinstance(signal, int):
        return f"killed by {signal_name(signal)}"
    if not isinstance(code, int):
        return "lost: its exit status is unknown"
    if 128 < code < 160 and code not in _EXITS:
        return f"exit {code} (as a shell reports {signal_name(code - 128)})"
    return f"exit {code} ({_EXITS[code]})" if code in _EXITS else f"exit {code}"


def last_exit(ending: View) -> str:
    """Return how the last run ended, without when."""
    how = exit_words(ending.get("code"), ending.get("signal"))
    outcomes = {
        "asked": f"ended as requested ({how})",
        "stalled": f"hung and was killed ({how})",
        "lost": "lost: its exit status is unknown",
    }
    return outcomes.get(str(ending.get("outcome")), how)


def wait_words(reason: object) -> str:
    """Return what a wait is for: continues ``waiting …``."""
    text = clean(reason)
    in_its_own_words = f"— {text.rstrip('.')}" if " " in text.strip() else f"({text})"
    return _WAITS.get(text, in_its_own_words)


def pause_words(reason: object) -> str:
    """Return why it is paused: follows ``paused: ``."""
    return _PAUSES.get(str(reason), f"({clean(reason)})") if reason else ""


def asked(message: object) -> tuple[str, float | None]:
    """Split the daemon's message about a run that is to end into what it waits for, and since when."""
    what, _, at = str(message or "").rpartition("; asked at ")
    return (what, moment(at)) if what else (at, None)


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 ralph``, ``2 ralphs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def usd_words(usd: float) -> str:
    """Return ``$4.20``."""
    return "less than $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def wrapped(text: str, columns: int) -> list[str]:
    """Return ``text`` in lines of ``columns`` characters; a longer word stays whole, to be copied."""
    return wrap(text, max(columns, 1), break_long_words=False) or [""]


def cut(text: str, width: int) -> str:
    """Return ``text``, with ``…`` in place of its end if it takes more than ``width`` columns."""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1].rstrip() + "…"
    fitting = itertools.takewhile(lambda used: used < width, itertools.accumulate(map(cells, text)))
    return text[: len(list(fitting))].rstrip() + "…"
