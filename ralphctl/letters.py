"""What is ours to print, in letters that a terminal without UTF-8 has too."""

from __future__ import annotations

import codecs
from typing import TextIO

_ASCII = str.maketrans(
    {"─": "-", "·": "|", "—": "-", "…": "~", "✅": "(good)", "❌": "(bad)", "🛡": "[ralphd]", "\ufe0f": ""}
)


def is_utf8(stream: TextIO) -> bool:
    """Whether what is written to ``stream`` may hold any letter."""
    try:
        return codecs.lookup(stream.encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def in_ascii(text: str) -> str:
    """``text`` with words for our signs, and every other letter that is not ASCII escaped."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
