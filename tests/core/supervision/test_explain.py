"""What a person is told of why something was done: the rule, the figures, what was missing, what followed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.explanation import NOT_KNOWN, NOT_WATCHED, NOTHING_YET, Explanation, in_seconds
from ralphd.core.stall_detector import Activity, Count, SilenceLimits, StallFinding, Watch, Window
from ralphd.core.stall_report import NAMES, explain_silence, explain_watch, silence_text
from ralphd.core.supervision.events import RunEnded
from ralphd.core.supervision.exit_policy import outcome
from ralphd.core.supervision.explain import explain_end
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Done,
    ExitFacts,
    LastWord,
    Mode,
    Outcome,
    Policy,
    Restart,
    RunReports,
    State,
    Supervision,
    Tally,
)
from ralphd.core.supervision.step import step
from tests.core.supervision import strategies as some
from tests.core.supervision.scenes import (
    EXIT_0,
    EXIT_1,
    HELLO,
    HUNG,
    LOST,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    TOO_LONG,
    USAGE_LIMIT,
    ended,
    ralph,
)
from tests.core.test_stall_detector import all_limits, watches

LIMITS = SilenceLimits()
LOOKED_AT = Window(
    elapsed_s=30.0, processes=3, io_bytes=12, received_bytes=None, cpu_s=0.15, switches_per_s=2.0
)
HUNG_WATCH = Watch(
    age_s=600.0,
    last_output_at=NOW - 300,
    silent_s=300.0,
    quiet_s=300.0,
    watched_s=210.0,
    warned=True,
    warnings=1,
    windows=7,
    longest_silence_s=300.0,
    last_window=LOOKED_AT,
)
LIVED = ExitFacts(RUN, NOW, code=1, started_at=NOW - 50, last_sign_at=NOW - 20)


def words(explanation: Explanation) -> list[str]:
    """All that a person may read of it."""
    beside = words(explanation.silence) if explanation.silence is not None else []
    figures = [text for figure in explanation.figures for text in (figure.name, figure.seen, figure.limit)]
    told = [explanation.title, explanation.because, explanation.done, *explanation.missing]
    return [*told, *figures, *beside]


def figure(explanation: Explanation, name: str) -> str:
    """What one figure tells, with what it is held against."""
    (found,) = [figure for figure in explanation.figures if figure.name == name]
    return f"{found.seen} ({found.limit})" if found.limit else found.seen


def assert_readable(explanation: Explanation) -> None:
    for text in words(explanation):
        assert "None" not in text
        assert "nan" not in text.split()
        assert "Outcome" not in text
        assert "-0" not in text.split()
        assert text == text.strip()
    assert explanation.title
    assert explanation.because
    assert all(figure.name and figure.seen for figure in explanation.figures)


def explained(
    ending: ExitFacts,
    *,
    state: State = RUNNING,
    said: RunReports | None = None,
    tally: Tally | None = None,
    policy: Policy = POLICY,
    silence: Explanation | None = None,
) -> Explanation:
    """Why what followed ``ending`` followed it."""
    before = ralph(state, tally=tally, said=said)
    after = step(before, RunEnded(ending), policy).supervision
    return explain_end(ending, outcome(state, ending, before.said), before.said, after, policy, silence)


# silence


def test_h4_a_hang_is_explained_with_the_figures_and_all_that_was_missing() -> None:
    why = explain_watch(HUNG_WATCH, LIMITS, StallFinding.STALL)

    assert why.rule == "H4"
    assert why.title == "Ralph hung: no sign of life for 5 min — killing its processes"
    assert "hang_timeout_seconds = 300" in why.because
    assert why.missing == ("output", *(NAMES[sign] for sign in Activity))
    assert "(stall)" in why.done
    assert figure(why, "without strong evidence") == "5 min (killed at 5 min)"
    assert figure(why, "checks of its processes") == "7 (one every 30 s)"
    assert figure(why, NAMES[Activity.IO]) == "12 (4096 or more counts)"
    assert figure(why, NAMES[Activity.RECEIVED]) == "not available (4096 or more counts)"
    assert figure(why, NAMES[Activity.CPU]).startswith("0.5 % (over")
    assert figure(why, NAMES[Activity.SWITCHES]).startswith("2.0/s (over")
    assert figure(why, NAMES[Activity.PROCESS]).startswith("0 of 3 (")
    assert_readable(why)


def test_h3_a_hang_with_weak_evidence_is_explained_by_it_and_it_is_not_missing() -> None:
    watch = replace(HUNG_WATCH, weak_at_s=290.0, quiet_s=590.0, signs=(Count(Activity.CPU, 2, NOW),))
    why = explain_watch(watch, LIMITS, StallFinding.STALL)

    assert why.rule == "H3"
    assert "weak evidence" in why.because
    assert NAMES[Activity.CPU] not in why.missing
    assert NAMES[Activity.FILE] in why.missing
    assert "reached 2 times, last 2026-11-21T20:00:00" in figure(why, NAMES[Activity.CPU])


def test_h4_a_hang_before_any_output_names_the_grace_of_the_start() -> None:
    why = explain_watch(replace(HUNG_WATCH, last_output_at=None), LIMITS, StallFinding.STALL)

    assert "startup_grace_seconds = 120 more, before any output" in why.because
    assert figure(why, "without strong evidence") == "5 min (killed at 7 min)"


def test_h4_what_was_seen_earlier_in_the_run_was_missing_in_the_end() -> None:
    once = replace(HUNG_WATCH, signs=(Count(Activity.FILE, 1, NOW - 400),))

    assert NAMES[Activity.FILE] in explain_watch(once, LIMITS, StallFinding.STALL).missing
    assert NAMES[Activity.FILE] not in explain_watch(once, LIMITS, StallFinding.PATIENCE).missing
    assert "reached once" in figure(explain_watch(once, LIMITS, StallFinding.STALL), NAMES[Activity.FILE])


def test_h6_a_run_without_heartbeats_is_explained_by_them() -> None:
    why = explain_watch(replace(HUNG_WATCH, reports=True, quiet_s=360.0), LIMITS, StallFinding.STALL)

    assert why.rule == "H6"
    assert why.title == "Ralph hung: no report for 6 min — killing its processes"
    assert why.missing == ("a report or a heartbeat",)
    assert figure(why, "without a report") == "6 min (killed at 6 min)"


def test_h6_a_run_that_is_too_long_is_explained_by_its_age() -> None:
    why = explain_watch(
        replace(HUNG_WATCH, age_s=7201.0), SilenceLimits(max_run_s=7200.0), StallFinding.TOO_LONG
    )

    assert why.rule == "H6"
    assert "2 h" in why.title
    assert "max_run_seconds = 7200" in why.because
    assert figure(why, "age") == "2 h (time limit 2 h)"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"excused": True}, "H5"),
        ({"reports": True}, "H6"),
        ({"silent_s": 10.0}, "H1"),
        ({}, "H1"),
        ({"signs": (Count(Activity.COMMIT, 1, NOW),)}, "H2"),
        ({"signs": (Count(Activity.CPU, 1, NOW),)}, "H1"),
    ],
)
@pytest.mark.parametrize("found", [StallFinding.PATIENCE, StallFinding.WARN])
def test_patience_is_explained_by_its_rule_too(
    change: dict[str, object], rule: str, found: StallFinding
) -> None:
    why = explain_watch(replace(HUNG_WATCH, **change), LIMITS, found)  # type: ignore[arg-type]

    assert why.rule == rule
    assert len(why.figures) >= 3
    assert_readable(why)


def test_where_silence_is_not_judged_it_says_so() -> None:
    why = explain_watch(HUNG_WATCH, SilenceLimits(hang_timeout_s=0.0), StallFinding.PATIENCE)

    assert why.rule == "H4"
    assert why.title == "Hang detection is off"


def test_h5_a_machine_that_slept_is_told_of() -> None:
    why = explain_watch(replace(HUNG_WATCH, slept_s=3600.0), LIMITS, StallFinding.PATIENCE)

    assert figure(why, "the machine was suspended") == "60 min (not counted)"


def test_a_file_that_changed_is_named() -> None:
    window = replace(LOOKED_AT, changed_files=2, changed_file="src/a.py", committed=True)
    why = explain_watch(replace(HUNG_WATCH, last_window=window), LIMITS, StallFinding.PATIENCE)

    assert figure(why, NAMES[Activity.FILE]).startswith("2 (src/a.py)")
    assert figure(why, NAMES[Activity.COMMIT]).startswith("yes")


def test_h1_the_warning_is_one_line() -> None:
    assert silence_text(HUNG_WATCH) == "Ralph has been silent for 5 min — checking what its processes do"


windows = st.builds(
    Window,
    elapsed_s=st.floats(0, 1e4),
    processes=st.integers(0, 5),
    new_processes=st.integers(0, 5),
    changed_files=st.integers(0, 5),
    changed_file=st.none() | st.just("notes.md"),
    committed=st.booleans(),
    io_bytes=st.none() | st.integers(0, 10**12),
    received_bytes=st.none() | st.integers(0, 10**12),
    cpu_s=st.none() | st.floats(0, 1e4),
    switches_per_s=st.none() | st.floats(0, 1e6),
)
some_signs = st.lists(
    st.builds(Count, st.sampled_from(Activity), st.integers(1, 9), st.just(NOW)),
    unique_by=lambda count: count.sign,
    max_size=3,
).map(tuple)


@given(watches, windows, some_signs, all_limits, st.sampled_from(StallFinding))
def test_every_finding_names_its_rule_and_three_figures_in_readable_words(
    watch: Watch, window: Window, seen: tuple[Count, ...], limits: SilenceLimits, found: StallFinding
) -> None:
    looked_at = replace(watch, last_window=window, windows=3, signs=seen)
    for each in (watch, looked_at):
        why = explain_watch(each, limits, found)

        assert why.rule in ("H1", "H2", "H3", "H4", "H5", "H6")
        assert len(why.figures) >= 3
        assert why.done
        assert_readable(why)
    if found is StallFinding.STALL:
        assert explain_watch(looked_at, limits, found).missing


# ends


@pytest.mark.parametrize(
    ("ending", "state", "said", "rule"),
    [
        (EXIT_0, RUNNING, None, "E1"),
        (USAGE_LIMIT, RUNNING, None, "E1"),
        (ended(code=75), RUNNING, None, "E1"),
        (ended(code=5), RUNNING, HELLO, "E2"),
        (ended(code=78), RUNNING, HELLO, "E2"),
        (EXIT_0, STOPPING, RunReports(limit="5 iterations, as you asked"), "E4"),
        (EXIT_1, STOPPING, None, "E3"),
        (EXIT_1, PAUSING, None, "E3"),
        (EXIT_1, RUNNING, None, "C1"),
        (LOST, RUNNING, None, "C1"),
        (ended(signal=9), HUNG, None, "H4"),
        (ended(signal=15), TOO_LONG, None, "H6"),
    ],
)
def test_each_end_is_explained_by_its_rule(
    ending: ExitFacts, state: State, said: RunReports | None, rule: str
) -> None:
    why = explained(ending, state=state, said=said)

    assert why.rule == rule
    assert len(why.figures) >= 3
    assert why.done
    assert_readable(why)


@pytest.mark.parametrize(("complete", "text"), [(True, "no task is open, or"), (False, "a task is open, or")])
def test_e4_an_iteration_is_explained_as_one(complete: bool, text: str) -> None:
    why = explained(replace(EXIT_0, complete=complete), policy=Policy(mode=Mode.ITERATION))

    assert why.rule == "E4"
    assert text in why.because


def test_e4_a_finished_iteration_has_a_title_and_an_answer() -> None:
    why = explained(EXIT_0, policy=Policy(mode=Mode.ITERATION))

    assert why.title == "The iteration is finished (exit 0)"
    assert why.done == "the next run starts at 2026-11-21T20:00:01.000000Z (iteration pause)"


@pytest.mark.parametrize(
    ("word", "because"),
    [
        (None, "exit 0 means that the work is done"),
        (LastWord(0, "complete"), "exit 0 means that the work is done; reported: complete"),
        (
            LastWord(0, "complete", "no task is open"),
            "exit 0 means that the work is done; reported: no task is open",
        ),
    ],
)
def test_e1_a_good_end_is_explained_with_the_last_word(word: LastWord | None, because: str) -> None:
    assert explained(EXIT_0, said=RunReports(hello=True, last_word=word)).because == because


@pytest.mark.parametrize(("why", "shown"), [("", ""), ("the disk is full", ": the disk is full")])
def test_e1_a_pause_is_explained_with_the_last_word(why: str, shown: str) -> None:
    word = LastWord(75, "resources", why)

    because = explained(ended(code=75), said=RunReports(hello=True, last_word=word)).because

    assert because == f"exit 75 means paused; it reported resources{shown}"


def test_p6_an_end_that_nobody_watches_is_explained_by_that() -> None:
    unwatched = Policy(supervised=False)

    assert explained(EXIT_1, policy=unwatched).done == "nothing starts until you act"

    assert explained(EXIT_1, policy=unwatched).rule == "P6"
    assert explained(EXIT_1, policy=unwatched, state=STOPPING).rule == "E3"


def test_e4_a_failure_at_a_limit_is_explained_by_the_limit() -> None:
    why = explained(EXIT_1, tally=Tally(cost_usd=2.0), policy=Policy(max_cost_usd=1.0))

    assert (why.rule, why.because) == ("E4", "$2.00 of $1.00 spent (max_cost_usd)")
    assert why.done == "nothing runs until you start it"


def test_h2_the_silence_of_a_run_that_has_ended_is_told_as_past() -> None:
    worked = Watch(
        silent_s=5.0,
        longest_silence_s=300.0,
        windows=7,
        signs=(Count(Activity.IO, 6, NOW),),
        last_window=Window(30.0),
    )
    why = explain_silence(worked, LIMITS)

    assert (why.rule, why.title) == ("H2", "Ralph was silent for up to 5 min, but was working")
    assert NAMES[Activity.IO] not in why.missing and NAMES[Activity.FILE] in why.missing
    idle = explain_silence(replace(worked, signs=()), LIMITS)
    assert (idle.rule, idle.title) == ("H1", "Ralph was silent for up to 5 min, and was watched")


def test_c1_a_failure_is_explained_with_what_follows() -> None:
    why = explained(LIVED)

    assert why.title == "Ralph failed (exit 1)"
    assert figure(why, "ended with") == "exit 1"
    assert figure(why, "lived for") == "50 s"
    assert figure(why, "last output") == "20 s before its end"
    assert figure(why, "commits") == "none"
    assert figure(why, "consecutive failures") == "1 (gives up at 3)"
    assert why.done == "the next run starts at 2026-11-21T20:00:30.000000Z (crash)"
    assert why.missing == ("exit 0",)


def test_c3_of_a_second_failure_in_a_row_it_is_told_what_would_have_ended_the_row() -> None:
    row = Tally(consecutive_errors=1)

    assert explained(EXIT_1, tally=row).missing == (
        "exit 0",
        "a new commit",
        "output or activity later than 600 s after its start",
    )
    for said in (HELLO, RunReports(iterates=True)):
        missing = explained(EXIT_1, tally=row, said=said).missing
        assert missing == ("exit 0", "a new commit", "a finished iteration")


@pytest.mark.parametrize("policy", [Policy(max_retries=1), Policy(restart=Restart.NEVER)])
def test_c2_a_failure_that_is_final_says_so(policy: Policy) -> None:
    why = explained(LIVED, policy=policy)

    assert why.rule == "C2"
    assert why.done == "you are alerted; nothing starts until you act"


def test_s6_a_lost_run_is_never_taken_for_a_success() -> None:
    assert "S6" in explained(LOST).because


def test_a_run_that_printed_nothing_is_told_as_one_that_did() -> None:
    assert figure(explained(replace(LIVED, last_sign_at=None)), "last output") == "nothing printed"
    assert figure(explained(replace(LIVED, committed=True)), "commits") == "at least one"


def test_h5_a_clock_that_was_set_back_makes_no_length_less_than_nothing() -> None:
    why = explained(replace(LIVED, at=NOW - 3600))

    assert figure(why, "lived for") == "0.0 s"
    assert_readable(why)


def test_h4_the_end_of_a_run_that_hung_keeps_what_was_seen_of_it() -> None:
    silence = explain_watch(HUNG_WATCH, LIMITS, StallFinding.STALL)
    why = explained(ended(signal=9), state=HUNG, silence=silence)

    assert (why.rule, why.title, why.missing) == (silence.rule, silence.title, silence.missing)
    assert set(silence.figures) < set(why.figures)
    assert figure(why, "ended with") == "SIGKILL"
    assert why.done == f"{silence.done}; the next run starts at 2026-11-21T20:00:30.000000Z (crash)"
    assert why.silence is None


def test_the_silence_of_a_run_that_ended_by_itself_is_explained_beside_its_end() -> None:
    silence = explain_watch(HUNG_WATCH, LIMITS, StallFinding.PATIENCE)

    assert explained(EXIT_1, silence=silence).silence == silence
    assert explained(EXIT_1, silence=silence).rule == "C1"


@pytest.mark.parametrize(
    ("ending", "done"),
    [
        (USAGE_LIMIT, "paused (usage_limit) until 2026-11-21T22:01:00.000000Z"),
        (replace(USAGE_LIMIT, resume_at=None), "paused (usage_limit), until you resume it"),
        (EXIT_0, "nothing left to do"),
    ],
)
def test_what_followed_is_told(ending: ExitFacts, done: str) -> None:
    assert explained(ending).done == done


def test_e3_after_a_stop_nothing_runs() -> None:
    assert explained(EXIT_1, state=STOPPING).done == "nothing runs until you start it"


def test_g2_after_the_end_for_a_restart_the_next_run_starts_now() -> None:
    assert explained(EXIT_1, state=replace(STOPPING, again=True)).done == "the next run starts now"


def test_a_pause_tells_what_its_checkpoint_says() -> None:
    assert "checkpoint reason: usage_limit" in explained(USAGE_LIMIT).because
    assert "no reason is known" in explained(ended(code=75)).because


@given(some.supervisions, some.endings, some.policies)
def test_every_end_is_explained_by_a_rule_and_three_figures_in_readable_words(
    before: Supervision, ending: ExitFacts, policy: Policy
) -> None:
    if not isinstance(before.state, HAS_A_RUN):
        return
    ended_here = replace(ending, run_id=before.state.run_id)
    meant = outcome(before.state, ended_here, before.said)
    after = step(before, RunEnded(ended_here), policy).supervision

    why = explain_end(ended_here, meant, before.said, after, policy, None)

    assert why.rule
    assert len(why.figures) >= 3
    assert why.done
    assert_readable(why)
    if meant in (Outcome.FAILED, Outcome.LOST) and policy.supervised and not isinstance(after.state, Done):
        assert why.rule in ("C1", "C2")
        assert (len(why.missing) > 1) is (after.tally.consecutive_errors > 1)


def test_what_is_not_known_is_said() -> None:
    for nothing, rule in ((NOTHING_YET, ""), (NOT_KNOWN, ""), (NOT_WATCHED, "P6")):
        assert_readable(nothing)
        assert (nothing.rule, nothing.figures) == (rule, ())


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (10.0, "10 s"), (42.4, "42 s"), (119.4, "119 s"),
        (119.6, "2 min"), (310.0, "5 min 10 s"), (600.0, "10 min"), (7199.0, "119 min 59 s"),
        (7200.0, "2 h"), (7500.0, "2 h 5 min"), (7230.0, "2 h"), (7260.0, "2 h 1 min"),
        (90_000.0, "25 h"), (-3.0, "0.0 s"), (-0.0, "0.0 s"),
    ],
)  # fmt: skip
def test_a_duration_is_told_as_people_say_it(duration_s: float, text: str) -> None:
    assert in_seconds(duration_s) == text
