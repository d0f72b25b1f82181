"""Moments as people write them: ``3pm (Asia/Seoul)``, ``Feb 23rd, 2026 9:01 PM``, ISO 8601, HTTP dates.

What is not named is taken from the present: the next such time of day, the next such date. In the hour that
summer time leaves out or repeats, the later moment is taken, since nothing may be started too early.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from ralphd.core.time import Moment

# Time zones as people write them: ``(Asia/Seoul)``, ``UTC``, ``PT``, ``GMT+9``, ``+05:30``.

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


@dataclass(frozen=True, slots=True)
class WrittenZone:
    """A zone that a text names; ``zone`` None where we do not know it. ``end`` is where its name ends."""

    zone: tzinfo | None
    end: int


def read_zone(text: str, at: int = 0) -> WrittenZone | None:
    """The zone that is named at this place of ``text``; None where none is.

    Without brackets only what is known to be a zone is one.
    """
    if match := _BRACKETS.match(text, at):
        return WrittenZone(find_zone(match[1]), match.end())
    if (match := _BARE.match(text, at)) and (zone := find_zone(match[1].strip())):
        return WrittenZone(zone, match.end())
    return None


def find_zone(name: str) -> tzinfo | None:
    """The zone of this name, whatever its case; None where nobody knows it."""
    if offset := _OFFSET.fullmatch(name):
        return _fixed(offset)
    name = _SHORT.get(name.upper(), name)
    if name == "UTC":
        return UTC
    if not _NAME.fullmatch(name):
        return None
    for spelling in dict.fromkeys((name, name.title(), name.upper())):
        try:
            return ZoneInfo(spelling)
        except (OSError, ValueError):  # not there (also a folder of zones, or no table of zones at all)
            continue
        except KeyError:  # ZoneInfoNotFoundError
            continue
    return None


def _fixed(offset: re.Match[str]) -> tzinfo | None:
    ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    if ahead > timedelta(hours=14):
        return None
    return timezone(ahead if offset[1] == "+" else -ahead)


JUST_PASSED_S: Final = 120.0
"""A time of day that passed so lately was not meant for tomorrow: it was cut to the minute, and read late."""

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "jan ene gen",
            "feb fev fév",
            "mar mär",
            "apr abr avr",
            "may mai mag",
            "jun juin giu",
            "jul juil lug",
            "aug ago aoû",
            "sep set",
            "oct okt out ott",
            "nov",
            "dec dic dez déc",
        ),
        start=1,
    )
    for name in names.split()
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


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a text names of a moment. ``dates`` are year (None: not named), month, day."""

    dates: tuple[tuple[int | None, int, int], ...] = ()
    weekday: int | None = None
    days_on: int | None = None
    clock: time | None = None
    exact: bool = False  # to the second

    @property
    def dated(self) -> bool:
        return bool(self.dates) or self.days_on is not None

    @property
    def empty(self) -> bool:
        return not self.dated and self.weekday is None and self.clock is None


def read_moment(text: str, *, now: Moment, zone: tzinfo | None = None, at: int = 0) -> WrittenMoment | None:
    """The moments that are written at this place of ``text``; None where there is none that lies ahead.

    ``zone`` is taken where none is named (None: UTC). A date without a time is the beginning of that day, or
    its end when the day has begun.
    """
    parts, end = _parts(text, at)
    if parts.empty:
        return None
    named = read_zone(text, end) if parts.clock is not None else None
    there = (named.zone if named else None) or zone or UTC
    moments = tuple(_ahead(parts, now, there))
    if not moments:
        return None
    sure = parts.clock is not None and named is not None and named.zone is not None
    return WrittenMoment(moments, sure, named.end if named else end)


def _parts(text: str, at: int) -> tuple[_Parts, int]:
    """What is named from here on, in any order, and where it ends."""
    parts, end = _Parts(), at
    for _ in range(_MOST_PARTS):
        between = _BETWEEN.match(text, end)
        found = _next_part(parts, text, between.end() if between else end)
        if found is None:
            break
        parts, end = found
    return parts, end


def _next_part(parts: _Parts, text: str, at: int) -> tuple[_Parts, int] | None:
    """``parts`` with one more of what was not named yet, and where that ends."""
    if parts.clock is None:
        for form in _TIMES:
            if (match := form.match(text, at)) and (clock := _clock(match)) is not None:
                seconds = match.groupdict().get("second")
                return replace(parts, clock=clock, exact=bool(seconds)), match.end()
    if not parts.dates:
        for form in _DATES:
            if (match := form.match(text, at)) and (dates := _dates(match.groupdict())):
                return replace(parts, dates=dates), match.end()
    if parts.weekday is None and not parts.dated and (match := _NEAR.match(text, at)):
        if match["weekday"]:
            return replace(parts, weekday=_WEEKDAYS[match["weekday"].lower()]), match.end()
        return replace(parts, days_on=int(match["relative"].lower() == "tomorrow")), match.end()
    if parts.dates and parts.dates[0][0] is None and (match := _LATE_YEAR.match(text, at)):
        return replace(parts, dates=((int(match["year"]), *parts.dates[0][1:]),)), match.end()
    return None


def _clock(match: re.Match[str]) -> time | None:
    named = match.groupdict()
    if word := named.get("named"):
        return time(12) if word.lower() == "noon" else time(0)
    hour, half = int(named["hour"] or 0), named.get("half")
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    fraction = (named.get("part") or "").ljust(6, "0")[:6]
    try:
        return time(
            0 if hour == 24 else hour,
            int(named["minute"] or 0),
            int(named["second"] or 0),
            int(fraction),
        )
    except ValueError:
        return None


def _dates(named: dict[str, str | None]) -> tuple[tuple[int | None, int, int], ...]:
    """The dates that a match can mean: ``11/12/2026`` in November first, then in December."""
    year = int(named.get("year") or 0) or None
    if short := named.get("short"):
        year = 2000 + int(short)
    if first := named.get("first"):
        second = named["second"] or ""
        return (year, int(first), int(second)), (year, int(second), int(first))
    month = _month(named["month"] or "")
    return ((year, month, int(named["day"] or 0)),) if month else ()


def _month(word: str) -> int | None:
    if word.isdecimal():
        return int(word)
    low = word.lower()
    return _MONTHS.get(low[:4]) or _MONTHS.get(low[:3])


def _ahead(parts: _Parts, now: Moment, zone: tzinfo) -> Iterator[Moment]:
    """The moments after ``now`` that the parts can mean, the likeliest first."""
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
    """The days that the parts can mean, the likeliest first."""
    if not parts.dates:
        first, step = 0, 1
        if parts.days_on is not None:
            first = parts.days_on
        elif parts.weekday is not None:
            first, step = (parts.weekday - today.weekday()) % 7, 7
        yield today + timedelta(days=first)
        if parts.days_on is None:
            yield today + timedelta(days=first + step)
        return
    for year, month, day in parts.dates:
        for which in (year,) if year is not None else (today.year, today.year + 1):
            try:
                yield date(which, month, day)
            except ValueError:
                continue


def _moment(day: date, clock: time, zone: tzinfo) -> Moment:
    """The later moment at which clocks in ``zone`` show this, where an hour is repeated or left out."""
    shown = datetime.combine(day, clock, zone)
    return max(shown.timestamp(), shown.replace(fold=1).timestamp())
