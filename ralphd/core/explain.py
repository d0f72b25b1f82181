"""Why the last thing was done to a ralph, in words: the rule, the figures that were seen, what was missing.

One explanation for each run: by its end, and beside that by its silence, when it was silent for so long that
its tree was looked at.
"""

from dataclasses import dataclass, replace

from ralphd.core.model import Ending, Outcome, Overdue, Paused, Policy, Said, Supervision, Waiting
from ralphd.core.moments import rfc3339
from ralphd.core.outcome import in_words
from ralphd.core.watch import (
    IO_SPAN_S,
    STRONG,
    Count,
    Finding,
    Limits,
    Sign,
    Watch,
    Window,
    is_watched,
    limit_s,
)

NAMES = {
    Sign.FILE: "files changed in the directory",
    Sign.COMMIT: "new commits",
    Sign.PROCESS: "new processes",
    Sign.IO: "bytes moved by read and write",
    Sign.RECEIVED: "bytes received over TCP",
    Sign.CPU: "CPU time used",
    Sign.SWITCHES: "context switches of the busiest process",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was looked at: what was seen, and what it is held against."""

    name: str
    seen: str
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why: ``rule`` is its mark (docs/requirements.md), ``because`` its words.

    ``missing`` is what would have changed the verdict and was not there, ``done`` what followed.
    ``silence`` explains the patience with the run, when there was need of any.
    """

    rule: str
    title: str
    because: str
    figures: tuple[Figure, ...] = ()
    missing: tuple[str, ...] = ()
    done: str = ""
    silence: "Explanation | None" = None


NOTHING_YET = Explanation("", "Nothing was done yet", "it has never been started")
NOT_KNOWN = Explanation("", "Not known", "no explanation is kept with its last run")

# --- silence ---------------------------------------------------------------------------------------------


def silence_text(watch: Watch) -> str:
    """The warning (H1): for the Regent's line and the event."""
    return f"Ralph has been silent for {in_seconds(watch.silent_s)} — watching what his processes do"


def explain_watch(watch: Watch, limits: Limits, found: Finding) -> Explanation:
    """What is thought of a living run, or was of one that was ended for it."""
    rule, title, because, done = _judged(watch, limits, found)
    return Explanation(
        rule=rule,
        title=title,
        because=because,
        figures=(*_patience_figures(watch, limits), *_sign_figures(watch, limits)),
        missing=_missing(watch, found),
        done=done,
    )


def _judged(watch: Watch, limits: Limits, found: Finding) -> tuple[str, str, str, str]:
    limit = in_seconds(limit_s(watch, limits))
    match found:
        case Finding.TOO_LONG:
            return (
                "H6",
                f"Ralph ran for {in_seconds(watch.age_s)} — longer than he may, ending him",
                f"max_run_seconds = {limits.max_run_s:g} bounds a run, whatever it does",
                "asked to end, then its tree is killed; started again as after a failure",
            )
        case Finding.STALL if watch.reports:
            return (
                "H6",
                f"Ralph hung: no report for {in_seconds(watch.quiet_s)} — killing his processes",
                f"a run that sends heartbeats is judged by them: none for {limit} is a hang",
                "its tree is killed; started again as after a failure (kind stall)",
            )
        case Finding.STALL:
            rule = "H4" if watch.weak_at_s is None else "H3"
            return (
                rule,
                f"Ralph hung: no sign of life for {in_seconds(watch.quiet_s)} — killing his processes",
                _stall_because(watch, limits),
                "its tree is killed; started again as after a failure (kind stall)",
            )
    return _patient(watch, limits, limit)


def _stall_because(watch: Watch, limits: Limits) -> str:
    grace = ""
    if watch.last_output_at is None:
        grace = f" (startup_grace_seconds = {limits.startup_grace_s:g} more, before any output)"
    plain = f"without output and without strong evidence for hang_timeout_seconds = {limits.hang_timeout_s:g}"
    if watch.weak_at_s is None:
        return f"{plain}{grace}, a run hangs"
    return f"{plain}{grace}; weak evidence (CPU, switches) extends that to twice as long, and no further"


def _patient(watch: Watch, limits: Limits, limit: str) -> tuple[str, str, str, str]:
    if watch.excused:
        return "H5", "Ralph waits, as he reported", "no silence is counted during a wait", "nothing"
    if watch.reports:
        return "H6", "Ralph reports", f"judged by his heartbeats: none for {limit} is a hang", "nothing"
    if not limits.hang_timeout_s:
        return "H4", "Silence is not judged", "hang_timeout_seconds = 0 switches that off", "nothing"
    if not is_watched(watch, limits):
        return (
            "H1",
            "Ralph gives signs of life",
            f"last output {in_seconds(watch.silent_s)} ago; looked at more closely after "
            f"{in_seconds(limits.warn_s)} of silence",
            "nothing",
        )
    strong = any(count.sign in STRONG for count in watch.signs)
    return (
        "H2" if strong else "H1",
        f"Ralph is silent for {in_seconds(watch.silent_s)}, " + ("and works" if strong else "and is watched"),
        f"silence alone is no hang; {in_seconds(watch.quiet_s)} without evidence so far, ended at {limit}",
        "told once; his processes are looked at every " + in_seconds(limits.window_s),
    )


def _patience_figures(watch: Watch, limits: Limits) -> tuple[Figure, ...]:
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


def _window_words(limits: Limits) -> str:
    return f"one every {in_seconds(limits.window_s)}"


def _sign_figures(watch: Watch, limits: Limits) -> tuple[Figure, ...]:
    if watch.last_window is None:
        return ()
    counts = {count.sign: count for count in watch.signs}
    span = f" in the last {in_seconds(watch.last_window.elapsed_s)}"
    return tuple(
        Figure(
            NAMES[sign],
            seen + (span if seen != "not told by this system" else "") + _times(counts.get(sign)),
            needed,
        )
        for sign, seen, needed in _measured(watch.last_window, limits)
    )


def _times(count: Count | None) -> str:
    if count is None:
        return ", never enough"
    times = "once" if count.times == 1 else f"{count.times} times"
    return f", enough {times}, last {rfc3339(count.last_at)}"


def _measured(window: Window, limits: Limits) -> tuple[tuple[Sign, str, str], ...]:
    share = window.elapsed_s / IO_SPAN_S
    enough_bytes = f"{max(limits.io_bytes * share, 1.0):.0f} are enough"
    cpu = None if window.cpu_s is None or not window.elapsed_s else 100 * window.cpu_s / window.elapsed_s
    changed = str(window.changed_files) + (f" ({window.changed_file})" if window.changed_file else "")
    return (
        (Sign.FILE, changed, "1 is enough"),
        (Sign.COMMIT, "yes" if window.committed else "none", "1 is enough"),
        (Sign.PROCESS, f"{window.new_processes} beside {window.processes}", "1 is enough"),
        (Sign.IO, _told(window.io_bytes), enough_bytes),
        (Sign.RECEIVED, _told(window.received_bytes), enough_bytes),
        (Sign.CPU, _told(cpu, " %"), f"over {limits.cpu_percent:g} % is weak evidence"),
        (
            Sign.SWITCHES,
            _told(window.switches_per_s, "/s"),
            f"over {limits.switches_per_s:g}/s is weak evidence",
        ),
    )


def _told(value: float | None, unit: str = "") -> str:
    if value is None:
        return "not told by this system"
    return f"{value}{unit}" if isinstance(value, int) else f"{value:.1f}{unit}"


def _missing(watch: Watch, found: Finding) -> tuple[str, ...]:
    if watch.reports:
        return ("a report or a heartbeat",) if found is Finding.STALL else ()
    if not watch.windows:
        return ()
    seen = {count.sign for count in watch.signs} if found is not Finding.STALL else set[Sign]()
    weak = () if watch.weak_at_s is None else (Sign.CPU, Sign.SWITCHES)
    unseen = tuple(NAMES[sign] for sign in Sign if sign not in seen and sign not in weak)
    return ("output", *unseen)


# --- ends ------------------------------------------------------------------------------------------------


def explain_end(
    ending: Ending,
    meant: Outcome,
    said: Said,
    after: Supervision,
    policy: Policy,
    silence: Explanation | None,
) -> Explanation:
    """Why a run's end led to what is so ``after`` it."""
    explained = _ended(ending, meant, said, after, policy)
    figures = (*_end_figures(ending, after, policy), *explained.figures)
    if meant in (Outcome.STALLED, Outcome.TIMED_OUT) and silence is not None:
        return replace(
            silence, figures=(*silence.figures, *figures), done=f"{silence.done}; {explained.done}"
        )
    return replace(explained, figures=figures, silence=silence)


def _ended(ending: Ending, meant: Outcome, said: Said, after: Supervision, policy: Policy) -> Explanation:
    how, done = in_words(ending), _done(after)
    if not policy.supervised and meant is not Outcome.ASKED:
        return Explanation("P6", f"Ralph ended ({how})", "enabled = false: told, and nothing else", done=done)
    match meant:
        case Outcome.DONE if policy.mode.value == "iteration":
            return Explanation(
                "E4", f"The iteration is finished ({how})", _iteration_words(ending), done=done
            )
        case Outcome.DONE:
            return Explanation("E1", f"Ralph is done ({how})", "0 means that the work is done", done=done)
        case Outcome.PAUSED:
            return Explanation(
                "E1", f"Ralph paused ({how})", f"75 means: try again later; {_pause_words(ending)}", done=done
            )
        case Outcome.LIMIT:
            return Explanation(
                "E4" if said.limit else "E2",
                "A limit of yours was reached",
                said.limit or "5 from a run that said hello means a limit",
                done=done,
            )
        case Outcome.REFUSED:
            return Explanation(
                "E2",
                f"Ralph refused to run ({how})",
                "2 and 78 from a run that said hello are not tried again",
                done=done,
            )
        case Outcome.ASKED:
            return Explanation(
                "E3", f"Ralph ended, as asked ({how})", "we asked for it, so it is no failure", done=done
            )
        case Outcome.STALLED | Outcome.TIMED_OUT:
            overdue = Overdue.STALL if meant is Outcome.STALLED else Overdue.TIMEOUT
            return Explanation(
                "H4" if overdue is Overdue.STALL else "H6",
                f"Ralph was ended by the Regent ({overdue.value})",
                "what was seen of it is no longer known",
                done=done,
            )
        case Outcome.FAILED | Outcome.LOST:
            return _failed(ending, meant, said, after, policy, done)


def _failed(
    ending: Ending, meant: Outcome, said: Said, after: Supervision, policy: Policy, done: str
) -> Explanation:
    gave_up = not isinstance(after.state, Waiting)
    because = "any exit but 0 and 75, or a signal that we did not send, is a failure"
    if meant is Outcome.LOST:
        because = "its shim is gone and left no record: that is never taken for a success (S6)"
    return Explanation(
        "C2" if gave_up else "C1",
        f"Ralph failed ({in_words(ending)})",
        because,
        missing=() if after.tally.consecutive_errors <= 1 else _healthy_words(said, policy),
        done=done,
    )


def _healthy_words(said: Said, policy: Policy) -> tuple[str, ...]:
    if said.hello or said.iterates:
        return ("a new commit", "a finished iteration")
    return ("a new commit", f"a sign of life later than {policy.healthy_after_s:g} s after its start")


def _iteration_words(ending: Ending) -> str:
    if ending.complete:
        return "no task is open, or the promise was given"
    return "0 means that this iteration is finished; a task is open still, or no promise was given"


def _pause_words(ending: Ending) -> str:
    return f"its checkpoint says {ending.pause_reason}" if ending.pause_reason else "no checkpoint says why"


def _end_figures(ending: Ending, after: Supervision, policy: Policy) -> tuple[Figure, ...]:
    figures = [Figure("ended with", in_words(ending))]
    if ending.started_at is not None:
        figures.append(Figure("lived for", in_seconds(ending.at - ending.started_at)))
        last = (
            "nothing printed"
            if ending.last_sign_at is None
            else f"{in_seconds(ending.at - ending.last_sign_at)} before its end"
        )
        figures.append(Figure("last output", last))
    figures.append(Figure("commits", "at least one" if ending.committed else "none"))
    figures.append(
        Figure("failures in a row", str(after.tally.consecutive_errors), f"given up at {policy.max_retries}")
    )
    return tuple(figures)


def _done(after: Supervision) -> str:
    match after.state:
        case Waiting(reason=reason, until=until):
            return f"the next run starts at {rfc3339(until)} ({reason.value.replace('_', ' ')})"
        case Paused(reason=reason, resume_at=float() as until):
            return f"paused ({reason}); resumes by itself at {rfc3339(until)}"
        case Paused(reason=reason):
            return f"paused ({reason}), until somebody resumes it"
        case _:
            return f"it is {after.state.kind.replace('_', ' ')} now"


def in_seconds(duration_s: float) -> str:
    """``0.4 s``, ``42 s``, ``5 min 10 s``, ``2 h 5 min``: as people say it.

    A clock that was set back may have made it less than 0: that is told as 0.
    """
    duration_s = max(0.0, duration_s)
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    return f"{seconds // 3600} h" + (f" {seconds % 3600 // 60} min" if seconds % 3600 // 60 else "")
