"""How the time and memory of a parser grow with its input: no input may take the square of its size."""

import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.fuzz.parsers import KIB, MIB, Parser

FIRST_BYTES = 10_000
QUICK_S = 0.1
"""What is done sooner is not judged by its ratio."""
MOST_S_PER_MIB = 100.0
MOST_RATIO = 3.0
"""Ten times the input may take ten times as long, this often."""
MOST_MEMORY = 200
"""Bytes for each byte of input, above what a small input needs."""


class TooSlow(AssertionError):
    """An input took longer than any of its size may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the main thread after so many seconds of its processor time."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def faults(
    parser: Parser, *, most_bytes: int = 10 * MIB, seed: int = 0, seconds: float = 1e9
) -> Iterator[str]:
    """Yield each kind of input whose time grows faster than its size.

    The sizes are powers of ten, from 10 kB on: first all kinds in the smallest, in an order that the seed
    makes, then larger ones, for as long as there is time.
    """
    kinds = [what for what, _ in parser.grown(64)]
    random.Random(seed).shuffle(kinds)
    before_s, until, size = dict.fromkeys(kinds, 0.0), time.monotonic() + seconds, FIRST_BYTES
    while size <= min(most_bytes, parser.most_bytes):
        for what in list(before_s):
            if time.monotonic() > until:
                return
            before = before_s.pop(what)
            data = dict(parser.grown(size))[what]
            took_s, fault = _took(parser, data)
            if not fault and _is_steep(before, took_s):  # a busy machine, or so: twice is no accident
                before = max(before, _took(parser, dict(parser.grown(size // 10))[what])[0])
                took_s = min(took_s, _took(parser, data)[0])
            if fault:
                yield f"{parser.name}, {what}, {size // 1000} kB: {fault}"
            elif _is_steep(before, took_s):
                yield f"{parser.name}, {what}: {took_s:.1f} s for {size // 1000} kB, a tenth: {before:.2f} s"
            else:
                before_s[what] = took_s
        size *= 10


def _is_steep(before_s: float, took_s: float) -> bool:
    return before_s > QUICK_S / 10 and took_s > QUICK_S and took_s > 10 * MOST_RATIO * before_s


def _took(parser: Parser, data: bytes) -> tuple[float, str]:
    limit_s = 2 + MOST_S_PER_MIB * len(data) / MIB
    began, memory = time.process_time(), _peak_bytes()
    try:
        with limited(limit_s):
            parser.call(data)
    except TooSlow as slow:
        return limit_s, str(slow)
    except Exception as fault:
        return 0.0, f"{type(fault).__name__}: {str(fault)[:200]}"
    grown = _peak_bytes() - memory
    if grown > 64 * MIB + MOST_MEMORY * len(data):
        return 0.0, f"{grown >> 20} MiB of memory for {len(data) >> 10} KiB"
    return time.process_time() - began, ""


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
