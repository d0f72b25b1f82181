"""Read moments as people write them: ``3pm (Asia/Seoul)``, ``Feb 23rd, 2026 9:01 PM``, ISO 8601, HTTP dates.

Missing parts come from the present: the next such time of day, the next such date. In the hour that summer
time leaves out or repeats, the later moment is taken, since nothing may be started too early.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from ralphd.core.time import Moment

_SHORT: Final = {
    **dict.fromkeys(("UTC", "GMT", "Z"), "UTC"),
    **dict.fromkeys(("PT", "PST", "PDT", "PACIFIC", "PACIFIC TIME"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("CT", "CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CET", "CEST"), "Europe/Berlin"),
    **dict.fromkeys(("EET", "EEST"), "Europe/Helsinki"),
    **dict.fromkeys(("BST",), "Europe/London"),
    **dict.fromkeys(("JST",), "Asia/Tokyo"),
    **dict.fromkeys(("KST",), "Asia/Seoul"),
}
_BRACKETS: Final = re.compile(r"\s{0,3}[(\[]\s?([^()\[\]\n]{1,40}?)\s?[)\]]")
_BARE: Final = re.compile(
    r"\s{0,3}((?:UTC|GMT)?\s?[+-][0-9]{1,2}(?::?[0-9]{2})?(?![0-9])|[A-Z]{1,4}(?:ACIFIC(?:\sTime)?)?(?![\w/])"
    r"|Pacific(?: time)?\b|[A-Z][A-Za-z_]{1,20}/[A-Za-z_+\-/0-9]{1,40})"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?\s?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]{0,30}(?:/[A-Za-z0-9_+\-]{1,30}){0,2}")


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of this name, whatever its case; None for an unknown one."""
    if offset := _OFFSET.fullmatch(name):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        is_real = ahead <= timedelta(hours=14)
        return timezone(ahead if offset[1] == "+" else -ahead) if is_real else None
    name = _SHORT.get(name.upper(), name)
    if name == "UTC":
        return UTC
    if _NAME.fullmatch(name):
        for spelling in dict.fromkeys((name, name.title(), name.upper())):
            # A missing zone is a KeyError; a folder of zones, or no zones at all, one of the others.
            with suppress(KeyError, OSError, ValueError):
                return ZoneInfo(spelling)
    return None


def _zone_at(text: str, at: int) -> tuple[tzinfo | None, int] | None:
    """Return the zone that is named here and where its name ends; without brackets only a known one."""
    if match := _BRACKETS.match(text, at):
        return find_zone(match[1]), match.end()
    if (match := _BARE.match(text, at)) and (zone := find_zone(match[1].strip())):
        return zone, match.end()
    return None


JUST_PASSED_S: Final = 120.0
"""A time of day that passed less than this ago is not tomorrow's: it was cut to the minute, and read late."""

_MONTH_NAMES: Final = (
    "jan ene gen|feb fev fév|mar mär|apr abr avr|may mai mag|jun juin giu|jul juil lug|aug ago aoû|sep set"
    "|oct okt out ott|nov|dec dic dez déc"
)
_MONTHS: Final = {
    name: number for number, names in enumerate(_MONTH_NAMES.split("|"), 1) for name in names.split()
}
_WEEKDAYS: Final = {name: day for day, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))}
_YEAR: Final = r"(?P<year>2[0-9]{3})(?![0-9:])"
_WORD: Final = r"(?P<month>[^\W\d_]{3,10})\b\.?"
_DAY: Final = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?(?![0-9:a-z])"
_DATES: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}[-/.](?P<month>[0-9]{{1,2}})[-/.]{_DAY.replace('a-z', 'a-su-z')}",  # a T may follow
        rf"(?P<first>[0-9]{{1,2}})[/.](?P<second>[0-9]{{1,2}})[/.]{_YEAR}",
        rf"{_WORD}\s{{0,2}}{_DAY}(?:,?\s{{1,2}}{_YEAR})?",
        rf"{_DAY}\.?[\s-]{{1,2}}(?:de\s)?{_WORD}"
        rf"(?:[,\s-]{{1,2}}(?:de\s)?(?:{_YEAR}|(?P<short>[0-9]{{2}})(?=\s)))?",
    )
)
_TIMES: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2}))?(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?"
        r"\s{0,2}(?P<half>[ap])\.?m\b\.?",
        r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
        r"(?::(?P<second>[0-9]{2})(?:\.(?P<part>[0-9]{1,9}))?)?(?![0-9:])",
        r"(?P<named>midnight|noon)\b",
    )
)
_NEAR: Final = re.compile(
    r"(?P<relative>today|tomorrow)\b|(?P<weekday>mon|tue|wed|thu|fri|sat|sun)(?:[a-z]{3,6})?\b\.?",
    re.IGNORECASE,
)
_LATE_YEAR: Final = re.compile(_YEAR)
_BETWEEN: Final = re.compile(
    r"(?:[\s,]|\b(?:at|on|of|the|de|um|à|a las)\b|(?<=[0-9])T(?=[0-9])){0,6}", re.IGNORECASE
)
_MOST_PARTS: Final = 5


