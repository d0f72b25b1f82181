"""What `explain` and the warnings show of a silent run: what was seen, what was missing, what was done.

The texts of every finding of ``stall_detector``, with the figures that it is based on (H1 to H6, L6).
"""

from ralphd.core import stall_detector
from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.stall_detector import STRONG, Activity, SilenceLimits, StallFinding, Watch, limit_s
from ralphd.core.time import rfc3339
from ralphd.dataclass import dataclass

NAMES = {
    Activity.FILE: "files changed",
    Activity.COMMIT: "new commits",
    Activity.PROCESS: "new processes",
    Activity.IO: "bytes read and written",
    Activity.RECEIVED: "bytes received over TCP",
    Activity.CPU: "CPU time",
    Activity.SWITCHES: "context switches (busiest process)",
}


@dataclass(frozen=True, slots=True)
class Named:
    """The subject of a watch: its name, what one run of it is called, and the limit of that run's length."""

    name: str
    a_run: str
    longest_key: str
    longest_rule: str
    hang_key: str = "hang_timeout_seconds"


RALPH = Named("Ralph", "a run", "max_run_seconds", "H6")


def agent_named(name: str) -> Named:
    """Return the words for an attempt of an agent."""
    return Named(name, "an attempt", "timeout_seconds", "L6")


def silence_text(watch: Watch, who: Named = RALPH) -> str:
    """Return the warning (H1), for the Regent's line and the event."""
    return f"{who.name} has been silent for {in_seconds(watch.silent_s)} — checking what its processes do"


def explain_watch(
    watch: Watch, limits: SilenceLimits, finding: StallFinding, who: Named = RALPH
) -> Explanation:
    """Explain the finding about a run that lives, or for which it was ended."""
    is_ended = finding in (StallFinding.TOO_LONG, StallFinding.STALL)
    words = _ended(watch, limits, finding, who) if is_ended else _patient(watch, limits, who)
    return _explained(watch, limits, finding, *words)


def explain_silence(watch: Watch, limits: SilenceLimits) -> Explanation:
    """Explain the longest silence of a run that has ended by itself."""
    strong = _is_at_work(watch)
    longest = in_seconds(max(watch.longest_silence_s, watch.silent_s))
    because = f"silence alone is not a hang; {'there was evidence of work' if strong else 'it was too short'}"
    title = f"Ralph was silent for up to {longest}, {'but was working' if strong else 'and was watched'}"
    rule = "H2" if strong else "H1"
    return _explained(watch, limits, StallFinding.PATIENCE, rule, title, because, _warned_words(limits))


def _explained(
    watch: Watch, limits: SilenceLimits, finding: StallFinding, rule: str, title: str, because: str, done: str
) -> Explanation:
    figures = (*_patience_figures(watch, limits), *_sign_figures(watch, limits))
    return Explanation(rule, title, because, figures, _missing(watch, finding), done)


def _is_at_work(watch: Watch) -> bool:
    return any(count.sign in STRONG for count in watch.signs)


def _ended(
    watch: Watch, limits: SilenceLimits, finding: StallFinding, who: Named
) -> tuple[str, str, str, str]:
    if finding is StallFinding.TOO_LONG:
        return (
            who.longest_rule,
            f"{who.name} ran for {in_seconds(watch.age_s)} — time limit exceeded, ending it",
            f"{who.longest_key} = {limits.max_run_s:g} bounds {who.a_run}, even if it makes progress",
            "SIGTERM, then all its processes are killed (timeout)",
        )
    quiet, done = in_seconds(watch.quiet_s), "all its processes are killed (stall)"
    if watch.reports:
        limit = in_seconds(limit_s(watch, limits))
        because = f"a run that sends heartbeats is judged by them: none for {limit} is a hang"
        return "H6", f"{who.name} hung: no report for {quiet} — killing its processes", because, done
    because = f"without output and without strong evidence for {who.hang_key} = {limits.hang_timeout_s:g}"
    if watch.last_output_at is None:
        because += f" (startup_grace_seconds = {limits.startup_grace_s:g} more, before any output)"
    if watch.weak_at_s is None:
        because += f", {who.a_run} hangs"
    else:
        because += "; weak evidence (CPU, context switches) at most doubles that"
    title = f"{who.name} hung: no sign of life for {quiet} — killing its processes"
    return "H4" if watch.weak_at_s is None else "H3", title, because, done


