"""Entries of ``history.jsonl`` as a report reads them: anything in them may be missing or of another kind."""

import math
import re
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from ralphd.core.text import CONTROL

Entry: TypeAlias = Mapping[str, Any]
Of: TypeAlias = tuple[str, int | None]
"""The run, or nothing, and the iteration, by which the time of an attempt and its verdict belong together."""

HANGS: Final = frozenset({"stall", "timeout"})
FAILED_ENDS: Final = frozenset({"failed", "stalled", "timeout", "lost", "refused", "gave_up"})
ENDED_WELL: Final = "agent_incomplete"
"""A failure kind of which the agent ended well: its time was work."""
SHORT: Final = 7
"""So many digits have all abbreviations of commits."""

_COMMIT: Final = re.compile(r"[0-9a-f]{4,64}")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_FROM_YEAR: Final = 0.0
_TO_YEAR: Final = 32_503_680_000.0  # 3000-01-01
_LONGEST_S: Final = 366 * 86400.0
_REASON_CHARS: Final = 40
_LINE_CHARS: Final = 400
_LIMITS: Final = (
    ("usage limit", "usage_limit"),
    ("limit resets", "usage_limit"),
    (" is out", "usage_limit"),  # as the built-in loop tells that no agent is left before a reset
    ("rate limit", "rate_limit"),
    ("reach its service", "outage"),
    ("outage", "outage"),
    ("failed", "retry"),
)


def moment(value: Any) -> float | None:
    """Seconds since the epoch for an RFC 3339 time; None for anything else."""
    try:
        found = (datetime.fromisoformat(value) - _EPOCH).total_seconds()
    except (TypeError, ValueError, OverflowError):  # TypeError: it is no text, or has no time zone
        return None
    return found if _FROM_YEAR <= found <= _TO_YEAR else None


def number(value: object) -> float | None:
    """A finite number; None for anything else, and for a truth value."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: object) -> float:
    """A duration from 0 to a year; 0 for anything else."""
    if type(value) is float and 0.0 <= value <= _LONGEST_S:
        return value
    found = number(value)
    return 0.0 if found is None else min(max(found, 0.0), _LONGEST_S)


def count(value: object) -> int | None:
    """A whole number; None for anything else."""
    return value if type(value) is int else None


def text(value: object) -> str:
    """A text, or nothing."""
    return value if isinstance(value, str) else ""


def task_of(entry: Entry) -> tuple[str | None, str]:
    """Id and title of the task that an entry is about."""
    task = entry.get("task")
    if not isinstance(task, Mapping):
        return None, ""
    id_ = text(task.get("id"))
    return (id_ or None), text(task.get("title")) or id_


def commits(value: object, known: Container[str] = ()) -> list[str]:
    """The commits that are named, without those whose first digits are ``known``, and what is no sha."""
    if not value or not isinstance(value, list):
        return []
    return [
        sha for sha in value if isinstance(sha, str) and sha[:SHORT] not in known and _COMMIT.fullmatch(sha)
    ]


def lines(value: object, most: int) -> tuple[str, ...]:
    """The last lines of a text that show something, without what moves a terminal, each of them cut."""
    shown = (CONTROL.sub("", line).rstrip() for line in text(value).splitlines())
    return tuple(line[:_LINE_CHARS] for line in shown if line)[-most:]


def wait_reason(value: object) -> str:
    """What a wait was for, as one of the known words where it is one, else in its own words, cut."""
    said = text(value).strip()
    plain = said.casefold().replace("_", " ")
    known = next((reason for words, reason in _LIMITS if words in plain), None)
    if known is not None:
        return known
    return (said if len(said) <= _REASON_CHARS else said[: _REASON_CHARS - 1] + "…") or "unknown"
