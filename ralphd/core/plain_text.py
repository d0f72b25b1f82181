"""What programs print, made plain for reading: no escape codes, straight quotes, one kind of space."""

import re
from typing import Final

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


def plain(text: str) -> str:
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
