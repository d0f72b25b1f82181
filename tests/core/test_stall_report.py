"""The patience with a silent run, word for word: what a person reads of each finding (H1 to H6, L6)."""

from dataclasses import replace

from ralphd.core.explanation import Explanation, Figure
from ralphd.core.stall_detector import Activity, Count, SilenceLimits, StallFinding, Watch, Window
from ralphd.core.stall_report import RALPH, Named, agent_named, explain_silence, explain_watch
from tests.core.supervision.scenes import NOW

LIMITS = SilenceLimits()
WATCH = Watch(
    age_s=1000.0,
    last_output_at=NOW - 310,
    silent_s=310.0,
    quiet_s=290.0,
    watched_s=200.0,
    warned=True,
    warnings=1,
    windows=7,
    longest_silence_s=400.0,
    slept_s=1.0,
    last_window=Window(15.0, 3, 1, 2, "src/a.py", False, 12, 4000, 1.5, 2.0),
    signs=(Count(Activity.IO, 2, NOW - 400), Count(Activity.CPU, 1, NOW - 60)),
)
WATCHED = replace(WATCH, signs=(Count(Activity.CPU, 1, NOW - 60),))
NOT_LOOKED_AT = replace(WATCH, windows=0, slept_s=0.9, last_window=None, signs=())
FIGURES = (
    Figure("age", "16 min 40 s"),
    Figure("silent", "5 min 10 s"),
    Figure("longest silence", "6 min 40 s"),
    Figure("without strong evidence", "4 min 50 s", "killed at 5 min"),
    Figure("checks of its processes", "7", "one every 30 s"),
    Figure("the machine was suspended", "1.0 s", "not counted"),
    Figure("last check covered", "15 s"),
    Figure("files changed", "2 (src/a.py)", "1 or more counts"),
    Figure("new commits", "none", "1 or more counts"),
    Figure("new processes", "1 of 3", "1 or more counts"),
    Figure(
        "bytes read and written",
        "12; reached 2 times, last 2026-11-21T19:53:20.000000Z",
        "2048 or more counts",
    ),
    Figure("bytes received over TCP", "4000", "2048 or more counts"),
    Figure("CPU time", "10.0 %; reached once, last 2026-11-21T19:59:00.000000Z", "over 2 % counts as weak"),
    Figure("context switches (busiest process)", "2.0/s", "over 10/s counts as weak"),
)
NOT_SEEN = (
    "output",
    "files changed",
    "new commits",
    "new processes",
    "bytes received over TCP",
    "context switches (busiest process)",
)


def judged(watch: Watch, limits: SilenceLimits = LIMITS, who: Named = RALPH) -> tuple[str, ...]:
    """What is thought of a run that may go on: rule, title, why, what was done, what was missing."""
    why = explain_watch(watch, limits, StallFinding.PATIENCE, who)
    return (why.rule, why.title, why.because, why.done, *why.missing)


def seen(watch: Watch, name: str) -> Figure:
    """The figure of that name."""
    return next(
        each for each in explain_watch(watch, LIMITS, StallFinding.PATIENCE).figures if each.name == name
    )


def test_h2_a_silent_run_that_works_is_explained_whole() -> None:
    assert explain_watch(WATCH, LIMITS, StallFinding.PATIENCE) == Explanation(
        rule="H2",
        title="Ralph is silent for 5 min 10 s, but is working",
        because="silence alone is not a hang; no evidence for 4 min 50 s so far, killed at 5 min",
        figures=FIGURES,
        missing=NOT_SEEN,
        done="one warning; its processes are checked every 30 s",
    )
    assert judged(WATCHED)[:2] == ("H1", "Ralph is silent for 5 min 10 s, and is being watched")


def test_h2_a_silence_that_is_over_is_explained_whole() -> None:
    assert explain_silence(WATCH, LIMITS) == Explanation(
        rule="H2",
        title="Ralph was silent for up to 6 min 40 s, but was working",
        because="silence alone is not a hang; there was evidence of work",
        figures=FIGURES,
        missing=NOT_SEEN,
        done="one warning; its processes are checked every 30 s",
    )
    watched = explain_silence(WATCHED, LIMITS)
    assert watched.because == "silence alone is not a hang; it was too short"


