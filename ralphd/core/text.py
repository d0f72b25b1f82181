"""What agents print, made fit to be shown: no control sequences, no line without an end (F6)."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

CONTROL: Final = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f]"  # a class at the beginning is looked for ten times as fast
    r"(?:(?<=\x1b)(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[ -/]*[0-Z\\^-~]))?"
)
"""What a terminal acts upon; tab, line feed and carriage return are not among it."""

_UNSEEN: Final = re.compile(
    "[\\x0b\\x0c\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u061c\\ud800-\\udfff]"
)
"""What turns or breaks a line, and halves of characters, which cannot be written."""
LINE_CHARS: Final = 2000
TEXT_LINES: Final = 200
_READ_CHARS: Final = 4 * LINE_CHARS


def plain(line: str, most_chars: int = LINE_CHARS) -> str:
    """One line as it can be shown: without control sequences, cut where it is too long, and told as cut.

    Of a carriage return, as progress bars write it, only what came last is left.
    """
    if len(line) <= most_chars and line.isprintable():
        return line
    text = cut = line[:_READ_CHARS]
    if not cut.isprintable():
        text = _UNSEEN.sub("", CONTROL.sub("", cut)).rstrip()
        text = text.rpartition("\r")[2] if "\r" in text else text
    if len(text) <= most_chars and len(cut) == len(line):
        return text
    return f"{text[:most_chars]} [cut: {len(line)} characters]"


def plain_lines(text: str, most_lines: int = TEXT_LINES) -> Iterable[str]:
    """The lines of a text as they can be shown; of a long one the beginning, told as cut."""
    if len(text) <= LINE_CHARS and "\n" not in text:
        return (plain(text),) if text else ()
    return _several(text, most_lines)


def _several(text: str, most_lines: int) -> Iterator[str]:
    at, count = 0, 0
    while at < len(text):
        if count == most_lines:
            more = text.count("\n", at) + (text[-1] != "\n")
            yield f"[cut: {more} more line{'' if more == 1 else 's'}]"
            return
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield plain(text[at:end])
        at, count = end + 1, count + 1


# What programs print, made plain for reading: no escape codes, straight quotes, one kind of space.

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]{1,4}[0-~])?"
)
_JSON_ESCAPES: Final = re.compile(r'\\{1,8}(u[0-9a-fA-F]{4}|["nrt/])')
_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("‘’ʼ′", "'"),
        **dict.fromkeys("“”„", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000\t\x00", " "),
        **dict.fromkeys("·∙•⋅", ","),
        **dict.fromkeys("–—", "-"),
        **dict.fromkeys("：", ":"),
        **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", None),
        **dict.fromkeys("\r\u2028\u2029\x0b\x0c", "\n"),
    }
)
_HEAD_CHARS: Final = 8 << 10
_TAIL_CHARS: Final = 24 << 10


def ends_of(text: str) -> str:
    """The beginning and the end of a text, where failures are told: 32 KiB at most."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return text[:_HEAD_CHARS] + "\n" + text[-_TAIL_CHARS:]


def normalized(text: str) -> str:
    """``text`` without escape codes, with straight quotes, plain spaces, and commas for middle dots."""
    return _ESCAPES.sub("", text).translate(_PLAIN)


def unescaped(text: str) -> str:
    """``text`` with the escapes of JSON strings resolved, however deep one lies in another."""
    return _JSON_ESCAPES.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] == "u":
        return chr(int(escape[1:], 16))
    return {"n": "\n", "r": "\n", "t": " "}.get(escape, escape)
