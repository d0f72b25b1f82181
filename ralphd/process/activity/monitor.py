"""Watch one tree for as long as it lives, and warn or end it when it stalls (H1 to H6).

The daemon watches a run in this way, the loop an attempt. The decisions are ``core/stall_detector``'s; this
module sleeps, probes, and carries them out.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from ralphd.core import stall_detector
from ralphd.core.explanation import Explanation, Seen, Sighting
from ralphd.core.stall_report import RALPH, Named, explain_silence, explain_watch, silence_text
from ralphd.core.supervision.model import RunReports
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.process.activity.probe import Observer
from ralphd.process.machine import Clock, wait_at_most

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subject:
    """What to watch, what can be asked about it, and whom to inform.

    ``id`` is for the log, ``who`` for people. ``age_s`` is its age by a clock that nobody can set.
    ``observer`` makes what probes its tree, and the files that change from a moment on. ``said`` returns what
    it has reported, ``heard`` the number of its reports so far. ``last_output``, ``last_lines`` and ``keep``
    may raise OSError; the latter two are called in a thread.
    """

    id: str
    began_at: Moment
    age_s: float
    limits: stall_detector.SilenceLimits
    observer: Callable[[Moment], Observer]
    last_output: Callable[[], Moment | None]
    last_lines: Callable[[], Sequence[str]]
    keep: Callable[[Sighting], None]
    warn: Callable[[str], None]
    end: Callable[[stall_detector.StallFinding, str], None]
    said: Callable[[], RunReports] = RunReports
    heard: Callable[[], int] = int  # none, for an agent: only runs send reports
    who: Named = field(default=RALPH)


class StallMonitor:
    """Watch one tree. ``run`` continues until it is cancelled, or the tree is to be ended."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject, self._clock = subject, clock
        self._observer: Observer | None = None
        now = clock.now()
        self.watch = stall_detector.begun(now, subject.began_at, self._last_output(), age_s=subject.age_s)
        self._awake_s, self._asleep_s = clock.awake_s(), clock.asleep_s()
        self._probed_s = self._awake_s
        self._heard = subject.heard()
        self._hurry = asyncio.Event()
        self._ended_for: stall_detector.StallFinding | None = None
        self._excused_until = now

    async def run(self) -> None:
        """Probe the tree as often as its limits require."""
        try:
            while self._ended_for is None:
                try:
                    await self._watch_once()
                except (OSError, RuntimeError) as fault:  # a lack of descriptors or threads passes
                    logger.warning("a look at %s failed: %s", self._subject.id, fault)
        finally:
            self._close_observer()

    async def _watch_once(self) -> None:
        pause_s = stall_detector.next_look_s(self.watch, self._subject.limits)
        self._hurry.clear()
        await wait_at_most(None if pause_s == float("inf") else pause_s, self._hurry)
        await self._glance(pause_s)
        match verdict := stall_detector.finding(self.watch, self._subject.limits):
            case stall_detector.StallFinding.WARN:
                self.watch = stall_detector.warned(self.watch)
                if self._observer is None:
                    await self._probe()  # the first window begins with the warning
                self._subject.warn(silence_text(self.watch, self._subject.who))
                await self.save(self.explanation())
            case stall_detector.StallFinding.STALL | stall_detector.StallFinding.TOO_LONG:
                self._ended_for = verdict
                explanation = self.explanation()
                # Evidence first: if this daemon dies here, the next one can say why the run was ended (H4).
                await self.save(explanation)
                self._subject.end(verdict, explanation.title)

    def judge_by(self, limits: stall_detector.SilenceLimits, who: Named) -> None:
        """Judge the tree by other limits from now on."""
        self._subject = replace(self._subject, limits=limits, who=who)
        self.hurry()

    def hurry(self) -> None:
        """Look now: a report has come that may change the limits."""
        self._hurry.set()

    def explanation(self) -> Explanation:
        """Return the present assessment in words and figures; once it is ended, the reason for that."""
        limits, who = self._subject.limits, self._subject.who
        watch = self.watch
        if not self._ended_for:
            watch = stall_detector.looked(watch, self._seen(None, float("inf")), limits)
        return explain_watch(watch, limits, self._ended_for or stall_detector.finding(watch, limits), who)

    def silence(self) -> Explanation | None:
        """Return the assessment of a tree that has ended; None if it was never probed."""
        if self._ended_for is not None:
            return self.explanation()
        return explain_silence(self.watch, self._subject.limits) if self.watch.windows else None

    async def _glance(self, planned_s: float) -> None:
        limits = self._subject.limits
        watch = self.watch = replace(self.watch, reports=self._subject.said().beats)
        began_s = self._clock.awake_s()
        # A report may wake us within a window. A window that is cut short proves nothing: in a fraction of a
        # second one timer tick looks like life.
        is_due = self._observer is None or began_s - self._probed_s > limits.window_s / 2
        window = await self._probe() if stall_detector.is_watched(watch, limits) and is_due else None
        # The time that the probe itself took was planned, too: it must not look like a suspended daemon.
        glance = self._seen(window, planned_s + self._clock.awake_s() - began_s)
        self._awake_s += glance.elapsed_s
        if glance.excused and (wait := self._subject.said().wait) is not None:
            self._excused_until = wait.until
        self._asleep_s, self._heard = self._clock.asleep_s(), self._subject.heard()
        self.watch = stall_detector.looked(watch, glance, limits)
        if not stall_detector.is_watched(self.watch, limits):
            self._close_observer()

    def _seen(self, window: stall_detector.Window | None, planned_s: float) -> stall_detector.Glance:
        now, said = self._clock.now(), self._subject.said()
        return stall_detector.Glance(
            now=now, elapsed_s=self._clock.awake_s() - self._awake_s, planned_s=planned_s, window=window,
            last_output_at=self._last_output(),
            slept_s=max(self._clock.asleep_s() - self._asleep_s, 0.0),
            heard=self._subject.heard() != self._heard,
            excused=said.testing or (said.wait is not None and now < said.wait.until),
            since_excuse_s=now - self._excused_until,
        )  # fmt: skip

    async def _probe(self) -> stall_detector.Window:
        if (observer := self._observer) is None:
            observer = self._observer = await asyncio.to_thread(self._subject.observer, self._clock.now())
        self._probed_s = self._clock.awake_s()
        return await asyncio.to_thread(observer.look)

    def _close_observer(self) -> None:
        if self._observer is not None:
            self._observer.close()
        self._observer = None

    def _last_output(self) -> Moment | None:
        try:
            return self._subject.last_output()
        except OSError:
            return None

    async def save(self, explanation: Explanation) -> None:
        """Keep the evidence, with the processes of the latest probe. Log it if that fails."""
        processes = () if self._observer is None else self._observer.processes()
        try:
            await asyncio.to_thread(self._keep, explanation, tuple(processes))
        except (OSError, RuntimeError) as fault:  # no descriptor, or no thread
            logger.warning("the evidence of %s cannot be kept: %s", self._subject.id, fault)

    def _keep(self, explanation: Explanation, processes: tuple[Seen, ...]) -> None:
        try:
            lines = tuple(self._subject.last_lines())
        except OSError as fault:
            lines = (f"[ralphd] the log cannot be read: {fault.strerror}",)
        self._subject.keep(Sighting(self._clock.now(), explanation, processes, lines))