def test_what_is_not_done_is_said_too() -> None:
    assert judged(replace(NOT_LOOKED_AT, excused=True)) == (
        "H5",
        "Ralph is waiting, as it reported",
        "silence does not count during a wait",
        "nothing",
    )
    shown = explain_silence(replace(WATCH, excused=True, reports=True), LIMITS).figures
    assert shown[1:3] == (
        Figure("no output or report", "not counted"),
        Figure("longest silence", "not counted"),
    )
    assert judged(replace(NOT_LOOKED_AT, reports=True)) == (
        "H6",
        "Ralph sends heartbeats",
        "judged by its heartbeats: none for 6 min is a hang",
        "nothing",
    )
    assert judged(NOT_LOOKED_AT, SilenceLimits(hang_timeout_s=0.0)) == (
        "H4",
        "Hang detection is off",
        "hang_timeout_seconds = 0 disables it",
        "nothing",
    )


def test_h1_before_a_warning_the_next_look_is_named() -> None:
    young = replace(NOT_LOOKED_AT, silent_s=42.0)
    looked_at = "its processes are checked after 90 s of silence"

    assert judged(young) == ("H1", "Ralph is running", f"last output 42 s ago; {looked_at}", "nothing")
    mute = judged(replace(young, last_output_at=None))
    assert mute[2] == f"nothing printed yet, 42 s after its start; {looked_at}"


def test_h4_only_a_silent_stall_names_the_grace() -> None:
    why = explain_watch(WATCH, LIMITS, StallFinding.STALL)

    quiet = "without output and without strong evidence for hang_timeout_seconds = 300"
    assert why.because == f"{quiet}, a run hangs"


def test_h6_a_run_that_sends_heartbeats_hung_without_them() -> None:
    why = explain_watch(replace(WATCH, reports=True), LIMITS, StallFinding.STALL)

    assert (why.rule, why.title, why.because, why.missing, why.done) == (
        "H6",
        "Ralph hung: no report for 4 min 50 s — killing its processes",
        "a run that sends heartbeats is judged by them: none for 6 min is a hang",
        ("a report or a heartbeat",),
        "all its processes are killed (stall)",
    )


def test_l6_an_attempt_is_named_by_its_agent() -> None:
    who = agent_named("codex")

    assert who == Named("codex", "an attempt", "timeout_seconds", "L6")
    assert Named("Ralph", "a run", "max_run_seconds", "H6") == RALPH
    why = explain_watch(WATCH, SilenceLimits(max_run_s=900.0), StallFinding.TOO_LONG, who)
    assert (why.rule, why.title, why.because) == (
        "L6",
        "codex ran for 16 min 40 s — time limit exceeded, ending it",
        "timeout_seconds = 900 bounds an attempt, even if it makes progress",
    )


def test_h1_one_byte_is_enough_by_default() -> None:
    figures = explain_watch(WATCH, SilenceLimits(io_bytes=0), StallFinding.PATIENCE).figures

    assert [each.limit for each in figures if each.name.startswith("bytes")] == ["1 or more counts"] * 2


def test_a_look_names_files_and_commits_where_known() -> None:
    window = Window(15.0, 3, changed_files=2, committed=True)

    assert seen(replace(WATCH, last_window=window), "files changed").seen == "2"
    assert seen(replace(WATCH, last_window=window), "new commits").seen == "yes"


def test_h6_a_reporting_run_lacks_nothing() -> None:
    assert explain_watch(replace(WATCH, reports=True), LIMITS, StallFinding.PATIENCE).missing == ()


def test_before_any_output_weak_evidence_is_explained_with_the_grace() -> None:
    why = explain_watch(replace(WATCH, last_output_at=None, weak_at_s=1.0), LIMITS, StallFinding.STALL)

    assert why.rule == "H3"
    assert why.because == (
        "without output and without strong evidence for hang_timeout_seconds = 300"
        " (startup_grace_seconds = 120 more, before any output)"
        "; weak evidence (CPU, context switches) at most doubles that"
    )


def test_a_rate_is_shown_to_a_tenth() -> None:
    assert WATCH.last_window is not None
    why = explain_silence(replace(WATCH, last_window=replace(WATCH.last_window, switches_per_s=2.25)), LIMITS)

    assert why.figures[-1].seen == "2.2/s"
