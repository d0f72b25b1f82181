"""What an agent printed, made safe for a terminal (F6): colours stay, everything that moves, writes the
clipboard or answers back is shown instead of done."""

from __future__ import annotations

import re

from ralphctl.tell import clean

_SGR = re.compile(r"(\x1b\[[0-9;:]{0,64}m)")
_RESET = "\x1b[0m"


def neutralise(text: str) -> str:
    """One line without its newline, safe to print; it ends in the terminal's own colours."""
    text = text.removesuffix("\r")
    if text.isprintable():
        return text
    parts = _SGR.split(text)
    shown = "".join(part if i % 2 else _shown(part) for i, part in enumerate(parts))
    return shown + _RESET if len(parts) > 1 else shown


def _shown(text: str) -> str:
    return "\t".join(clean(part) for part in text.split("\t"))
