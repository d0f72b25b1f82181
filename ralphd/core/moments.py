"""Moments as text and back: RFC 3339 in UTC, the one form of every file and reply."""

from datetime import UTC, datetime

from ralphd.core.model import Moment


def rfc3339(moment: Moment) -> str:
    """A moment as ``2026-11-21T20:00:00.000000Z``."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> Moment:
    """The moment that ``text`` names; nanoseconds are cut. Raises ValueError when it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
