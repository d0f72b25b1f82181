"""Moments as RFC 3339; durations for people, and as vendors write them: ``1.898s``, ``3 days 2 hours``."""

import re
from datetime import UTC, datetime
from typing import Final, TypeAlias

from ralphd.dataclass import dataclass

Moment: TypeAlias = float
_EARLIEST, LATEST = -62135596800.0, 253402300799.0  # the years 1 to 9999


def rfc3339(moment: Moment) -> str:
    """Return a moment as ``2026-11-21T20:00:00.000000Z``, the form in every file and reply."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> Moment:
    """Return the moment in ``text``; nanoseconds are cut. Raises ValueError: every moment can be written."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not _EARLIEST <= (stamp := moment.timestamp()) <= LATEST:
        raise ValueError(f"{text!r} has no time zone, or a year that UTC does not have")
    return stamp


_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def with_zone(text: str) -> str:
    """Return ``text`` with its RFC 3339 times as ``2026-11-21 23:41 CET``, in the machine's time zone."""

    def local(stamp: re.Match[str]) -> str:
        try:
            return datetime.fromisoformat(stamp[0]).astimezone().strftime("%Y-%m-%d %H:%M %Z")
        except (ValueError, OverflowError):
            return stamp[0]

    return _STAMP.sub(local, text)


def in_minutes(duration_s: float) -> str:
    """Format a duration that has lasted: ``under a minute``, ``40 min``, ``2 h 10 min``, ``3 d 4 h``."""
    minutes = int(max(0.0, duration_s) // 60)
    if minutes < 60:
        return f"{minutes} min" if minutes else "under a minute"
    if minutes < 1440:
        return in_units(minutes // 60, "h", minutes % 60, "min")
    return in_units(minutes // 1440, "d", minutes // 60 % 24, "h")


def in_units(count: int, unit: str, rest: int, smaller_unit: str) -> str:
    """Format a duration of one or two units: ``2 h``, ``2 h 5 min``."""
    return f"{count} {unit} {rest} {smaller_unit}" if rest else f"{count} {unit}"


_SECONDS: Final = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0), ("w", 604800.0))
_PART: Final = re.compile(
    r"(?P<count>[0-9]{1,12}(?:\.[0-9]{1,20})?|(?:half\s)?an?(?=\s)|one(?=\s))\s{0,2}(?:"
    r"(?P<ms>milliseconds?|millis|msecs?|ms)|(?P<s>seconds?|secs?|s)|(?P<m>minutes?|mins?|m)"
    r"|(?P<h>hours?|hrs?|h)|(?P<d>days?|d)|(?P<w>weeks?|wks?|w))(?![a-z])",
    re.IGNORECASE,
)
_BETWEEN: Final = re.compile(r"[\s,]{0,3}(?:and\s{1,2})?", re.IGNORECASE)
_CLOCK: Final = re.compile(r"([0-9]{1,3}):([0-9]{2}):([0-9]{2})(?![0-9:])")


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in a text, and where it ends."""

    seconds: float
    end: int


def read_duration(text: str, at: int = 0) -> Duration | None:
    """Return the duration at this position of ``text``, or None.

    Its units have to be named and to become smaller, so that a number after it is not added.
    """
    if clock := _CLOCK.match(text, at):
        hours, minutes, seconds = map(int, clock.groups())
        return Duration(hours * 3600.0 + minutes * 60 + seconds, clock.end())
    result: Duration | None = None
    smallest = float("inf")
    while part := _PART.match(text, at):
        unit = next(seconds for name, seconds in _SECONDS if part[name])
        if unit >= smallest:
            break
        count = {"a": 1.0, "o": 1.0, "h": 0.5}.get(part["count"][0].lower()) or float(part["count"])
        result = Duration((result.seconds if result else 0.0) + count * unit, part.end())
        smallest = unit
        between = _BETWEEN.match(text, part.end())
        at = between.end() if between else part.end()
    return result
