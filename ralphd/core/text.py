"""Text from outside, made safe to show, store and match: one grammar of control sequences, one truncation."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

CONTROL: Final = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f]"  # a class at the beginning is looked for ten times as fast
    r"(?:(?<=\x1b)(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[ -/]*[0-Z\\^-~]))?"
)
"""One grammar for everything a terminal acts upon, except tab, line feed and carriage return."""

_UNSEEN: Final = re.compile(
    "[\\x0b\\x0c\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u061c\\ud800-\\udfff]"
)
"""Characters that reverse or break a line, and lone surrogates, which cannot be encoded."""
_SEQUENCES: Final = re.compile(r"(?=\x1b.)" + CONTROL.pattern)
LINE_CHARS: Final = 2000
TEXT_LINES: Final = 200
_READ_CHARS: Final = 4 * LINE_CHARS


def strip_controls(text: str) -> str:
    """Return ``text`` without control sequences."""
    return CONTROL.sub("", text) if "\x1b" in text or not text.isprintable() else text


def truncate(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def one_line(text: str, limit: int) -> str:
    """Return ``text`` as one line of printable characters, truncated to ``limit``."""
    words = "".join(each if each.isprintable() else " " for each in _SEQUENCES.sub("", text)).split()
    return truncate(" ".join(words), limit)


def first_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others: ``a, b, c and 2 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def commit_names(shas: Sequence[str], most: int = 3) -> str:
    """Return ``commit abc1234`` or ``commits abc1234, def5678``."""
    return f"commit{'s' if len(shas) > 1 else ''} {first_names(shas, most)}"


def short_sha(sha: str) -> str:
    """Return the seven characters of a commit's id that people read."""
    return sha[:7]


def plain(line: str, most_chars: int = LINE_CHARS) -> str:
    """Return one line without control sequences; a longer one ends in a note of its length.

    Progress bars overwrite a line after a carriage return: only the last version is kept.
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
    """Return the lines of ``text`` made plain; a longer text ends in a note of how many lines are missing."""
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
    """Return the beginning and the end of ``text``, where failures are reported: 32 KiB at most."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return text[:_HEAD_CHARS] + "\n" + text[-_TAIL_CHARS:]


def normalized(text: str) -> str:
    """Return ``text`` for matching: no escape codes, straight quotes, plain spaces, commas for dots."""
    return strip_controls(text).translate(_PLAIN)


def unescaped(text: str) -> str:
    """Return ``text`` with the escapes of JSON strings resolved, nested ones too."""
    return _JSON_ESCAPES.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] == "u":
        return chr(int(escape[1:], 16))
    return {"n": "\n", "r": "\n", "t": " "}.get(escape, escape)
