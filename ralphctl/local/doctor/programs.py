"""Ask a program something, within a limit of time and of output, and leave nothing of it behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_MOST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What it printed, on both streams, and how it ended; ``code`` is None where it had to be ended."""

    code: int | None
    text: str


def ask(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Answer | None:
    """Its answer; None where it cannot be started. One that prints without end is ended."""
    try:
        asked = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    assert asked.stdout is not None  # it is a pipe
    deadline = time.monotonic() + limit_s
    try:
        printed = _read(asked.stdout.fileno(), deadline)
        code = _ended(asked, deadline) if printed is not None else None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(asked.pid, signal.SIGKILL)  # all that it has started; nobody has reaped its leader
        with suppress(subprocess.TimeoutExpired):
            asked.wait(1.0)
        asked.stdout.close()
    return Answer(code, (printed or b"").decode(errors="replace"))


def _read(pipe: int, deadline: float) -> bytes | None:
    """All that comes; None where it does not end in time, or is too much."""
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(printed) < _MOST_BYTES:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            part = os.read(pipe, _MOST_BYTES)
            if not part:
                return printed
            printed += part
    return None


def _ended(asked: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Its exit code, without reaping it: its pid has to stay its own until its group is signalled."""
    while time.monotonic() < deadline:
        ended = os.waitid(os.P_PID, asked.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            is_exit = ended.si_code == os.CLD_EXITED
            return ended.si_status if is_exit else -ended.si_status
        time.sleep(0.01)
    return None
