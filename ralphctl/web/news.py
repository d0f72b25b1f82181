"""What has changed, for all who watch: one connection to the daemon, open only while somebody does."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from ralphd.unix_http import short_address

_MOST_NAMES: Final = 64
_AGAIN_S: Final = 1.0
_SILENCE_S: Final = 60.0  # of the events' stream, which is never silent for longer than 15 s
_MOST_LINE: Final = 1 << 20


class ChangedRalphs:
    """Names of ralphs that have changed since they were taken; None stands for all of them."""

    def __init__(self) -> None:
        self._names: set[str | None] = set()
        self._any = asyncio.Event()

    def add(self, name: str | None) -> None:
        """Note a change."""
        self._names = self._names | {name} if len(self._names) < _MOST_NAMES else {None}
        self._any.set()

    async def taken(self, limit_s: float) -> set[str | None]:
        """Return what has changed, or nothing after ``limit_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._any.wait()
        names, self._names = self._names, set()
        self._any.clear()
        return {None} if None in names else names


class NewsFeed:
    """Follows the daemon's events while there is a watcher."""

    def __init__(self, paths: Callable[[], Sequence[str]]) -> None:
        self._paths = paths
        self._watchers: set[ChangedRalphs] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    @contextmanager
    def watch(self) -> Iterator[ChangedRalphs]:
        """Yield the changes from now on."""
        changes = ChangedRalphs()
        self._watchers.add(changes)
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            yield changes
        finally:
            self._watchers.discard(changes)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _tell(self, name: str | None) -> None:
        for each in self._watchers:
            each.add(name)

    async def _follow(self) -> None:
        while True:
            with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
                await self._read()
            self._tell(None)  # what happened in between is unknown
            await asyncio.sleep(_AGAIN_S)

    async def _read(self) -> None:
        # HTTP/1.0, so that the reply has no chunks: each event is a line.
        with short_address(self._paths()[0]) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_MOST_LINE)
        try:
            writer.write(b"GET /v1/events HTTP/1.0\r\nHost: ralphd\r\n\r\n")
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    line = await reader.readline()
                if not line:
                    return
                if line.startswith(b"data:"):
                    self._tell(json.loads(line[5:]).get("ralph"))
        finally:
            writer.close()
