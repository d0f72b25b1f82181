"""All checks at once, each within a limit: one that hangs keeps nobody waiting."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ralphctl.local.doctor.findings import Finding, Level


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at; ``look`` may block, and may raise OSError."""

    name: str
    look: Callable[[], Sequence[Finding]]


QUIET_S = 1.0
"""Who has waited so long is told for what."""


def carried_out(
    checks: Sequence[Check], *, limit_s: float, waiting: Callable[[Sequence[str]], None]
) -> list[Finding]:
    """What all have found, in their order. ``waiting`` is told once who is not back, if it takes long.

    What is not back after ``limit_s`` seconds is told as not known. Any other exception than OSError comes
    through.
    """
    came: queue.SimpleQueue[tuple[int, Sequence[Finding] | BaseException]] = queue.SimpleQueue()
    for number, check in enumerate(checks):
        # Daemon threads: nothing else leaves a system call that hangs, as one on a dead NFS server does.
        threading.Thread(target=_look, args=(number, check, came), daemon=True).start()
    back: dict[int, Sequence[Finding]] = {}
    began, has_told = time.monotonic(), False
    while len(back) < len(checks) and (left_s := limit_s - (time.monotonic() - began)) > 0:
        try:
            number, found = came.get(timeout=left_s if has_told else min(QUIET_S, left_s))
        except queue.Empty:
            if not has_told:
                waiting([check.name for number, check in enumerate(checks) if number not in back])
            has_told = True
            continue
        if isinstance(found, BaseException):
            raise found
        back[number] = found
    return [
        each for n, check in enumerate(checks) for each in back.get(n) or _late(check, n in back, limit_s)
    ]


def _late(check: Check, is_back: bool, limit_s: float) -> Sequence[Finding]:
    if is_back:
        return ()
    return [Finding(check.name, Level.UNKNOWN, f"there was no answer within {limit_s:g} s")]


def _look(
    number: int, check: Check, came: queue.SimpleQueue[tuple[int, Sequence[Finding] | BaseException]]
) -> None:
    try:
        came.put((number, check.look()))
    except OSError as fault:
        came.put((number, [Finding(check.name, Level.FAILED, f"it could not be looked at: {fault}")]))
    except BaseException as fault:  # raised in the main thread
        came.put((number, fault))
