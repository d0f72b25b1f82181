"""Wait until a directory changes, by inotify(7): a follower sees a line at once, else it sleeps."""

import asyncio
import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_READ_BYTES: Final = 16384
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Arrival:
    """Wakes one follower at a write to a file in the watched directory. ``close`` it.

    Where there is no watch (the directory is missing, or the user has 128 instances), ``works`` is False, and
    ``wait`` only sleeps.
    """

    def __init__(self) -> None:
        self._fd = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch, self._path = -1, Path()
        self._changed = asyncio.Event()
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._note)

    @property
    def works(self) -> bool:
        """Whether a change ends ``wait`` early."""
        return self._watch >= 0

    def watch(self, directory: Path) -> None:
        """Watch this directory instead of the one before."""
        if directory == self._path and self.works:
            return
        if self.works:
            _LIBC.inotify_rm_watch(self._fd, self._watch)
        mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
        self._watch = _LIBC.inotify_add_watch(self._fd, os.fsencode(directory), mask) if self._fd >= 0 else -1
        self._path = directory
        if self.works:
            self._changed.set()  # what came before the watch

    async def wait(self, limit_s: float) -> None:
        """Wait for a change since the last call, ``limit_s`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        """Watch nothing any more."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = self._watch = -1

    def _note(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, _READ_BYTES)
        self._changed.set()
