"""Hears what an agent says: shows it, keeps what counts of it, and tells life from noise (L6, L7)."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from ralphd.agents.agent import MAX_LINE_CHARS, Agent
from ralphd.core.failures.agent_events import (
    NOT_IDLING,
    AgentEvent,
    AgentText,
    FinalEvent,
    Idling,
    Limited,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Traits,
    Warned,
    explain_stuck,
    idled,
    is_life,
    is_stuck,
    traits_of,
)
from ralphd.core.failures.classify import OurDoing
from ralphd.core.text import plain, plain_lines
from ralphd.core.time import Moment
from ralphd.loop.attempt.observer import AttemptObserver
from ralphd.loop.attempt.termination import Termination, TerminationRequest
from ralphd.process.agent_process import Pipes
from ralphd.process.machine import Clock

logger = logging.getLogger(__name__)

Show: TypeAlias = Callable[[str], None]

LINES_KEPT = 50
MOST_CHARS = 1 << 16
"""How much is kept of a message of the agent's end."""


class AgentOutput:
    """One attempt, as far as it can be heard.

    ``hang_timeout_s`` 0: nobody asks whether it is stuck. ``at_once``: crash messages are given no grace.
    """

    def __init__(
        self,
        agent: Agent,
        news: AttemptObserver,
        endings: Termination,
        *,
        clock: Clock,
        hang_timeout_s: float,
        at_once: bool = False,
    ) -> None:
        self.parser = agent.parser()
        self.last_life_at: Moment | None = None
        self.lines = deque[str](maxlen=LINES_KEPT)
        self.printed = self.worked = False
        self.session: str | None = None
        self.model: str | None = None
        self.cost_usd: float | None = None
        self.tokens_in = self.tokens_out = 0
        self.verdict: FinalEvent | None = None
        self.limited: Limited | None = None
        self.retrying: RetryingItself | None = None
        self._agent, self._news, self._endings, self._clock = agent, news, endings, clock
        self._hang_timeout_s = hang_timeout_s
        self._at_once = at_once
        self._is_plain = not agent.has_verdict
        self._idling: Idling = NOT_IDLING
        self._has_failed = False

    def out(self, lines: list[str]) -> None:
        """Whole lines of stdout."""
        self._each(lines, self._out)

    def err(self, lines: list[str]) -> None:
        """Whole lines of stderr."""
        self._each(lines, self._err)

    def _each(self, lines: list[str], hear: Callable[[str, Moment, float], None]) -> None:
        now, awake_s = self._clock.now(), self._clock.awake_s()
        for line in lines:
            try:
                hear(line, now, awake_s)
            except Exception:  # a parser that cannot read a line must not end the watch over its agent
                if not self._has_failed:
                    logger.exception("a line of %s cannot be heard", self._agent.name)
                self._has_failed = True

    def _out(self, line: str, now: Moment, awake_s: float) -> None:
        self.printed = self.printed or bool(line.strip())
        signs = tuple(self.parser.line(line))
        traits = traits_of(signs)
        self._note_life(signs, traits, now, awake_s)
        if traits.judges:
            self._endings.result_told()
        elif traits.works:
            self._endings.went_on()
        elif self._is_plain or traits.is_more_than_empty:
            self._endings.lived()
        for sign in signs:
            self._hear(sign, self._show_and_keep)
        if self._is_plain and not signs:
            self._show_and_keep(plain(line))

    def _err(self, line: str, now: Moment, awake_s: float) -> None:
        signs = tuple(self.parser.error_line(line))
        traits = traits_of(signs)
        alive = self._note_life(signs, traits, now, awake_s)
        shown = plain(line)
        if self._agent.patterns.live(line, at_once=self._at_once):
            self._endings.complained(shown)
        elif alive:
            self._endings.lived()
        for sign in signs:
            self._hear(sign, self._news.show)
        if shown and not traits.is_told:
            self._news.show(shown)

    def _note_life(self, signs: tuple[AgentEvent, ...], traits: Traits, now: Moment, awake_s: float) -> bool:
        """Whether its signs tell of life. Of an agent without events each line is life as well (L6)."""
        if traits.progresses and not traits.idles:
            self._idling, self.last_life_at = NOT_IDLING, now
            return True
        timeout_s = self._hang_timeout_s
        if not (traits.idles or traits.progresses):  # the row of idle steps is as it was
            alive = traits.beats and is_life(signs, self._idling, awake_s, timeout_s)
            if alive or self._is_plain:
                self.last_life_at = now
            return alive
        self._idling = idled(self._idling, signs, awake_s, timeout_s)
        alive = is_life(signs, self._idling, awake_s, timeout_s)
        if alive or (self._is_plain and not traits.idles):
            self.last_life_at = now
        if is_stuck(self._idling, timeout_s):
            why = explain_stuck(self._agent.name, self._idling, timeout_s)
            self._endings.end(TerminationRequest(OurDoing.STALL, why.title, evidence=why))
        return alive

    def _hear(self, sign: AgentEvent, show: Show) -> None:
        """Keep what counts of a sign, and tell it; of retries the last one, where nothing came after it."""
        match sign:
            case AgentText(text=text):
                self.worked, self.retrying = True, None
                for line in plain_lines(text):
                    show(line)
            case ToolUse(name=name, about=about):
                self.worked, self.retrying = True, None
                show(plain(f"[{name}] {about.partition(chr(10))[0]}".rstrip()))
            case Spent():
                self._spend(sign)
            case Started(session=session, model=model):
                self.session, self.model = session or self.session, model or self.model
            case FinalEvent(message=message, body=body):
                self.verdict = replace(sign, message=message[:MOST_CHARS], body=body[:MOST_CHARS])
            case Limited():
                self.limited = sign
            case Warned(text=text):
                self._news.show(plain(f"{self._agent.name}: {text}".replace("\n", " ")))
            case RetryingItself():
                self.retrying = sign
                self._news.retrying(sign)
            case _:
                pass

    def _spend(self, spent: Spent) -> None:
        if spent.cost_usd is not None:
            before = 0.0 if spent.total else self.cost_usd or 0.0
            self.cost_usd = before + spent.cost_usd
        self.tokens_in = spent.tokens_in + (0 if spent.total else self.tokens_in)
        self.tokens_out = spent.tokens_out + (0 if spent.total else self.tokens_out)

    def _show_and_keep(self, line: str) -> None:
        self.lines.append(line)
        self._news.show(line)


