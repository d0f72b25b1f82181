"""The lock on a working directory, and ``.ralph/lock``, which names its holder."""

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

from ralphd.daemon.services import Services
from ralphd.errors import DirectoryBusy, DirectoryUnusable
from ralphd.process.lock import DirectoryLock
from ralphd.store.files import Held, Lock
from ralphd.store.mirror import LOCK_FILE, Mirror


class DirectoryClaim:
    """The lock keeps a second Regent out (S2); ``.ralph/lock`` shows people and clients who holds it.

    The shim of an adopted run still holds the lock; it is taken when that run has ended.
    """

    def __init__(self, directory: Path, services: Services) -> None:
        self._directory, self._mirror = directory, Mirror(directory)
        socket, state_directory = str(services.socket_path), str(services.state_directory)
        self._text = json.dumps({"pid": os.getpid(), "socket": socket, "state_directory": state_directory})
        self._signpost: Lock | None = None
        self.lock: DirectoryLock | None = None

    def take(self) -> DirectoryLock:
        """Take the lock, or return it. Raise DirectoryBusy (names the holder), DirectoryUnusable."""
        if self.is_away():
            why = f"{self._directory} is on another file system than before: mount it again"
            raise OSError(errno.ESTALE, why)
        if self.lock is not None and not self._is_current(self.lock):
            self.lock.release()  # the directory was removed and made again: this locks nothing any more
            self.lock = None
        if self.lock is None:
            self.lock = DirectoryLock.acquire(self._directory)
        return self.lock

    def settle(self, *, supervised: bool, living: bool) -> bool:
        """Hold both while anything runs or will run, and nothing otherwise. Return whether the directory is
        there. Blocks, and so does ``take``: a directory on a network may hang.
        """
        if not supervised:
            self.release()
            return self._is_there()
        if self.lock is None and not living:
            with suppress(DirectoryBusy, DirectoryUnusable):
                self.take()
        if self._signpost is not None and not self._signpost.in_place():
            self._signpost.release()  # somebody has deleted it
            self._signpost = None
        if self._signpost is None:
            with suppress(OSError, Held, DirectoryUnusable):
                self._signpost = Lock.acquire(self._mirror.make() / LOCK_FILE, self._text)
        return self._is_there()

    def is_settled(self, *, supervised: bool, living: bool) -> bool:
        """Return whether ``settle`` has nothing to do and nothing to report. Blocks as it does."""
        if not supervised:
            return self.lock is None is self._signpost and (not living or self._is_there())
        is_held = self._signpost is not None and self._signpost.in_place() and (self.lock or living)
        return bool(is_held) and self._is_there()

    def is_away(self) -> bool:
        """Return whether the file system of the directory was unmounted: what is there now is not ours."""
        with suppress(OSError):
            return self.lock is not None and os.stat(self._directory).st_dev != os.fstat(self.lock.fd).st_dev  # noqa: PTH116
        return False

    def release(self) -> None:
        # In place: not what a link leads to that was put there meanwhile.
        if self._signpost is not None and self._signpost.in_place():
            with suppress(OSError):
                (self._mirror.path / LOCK_FILE).unlink()
        self.let_go()

    def let_go(self) -> None:
        """Release the locks of a daemon that ends, and leave the file for the next one."""
        for held in (self.lock, self._signpost):
            if held is not None:
                held.release()
        self.lock = self._signpost = None

    def _is_there(self) -> bool:
        # A directory that was removed and made again, as by a new clone, is not where the run works.
        return self._is_current(self.lock) if self.lock else os.path.isdir(self._directory)  # noqa: PTH112

    def _is_current(self, lock: DirectoryLock) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.fstat(lock.fd), os.stat(self._directory))  # noqa: PTH116
        return False
