"""What wakes the main thread of a view."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


class Bell:
    """Rung by other threads, by signals, by a terminal of another size; looked at with ``poll``."""

    def __init__(self) -> None:
        self.fd, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda number, frame: None)  # it only wakes

    def ring(self) -> None:
        """Wake it."""
        with suppress(BlockingIOError):  # rung often enough
            os.write(self._rope, b"!")

    def hush(self) -> None:
        """Forget that it was rung."""
        with suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass
