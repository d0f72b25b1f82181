"""The patience with a silent run, in words: what was seen of it, what was missing, what was done."""

from dataclasses import dataclass

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.stall_detector import (
    IO_SPAN_S,
    STRONG,
    Activity,
    Count,
    SilenceLimits,
    StallFinding,
    Watch,
    Window,
    is_watched,
    limit_s,
)
from ralphd.core.time import rfc3339

NAMES = {
    Activity.FILE: "files changed",
    Activity.COMMIT: "new commits",
    Activity.PROCESS: "new processes",
    Activity.IO: "bytes read and written",
    Activity.RECEIVED: "bytes received over TCP",
    Activity.CPU: "CPU time",
    Activity.SWITCHES: "switches of the busiest process",
}


@dataclass(frozen=True, slots=True)
class Named:
    """Who is silent, in words. ``longest_key`` is the key of the configuration that bounds its length."""

    name: str
    he: str
    his: str
    him: str
    a_life: str
    longest_key: str
    longest_rule: str


RALPH = Named("Ralph", "he", "his", "him", "a run", "max_run_seconds", "H6")


def agent_named(name: str) -> Named:
    """The same words for an attempt of an agent."""
    return Named(name, "it", "its", "it", "an attempt", "timeout_seconds", "L6")


def silence_text(watch: Watch, who: Named = RALPH) -> str:
    """The warning (H1): for the Regent's line and the event."""
    silent = in_seconds(watch.silent_s)
    return f"{who.name} has been silent for {silent} — watching what {who.his} processes do"


def explain_watch(
    watch: Watch, limits: SilenceLimits, found: StallFinding, who: Named = RALPH
) -> Explanation:
    """What is thought of a living run, or was of one that was ended for it."""
    rule, title, because, done = _judged(watch, limits, found, who)
    return Explanation(
        rule=rule,
        title=title,
        because=because,
        figures=(*_patience_figures(watch, limits), *_sign_figures(watch, limits)),
        missing=_missing(watch, found),
        done=done,
    )


def _judged(
    watch: Watch, limits: SilenceLimits, found: StallFinding, who: Named
) -> tuple[str, str, str, str]:
    limit = in_seconds(limit_s(watch, limits))
    match found:
        case StallFinding.TOO_LONG:
            return (
                who.longest_rule,
                f"{who.name} ran for {in_seconds(watch.age_s)} — longer than {who.he} may, ending {who.him}",
                f"{who.longest_key} = {limits.max_run_s:g} bounds {who.a_life}, whatever it does",
                "asked to end, then its tree is killed (kind timeout)",
            )
        case StallFinding.STALL if watch.reports:
            return (
                "H6",
                f"{who.name} hung: no report for {in_seconds(watch.quiet_s)} — killing {who.his} processes",
                f"a run that sends heartbeats is judged by them: none for {limit} is a hang",
                "its tree is killed (kind stall)",
            )
        case StallFinding.STALL:
            rule = "H4" if watch.weak_at_s is None else "H3"
            return (
                rule,
                f"{who.name} hung: no sign of life for {in_seconds(watch.quiet_s)}"
                f" — killing {who.his} processes",
                _stall_because(watch, limits, who),
                "its tree is killed (kind stall)",
            )
    return _patient(watch, limits, limit, who)


def _stall_because(watch: Watch, limits: SilenceLimits, who: Named) -> str:
    grace = ""
    if watch.last_output_at is None:
        grace = f" (startup_grace_seconds = {limits.startup_grace_s:g} more, before any output)"
    plain = f"without output and without strong evidence for hang_timeout_seconds = {limits.hang_timeout_s:g}"
    if watch.weak_at_s is None:
        return f"{plain}{grace}, {who.a_life} hangs"
    return f"{plain}{grace}; weak evidence (CPU, switches) extends that to twice as long, and no further"


def _patient(watch: Watch, limits: SilenceLimits, limit: str, who: Named) -> tuple[str, str, str, str]:
    if watch.excused:
        return (
            "H5",
            f"{who.name} waits, as {who.he} reported",
            "no silence is counted during a wait",
            "nothing",
        )
    if watch.reports:
        return (
            "H6",
            f"{who.name} reports",
            f"judged by {who.his} heartbeats: none for {limit} is a hang",
            "nothing",
        )
    if not limits.hang_timeout_s:
        return "H4", "Silence is not judged", "hang_timeout_seconds = 0 switches that off", "nothing"
    if not is_watched(watch, limits):
        last = f"last output {in_seconds(watch.silent_s)} ago"
        if watch.last_output_at is None:
            last = f"nothing printed yet, {in_seconds(watch.silent_s)} after its start"
        return (
            "H1",
            f"{who.name} runs",
            f"{last}; {who.his} processes are looked at after {in_seconds(limits.warn_s)} of silence",
            "nothing",
        )
    strong = any(count.sign in STRONG for count in watch.signs)
    return (
        "H2" if strong else "H1",
        f"{who.name} is silent for {in_seconds(watch.silent_s)}, "
        + ("and works" if strong else "and is watched"),
        f"silence alone is no hang; {in_seconds(watch.quiet_s)} without evidence so far, ended at {limit}",
        f"told once; {who.his} processes are looked at every {in_seconds(limits.window_s)}",
    )


