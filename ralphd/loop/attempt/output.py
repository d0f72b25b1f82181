"""Reads what an agent prints: bytes to lines, lines to events, and which of them are signs of life (L6, L7).

Everything is bounded, whatever an agent prints, and nothing that it does or fails to do makes the loop wait.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ralphd.agents.reading import MAX_LINE_CHARS
from ralphd.core.failures import agent_events
from ralphd.core.failures.agent_events import AgentEvent, RetryingItself, Traits, is_life
from ralphd.core.failures.classify import OurDoing
from ralphd.core.failures.patterns import LOST_CONNECTION
from ralphd.core.text import plain, plain_lines
from ralphd.core.time import Moment
from ralphd.loop.attempt.termination import Termination, TerminationRequest
from ralphd.store.files import make_private_folders, write_whole

if TYPE_CHECKING:
    from ralphd.loop.attempt.agent_run import AgentRunSpec
    from ralphd.process.agent_process import Pipes
    from ralphd.process.machine import Clock

logger = logging.getLogger(__name__)

LINES_KEPT = 50
MOST_CHARS = 1 << 16
"""How much is kept of the message of an agent's result."""
READ_BYTES = 1 << 16
KEEP_BYTES = 256 << 10

Lines: TypeAlias = Callable[[list[str]], None]


class AgentObserver(Protocol):
    """Receives what happens while an agent runs. None of these may block for long."""

    def show(self, line: str) -> None:
        """Log a line: the agent's words, its tool uses, its complaints."""

    def warn(self, text: str) -> None:
        """Log a long silence (H1)."""

    def retrying(self, event: RetryingItself) -> None:
        """Log that the agent retries after an error."""

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """Save the checkpoint: the agent is about to be ended."""


class AgentOutput:
    """The output of one agent, as events. With a hang timeout of 0 it is never stuck."""

    def __init__(
        self, spec: "AgentRunSpec", observer: AgentObserver, termination: Termination, clock: "Clock"
    ) -> None:
        self.parser = spec.agent.parser()
        self.last_life_at: Moment | None = None
        self.lines = deque[str](maxlen=LINES_KEPT)
        self.printed = self.worked = False
        self.session: str | None = None
        self.model: str | None = None
        self.figures = agent_events.Figures()
        self.verdict: agent_events.FinalEvent | None = None
        self.limited: agent_events.Limited | None = None
        self.retrying: RetryingItself | None = None
        self._agent, self._observer, self._termination, self._clock = spec.agent, observer, termination, clock
        self._hang_timeout_s, self._at_once = spec.limits.hang_timeout_s, spec.crash_grace_s == 0
        self._on_quota = spec.on_quota
        self._is_plain = not spec.agent.has_verdict
        self._idling = agent_events.NOT_IDLING
        self._has_failed = False
        self.lost_line: str | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def out(self, lines: list[str]) -> None:
        """Read whole lines of stdout."""
        self._each(lines, self._out)

    def err(self, lines: list[str]) -> None:
        """Read whole lines of stderr."""
        self._each(lines, self._err)

    def _each(self, lines: list[str], read: Callable[[str, Moment, float], None]) -> None:
        now, awake_s = self._clock.now(), self._clock.awake_s()
        if self._is_plain and not lines:
            self.last_life_at = now
        for line in lines:
            try:
                read(line, now, awake_s)
            except Exception:  # a parser that cannot read a line must not end the watch over its agent
                if not self._has_failed:
                    logger.exception("a line of %s cannot be read", self._agent.name)
                self._has_failed = True

    def _out(self, line: str, now: Moment, awake_s: float) -> None:
        self.printed = self.printed or bool(line.strip())
        events = tuple(self.parser.line(line))
        traits = agent_events.traits_of(events)
        if self._note_life(events, traits, now, awake_s) or self._is_plain:
            self._set_lost(None)
        if traits.judges:
            self._termination.result_reported()
        elif traits.works:
            self._termination.working()
        elif self._is_plain or traits.is_more_than_empty:
            self._termination.alive()
        for event in events:
            self._record(event, self._show_and_keep)
            if isinstance(event, agent_events.Warned):  # above all a line that is not an event
                self.lines.extend(plain_lines(event.text))
        if self._is_plain and not events:
            self._show_and_keep(plain(line))

    def _err(self, line: str, now: Moment, awake_s: float) -> None:
        events = tuple(self.parser.error_line(line))
        traits = agent_events.traits_of(events)
        alive = self._note_life(events, traits, now, awake_s)
        shown = plain(line)
        if LOST_CONNECTION.search(shown):
            # The first of several counts: an agent that only repeats this does not work.
            self.last_life_at = now if self.lost_line is None else self.last_life_at
            self._set_lost(self.lost_line or shown)
        elif alive:
            self._set_lost(None)
        if self._agent.patterns.live(line, at_once=self._at_once):
            self._termination.complained(shown)
        elif alive:
            self._termination.alive()
        for event in events:
            self._record(event, self._observer.show)
        if shown and not traits.is_told:
            self._observer.show(shown)

    def _set_lost(self, line: str | None) -> None:
        if line != self.lost_line:
            self.lost_line = line
            self.on_lost()

    def _note_life(self, events: tuple[AgentEvent, ...], traits: Traits, now: Moment, awake_s: float) -> bool:
        """Return whether the events are signs of life. For an agent without events every line is one (L6)."""
        if traits.progresses and not traits.idles:
            self._idling, self.last_life_at = agent_events.NOT_IDLING, now
            return True
        timeout_s = self._hang_timeout_s
        if traits.idles:  # any other line leaves the streak of idle steps as it is
            self._idling = agent_events.idled(self._idling, events, awake_s, timeout_s)
        alive = (traits.idles or traits.beats) and is_life(events, self._idling, awake_s, timeout_s)
        if alive or (self._is_plain and not traits.idles):
            self.last_life_at = now
        if traits.idles and agent_events.is_stuck(self._idling, timeout_s):
            why = agent_events.explain_stuck(self._agent.name, self._idling, timeout_s)
            self._termination.end(TerminationRequest(OurDoing.STALL, why.title, evidence=why))
        return alive

    def _record(self, event: AgentEvent, show: Callable[[str], None]) -> None:
        match event:
            case agent_events.WindowUsed():
                self._on_quota(event)
            case agent_events.AgentText() | agent_events.ToolUse():
                if not self.worked:
                    self._on_quota(None)
                self.worked, self.retrying, self.limited = True, None, None  # it got over both
                for line in agent_events.shown_lines(event):
                    show(line)
            case agent_events.Spent():
                self.figures = event.after(self.figures)
            case agent_events.Started(session=session, model=model):
                self.session, self.model = session or self.session, model or self.model
            case agent_events.FinalEvent(message=message, body=body):
                self.verdict = replace(event, message=message[:MOST_CHARS], body=body[:MOST_CHARS])
            case agent_events.Limited():
                self.limited = event
            case agent_events.Warned(text=text):
                self._observer.show(plain(f"{self._agent.name}: {text}".replace("\n", " ")))
            case RetryingItself():  # counts as the cause of the end if nothing follows it
                self.retrying = event
                self._observer.retrying(event)

    def _show_and_keep(self, line: str) -> None:
        self.lines.append(line)
        self._observer.show(line)


