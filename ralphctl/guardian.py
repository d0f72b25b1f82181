"""Gives the terminal back when we are killed: no handler of ours runs then (VW-5, L12).

A small process in a group of its own, so that neither Ctrl-C nor Ctrl-Z nor a kill of ours reaches it. It
holds the terminal and the read end of a pipe, and nothing else. At the end of file it sets the terminal as it
was, if that has still the very modes that we gave it: a shell that came after us has set others. It ends in
any case.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
from contextlib import suppress

_BYTES = 64
"""The kernel's termios has 36; the rest stays zero."""
_END_LIMIT_S = 2.0
_PROGRAM = f"""# ralphctl: gives the terminal back
import _signal, fcntl, os, sys, termios
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT,
               _signal.SIGTSTP, _signal.SIGTTOU, _signal.SIGTTIN):
    _signal.signal(number, _signal.SIG_IGN)
held = b""
while piece := os.read(int(sys.argv[1]), 4096):
    held = (held + piece)[-{2 * _BYTES}:]
before, ours = held[:{_BYTES}], held[{_BYTES}:]
try:
    if ours and fcntl.ioctl(0, termios.TCGETS, bytes({_BYTES})) == ours:
        fcntl.ioctl(0, termios.TCSETS, before)
except OSError:
    pass
"""


def modes(fd: int) -> bytes:
    """The terminal's modes, as the kernel has them. Raises OSError."""
    return fcntl.ioctl(fd, termios.TCGETS, bytes(_BYTES))


class Guardian:
    """Watches over the terminal at ``fd`` from its making until ``dismiss``, or until we die."""

    def __init__(self, fd: int) -> None:
        self._rope = -1
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no processes left: then there is none
            self._start(fd)

    def _start(self, fd: int) -> None:
        heard, self._rope = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-c", _PROGRAM, str(heard)],
                stdin=fd,
                stdout=subprocess.DEVNULL,  # a pipeline is not to wait for it
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                pass_fds=[heard],
                process_group=0,
            )
        finally:
            os.close(heard)

    def tell(self, before: bytes, ours: bytes) -> None:
        """What the terminal was like, and is now, by our doing."""
        with suppress(OSError):
            os.write(self._rope, before + ours)

    def dismiss(self) -> None:
        """Let it end, and wait for that. The terminal has been given back."""
        if self._rope >= 0:
            os.close(self._rope)
            self._rope = -1
        if self._process is not None:
            try:
                self._process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
