"""The time zone of this machine, for limits that name a time of day and no zone."""

import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

_LOCALTIME = Path("/etc/localtime")


def local_zone() -> tzinfo:
    """The zone of ``$TZ``, else of ``/etc/localtime``, with all its changes; else today's offset."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with _LOCALTIME.open("rb") as opened:
            return ZoneInfo.from_file(opened)
    except (OSError, ValueError, LookupError):  # no such file, no such name
        return _todays_offset()


def _todays_offset() -> tzinfo:
    return datetime.now().astimezone().tzinfo or UTC