@dataclass(frozen=True, slots=True)
class WrittenMoment:
    """The moments that a text can mean, the likeliest first. ``sure``: both time and zone are named."""

    moments: tuple[Moment, ...]
    sure: bool
    end: int


@dataclass(slots=True)
class _Parts:
    """What a text names of a moment. ``dates`` are year (None: not named), month, day."""

    dates: tuple[tuple[int | None, int, int], ...] = ()
    weekday: int | None = None
    days_on: int | None = None
    clock: time | None = None
    exact: bool = False  # to the second

    def take(self, text: str, at: int) -> int | None:
        """Take one part that was not named yet; return where it ends, None where there is none."""
        if self.clock is None:
            for form in _TIMES:
                if (match := form.match(text, at)) and (clock := _clock(match.groupdict())) is not None:
                    self.clock, self.exact = clock, bool(match.groupdict().get("second"))
                    return match.end()
        if not self.dates:
            for form in _DATES:
                if (match := form.match(text, at)) and (dates := _dates(match.groupdict())):
                    self.dates = dates
                    return match.end()
        is_dated = bool(self.dates) or self.days_on is not None
        if self.weekday is None and not is_dated and (match := _NEAR.match(text, at)):
            if match["weekday"]:
                self.weekday = _WEEKDAYS[match["weekday"].lower()]
            else:
                self.days_on = int(match["relative"].lower() == "tomorrow")
            return match.end()
        if self.dates and self.dates[0][0] is None and (match := _LATE_YEAR.match(text, at)):
            self.dates = ((int(match["year"]), *self.dates[0][1:]),)
            return match.end()
        return None


def read_moment(text: str, *, now: Moment, zone: tzinfo | None = None, at: int = 0) -> WrittenMoment | None:
    """Return the moments that are written at this place of ``text``; None where none lies ahead.

    ``zone`` is used where none is named (None: UTC). A date without a time is the start of that day, or its
    end when the day has begun.
    """
    parts, end = _Parts(), at
    for _ in range(_MOST_PARTS):
        between = _BETWEEN.match(text, end)
        next_end = parts.take(text, between.end() if between else end)
        if next_end is None:
            break
        end = next_end
    if parts == _Parts():
        return None
    named, zone_end = (parts.clock is not None and _zone_at(text, end)) or (None, end)
    moments = tuple(_ahead(parts, now, named or zone or UTC))
    return WrittenMoment(moments, named is not None, zone_end) if moments else None


def _clock(named: dict[str, str | None]) -> time | None:
    if word := named.get("named"):
        return time(12) if word.lower() == "noon" else time(0)
    hour, half = int(named["hour"] or 0), named.get("half")
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    microseconds = int((named.get("part") or "").ljust(6, "0")[:6])
    with suppress(ValueError):
        return time(
            0 if hour == 24 else hour, int(named["minute"] or 0), int(named["second"] or 0), microseconds
        )
    return None


def _dates(named: dict[str, str | None]) -> tuple[tuple[int | None, int, int], ...]:
    """Return the dates that a match can mean: ``11/12/2026`` in November first, then in December."""
    year = int(named.get("year") or 0) or None
    if short := named.get("short"):
        year = 2000 + int(short)
    if first := named.get("first"):
        second = named["second"] or ""
        return (year, int(first), int(second)), (year, int(second), int(first))
    word = (named["month"] or "").lower()
    month = int(word) if word.isdecimal() else _MONTHS.get(word[:4]) or _MONTHS.get(word[:3])
    return ((year, month, int(named["day"] or 0)),) if month else ()


def _ahead(parts: _Parts, now: Moment, zone: tzinfo) -> Iterator[Moment]:
    """Yield the moments after ``now`` that the parts can mean, the likeliest first."""
    try:
        today = datetime.fromtimestamp(now, zone).date()
    except (OverflowError, ValueError, OSError):
        return
    for day in _days(parts, today):
        try:
            moment = _moment(day, parts.clock or time(), zone)
            if parts.clock is None and day == today:
                moment = _moment(day + timedelta(days=1), time(), zone)
        except (OverflowError, ValueError, OSError):
            continue
        if moment > now:
            yield moment
        elif parts.clock is not None and not parts.exact and now < moment + JUST_PASSED_S:
            yield moment + JUST_PASSED_S


def _days(parts: _Parts, today: date) -> Iterator[date]:
    if parts.dates:
        for year, month, day in parts.dates:
            for each in (year,) if year is not None else (today.year, today.year + 1):
                with suppress(ValueError):
                    yield date(each, month, day)
    elif parts.days_on is not None:
        yield today + timedelta(days=parts.days_on)
    else:
        first = 0 if parts.weekday is None else (parts.weekday - today.weekday()) % 7
        yield today + timedelta(days=first)
        yield today + timedelta(days=first + (1 if parts.weekday is None else 7))


def _moment(day: date, clock: time, zone: tzinfo) -> Moment:
    """Return the moment at which clocks in ``zone`` show this; the later one, where an hour is repeated."""
    shown = datetime.combine(day, clock, zone)
    return max(shown.timestamp(), shown.replace(fold=1).timestamp())