def _patient(watch: Watch, limits: SilenceLimits, who: Named) -> tuple[str, str, str, str]:
    limit, silent = in_seconds(limit_s(watch, limits)), in_seconds(watch.silent_s)
    if watch.excused:
        title = f"{who.name} is waiting, as it reported"
        return "H5", title, "silence does not count during a wait", "nothing"
    if watch.reports:
        because = f"judged by its heartbeats: none for {limit} is a hang"
        return "H6", f"{who.name} sends heartbeats", because, "nothing"
    if not limits.hang_timeout_s:
        return "H4", "Hang detection is off", "hang_timeout_seconds = 0 disables it", "nothing"
    if not stall_detector.is_watched(watch, limits):
        last = f"last output {silent} ago"
        if watch.last_output_at is None:
            last = f"nothing printed yet, {silent} after its start"
        because = f"{last}; its processes are checked after {in_seconds(limits.warn_s)} of silence"
        return "H1", f"{who.name} is running", because, "nothing"
    strong = _is_at_work(watch)
    return (
        "H2" if strong else "H1",
        f"{who.name} is silent for {silent}, {'but is working' if strong else 'and is being watched'}",
        f"silence alone is not a hang; no evidence for {in_seconds(watch.quiet_s)} so far, killed at {limit}",
        _warned_words(limits),
    )


def _warned_words(limits: SilenceLimits) -> str:
    return f"one warning; its processes are checked every {in_seconds(limits.window_s)}"


def _patience_figures(watch: Watch, limits: SilenceLimits) -> list[Figure]:
    longest = f"time limit {in_seconds(limits.max_run_s)}" if limits.max_run_s else ""
    silences = {
        "no output or report" if watch.reports else "silent": watch.silent_s,
        "longest silence": max(watch.longest_silence_s, watch.silent_s),
    }
    shown = {name: "not counted" if watch.excused else in_seconds(each) for name, each in silences.items()}
    figures = [Figure("age", in_seconds(watch.age_s), longest), *(Figure(*each) for each in shown.items())]
    if limits.hang_timeout_s:
        quiet = "without a report" if watch.reports else "without strong evidence"
        limit = f"killed at {in_seconds(limit_s(watch, limits))}"
        figures.append(Figure(quiet, in_seconds(watch.quiet_s), limit))
    if watch.windows:
        every = f"one every {in_seconds(limits.window_s)}"
        figures.append(Figure("checks of its processes", str(watch.windows), every))
    if watch.slept_s >= 1:
        figures.append(Figure("the machine was suspended", in_seconds(watch.slept_s), "not counted"))
    return figures


def _sign_figures(watch: Watch, limits: SilenceLimits) -> list[Figure]:
    """Return what the latest look saw of each sign, what would be enough, and how often it was."""
    if (window := watch.last_window) is None:
        return []
    enough_bytes = f"{limits.enough_bytes(window.elapsed_s):.0f} or more counts"
    cpu = None if window.cpu_s is None or not window.elapsed_s else 100 * window.cpu_s / window.elapsed_s
    changed = str(window.changed_files) + (f" ({window.changed_file})" if window.changed_file else "")
    switches = f"over {limits.switches_per_s:g}/s counts as weak"
    measured = (
        (Activity.FILE, changed, "1 or more counts"),
        (Activity.COMMIT, "yes" if window.committed else "none", "1 or more counts"),
        (Activity.PROCESS, f"{window.new_processes} of {window.processes}", "1 or more counts"),
        (Activity.IO, _value(window.io_bytes), enough_bytes),
        (Activity.RECEIVED, _value(window.received_bytes), enough_bytes),
        (Activity.CPU, _value(cpu, " %"), f"over {limits.cpu_percent:g} % counts as weak"),
        (Activity.SWITCHES, _value(window.switches_per_s, "/s"), switches),
    )
    times = {
        count.sign: f"; reached {'once' if count.times == 1 else f'{count.times} times'},"
        f" last {rfc3339(count.last_at)}"
        for count in watch.signs
    }
    span = Figure("last check covered", in_seconds(window.elapsed_s))
    return [span, *(Figure(NAMES[sign], seen + times.get(sign, ""), need) for sign, seen, need in measured)]


def _value(value: float | None, unit: str = "") -> str:
    if value is None:
        return "not available"
    return f"{value}{unit}" if isinstance(value, int) else f"{value:.1f}{unit}"


def _missing(watch: Watch, finding: StallFinding) -> tuple[str, ...]:
    if watch.reports:
        return ("a report or a heartbeat",) if finding is StallFinding.STALL else ()
    if not watch.windows:
        return ()
    seen = {count.sign for count in watch.signs} if finding is not StallFinding.STALL else set[Activity]()
    weak = () if watch.weak_at_s is None else (Activity.CPU, Activity.SWITCHES)
    return ("output", *(NAMES[sign] for sign in Activity if sign not in seen and sign not in weak))