class LineAssembler:
    """Joins pieces of bytes into lines.

    A line that is too long is truncated, with a note. Invalid UTF-8 is replaced.
    """

    def __init__(self, most_bytes: int = MAX_LINE_CHARS) -> None:
        self._most_bytes = most_bytes
        self._pending = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are complete now, without their ends."""
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return []
        first = data.find(b"\n")
        self._hold(data[:first])
        lines = [self._take()]
        if end > first:  # decoded in one piece: line by line costs several times as much
            lines += data[first + 1 : end].decode(errors="replace").split("\n")
        self._hold(data[end + 1 :])
        return [line.removesuffix("\r") for line in lines] if b"\r" in data else lines

    def rest(self) -> list[str]:
        """Return the last line, if it has no end."""
        return [self._take()] if self._pending else []

    def _hold(self, data: bytes) -> None:
        room = self._most_bytes - len(self._pending)
        self._pending += data[:room]
        self._dropped_bytes += max(len(data) - room, 0)

    def _take(self) -> str:
        text = self._pending.decode(errors="replace")
        if self._dropped_bytes:
            text += f" [cut: {self._dropped_bytes} more bytes]"
        self._pending, self._dropped_bytes = bytearray(), 0
        return text


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pieces = deque[bytes]()
        self._size = self._added = 0

    @property
    def is_cut(self) -> bool:
        """Return whether more was added than is kept."""
        return self._added > self._most_bytes

    def add(self, data: bytes) -> None:
        """Add a piece."""
        self._pieces.append(data)
        self._size += len(data)
        self._added += len(data)
        while self._size - len(self._pieces[0]) >= self._most_bytes:
            self._size -= len(self._pieces.popleft())

    def data(self) -> bytes:
        """Return the last ``most_bytes``."""
        return b"".join(self._pieces)[-self._most_bytes :]


class Pump:
    """Writes the prompt, and passes on the lines of stdout and stderr as they come. It owns the pipes.

    The last ``keep_bytes`` of each stream are kept as raw bytes.
    """

    def __init__(
        self, pipes: "Pipes", prompt: bytes, *, out: Lines, err: Lines, keep_bytes: int = KEEP_BYTES
    ) -> None:
        self.out = _Reader(pipes.stdout, out, keep_bytes)
        self.err = _Reader(pipes.stderr, err, keep_bytes)
        self._prompt = None if pipes.stdin is None else _Writer(pipes.stdin, prompt)

    async def drained(self, limit_s: float) -> None:
        """Wait for the end of both streams, ``limit_s`` at most: a survivor may hold one open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.out.ended.wait()
                await self.err.ended.wait()

    def keep(self, directory: Path) -> None:
        """Write the end of each stream to ``directory``, for people and ``ralphctl classify``. Blocks."""
        for name, reader in (("stdout", self.out), ("stderr", self.err)):
            try:
                make_private_folders(directory)
                write_whole(directory / name, reader.tail.data()[-KEEP_BYTES:], durable=False)
            except OSError as fault:  # a full disk costs nothing but this
                logger.warning("%s cannot be written: %s", directory / name, fault)

    def close(self) -> None:
        """Close the pipes; a last line without its end is passed on first."""
        self.out.close()
        self.err.close()
        if self._prompt is not None:
            self._prompt.close()


class _Reader:
    """One stream, read in pieces of 64 KiB."""

    def __init__(self, descriptor: int, pass_on: Lines, keep_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.tail = Tail(keep_bytes)
        self._descriptor, self._pass_on, self._lines = descriptor, pass_on, LineAssembler()
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
        self._pass_on(self._lines.feed(data))  # perhaps none: a part of a line is a sign of life, too

    def close(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        if lines := self._lines.rest():
            self._pass_on(lines)


class _Writer:
    """Writes the prompt as fast as it is read, then closes the pipe. An unwanted prompt is dropped."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor, self._left = descriptor, memoryview(data)
        self._is_open = True
        asyncio.get_running_loop().add_writer(descriptor, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._descriptor, self._left[:READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # the reader closed its end
            self.close()
            return
        if not self._left:
            self.close()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_writer(self._descriptor)
            os.close(self._descriptor)
