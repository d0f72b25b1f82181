"""Streamed replies: sent piece by piece, bounded in number and time, ended when the daemon ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from ralphd.api.errors import problem
from ralphd.errors import DaemonBusy

MAX_STREAMS = 256
SEND_S = 30.0
"""A client that reads nothing for this long is cut; it resumes by its cursor or Last-Event-ID."""
LAST_WORDS_S = 0.2
"""How long a stream may take to end once the daemon stops."""


class Turnstile:
    """Limits open streams, so that clients never use up the descriptors that supervision needs."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most, self._open = most, 0

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """Count one stream for the duration of the block. Raises DaemonBusy."""
        if self._open >= self._most:
            mend = "close one, or ask without follow, and try again"
            raise DaemonBusy(f"{self._most} streams are open already", mend=mend)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class StreamReply(Response):
    """A reply made of ``pieces`` while they come, each at most some 64 KiB.

    ``pieces`` ends soon after ``stopping`` is set, or is cancelled; it is cancelled too when the client hangs
    up. A client that does not read costs one piece and the socket's buffer, and loses its connection after
    ``send_s`` seconds.
    """

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], *,
        media_type: str, stopping: asyncio.Event, turnstile: Turnstile, send_s: float = SEND_S,
    ) -> None:  # fmt: skip
        super().__init__(media_type=media_type, headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._pieces, self._send_s = pieces, send_s
        self._stopping, self._turnstile = stopping, turnstile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream to its end, or until the client or the daemon leaves."""
        try:
            with self._turnstile.passed():
                if not await self._sent_to_its_end(receive, send):
                    await _cut(scope, receive)
        except DaemonBusy as full:
            await problem(full)(scope, receive, send)
        finally:
            await self._pieces.aclose()

    async def _sent_to_its_end(self, receive: Receive, send: Send) -> bool:
        """Return False when the connection has to be cut: half a reply must not pass for a whole one."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with _running(self._pump(send), _hung_up(receive), self._stopping.wait()) as tasks:
            pump, hung_up, stopping = tasks
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not hung_up.done():
                await asyncio.wait({pump, hung_up}, timeout=LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                return bool(await pump)
            if hung_up.done():
                return True
        return await self._sent(send, b"", more=False, within_s=LAST_WORDS_S)

    async def _pump(self, send: Send) -> bool:
        """Send every piece and the end; return False when the client did not read one in time."""
        async for piece in self._pieces:
            if not await self._sent(send, piece, more=True, within_s=self._send_s):
                return False
        return await self._sent(send, b"", more=False, within_s=self._send_s)

    @staticmethod
    async def _sent(send: Send, piece: bytes, *, more: bool, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            return False
        return True


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cut(scope: Scope, receive: Receive) -> None:
    """Drop the connection with its unsent bytes; a close would wait for the client to read them."""
    abort: Callable[[], None] = scope["state"]["abort"]
    abort()
    await _hung_up(receive)


@contextlib.asynccontextmanager
async def _running(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run tasks that all end with the block."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
