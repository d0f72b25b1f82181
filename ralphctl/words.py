"""Times, waits, ends and states in words that a person reads at seven in the morning.

``now`` is always given, in seconds since the epoch. Times are shown in local time.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EXITS = {
    2: "wrong usage",
    5: "a limit of its own was reached",
    75: "it asks to be tried again later",
    78: "its configuration is wrong",
    124: "it ran out of time",
    126: "the command cannot be executed",
    127: "command not found",
    130: "interrupted",
}
_WAITS = {
    "crash": "to start again after a failure",
    "iteration_pause": "between two iterations",
    "restart": 'to start its next run, as restart = "always" asks',
    "resources": "since the machine could not start it just now",
    "restart_limit": "since it was restarted too often within an hour",
    "usage_limit": "for the agent's usage limit to reset",
    "rate_limit": "for the agent's rate limit to pass",
    "transient": "to try again after a passing fault of the agent's service",
    "retry": "to try the agent again",
    "outage": "for an agent's service to come back",
    "requested": "because you asked",
    "no_daemon": "for a ralphd that starts it again",
    "unknown": "for a reason that was not given",
}
_PAUSES = {
    "requested": "because you asked",
    "user_requested": "because you asked",
    "usage_limit": "at the agent's usage limit",
    "rate_limit": "at the agent's rate limit",
    "outage": "since no agent's service could be reached",
    "timeout": "after an agent ran out of time",
    "stall": "after an agent hung",
    "error": "after an error",
    "guard": "by the guard: a person has to look at its commits",
    "interrupted": "when it was interrupted",
    "iteration_boundary": "before an iteration",
    "unknown": "its command asked for it, without a reason",
}


def moment(text: object) -> float | None:
    """Seconds since the epoch for an RFC 3339 time in UTC (``…Z``); None for anything else."""
    if not isinstance(text, str) or len(text) < 20 or text[-1] != "Z":
        return None
    try:
        year, month, day = int(text[0:4]), int(text[5:7]), int(text[8:10])
        seconds = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + float(text[17:-1])
    except ValueError:
        return None
    return _days(year, month, day) * 86400 + seconds


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar; ``datetime`` would cost ``status`` its import."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def duration(seconds: float) -> str:
    """``45s``, ``12m 5s``, ``2h 13m``, ``3d 4h``: the two largest parts, cut, not rounded."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left}s"
    for name, size, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            rest = left % size // part
            return f"{left // size}{name} {rest}{lower}" if rest else f"{left // size}{name}"
    return f"{left}s"


def clock(at: float, now: float) -> str:
    """A moment in local time: ``07:00:25`` today, ``tomorrow 03:00``, ``Sun 22 Nov 03:00``."""
    local, today = time.localtime(at), time.localtime(now)
    if local[:3] == today[:3]:
        return time.strftime("%H:%M:%S", local)
    for name, shift in (("tomorrow", 86400), ("yesterday", -86400)):
        if local[:3] == time.localtime(now + shift)[:3]:
            return f"{name} {time.strftime('%H:%M', local)}"
    form = "%a %d %b %H:%M" if local[0] == today[0] else "%d %b %Y %H:%M"
    return time.strftime(form, local)


def ago(at: object, now: float) -> str:
    """``12s ago (06:59:48)``; ``never`` for no moment."""
    when = moment(at)
    return "never" if when is None else f"{duration(now - when)} ago ({clock(when, now)})"


def until(at: object, now: float) -> str:
    """``in 2h 13m (15:00:00)``, ``any moment now`` when it has passed, empty for no moment."""
    when = moment(at)
    if when is None:
        return ""
    return f"in {duration(when - now + 0.999)} ({clock(when, now)})" if when > now else "any moment now"


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_words(code: object, signal: object) -> str:
    """``exit 127 (command not found)``, ``killed by SIGKILL``, ``lost: nobody saw how it ended``."""
    if isinstance(signal, int):
        return f"killed by {signal_name(signal)}"
    if not isinstance(code, int):
        return "lost: nobody saw how it ended"
    if 128 < code < 160 and code not in _EXITS:
        return f"exit {code} (as a shell reports {signal_name(code - 128)})"
    return f"exit {code} ({_EXITS[code]})" if code in _EXITS else f"exit {code}"


def last_exit(ending: dict[str, Any]) -> str:
    """How the last run ended, in words, without when."""
    said = exit_words(ending.get("code"), ending.get("signal"))
    match ending.get("outcome"):
        case "asked":
            return f"ended as it was asked to ({said})"
        case "stalled":
            return f"ended by the Regent since it had stalled ({said})"
        case "lost":
            return "lost: nobody saw how it ended"
        case _:
            return said


def wait_words(reason: object) -> str:
    """What a wait is for: continues ``waiting …``."""
    text = str(reason)
    in_its_own_words = f"— {text.rstrip('.')}" if " " in text.strip() else f"({text})"
    return _WAITS.get(text, in_its_own_words)


def pause_words(reason: object) -> str:
    """Why it is paused: continues ``paused …``."""
    return _PAUSES.get(str(reason), f"({reason})") if reason else ""


def asked(message: object) -> tuple[str, float | None]:
    """What a run that is to end waits for, and since when: the two parts of the daemon's message."""
    what, _, at = str(message or "").rpartition("; asked at ")
    return (what, moment(at)) if what else (at, None)


def count(number: int, noun: str) -> str:
    """``1 ralph``, ``2 ralphs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def wrapped(text: str, columns: int) -> list[str]:
    """``text`` in lines of so many characters; ``textwrap`` would cost ``status`` its import.

    A word that is too long stays whole, so that it can be copied.
    """
    if len(text) <= columns:
        return [text]
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > columns:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
