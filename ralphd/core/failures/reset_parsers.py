"""The forms in which a reset is named: values of headers and JSON, sentences, and vendors' habits.

Every repetition in an expression is bounded, so that none takes long whatever the text is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import IntEnum, StrEnum
from typing import Final

from ralphd.core.failures.reset_datetimes import find_zone, read_moment
from ralphd.core.time import Moment, read_duration


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
      (?:\s{1,8}it)?(?:\s{1,8}again)?(?:\s{1,8}later)?(?:(?:\s{0,2}:)?\s{1,8}(?:(?P<in2>in|after)|at|on)|(?=:\s))
    | (?<!connection\s)(?:resets?|resetting|renews?|refresh(?:es)?|replenish(?:es)?|restarts?)
      (?:\s{1,8}(?:again|automatically|time))?(?:\s{0,2}:)?(?:\s{1,8}(?:(?P<in3>in|after)|at|on))?
    | (?:limited|blocked|unavailable|exhausted|suspended|wait)\s{1,8}until
    | (?:cycle|period|window)\s{1,8}(?:ends|resets|renews|restarts)\s{1,8}(?:(?P<in4>in|after)|on|at)
    | (?P<wait>wait)(?:\s{1,8}(?:for|another))?
    )(?:\s{1,8}(?:about|around|approximately|approx\.|roughly|at\s{1,8}least|another))?[\s:,~]{1,8}""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS_FOR_A_MOMENT: Final = re.compile(r"\b(?:at|on)[\s:,~]*\Z", re.IGNORECASE)
"""``resets at 9h30`` is no duration."""
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
        until, source = epoch(float(match[1])), " ".join(match[0].split())
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
        return written.moments[0]
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
        rank = Rank.TOLD
        if match["pace"]:
            rank, confidence = Rank.PACE, Confidence.GUESSED
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
