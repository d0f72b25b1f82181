"""How long a limit lasts: durations and moments read from what agents and vendors print (LI, 000-T5).

A text may tell several. What is said again in the same form counts as it was said last; of what is said
besides, the longest counts, since every limit has to be over; and whoever tells when to come back is believed
before an allowance that may not be used up, a vendor's habit, or the pace at which the agent tries by itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from math import isfinite

from ralphd.core.limit_talk import limit_talk
from ralphd.core.model import Moment
from ralphd.core.plain_text import ends_of, plain, unescaped
from ralphd.core.reset_forms import (
    Confidence,
    Rank,
    Told,
    epoch,
    habits,
    keyed,
    named_value,
    piped,
    remaining,
    spoken,
)

__all__ = [
    "LONGEST_S",
    "Confidence",
    "Reset",
    "detect_rate_limit",
    "read_reset",
    "reset_from_epoch",
    "reset_from_headers",
]

LONGEST_S = 31 * 24 * 3600.0
"""A reset farther off than this is not believed."""

UNKNOWN_S = 60.0
"""How long a rate limit is taken to last that does not say so [000-T5]."""

_SAME_S = 120.0
"""Two resets that lie no farther apart are one, told once to the second and once to the minute."""
_DAILY_FROM_S = 600.0
"""A daily quota is not over sooner: the seconds that Google names beside it are another limit's."""
_PACE_FROM_S = 600.0
"""An agent that tries again sooner does not know when a plan's limit ends."""
_LASTING = re.compile(r"usage[ _-]limit|quota|weekly|plan|credit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reset:
    """When a limit is over. ``source`` is the form it was read from (``retry-after``, ``resets 3pm``)."""

    until: Moment
    source: str
    confidence: Confidence


def read_reset(text: str, *, now: Moment, zone: tzinfo | None = None) -> Reset | None:
    """The reset that a text tells; None where it tells none that can be believed.

    ``zone`` is the local time zone, for times that name none; None stands for UTC. Of a long text the
    beginning and the end are read.
    """
    read = plain(unescaped(ends_of(text)))
    told = [*keyed(read, now), *piped(read), *spoken(read, now, zone), *habits(read, now)]
    return _chosen(read, told, now)


def reset_from_headers(headers: Mapping[str, str], *, now: Moment) -> Reset | None:
    """The reset that a vendor's response headers tell; names in lower case."""
    for name in ("retry-after-ms", "retry-after"):
        told = named_value(name, headers.get(name, ""), now)
        if told and (reset := _believed(told, now)):
            return reset
    text = "\n".join(f"{name}: {value}" for name, value in headers.items() if _is_used_up(name, headers))
    read = plain(ends_of(text))
    return _chosen(read, list(keyed(read, now)), now)


def reset_from_epoch(value: float, *, now: Moment, source: str = "epoch") -> Reset | None:
    """The reset at an epoch in seconds or milliseconds."""
    return _believed(Told((epoch(value),), source, Confidence.EXACT, Rank.TOLD, source), now)


def detect_rate_limit(output: str, *, now: Moment | None = None, zone: tzinfo | None = None) -> float | None:
    """Seconds to wait when ``output`` tells of a limit as an error, 60 where it tells no length; else None.

    [000-T5] gives it no clock: without ``now`` only durations are read, and epochs and times of day are taken
    for unknown. It reads any output; where an agent's own lines are known, ``core/classify`` knows better.
    """
    passage = limit_talk(output)
    if passage is None:
        return None
    read = plain(unescaped(passage))
    since = 0.0 if now is None else now
    told: Iterable[Told] = [*keyed(read, since), *spoken(read, since, zone)]
    if now is not None:
        told = [*told, *piped(read), *habits(read, now)]
    else:
        told = [each for each in told if each.confidence is Confidence.EXACT]
    reset = _chosen(read, list(told), since)
    return UNKNOWN_S if reset is None else reset.until - since


def _is_used_up(name: str, headers: Mapping[str, str]) -> bool:
    """Whether an allowance of codex's headers is used up, where they tell how far it is."""
    window, found, _ = name.partition("-reset-")
    if not found or not name.startswith("x-codex-"):
        return True
    try:
        return float(headers.get(f"{window}-used-percent", "100")) >= 100
    except ValueError:
        return True


def _believed(told: Told, now: Moment) -> Reset | None:
    """The first reading that lies ahead, and no farther than can be believed."""
    for until in told.until:
        if isfinite(until) and 0 < until - now <= LONGEST_S:
            return Reset(until, told.source[:80], told.confidence)
    return None


def _chosen(text: str, told: list[Told], now: Moment) -> Reset | None:
    """Of all that a text tells, what is to be believed."""
    believed = [(each, reset) for each in told if (reset := _believed(each, now))]
    used_up = [pair for pair in believed if not _has_rest(text, pair[0])]
    believed = [pair for pair in used_up or believed if not _is_hasty(text, *pair, now)]
    if not believed:
        return None
    best = min(each.rank for each, _ in believed)
    first = _latest(reset for each, reset in _last_said(text, believed) if each.rank is best)
    if first.until - now < _DAILY_FROM_S:
        first = _latest([first, *(reset for each, reset in believed if each.rank is Rank.HABIT)])
    return first


def _has_rest(text: str, told: Told) -> bool:
    """Whether it is the end of an allowance of which something is left."""
    return told.rank is Rank.BUCKET and remaining(text, told.form)


def _is_hasty(text: str, told: Told, reset: Reset, now: Moment) -> bool:
    """Whether it is an agent's own pace in front of a limit that lasts: it does not know when that ends."""
    return told.rank is Rank.PACE and reset.until - now < _PACE_FROM_S and _LASTING.search(text) is not None


def _last_said(text: str, believed: list[tuple[Told, Reset]]) -> list[tuple[Told, Reset]]:
    """Without what was said again in a later line, in the same form."""
    lines = {each.at: text.count("\n", 0, each.at) for each, _ in believed}
    last: dict[str, int] = {}
    for each, _ in believed:
        last[each.form] = max(last.get(each.form, 0), lines[each.at])
    return [pair for pair in believed if lines[pair[0].at] == last[pair[0].form]]


def _latest(resets: Iterable[Reset]) -> Reset:
    """The latest; of several that are the same, the exact one."""
    ordered = sorted(resets, key=lambda reset: reset.until)
    latest = ordered[-1]
    if latest.confidence is not Confidence.EXACT:
        for reset in reversed(ordered):
            if reset.confidence is Confidence.EXACT and latest.until - reset.until <= _SAME_S:
                return reset
    return latest
