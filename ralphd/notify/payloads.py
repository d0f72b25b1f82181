"""The body of a webhook: the event and its facts as JSON, or text for people in Slack, ntfy or on a desktop.

Names, messages and output come from agents and repositories: nothing in them becomes markup, a mention or a
header, and a text for people is short. People read times in this machine's zone, with its name.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Format, StoredEvent
from ralphd.core.text import one_line, truncate
from ralphd.core.time import with_zone
from ralphd.dataclass import dataclass
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
    """The body of a message, and the headers that describe it."""

    payload: bytes
    headers: Mapping[str, str]


def posted(event: StoredEvent, form: Format, facts: AlertFacts) -> Posted:
    """Return ``event`` and its facts as a receiver of this form accepts them."""
    match form:
        case Format.SLACK:
            return _as_json({"text": _slack(event, facts)})
        case Format.NTFY:
            return _ntfy(event, facts)
        case _:
            data = event.as_object() | asdict(facts)
            return _as_json({"type": event.type, "timestamp": event.at, "data": data})


def _as_json(message: Mapping[str, Any]) -> Posted:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return Posted(text.encode(errors="replace"), {"content-type": "application/json"})


def _slack(event: StoredEvent, facts: AlertFacts) -> str:
    do = _text(event, "do", MOST_LINE_CHARS)
    lines = [f"*{_escaped(title_of(event).replace('*', ''))}*", *map(_escaped, _what(event, facts))]
    if do:
        lines.append(f"`{_escaped(do.replace('`', ''))}`")
    lines.append(_escaped(_where(event, facts)))
    if facts.last_lines:
        output = "\n".join(facts.last_lines).replace("`", "'")
        lines.append(f"```\n{_escaped(output)}\n```")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    # Nothing in it becomes a link or a mention (``<!channel>``).
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_body(event: StoredEvent, facts: AlertFacts, most_bytes: int = MOST_NTFY_BYTES) -> str:
    """Return the message as plain text. The output comes last, so that a cut loses it first."""
    do = _text(event, "do", MOST_LINE_CHARS)
    lines = [*_what(event, facts), *([f"$ {do}"] if do else []), _where(event, facts)]
    lines += [f"| {line}" for line in facts.last_lines]
    return "\n".join(lines).encode(errors="replace")[:most_bytes].decode(errors="ignore")


def _ntfy(event: StoredEvent, facts: AlertFacts) -> Posted:
    _, priority, tag = _WORDS.get(event.type, _NO_WORDS)
    tags = f"{tag},ralphd" if tag else "ralphd"
    about = {"title": header_text(title_of(event)), "priority": str(priority), "tags": tags}
    about |= {"click": facts.link} if facts.link else {}
    return Posted(plain_body(event, facts).encode(), {"content-type": "text/plain; charset=utf-8", **about})


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


def title_of(event: StoredEvent) -> str:
    """Return ``demo: needs you``; an event without a title is named in words, ``demo: attempt finished``."""
    words = _WORDS.get(event.type, _NO_WORDS)[0] or event.type.removeprefix("ralph.").replace(".", " ")
    return f"{one_line(event.ralph or 'ralphd', MOST_LINE_CHARS)}: {words.replace('_', ' ')}"


def _what(event: StoredEvent, facts: AlertFacts) -> list[str]:
    texts = [_text(event, "message", MOST_MESSAGE_CHARS) or _text(event, "why", MOST_MESSAGE_CHARS)]
    if needs := _text(event, "needs", MOST_MESSAGE_CHARS):
        texts.append(f"Needed: {needs}")
    task = facts.task or {}
    if title := one_line(str(task.get("title") or task.get("id") or ""), MOST_LINE_CHARS):
        texts.append(f"Task: {title}")
    return list(filter(None, texts))


def _where(event: StoredEvent, facts: AlertFacts) -> str:
    # With the time, since a message may be delivered long after its event.
    directory = facts.directory or _text(event, "directory", MOST_LINE_CHARS)
    cost = "" if facts.cost_tonight_usd is None else f"${facts.cost_tonight_usd:.2f} tonight"
    parts = (one_line(part, MOST_LINE_CHARS) for part in (facts.host, directory, cost, with_zone(event.at)))
    return " · ".join(filter(None, parts))


def _text(event: StoredEvent, key: str, most: int) -> str:
    if not isinstance(value := event.data.get(key), str):
        return ""
    lines = [line for each in with_zone(value).splitlines() if (line := one_line(each, most))]
    return truncate("\n".join(lines), most)
