"""Read moments as people write them: ``3pm (Asia/Seoul)``, ``Feb 23rd, 2026 9:01 PM``, ISO 8601, HTTP dates.

Missing parts come from the present: the next such time of day, the next such date. In the hour that summer
time leaves out or repeats, the later moment is taken, since nothing may be started too early.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from enum import IntEnum, StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from ralphd.core.time import Moment, read_duration
from ralphd.dataclass import dataclass

_ALIASES: Final = (  # agents print old names, which newer systems have only in tzdata-legacy
    "BST Europe/London|JST Asia/Tokyo|KST Asia/Seoul|ASIA/CALCUTTA Asia/Kolkata|ASIA/SAIGON Asia/Ho_Chi_Minh"
    "|ASIA/KATMANDU Asia/Kathmandu|ASIA/RANGOON Asia/Yangon|EUROPE/KIEV Europe/Kyiv"
)
_SHORT: Final = {
    **dict.fromkeys(("UTC", "GMT", "Z"), "UTC"),
    **dict.fromkeys(("PT", "PST", "PDT", "PACIFIC", "PACIFIC TIME"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("CT", "CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CET", "CEST"), "Europe/Berlin"),
    **dict.fromkeys(("EET", "EEST"), "Europe/Helsinki"),
    **dict(pair.split(" ") for pair in _ALIASES.split("|")),
}
_BRACKETS: Final = re.compile(r"\s{0,3}[(\[]\s?([^()\[\]\n]{1,40}?)\s?[)\]]")
_BARE: Final = re.compile(
    r"\s{0,3}((?:UTC|GMT)?\s?[+-][0-9]{1,2}(?::?[0-9]{2})?(?![0-9])|[A-Z]{1,4}(?:ACIFIC(?:\sTime)?)?(?![\w/])"
    r"|Pacific(?: time)?\b|[A-Z][A-Za-z_]{1,20}/[A-Za-z_+\-/0-9]{1,40})"
)
_PLACE: Final = re.compile(
    r"[\s(\[]{0,5}(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Europe|Indian|Pacific)/", re.I
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?\s?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]{0,30}(?:/[A-Za-z0-9_+\-]{1,30}){0,2}")


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of this name, whatever its case; None for an unknown one."""
    if offset := _OFFSET.fullmatch(name):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        is_real = ahead <= timedelta(hours=14)
        return timezone(ahead if offset[1] == "+" else -ahead) if is_real else None
    known = _SHORT.get(name.upper(), name)
    if known == "UTC":
        return UTC
    if _NAME.fullmatch(known):
        for spelling in dict.fromkeys((known, name, name.title(), name.upper())):
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
STALE_S: Final = 3600.0
"""One that passed less than this ago is no reset: a vendor that lifts a limit late names the passed time."""

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


def _forms(*forms: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form, re.IGNORECASE) for form in forms)


