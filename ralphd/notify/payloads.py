"""The body of a webhook: the event as JSON, or text for Slack or ntfy.

Names and messages come from agents and repositories: nothing in them becomes markup, a mention or a header,
and what is sent to a person is short.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ralphd.core.delivery import Format, StoredEvent
from ralphd.core.text import one_line, truncate
from ralphd.wire import EVENTS

MOST_MESSAGE_CHARS = 1500
MOST_LINE_CHARS = 300
MOST_NTFY_BYTES = 4000
"""ntfy turns a body of more than 4096 bytes into an attached file."""
_WORD_BYTES = 45
"""Bytes in one encoded word: RFC 2047 allows it 75 characters."""
_WORDS = {**EVENTS, "webhook.test": ("a test message", 3, "")}
_NO_WORDS = ("", 2, "")


@dataclass(frozen=True, slots=True)
class Posted:
    """What is posted at each try: the body, and the headers that describe it."""

    payload: bytes
    headers: Mapping[str, str]


def posted(event: StoredEvent, form: Format = Format.JSON) -> Posted:
    """Return ``event`` as a receiver of this form takes it."""
    match form:
        case Format.JSON:
            return _as_json({"type": event.type, "timestamp": event.at, "data": event.as_object()})
        case Format.SLACK:
            return _as_json({"text": _slack(event)})
        case Format.NTFY:
            return _ntfy(event)


def _as_json(message: Mapping[str, Any]) -> Posted:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return Posted(text.encode(errors="replace"), {"content-type": "application/json"})


def _slack(event: StoredEvent) -> str:
    do = _text(event, "do", MOST_LINE_CHARS)
    title = _title(event, _WORDS.get(event.type, _NO_WORDS)[0])
    lines = [f"*{_escaped(title.replace('*', ''))}*", *map(_escaped, _what(event))]
    if do:
        lines.append(f"`{_escaped(do.replace('`', ''))}`")
    return "\n".join([*lines, _escaped(_where(event))])


def _escaped(text: str) -> str:
    # Nothing in it becomes a link or a mention (``<!channel>``).
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _ntfy(event: StoredEvent) -> Posted:
    do = _text(event, "do", MOST_LINE_CHARS)
    lines = [*_what(event), *([f"$ {do}"] if do else []), _where(event)]
    body = "\n".join(lines).encode(errors="replace")[:MOST_NTFY_BYTES].decode(errors="ignore")
    title, priority, tag = _WORDS.get(event.type, _NO_WORDS)
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "title": header_text(_title(event, title)),
        "priority": str(priority),
        "tags": f"{tag},ralphd" if tag else "ralphd",
    }
    return Posted(body.encode(), headers)


def header_text(text: str) -> str:
    """Return a text as the value of a header: ASCII, one line, encoded words (RFC 2047) for all else."""
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


def _title(event: StoredEvent, words: str) -> str:
    return f"{one_line(event.ralph or 'ralphd', MOST_LINE_CHARS)}: {words or event.type}"


def _what(event: StoredEvent) -> list[str]:
    texts = [text for key in ("message", "needs") if (text := _text(event, key, MOST_MESSAGE_CHARS))]
    if texts:
        return texts
    plain = [
        f"{one_line(key, 40)}: {one_line(str(value), MOST_LINE_CHARS)}"
        for key, value in event.data.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and key != "do"
    ]
    return plain[:8]


def _where(event: StoredEvent) -> str:
    # With the time, since a message may be delivered long after its event.
    directory = _text(event, "directory", MOST_LINE_CHARS)
    when = f"{event.at[:16].replace('T', ' ')} UTC"
    return f"{directory} · {when}" if directory else when


def _text(event: StoredEvent, key: str, most: int) -> str:
    value = event.data.get(key)
    if not isinstance(value, str):
        return ""
    lines = [line for each in value.splitlines() if (line := one_line(each, most))]
    return truncate("\n".join(lines), most)
