"""A word about what takes longer than a second: for what is waited, and how long at most."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ralphctl.tell import message

QUIET_S = 1.0


def words(what: str, limit_s: float) -> str:
    """``waiting for ralphd to answer; 10 s at most``."""
    return f"waiting for {what}; {limit_s:g} s at most"


def slow(what: str, limit_s: float) -> Callable[[], None] | None:
    """Says so, where somebody sits at a terminal; None where nobody does."""
    return (lambda: message(words(what, limit_s))) if sys.stderr.isatty() else None


@contextmanager
def telling(what: str, limit_s: float) -> Iterator[None]:
    """While something is done that may take ``limit_s`` seconds: say so once, to who sits at a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(QUIET_S, message, (words(what, limit_s),))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
