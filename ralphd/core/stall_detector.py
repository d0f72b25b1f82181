"""Decide whether a silent run still works, from what its process tree did (H1 to H6).

Durations come from a clock that cannot be set and that stops while the machine sleeps (H5).
``process/activity/probe`` takes the samples; every decision is made here.
"""

from dataclasses import replace
from enum import StrEnum

from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

IO_SPAN_S = 30.0
"""The span that ``io_bytes`` is given for; a window of another length is held to its share (H1)."""
WARN_SHARE = 0.3
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 1.0, 30.0
SHORTEST_REST_S, LONGEST_REST_S = 0.2, 30.0
REPORTS_GRACE_S = 60.0
CPU_GRAIN_S = 0.01
"""The kernel counts CPU time by this; a window may hold one grain more than its share."""


class Activity(StrEnum):
    """Evidence that a tree works."""

    FILE = "file"
    COMMIT = "commit"
    PROCESS = "process"
    IO = "io"
    RECEIVED = "received"
    CPU = "cpu"
    SWITCHES = "switches"


STRONG = (Activity.FILE, Activity.COMMIT, Activity.PROCESS, Activity.IO, Activity.RECEIVED)
"""These restart the timer (H2); the others extend it, to twice its length at most (H3)."""


class StallFinding(StrEnum):
    """The result of a sample."""

    PATIENCE = "patience"
    WARN = "warn"
    STALL = "stall"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """How long a run may be silent, and what counts as evidence. Defaults are the configuration's.

    ``hang_timeout_s`` 0 switches the hang watch off, ``max_run_s`` 0 the limit of a run's length.
    ``io_bytes`` is for IO_SPAN_S seconds.
    """

    hang_timeout_s: float = 300.0
    startup_grace_s: float = 120.0
    warn_after_s: float = 90.0
    io_bytes: int = 4096
    cpu_percent: float = 2.0
    switches_per_s: float = 10.0
    max_run_s: float = 0.0

    @property
    def window_s(self) -> float:
        """The time between two looks at the tree (H1)."""
        return min(max(self.hang_timeout_s / 10, SHORTEST_WINDOW_S), LONGEST_WINDOW_S)

    @property
    def warn_s(self) -> float:
        """The silence from which on the tree is looked at: the missed heartbeats, well before the limit."""
        return min(self.warn_after_s, WARN_SHARE * self.hang_timeout_s)

    def enough_bytes(self, elapsed_s: float) -> float:
        """The bytes in a window of this length that are evidence."""
        return max(self.io_bytes * elapsed_s / IO_SPAN_S, 1.0)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in a working directory between two looks: how many files, one of them, whether HEAD."""

    files: int = 0
    file: str | None = None
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """What the tree of a run did between two looks.

    ``elapsed_s`` is the time between them by the monotonic clock; 0 for the first look, which only begins a
    window. None stands for what this kernel, or our rights, do not tell. ``switches_per_s`` is that of the
    busiest process, its threads together: many idle processes do not add up to a busy one. ``changed_file``
    is one of the files that changed, relative to the working directory.
    """

    elapsed_s: float = 0.0
    processes: int = 0
    new_processes: int = 0
    changed_files: int = 0
    changed_file: str | None = None
    committed: bool = False
    io_bytes: int | None = None
    received_bytes: int | None = None
    cpu_s: float | None = None
    switches_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen of a run at one moment.

    ``elapsed_s`` is the time since the glance before, ``planned_s`` what it was meant to be at most, with
    what the look itself took: a daemon that was itself stopped has seen nothing meanwhile. ``heard`` tells
    that a report came, ``excused`` that nobody expects a sign now: the run has reported a wait, or its tests
    run; ``since_excuse_s`` how long ago that ended. ``window`` is None where the tree was not looked at.
    """

    now: Moment
    elapsed_s: float
    planned_s: float
    last_output_at: Moment | None = None
    slept_s: float = 0.0
    heard: bool = False
    excused: bool = False
    since_excuse_s: float = 0.0
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """How often a sign was seen in a run, and when last."""

    sign: Activity
    times: int
    last_at: Moment


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of a run's silence.

    ``silent_s`` counts from the last output, ``quiet_s`` from that or the last strong evidence, ``watched_s``
    is the part of it in which the tree was looked at, or reports could come, ``weak_at_s`` where in it the
    last weak evidence was. ``reports`` is set for a run that sends heartbeats: it is judged by its reports
    and its output, and its tree is not looked at (H6). The rest is for explanations.
    """

    age_s: float = 0.0
    last_output_at: Moment | None = None
    silent_s: float = 0.0
    quiet_s: float = 0.0
    watched_s: float = 0.0
    weak_at_s: float | None = None
    reports: bool = False
    excused: bool = False
    warned: bool = False
    warnings: int = 0
    windows: int = 0
    longest_silence_s: float = 0.0
    slept_s: float = 0.0
    last_window: Window | None = None
    signs: tuple[Count, ...] = ()


def begun(now: Moment, started_at: Moment, last_output_at: Moment | None, age_s: float) -> Watch:
    """The watch over a run that begins, or is adopted: its silence is that of its log (H5).

    It is judged only by what is seen of it from now on.
    """
    since = started_at if last_output_at is None else max(started_at, last_output_at)
    silent_s = min(max(now - since, 0.0), max(age_s, 0.0))
    return Watch(age_s=age_s, last_output_at=last_output_at, silent_s=silent_s, quiet_s=silent_s)


def is_watched(watch: Watch, limits: SilenceLimits) -> bool:
    """Whether the whole tree is to be looked at: it has been silent for the missed heartbeats (H1)."""
    is_judged_by_tree = limits.hang_timeout_s > 0 and not (watch.reports or watch.excused)
    return is_judged_by_tree and watch.silent_s >= limits.warn_s


def looked(watch: Watch, glance: Glance, limits: SilenceLimits) -> Watch:
    """What is known after one more glance."""
    spoke = glance.last_output_at not in (None, watch.last_output_at)
    age_s, slept_s = watch.age_s + glance.elapsed_s, watch.slept_s + glance.slept_s
    last_output_at = glance.last_output_at if spoke else watch.last_output_at
    aged = replace(watch, age_s=age_s, slept_s=slept_s, last_output_at=last_output_at, excused=glance.excused)
    if glance.excused or (watch.reports and glance.heard):
        return _rested(aged, 0.0)
    if spoke:
        assert glance.last_output_at is not None
        since_s = min(max(glance.now - glance.last_output_at, 0.0), glance.elapsed_s)
        return _rested(_noted(aged), since_s)
    if watch.excused:  # a wait is not silence, what came after it is
        return _rested(aged, min(max(glance.since_excuse_s, 0.0), glance.elapsed_s))
    return _waited(aged, glance, limits)


def _rested(watch: Watch, silent_s: float) -> Watch:
    return replace(watch, silent_s=silent_s, quiet_s=silent_s, watched_s=0.0, weak_at_s=None, warned=False)


def _noted(watch: Watch) -> Watch:
    return replace(watch, longest_silence_s=max(watch.longest_silence_s, watch.silent_s))


def _waited(watch: Watch, glance: Glance, limits: SilenceLimits) -> Watch:
    window = glance.window
    # A daemon that was stopped itself has seen nothing: that time is not held against the run.
    unseen = (window is not None or watch.reports) and glance.elapsed_s > 2 * glance.planned_s + 1
    counted_s = 0.0 if unseen else glance.elapsed_s
    silent_s, quiet_s = watch.silent_s + glance.elapsed_s, watch.quiet_s + counted_s
    waited = _noted(replace(watch, silent_s=silent_s, quiet_s=quiet_s))
    if watch.reports:
        return replace(waited, watched_s=watch.watched_s + counted_s)
    if window is None:
        return waited
    seen = signs(window, limits)
    watched_s = watch.watched_s + (0.0 if unseen else window.elapsed_s)
    counts = _counted(watch.signs, seen, glance.now)
    waited = replace(waited, watched_s=watched_s, windows=watch.windows + 1, last_window=window, signs=counts)
    if any(sign in STRONG for sign in seen):
        return replace(waited, quiet_s=0.0, watched_s=0.0, weak_at_s=None)
    return replace(waited, weak_at_s=waited.quiet_s) if seen else waited


def signs(window: Window, limits: SilenceLimits) -> tuple[Activity, ...]:
    """The evidence in a window, strong first (H2, H3). The first look of all is none."""
    if window.elapsed_s <= 0:
        return ()
    enough_bytes = limits.enough_bytes(window.elapsed_s)
    enough_cpu_s = limits.cpu_percent / 100 * window.elapsed_s
    found = {
        Activity.FILE: window.changed_files > 0,
        Activity.COMMIT: window.committed,
        Activity.PROCESS: window.new_processes > 0,
        Activity.IO: (window.io_bytes or 0) >= enough_bytes,
        Activity.RECEIVED: (window.received_bytes or 0) >= enough_bytes,
        Activity.CPU: (window.cpu_s or 0.0) > enough_cpu_s + CPU_GRAIN_S,
        Activity.SWITCHES: (window.switches_per_s or 0.0) > limits.switches_per_s,
    }
    return tuple(sign for sign, holds in found.items() if holds)


def _counted(counts: tuple[Count, ...], seen: tuple[Activity, ...], now: Moment) -> tuple[Count, ...]:
    known = {count.sign: count.times for count in counts}
    kept = tuple(count for count in counts if count.sign not in seen)
    return (*kept, *(Count(sign, known.get(sign, 0) + 1, now) for sign in seen))


def limit_s(watch: Watch, limits: SilenceLimits) -> float:
    """How long this run may be quiet, in all (H3, H4, H6): weak evidence is good for one more time-out."""
    if watch.reports:
        return limits.hang_timeout_s + REPORTS_GRACE_S
    plain_s = limits.hang_timeout_s + (limits.startup_grace_s if watch.last_output_at is None else 0.0)
    if watch.weak_at_s is None:
        return plain_s
    return min(max(plain_s, watch.weak_at_s + limits.hang_timeout_s), plain_s + limits.hang_timeout_s)


def finding(watch: Watch, limits: SilenceLimits) -> StallFinding:
    """What the watch leads to now."""
    if limits.max_run_s and watch.age_s >= limits.max_run_s:
        return StallFinding.TOO_LONG
    if not limits.hang_timeout_s or watch.excused:
        return StallFinding.PATIENCE
    if _left_s(watch, limits) <= 0:
        return StallFinding.STALL
    if is_watched(watch, limits) and not watch.warned:
        return StallFinding.WARN
    return StallFinding.PATIENCE


def warned(watch: Watch) -> Watch:
    """The same after the warning, which is given once in a silence."""
    return replace(watch, warned=True, warnings=watch.warnings + 1)


def next_look_s(watch: Watch, limits: SilenceLimits) -> float:
    """When to glance at the run again, in seconds; infinite when there is nothing to wait for."""
    rests = [LONGEST_REST_S] if watch.excused else []  # waits follow the wall clock, which can be set (H5)
    if limits.max_run_s:
        rests.append(limits.max_run_s - watch.age_s)
    if limits.hang_timeout_s and not watch.excused:
        # A window is never cut short, a moment of it would prove nothing; nor made longer where reports are
        # waited for: it has to be seen when this daemon was stopped itself, and its mail is still unread.
        in_windows = watch.reports or is_watched(watch, limits)
        rests.append(limits.window_s if in_windows else limits.warn_s - watch.silent_s)
    return max(min(rests, default=float("inf")), SHORTEST_REST_S)


def _left_s(watch: Watch, limits: SilenceLimits) -> float:
    """How long the patience still lasts: by what was counted, and by what of it was really seen."""
    limit = limit_s(watch, limits)
    if watch.reports:
        return max(limit - watch.quiet_s, limit - watch.watched_s)
    return max(limit - watch.quiet_s, limit - limits.warn_s - watch.watched_s)
