"""Carries an agent's three streams. Nothing that the agent does or leaves undone makes the loop wait."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from ralphd.loop.lines import Lines, Tail
from ralphd.process.attempt import Pipes

READ_BYTES = 1 << 16
KEEP_BYTES = 256 << 10

Hear: TypeAlias = Callable[[list[str]], None]


class Pump:
    """Feeds the prompt, and gives the lines of stdout and stderr as they come. It owns the pipes.

    The last ``keep_bytes`` of each are kept as they are.
    """

    def __init__(
        self, pipes: Pipes, prompt: bytes, *, out: Hear, err: Hear, keep_bytes: int = KEEP_BYTES
    ) -> None:
        self.out = _Reader(pipes.stdout, out, keep_bytes)
        self.err = _Reader(pipes.stderr, err, keep_bytes)
        self._prompt = None if pipes.stdin is None else _Writer(pipes.stdin, prompt)

    async def drained(self, limit_s: float) -> None:
        """Wait for the end of both streams; who still holds one open gets ``limit_s`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.out.ended.wait()
                await self.err.ended.wait()

    def close(self) -> None:
        """Let go of the pipes; a last line without its end is given first."""
        self.out.close()
        self.err.close()
        if self._prompt is not None:
            self._prompt.close()


class _Reader:
    """One stream, by reads of 64 KiB and never line by line."""

    def __init__(self, descriptor: int, hear: Hear, keep_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.tail = Tail(keep_bytes)
        self._descriptor, self._hear, self._lines = descriptor, hear, Lines()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self.tail.add(data)
        if lines := self._lines.feed(data):
            self._hear(lines)

    def close(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        if lines := self._lines.rest():
            self._hear(lines)


class _Writer:
    """Gives the prompt as fast as it is taken, then closes; one that is not wanted is dropped."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor, self._left = descriptor, memoryview(data)
        self._is_open = True
        asyncio.get_running_loop().add_writer(descriptor, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._descriptor, self._left[:READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # it has closed its end
            self.close()
            return
        if not self._left:
            self.close()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_writer(self._descriptor)
            os.close(self._descriptor)
