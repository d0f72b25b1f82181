"""A shim as a daemon holds it: a pid that cannot become another process's (S8)."""

import asyncio
import os
import signal
from contextlib import suppress

from ralphd.process import tree
from ralphd.process.rundir import RunRecord


class PinnedShim:
    """A shim, pinned by a descriptor, so that no signal for it can reach anybody else (S8)."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid, self._pidfd = pid, pidfd
        self._end: asyncio.Future[None] | None = None

    def __del__(self) -> None:
        os.close(self._pidfd)

    @classmethod
    def of_record(cls, record: RunRecord | None) -> "PinnedShim | None":
        """The shim that a record names; None when it is gone, or its pid is another process's by now."""
        if record is None:
            return None
        try:
            shim = cls(record.shim_pid, os.pidfd_open(record.shim_pid))
        except OSError:
            return None
        return shim if tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id) else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and SIGCONT with it. A shim that is gone gets none."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    async def gone(self) -> None:
        """Wait for its end; one that we started is reaped then. Several may wait, and any may give up."""
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = loop.create_future()
            loop.add_reader(self._pidfd, self._ended, loop)
        await asyncio.shield(self._end)

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._pidfd)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        if self._end is not None and not self._end.done():
            self._end.set_result(None)
