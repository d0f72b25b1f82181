"""What a message looks like where it arrives: the event itself, or words for Slack and ntfy.

Pure. Names and messages come from agents and repositories: nothing in them becomes markup, a mention or a
header, and what is sent to a person is short.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from ralphd.core.delivery import Format, StoredEvent
from ralphd.core.text import one_line, truncate

MOST_MESSAGE_CHARS = 1500
MOST_LINE_CHARS = 300
MOST_NTFY_BYTES = 4000
"""ntfy takes a longer body than 4096 bytes for a file that is attached."""
_WORD_BYTES = 45
"""Bytes in one encoded word: RFC 2047 allows it 75 characters."""
_TITLES: Mapping[str, str] = {
    "ralph.escalated": "needs you",
    "ralph.failed": "has failed",
    "ralph.paused": "is paused",
    "ralph.done": "is done",
    "ralph.stopped": "is stopped",
    "ralph.stalled": "hung and was ended",
    "tests.failed": "tests failed",
    "commit.reverted": "a commit was reverted",
    "guard.blocked": "commits were not judged",
    "webhook.test": "a test message",
}
_URGENT = frozenset({"ralph.escalated"})
_BAD = frozenset({"ralph.failed", "ralph.stalled", "guard.blocked", "daemon.degraded"})
_PLAIN = frozenset({"ralph.paused", "ralph.done", "commit.reverted", "tests.failed", "webhook.test"})
_TAGS: Mapping[str, str] = {
    "ralph.escalated": "rotating_light",
    "ralph.failed": "x",
    "ralph.stalled": "warning",
    "guard.blocked": "warning",
    "daemon.degraded": "warning",
    "commit.reverted": "leftwards_arrow_with_hook",
    "tests.failed": "x",
    "ralph.done": "white_check_mark",
    "ralph.paused": "double_vertical_bar",
}


@dataclass(frozen=True, slots=True)
class Posted:
    """What is posted, the same at each try: the body, and the headers that say what it is."""

    payload: bytes
    headers: Mapping[str, str]


def posted(event: StoredEvent, form: Format = Format.JSON) -> Posted:
    """An event as a receiver of this form takes it."""
    match form:
        case Format.JSON:
            return _as_json({"type": event.type, "timestamp": event.at, "data": event.as_object()})
        case Format.SLACK:
            return _as_json({"text": _slack(event)})
        case Format.NTFY:
            return _ntfy(event)
        case _:
            assert_never(form)


def _as_json(message: Mapping[str, Any]) -> Posted:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return Posted(text.encode(errors="replace"), {"content-type": "application/json"})


def _slack(event: StoredEvent) -> str:
    """What Slack's incoming webhooks take, and those that imitate them."""
    do = _text(event, "do", MOST_LINE_CHARS)
    lines = [f"*{_unmarked(_title(event))}*", *map(_escaped, _what(event))]
    if do:
        lines.append(f"`{_escaped(do.replace('`', ''))}`")
    return "\n".join([*lines, _escaped(_where(event))])


def _escaped(text: str) -> str:
    """So that nothing in it is a link or a mention (``<!channel>``)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unmarked(text: str) -> str:
    return _escaped(text.replace("*", ""))


def _ntfy(event: StoredEvent) -> Posted:
    do = _text(event, "do", MOST_LINE_CHARS)
    lines = [*_what(event), *([f"$ {do}"] if do else []), _where(event)]
    body = "\n".join(lines).encode(errors="replace")[:MOST_NTFY_BYTES].decode(errors="ignore")
    tags = [_TAGS[event.type]] if event.type in _TAGS else []
    return Posted(
        body.encode(),
        {
            "content-type": "text/plain; charset=utf-8",
            "title": header_text(_title(event)),
            "priority": _priority(event.type),
            "tags": ",".join([*tags, "ralphd"]),
        },
    )


def _priority(event_type: str) -> str:
    """ntfy's 5 is told over everything, 3 is the usual, 2 makes no sound."""
    if event_type in _URGENT:
        return "5"
    if event_type in _BAD:
        return "4"
    return "3" if event_type in _PLAIN else "2"


def header_text(text: str) -> str:
    """A text as the value of a header: ASCII, one line, encoded words (RFC 2047) for all else."""
    line = one_line(text, MOST_LINE_CHARS)
    if line.isascii() and "=?" not in line:
        return line
    parts, part = [], b""
    for mark in line:
        one = mark.encode(errors="replace")
        if len(part) + len(one) > _WORD_BYTES:
            parts.append(part)
            part = b""
        part += one
    return " ".join(f"=?UTF-8?B?{base64.b64encode(each).decode()}?=" for each in [*parts, part])


def _title(event: StoredEvent) -> str:
    what = _TITLES.get(event.type, event.type)
    return f"{one_line(event.ralph or 'ralphd', MOST_LINE_CHARS)}: {what}"


def _what(event: StoredEvent) -> list[str]:
    """What happened and what it needs; the plain values of an event that has no words of its own."""
    told = [_text(event, key, MOST_MESSAGE_CHARS) for key in ("message", "needs")]
    if any(told):
        return [text for text in told if text]
    plain = [
        f"{one_line(key, 40)}: {one_line(str(value), MOST_LINE_CHARS)}"
        for key, value in event.data.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and key != "do"
    ]
    return plain[:8]


def _where(event: StoredEvent) -> str:
    """Where, and when it happened: it may have been on its way for long."""
    directory = _text(event, "directory", MOST_LINE_CHARS)
    when = f"{event.at[:16].replace('T', ' ')} UTC"
    return f"{directory} · {when}" if directory else when


def _text(event: StoredEvent, key: str, most: int) -> str:
    value = event.data.get(key)
    if not isinstance(value, str):
        return ""
    lines = [line for each in value.splitlines() if (line := one_line(each, most))]
    return truncate("\n".join(lines), most)