def explain_silence(watch: Watch, limits: SilenceLimits) -> Explanation:
    """What was thought of the silence of a run that has ended by itself."""
    strong = any(count.sign in STRONG for count in watch.signs)
    longest = in_seconds(max(watch.longest_silence_s, watch.silent_s))
    return Explanation(
        rule="H2" if strong else "H1",
        title=f"Ralph was silent for up to {longest}, and {'worked' if strong else 'was watched'}",
        because="silence alone is no hang, "
        + (
            "and there was evidence of work in time"
            if strong
            else "and it did not last long enough to be one"
        ),
        figures=(*_patience_figures(watch, limits), *_sign_figures(watch, limits)),
        missing=_missing(watch, StallFinding.PATIENCE),
        done="told once; his processes were looked at every " + in_seconds(limits.window_s),
    )


def _patience_figures(watch: Watch, limits: SilenceLimits) -> tuple[Figure, ...]:
    figures = [
        Figure("age", in_seconds(watch.age_s), _most(limits.max_run_s)),
        Figure("silent", in_seconds(watch.silent_s)),
        Figure("silent, longest", in_seconds(max(watch.longest_silence_s, watch.silent_s))),
    ]
    if limits.hang_timeout_s:
        quiet = "without a report" if watch.reports else "without strong evidence"
        figures.append(
            Figure(quiet, in_seconds(watch.quiet_s), f"ended at {in_seconds(limit_s(watch, limits))}")
        )
    if watch.windows:
        figures.append(Figure("looks at its processes", str(watch.windows), _window_words(limits)))
    if watch.slept_s >= 1:
        figures.append(Figure("the machine slept", in_seconds(watch.slept_s), "not counted"))
    return tuple(figures)


def _most(limit_s: float) -> str:
    return f"ended at {in_seconds(limit_s)}" if limit_s else ""


def _window_words(limits: SilenceLimits) -> str:
    return f"one every {in_seconds(limits.window_s)}"


def _sign_figures(watch: Watch, limits: SilenceLimits) -> tuple[Figure, ...]:
    if watch.last_window is None:
        return ()
    counts = {count.sign: count for count in watch.signs}
    span = Figure("the latest look, over", in_seconds(watch.last_window.elapsed_s))
    signs = (
        Figure(NAMES[sign], seen + _times(counts.get(sign)), needed)
        for sign, seen, needed in _measured(watch.last_window, limits)
    )
    return (span, *signs)


def _times(count: Count | None) -> str:
    if count is None:
        return ""
    times = "once" if count.times == 1 else f"{count.times} times"
    return f"; enough {times}, last {rfc3339(count.last_at)}"


def _measured(window: Window, limits: SilenceLimits) -> tuple[tuple[Activity, str, str], ...]:
    share = window.elapsed_s / IO_SPAN_S
    enough_bytes = f"{max(limits.io_bytes * share, 1.0):.0f} are enough"
    cpu = None if window.cpu_s is None or not window.elapsed_s else 100 * window.cpu_s / window.elapsed_s
    changed = str(window.changed_files) + (f" ({window.changed_file})" if window.changed_file else "")
    return (
        (Activity.FILE, changed, "1 is enough"),
        (Activity.COMMIT, "yes" if window.committed else "none", "1 is enough"),
        (Activity.PROCESS, f"{window.new_processes} of {window.processes}", "1 is enough"),
        (Activity.IO, _told(window.io_bytes), enough_bytes),
        (Activity.RECEIVED, _told(window.received_bytes), enough_bytes),
        (Activity.CPU, _told(cpu, " %"), f"over {limits.cpu_percent:g} % is weak"),
        (
            Activity.SWITCHES,
            _told(window.switches_per_s, "/s"),
            f"over {limits.switches_per_s:g}/s is weak",
        ),
    )


def _told(value: float | None, unit: str = "") -> str:
    if value is None:
        return "not told by this system"
    return f"{value}{unit}" if isinstance(value, int) else f"{value:.1f}{unit}"


def _missing(watch: Watch, found: StallFinding) -> tuple[str, ...]:
    if watch.reports:
        return ("a report or a heartbeat",) if found is StallFinding.STALL else ()
    if not watch.windows:
        return ()
    seen = {count.sign for count in watch.signs} if found is not StallFinding.STALL else set[Activity]()
    weak = () if watch.weak_at_s is None else (Activity.CPU, Activity.SWITCHES)
    unseen = tuple(NAMES[sign] for sign in Activity if sign not in seen and sign not in weak)
    return ("output", *unseen)