# Bytes to lines, and the end of them: both bounded, whatever an agent prints.


class LineAssembler:
    """Puts lines together from pieces of bytes.

    Of a line that is too long the beginning is kept, and told as cut. Bytes that are no UTF-8 are replaced.
    """

    def __init__(self, most_bytes: int = MAX_LINE_CHARS) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now, without their ends."""
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return []
        first = data.find(b"\n")
        self._hold(data[:first])
        lines = [self._taken()]
        if end > first:  # decoded at once: a line at a time costs several times as much
            lines += data[first + 1 : end].decode(errors="replace").split("\n")
        self._hold(data[end + 1 :])
        return [line.removesuffix("\r") for line in lines] if b"\r" in data else lines

    def rest(self) -> list[str]:
        """The last line, where it has no end."""
        return [self._taken()] if self._held else []

    def _hold(self, data: bytes) -> None:
        room = self._most_bytes - len(self._held)
        self._held += data[:room]
        self._dropped_bytes += max(len(data) - room, 0)

    def _taken(self) -> str:
        text = self._held.decode(errors="replace")
        if self._dropped_bytes:
            text += f" [cut: {self._dropped_bytes} more bytes]"
        self._held, self._dropped_bytes = bytearray(), 0
        return text


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pieces = deque[bytes]()
        self._size = self._added = 0

    @property
    def is_cut(self) -> bool:
        """Whether there was more than is kept."""
        return self._added > self._most_bytes

    def add(self, data: bytes) -> None:
        """One more piece."""
        self._pieces.append(data)
        self._size += len(data)
        self._added += len(data)
        while self._size - len(self._pieces[0]) >= self._most_bytes:
            self._size -= len(self._pieces.popleft())

    def data(self) -> bytes:
        """What is kept: ``most_bytes`` at most."""
        return b"".join(self._pieces)[-self._most_bytes :]


# Carries an agent's three streams. Nothing that the agent does or leaves undone makes the loop wait.

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
        self._descriptor, self._hear, self._lines = descriptor, hear, LineAssembler()
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
