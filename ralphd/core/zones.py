"""Time zones as people write them: ``(Asia/Seoul)``, ``UTC``, ``PT``, ``GMT+9``, ``+05:30``."""

import re
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

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
class ZoneWritten:
    """A zone that a text names; ``zone`` None where we do not know it. ``end`` is where its name ends."""

    zone: tzinfo | None
    end: int


def read_zone(text: str, at: int = 0) -> ZoneWritten | None:
    """The zone that is named at this place of ``text``; None where none is.

    Without brackets only what is known to be a zone is one.
    """
    if match := _BRACKETS.match(text, at):
        return ZoneWritten(find_zone(match[1]), match.end())
    if (match := _BARE.match(text, at)) and (zone := find_zone(match[1].strip())):
        return ZoneWritten(zone, match.end())
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
