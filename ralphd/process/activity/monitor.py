"""Looks at one tree for as long as it lives, and says what to think of its silence (H1 to H6).

A run is watched so by its Regent, an attempt by the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ralphd.core.explanation import Explanation, Seen, Sighting
from ralphd.core.stall_detector import (
    Glance,
    SilenceLimits,
    StallFinding,
    Watch,
    Window,
    begun,
    finding,
    is_watched,
    looked,
    next_look_s,
    warned,
)
from ralphd.core.stall_report import RALPH, Named, explain_silence, explain_watch, silence_text
from ralphd.core.supervision.model import RunReports
from ralphd.core.time import Moment
from ralphd.process.activity.probe import Observer
from ralphd.process.machine import Clock

logger = logging.getLogger(__name__)

ENDS = (StallFinding.STALL, StallFinding.TOO_LONG)


def _nothing_heard() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched, what is to be known of it at any time, and who is told.

    ``id`` is for the log, ``who`` for people. ``age_s`` is how long it has lived already, by a clock that
    nobody can set. ``observer`` makes what looks at its tree, and at the files that change from a moment on.
    ``said`` gives what it has said of itself, ``heard`` how many reports it has sent so far. ``last_output``,
    ``last_lines`` and ``keep`` may raise OSError; the latter two are called in a thread.
    """

    id: str
    began_at: Moment
    age_s: float
    limits: SilenceLimits
    observer: Callable[[Moment], Observer]
    last_output: Callable[[], Moment | None]
    last_lines: Callable[[], Sequence[str]]
    keep: Callable[[Sighting], None]
    warn: Callable[[str], None]
    end: Callable[[StallFinding, str], None]
    said: Callable[[], RunReports] = RunReports
    heard: Callable[[], int] = _nothing_heard
    who: Named = field(default=RALPH)


class StallMonitor:
    """The watch over one tree. ``run`` goes on until it is cancelled, or the tree is to be ended."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject = subject
        self._clock = clock
        self._observer: Observer | None = None
        now = clock.now()
        self.watch: Watch = begun(now, subject.began_at, self._last_output(), age_s=subject.age_s)
        self._awake_s, self._asleep_s = clock.awake_s(), clock.asleep_s()
        self._looked_s = self._awake_s
        self._heard = subject.heard()
        self._prompt = asyncio.Event()
        self._ended_for: StallFinding | None = None
        self._excused_until = now

    async def run(self) -> None:
        """Glance at it as often as patience asks for."""
        try:
            while self._ended_for is None:
                try:
                    await self._watch_once()
                except (OSError, RuntimeError) as fault:  # what the machine lacks comes back by itself
                    logger.warning("a look at %s failed: %s", self._subject.id, fault)
        finally:
            self._look_away()

    async def _watch_once(self) -> None:
        rest_s = next_look_s(self.watch, self._subject.limits)
        await self._rest(rest_s)
        await self._glance(rest_s)
        found = finding(self.watch, self._subject.limits)
        if found is StallFinding.WARN:
            await self._warn()
        elif found in ENDS:
            await self._end(found)

    def hurry(self) -> None:
        """Something was reported that may change how long to be patient: do not rest any longer."""
        self._prompt.set()

    def explanation(self) -> Explanation:
        """What is thought of it now, in words and figures; what ended it stays the verdict."""
        limits, who = self._subject.limits, self._subject.who
        watch = self.watch if self._ended_for else looked(self.watch, self._seen(None, float("inf")), limits)
        return explain_watch(watch, limits, self._ended_for or finding(watch, limits), who)

    def silence(self) -> Explanation | None:
        """What was thought of its silence, now that it has ended; None when it was never looked at."""
        if self._ended_for is not None:
            return self.explanation()
        return explain_silence(self.watch, self._subject.limits) if self.watch.windows else None

    async def _rest(self, rest_s: float) -> None:
        self._prompt.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if rest_s == float("inf") else rest_s):
                await self._prompt.wait()

    async def _glance(self, planned_s: float) -> None:
        limits = self._subject.limits
        watch = self.watch = replace(self.watch, reports=self._subject.said().beats)
        began_s = self._clock.awake_s()
        window = await self._look() if is_watched(watch, limits) and self._is_due() else None
        glance = self._seen(window, planned_s + self._clock.awake_s() - began_s)
        self._awake_s += glance.elapsed_s
        if glance.excused and (wait := self._subject.said().wait) is not None:
            self._excused_until = wait.until
        self._asleep_s, self._heard = self._clock.asleep_s(), self._subject.heard()
        self.watch = looked(watch, glance, limits)
        if not is_watched(self.watch, limits):
            self._look_away()

    def _seen(self, window: Window | None, planned_s: float) -> Glance:
        """What is to be seen of it now, beside its tree."""
        now, said = self._clock.now(), self._subject.said()
        return Glance(
            now=now,
            elapsed_s=self._clock.awake_s() - self._awake_s,
            planned_s=planned_s,
            last_output_at=self._last_output(),
            slept_s=max(self._clock.asleep_s() - self._asleep_s, 0.0),
            heard=self._subject.heard() != self._heard,
            excused=said.testing or (said.wait is not None and now < said.wait.until),
            since_excuse_s=now - self._excused_until,
            window=window,
        )

    def _is_due(self) -> bool:
        """Whether a whole window is over, and not only a report that has come in between."""
        window_s = self._subject.limits.window_s
        return self._observer is None or self._clock.awake_s() - self._looked_s > window_s / 2

    async def _look(self) -> Window:
        if (observer := self._observer) is None:
            observer = self._observer = await asyncio.to_thread(self._subject.observer, self._clock.now())
        self._looked_s = self._clock.awake_s()
        return await asyncio.to_thread(observer.look)

    def _look_away(self) -> None:
        if self._observer is not None:
            self._observer.close()
        self._observer = None

    def _last_output(self) -> Moment | None:
        try:
            return self._subject.last_output()
        except OSError:
            return None

    async def _warn(self) -> None:
        self.watch = warned(self.watch)
        if self._observer is None:
            await self._look()  # the first window begins with the warning
        self._subject.warn(silence_text(self.watch, self._subject.who))
        await self.save(self.explanation())

    async def _end(self, found: StallFinding) -> None:
        """The evidence is saved first, then the end is ordered (H4)."""
        self._ended_for = found
        explanation = self.explanation()
        await self.save(explanation)
        self._subject.end(found, explanation.title)

    async def save(self, explanation: Explanation) -> None:
        """Keep the evidence, with the processes of the latest look. What cannot be kept is logged."""
        processes = () if self._observer is None else self._observer.processes()
        try:
            await asyncio.to_thread(self._keep, explanation, tuple(processes))
        except (OSError, RuntimeError) as fault:  # no descriptor, or no thread, to be had
            logger.warning("the evidence of %s cannot be kept: %s", self._subject.id, fault)

    def _keep(self, explanation: Explanation, processes: tuple[Seen, ...]) -> None:
        try:
            lines = tuple(self._subject.last_lines())
        except OSError as fault:
            lines = (f"[ralphd] the log cannot be read: {fault.strerror}",)
        self._subject.keep(Sighting(self._clock.now(), explanation, processes, lines))