_DATES: Final = _forms(
    rf"{_YEAR}[-/.](?P<month>[0-9]{{1,2}})[-/.]{_DAY.replace('a-z', 'a-su-z')}",  # a T may follow
    rf"(?P<first>[0-9]{{1,2}})[/.](?P<second>[0-9]{{1,2}})[/.]{_YEAR}",
    rf"{_WORD}\s{{0,2}}{_DAY}(?:,?\s{{1,2}}{_YEAR})?",
    rf"{_DAY}\.?[\s-]{{1,2}}(?:de\s)?{_WORD}(?:[,\s-]{{1,2}}(?:de\s)?(?:{_YEAR}|(?P<short>[0-9]{{2}})(?=\s)))?",
)
_TIMES: Final = _forms(
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2}))?(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?"
    r"\s{0,2}(?P<half>[ap])\.?m\b\.?",
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<part>[0-9]{1,9}))?)?(?![0-9:])",
    r"(?P<named>midnight|noon)\b",
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
    """The moments ahead that a text can mean, the likeliest first; none if what it names has passed.

    ``sure``: both time and zone are named.
    """

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
    """Return the moments ahead that are written at this place of ``text``; None where no moment is written.

    ``zone`` is used where none is named (None: UTC); a named one that is not known leaves no moment. A date
    without a time is the start of that day, or its end when the day has begun.
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
    named, zone_end = _zone_at(text, end) or (None, end)
    if named is not None and (between := _BETWEEN.match(text, zone_end)):  # ``9 AM EST on Dec 3``
        zone_end = parts.take(text, between.end()) or zone_end
    if named is None and _PLACE.match(text, end):  # a machine without tzdata: the local time is another one
        return WrittenMoment((), False, zone_end)
    moments = tuple(_ahead(parts, now, named or zone or UTC))
    is_sure = named is not None and parts.clock is not None
    return WrittenMoment(moments, is_sure, zone_end)


def _clock(named: dict[str, str | None]) -> time | None:
    if word := named.get("named"):
        return time(12) if word.lower() == "noon" else time(0)
    hour = int(named["hour"] or 0)
    if half := named.get("half"):
        if hour > 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    minute, second = int(named["minute"] or 0), int(named["second"] or 0)
    microseconds = int((named.get("part") or "").ljust(6, "0")[:6])
    with suppress(ValueError):
        return time(0 if hour == 24 else hour, minute, second, microseconds)
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
        with suppress(OverflowError, ValueError, OSError):
            has_begun = parts.clock is None and day == today
            moment = _moment(day + timedelta(days=has_begun), parts.clock or time(), zone)
            if moment > now:
                yield moment
            elif parts.clock is not None and now < moment + STALE_S:
                if parts.exact or now >= moment + JUST_PASSED_S:
                    return
                yield moment + JUST_PASSED_S


def _days(parts: _Parts, today: date) -> Iterator[date]:
    if parts.dates:
        for year, month, day in parts.dates:
            years = (today.year - 1, today.year, today.year + 1) if year is None else (year,)
            for each in years:  # the first: it may have passed just now, before the turn of the year
                with suppress(ValueError):
                    yield date(each, month, day)
    else:
        first, step = (0, 1) if parts.weekday is None else ((parts.weekday - today.weekday()) % 7, 7)
        # The one before may have passed just now, before midnight.
        days = {None: (first - step, first, first + step), 0: (-1, 0), 1: (1,)}[parts.days_on]
        yield from (today + timedelta(days=each) for each in days)


def _moment(day: date, clock: time, zone: tzinfo) -> Moment:
    """Return the moment at which clocks in ``zone`` show this; the later one, where an hour is repeated."""
    shown = datetime.combine(day, clock, zone)
    return max(shown.timestamp(), shown.replace(fold=1).timestamp())


# The forms in which a reset is named: values of headers and JSON, sentences, and vendors' habits.


class Confidence(StrEnum):
    """How exactly a reset is known."""

    EXACT = "exact"  # an epoch, a header, a duration
    CLOCK = "clock"  # a time of day or a date, in a zone that was named
    GUESSED = "guessed"  # a time without a zone, a date without a time, a vendor's habit


class Rank(IntEnum):
    """Which hint counts first."""

    TOLD = 0  # an explicit time to come back
    BUCKET = 1  # when one of several allowances is whole again, used up or not
    HABIT = 2  # nothing but what kind of limit it is
    PACE = 3  # when the agent itself will try again


@dataclass(frozen=True, slots=True)
class ResetHint:
    """A reset that is named somewhere. Hints of the same ``form`` repeat each other."""

    until: tuple[Moment, ...]  # the likeliest reading first
    source: str
    confidence: Confidence
    rank: Rank
    form: str
    at: int = 0


_SEGMENT: Final = r"(?:[a-z0-9]{1,24}[-_])"
_ANY_KEY: Final = re.compile(r"reset|retry", re.IGNORECASE)
_KEY: Final = re.compile(
    rf"""(?<![a-z0-9_-])(?P<key>{_SEGMENT}{{0,5}}(?:
      retry[-_\x20]?after(?:[-_]?(?:ms|milliseconds|s|secs?|seconds))?
    | retry[-_]?delay(?:ms|seconds)?
    | resets?[-_]?(?:in|after|at|on)
      (?:[-_]?(?:ms|millis|milliseconds|s|secs?|seconds|mins|minutes|epoch|unix|time))?
    | (?:quota[-_]?)?resets?[-_]?(?:time(?:[-_]?stamp)?|delay)
    | (?P<bucket>rate[-_]?limits?[-_]{_SEGMENT}{{0,4}}resets?(?:[-_][a-z]{{1,24}}){{0,4}})
    ))(?:["']?\s{{0,3}}[:=]\s{{0,3}}["'\[]{{0,2}}|(?<=-after)\x20(?=[0-9]))""",
    re.IGNORECASE | re.VERBOSE,
)
_DELAY_BLOCK: Final = re.compile(r"retry_delay\s{0,3}\{\s{0,20}seconds:\s{0,3}([0-9]{1,9})", re.IGNORECASE)
_PIPE: Final = re.compile(
    r"limit\s{1,3}(?:has\s{1,3}been\s{1,3})?reached\s{0,2}\|\s{0,2}([0-9]{9,13})(?![0-9])", re.I
)
_NUMBER: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,20})?(?!\w|\.[0-9])")
_ALLOWED: Final = re.compile(r"""["']status["']\s{0,3}:\s{0,3}["']allowed""", re.IGNORECASE)
_PROSE: Final = re.compile(
    r"""(?<![\w-])(?:
      (?P<pace>retrying|reconnecting)(?:\s{1,4}again)?\s{1,8}(?P<in1>in|after)
    | (?:try|trying|retry|available|accessible|unblocked|unlocked|lifted|restored|back)
      (?:\s{1,8}it)?(?:\s{1,8}again)?(?:\s{1,8}later)?(?:(?:\s{0,2}:)?\s{1,8}(?:(?P<in2>in|after)|at|on)
      |(?=:\s|\s{1,8}to(?:day|morrow)\b))
    | (?<!connection\s)(?:resets?|resetting|renews?|refresh(?:es)?|replenish(?:es)?|restarts?)
      (?:\s{1,8}(?:again|automatically|time))?(?:\s{0,2}:)?(?:\s{1,8}(?:(?P<in3>in|after)|at|on))?
    | (?:limited|blocked|unavailable|exhausted|suspended|wait)\s{1,8}until
    | (?:cycle|period|window)\s{1,8}(?:ends|resets|renews|restarts)\s{1,8}(?:(?P<in4>in|after)|on|at)
    | (?P<wait>wait)(?:\s{1,8}(?:for|another))?
    )(?:\s{1,8}(?:about|around|approximately|approx\.|roughly|at\s{1,8}least|another))?[\s:,~]{1,8}""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS_FOR_A_MOMENT: Final = re.compile(r"\b(?:at|on)[\s:,~]*\Z", re.IGNORECASE)
"""``resets at 9h30`` names a time of day, not a duration."""
_LIMIT_NAME: Final = re.compile(
    r"\b(?:week|session|[0-9]+.hour|daily|day|month|year|opus|sonnet|minute|token|request)", re.I
)
_DAILY: Final = re.compile(
    r"(?:exhausted|exceeded|reached|used\s{1,4}up)\b.{0,60}?\bdaily\s{1,4}(?:\w{1,20}\s{1,4})?quota"
    r"|\bdaily\s{1,4}(?:\w{1,20}\s{1,4})?quota\b.{0,40}?\b(?:exhausted|exceeded|reached|used\s{1,4}up)"
    r"|\bquota\s{1,4}exceeded\b.{0,160}?\brequests\s{1,4}per\s{1,4}day|RequestsPerDay",
    re.IGNORECASE | re.DOTALL,
)
_EPOCHS_FROM: Final = 1e9
_MILLISECONDS_FROM: Final = 1e11
_JOINED: Final = str.maketrans("", "", "-_ ")
_WINDOW_CHARS: Final = 100
_MOST: Final = 64


def keyed(text: str, now: Moment) -> Iterator[ResetHint]:
    """Yield the resets of values that have a name: headers, JSON, ``retry-after: 12`` in a line."""
    if not _ANY_KEY.search(text):
        return
    for match in _last(_KEY, text):
        # A value beside a status of "allowed" in its JSON object is of a limit that is not reached.
        before = re.split(r"[{}]", text[max(0, match.start() - 300) : match.start()])[-1]
        after = re.split(r"[{}]", text[match.end() : match.end() + 300])[0]
        if _ALLOWED.search(before) or _ALLOWED.search(after):
            continue
        value = text[match.end() : match.end() + _WINDOW_CHARS].partition("\n")[0]
        rank = Rank.BUCKET if match["bucket"] else Rank.TOLD
        if hint := named_value(match["key"], value, now, rank=rank, at=match.start()):
            yield hint
    for match in _last(_DELAY_BLOCK, text):
        until, name = now + int(match[1]), "retry_delay"
        yield ResetHint((until,), name, Confidence.EXACT, Rank.TOLD, name, match.start())


def piped(text: str) -> Iterator[ResetHint]:
    """Yield the resets of claude's older form: ``Claude AI usage limit reached|1754578800``."""
    for match in _last(_PIPE, text):
        until, source = epoch(float(match[1])), " ".join(match[0].partition("|")[0].split())
        yield ResetHint((until,), source, Confidence.EXACT, Rank.TOLD, "reached|", match.start())


def named_value(
    key: str, value: str, now: Moment, *, rank: Rank = Rank.TOLD, at: int = 0
) -> ResetHint | None:
    """Return the reset in a value of this name: seconds, a duration, an epoch, an HTTP date, ISO 8601."""
    name = key.lower()
    until = _value(name.translate(_JOINED), value, now)
    return None if until is None else ResetHint((until,), name, Confidence.EXACT, rank, name, at)


def _value(name: str, value: str, now: Moment) -> Moment | None:
    if written := read_moment(value, now=now, zone=UTC):  # neither headers nor JSON know a local zone
        return next(iter(written.moments), None)
    if duration := read_duration(value):
        return now + duration.seconds
    if not (match := _NUMBER.match(value)):
        return None
    number = float(match[0])
    if name.endswith(("at", "on", "time", "timestamp", "epoch", "unix")):
        return epoch(number) if number >= _EPOCHS_FROM else None
    if name.endswith(("ms", "millis", "milliseconds")):
        return epoch(number) if number >= _MILLISECONDS_FROM else now + number / 1000
    if number >= _EPOCHS_FROM:
        return epoch(number)
    return now + number * (60 if name.endswith(("mins", "minutes")) else 1)


def epoch(value: float) -> Moment:
    """Return the moment of an epoch in seconds or milliseconds."""
    return value / 1000 if value >= _MILLISECONDS_FROM else value


def spoken(text: str, now: Moment, zone: tzinfo | None) -> Iterator[ResetHint]:
    """Yield the resets of sentences: ``try again in 6m0s``, ``resets 3pm (Asia/Seoul)``."""
    for match in _last(_PROSE, text):
        rest = " ".join(text[match.end() : match.end() + _WINDOW_CHARS].split())
        until, end, confidence = _after_opening(match, rest, now, zone)
        if not until:
            continue
        opening = " ".join(match[0].split())
        line = text[max(text.rfind("\n", 0, match.start()) + 1, match.start() - 200) : match.start()]
        form = f"{opening.lower()} {','.join(_LIMIT_NAME.findall(line)).lower()}"
        rank, confidence = (Rank.PACE, Confidence.GUESSED) if match["pace"] else (Rank.TOLD, confidence)
        yield ResetHint(until, f"{opening} {rest[:end]}", confidence, rank, form, match.start())


def _after_opening(
    match: re.Match[str], rest: str, now: Moment, zone: tzinfo | None
) -> tuple[tuple[Moment, ...], int, Confidence]:
    """Read what follows the opening words; durations before moments where these ask for one."""
    duration = read_duration(rest)
    asks = any(match[name] for name in ("in1", "in2", "in3", "in4", "wait"))
    if duration and asks:
        return (now + duration.seconds,), duration.end, Confidence.EXACT
    if not match["wait"] and (written := read_moment(rest, now=now, zone=zone)):
        return written.moments, written.end, Confidence.CLOCK if written.sure else Confidence.GUESSED
    if duration and not _ASKS_FOR_A_MOMENT.search(match[0]):
        return (now + duration.seconds,), duration.end, Confidence.EXACT
    if not asks and (number := _NUMBER.match(rest)) and float(number[0]) >= _EPOCHS_FROM:
        return (epoch(float(number[0])),), number.end(), Confidence.EXACT
    return (), 0, Confidence.GUESSED


def habits(text: str, now: Moment) -> Iterator[ResetHint]:
    """Yield the resets of limits that name none: Google's daily quota restarts at midnight Pacific time."""
    match = _DAILY.search(text)
    written = match and read_moment("midnight", now=now, zone=find_zone("America/Los_Angeles"))
    if written:
        yield ResetHint(written.moments, "daily quota", Confidence.GUESSED, Rank.HABIT, "daily quota")


def remaining(text: str, bucket: str) -> bool:
    """Whether a text names a rest of an allowance (``x-ratelimit-reset-tokens``)."""
    name = re.escape(bucket.replace("reset", "remaining"))
    match = re.search(rf"""{name}["']?\s{{0,3}}[:=]\s{{0,3}}["']?([0-9]{{1,16}})""", text, re.IGNORECASE)
    return match is not None and int(match[1]) > 0


def _last(form: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(form.finditer(text))[-_MOST:]
