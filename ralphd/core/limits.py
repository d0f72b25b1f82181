"""How long a limit lasts: durations and moments read from what agents and vendors print (LI, 000-T5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum

from ralphd.core.model import Moment

LONGEST_S = 31 * 24 * 3600.0
"""A reset farther off than this is not believed."""


class Confidence(StrEnum):
    """How exactly a reset is known."""

    EXACT = "exact"  # an epoch, a header, a duration
    CLOCK = "clock"  # a time of day or a date, in a zone that was named
    GUESSED = "guessed"  # a time without a zone, a date without a time, a vendor's habit


@dataclass(frozen=True, slots=True)
class Reset:
    """When a limit is over. ``source`` names the form it was read from (``retry-after``, ``resets 3pm``)."""

    until: Moment
    source: str
    confidence: Confidence


def read_reset(text: str, *, now: Moment, zone: tzinfo | None = None) -> Reset | None:
    """The reset that a text tells; None where it tells none that can be believed.

    ``zone`` is the local time zone, for times that name none; None stands for UTC.
    """
    raise NotImplementedError


def reset_from_headers(headers: Mapping[str, str], *, now: Moment) -> Reset | None:
    """The reset that a vendor's response headers tell; names in lower case."""
    raise NotImplementedError


def reset_from_epoch(value: float, *, now: Moment, source: str = "epoch") -> Reset | None:
    """The reset at an epoch in seconds or milliseconds."""
    raise NotImplementedError


def detect_rate_limit(output: str) -> float | None:
    """Seconds to wait when ``output`` tells of a limit, 60 where it does not say how long; else None."""
    raise NotImplementedError
