"""When a silent run is warned of, and when it is found to hang: H1 to H6."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.stall_detector import (
    Activity,
    Changes,
    Count,
    Glance,
    SilenceLimits,
    StallFinding,
    Watch,
    Window,
    begun,
    finding,
    is_watched,
    limit_s,
    looked,
    next_look_s,
    signs,
    warned,
)
from tests.core.looks import NOTHING, STRONG, WEAK, Made, ends, every, looks, warnings
from tests.core.supervision.scenes import NOW

LIMITS = SilenceLimits()
HOUR_S = 3600.0
SMALL_S = 1e-6
SPOKEN = Watch(last_output_at=NOW)
QUIET = replace(SPOKEN, silent_s=100.0, quiet_s=100.0, warned=True)
PRINTS_ONCE = Made(prints=(0.0,))


def glance(elapsed_s: float, window: Window | None = None, *, planned_s: float | None = None) -> Glance:
    """A look that was as late as planned, at a run that printed something long ago."""
    return Glance(
        now=NOW + elapsed_s,
        elapsed_s=elapsed_s,
        planned_s=elapsed_s if planned_s is None else planned_s,
        last_output_at=NOW,
        window=window,
    )


def lasting(window: Window, elapsed_s: float) -> Window:
    return replace(window, elapsed_s=elapsed_s)


# H1: silence, the warning, the windows


@pytest.mark.parametrize(
    ("hang_timeout_s", "warn_s"), [(300.0, 90.0), (299.0, 89.7), (1000.0, 90.0), (10.0, 3.0), (1.0, 0.3)]
)
def test_h1_the_warning_comes_after_the_missed_heartbeats_and_well_before_the_limit(
    hang_timeout_s: float, warn_s: float
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)

    assert limits.warn_s == pytest.approx(warn_s)
    assert warnings(PRINTS_ONCE, limits, until_s=hang_timeout_s / 2) == [pytest.approx(warn_s, abs=0.21)]


def test_h1_the_missed_heartbeats_are_as_configured() -> None:
    assert SilenceLimits(warn_after_s=20.0).warn_s == 20.0


@pytest.mark.parametrize(
    ("hang_timeout_s", "window_s"),
    [(300.0, 30.0), (299.0, 29.9), (10.0, 1.0), (9.0, 1.0), (1.0, 1.0), (100.0, 10.0), (86_400.0, 30.0)],
)
def test_h1_a_window_is_a_tenth_of_the_time_out_within_1_and_30_seconds(
    hang_timeout_s: float, window_s: float
) -> None:
    assert SilenceLimits(hang_timeout_s=hang_timeout_s).window_s == pytest.approx(window_s)


def test_h1_before_the_warning_the_tree_is_not_looked_at() -> None:
    assert not is_watched(replace(SPOKEN, silent_s=89.9), LIMITS)
    assert is_watched(replace(SPOKEN, silent_s=90.0), LIMITS)


def test_h1_nor_while_a_run_waits_or_is_judged_by_its_reports() -> None:
    assert not is_watched(replace(SPOKEN, silent_s=90.0, excused=True), LIMITS)
    assert not is_watched(replace(SPOKEN, silent_s=90.0, reports=True), LIMITS)


def test_h1_nor_where_silence_is_not_judged_at_all() -> None:
    assert not is_watched(replace(SPOKEN, silent_s=1e6), SilenceLimits(hang_timeout_s=0.0))


def test_h1_it_is_warned_once_in_a_silence_even_if_it_works() -> None:
    working = Made(prints=(0.0,), strong=every(10.0, 5 * HOUR_S))

    assert warnings(working, LIMITS, until_s=5 * HOUR_S) == [pytest.approx(90.0)]


def test_h1_it_is_warned_again_in_the_next_silence() -> None:
    run = Made(prints=(0.0, 200.0, 205.0), strong=every(10.0, 500.0))

    first, second = warnings(run, LIMITS, until_s=500.0)

    assert first == pytest.approx(90.0)
    assert 295.0 <= second <= 295.0 + LIMITS.window_s
    last = list(looks(run, LIMITS, until_s=500.0))[-1].watch
    assert last.warnings == 2
    assert last.warned


def test_h1_a_run_that_prints_at_times_is_never_warned_of() -> None:
    assert warnings(Made(prints=every(60.0, HOUR_S)), LIMITS, until_s=HOUR_S) == []


def test_h1_the_warning_is_noted() -> None:
    watch = warned(warned(SPOKEN))

    assert watch == replace(SPOKEN, warned=True, warnings=2)


# H2 and H3: evidence


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({"changed_files": 1}, Activity.FILE),
        ({"committed": True}, Activity.COMMIT),
        ({"new_processes": 1}, Activity.PROCESS),
        ({"io_bytes": 4096}, Activity.IO),
        ({"received_bytes": 4096}, Activity.RECEIVED),
        ({"cpu_s": 0.62}, Activity.CPU),
        ({"switches_per_s": 10.1}, Activity.SWITCHES),
    ],
)
def test_h2_h3_each_kind_of_evidence_is_one_by_itself(change: dict[str, float], sign: Activity) -> None:
    assert signs(replace(lasting(NOTHING, 30.0), **change), LIMITS) == (sign,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"io_bytes": 4095}, {"received_bytes": 4095}, {"cpu_s": 0.61}, {"switches_per_s": 10.0}]
)
def test_h2_h3_a_little_less_is_none(change: dict[str, float]) -> None:
    assert signs(replace(lasting(NOTHING, 30.0), **change), LIMITS) == ()  # type: ignore[arg-type]


def test_h2_h3_what_this_system_does_not_tell_is_no_evidence() -> None:
    assert signs(Window(elapsed_s=30.0, processes=3), LIMITS) == ()


def test_h1_the_first_look_only_begins_a_window() -> None:
    everything = Window(0.0, 3, 3, 3, "a", True, 10**9, 10**9, 1e3, 1e3)

    assert signs(everything, LIMITS) == ()
    assert len(signs(replace(everything, elapsed_s=1.0), LIMITS)) == len(Activity)


@pytest.mark.parametrize(("window_s", "enough"), [(30.0, 4096), (15.0, 2048), (3.0, 410), (1.0, 137)])
def test_h1_rates_scale_with_the_window(window_s: float, enough: int) -> None:
    def seen(moved: int) -> bool:
        return bool(signs(Window(elapsed_s=window_s, io_bytes=moved), LIMITS))

    assert seen(enough)
    assert not seen(enough - 1)


def test_h3_cpu_is_a_share_of_the_window() -> None:
    assert signs(Window(elapsed_s=1.0, cpu_s=0.04), LIMITS) == (Activity.CPU,)
    assert signs(Window(elapsed_s=10.0, cpu_s=0.04), LIMITS) == ()


def test_h3_one_grain_more_than_its_share_is_noise_in_a_short_window() -> None:
    assert signs(Window(elapsed_s=1.0, cpu_s=0.029), LIMITS) == ()
    assert signs(Window(elapsed_s=1.0, cpu_s=0.031), LIMITS) == (Activity.CPU,)


def test_h2_no_byte_is_never_enough() -> None:
    assert signs(Window(elapsed_s=1.0, io_bytes=0, received_bytes=0), SilenceLimits(io_bytes=0)) == ()
    assert signs(Window(elapsed_s=1.0, io_bytes=1), SilenceLimits(io_bytes=0)) == (Activity.IO,)


def test_h2_strong_evidence_starts_the_timer_anew_and_the_silence_goes_on() -> None:
    watch = looked(
        replace(QUIET, weak_at_s=95.0, watched_s=10.0), glance(30.0, lasting(STRONG, 30.0)), LIMITS
    )

    assert (watch.quiet_s, watch.watched_s, watch.weak_at_s) == (0.0, 0.0, None)
    assert watch.silent_s == 130.0
    assert watch.warned


def test_h3_weak_evidence_is_good_for_one_more_time_out_from_its_own_moment() -> None:
    watch = looked(QUIET, glance(30.0, lasting(WEAK, 30.0)), LIMITS)

    assert (watch.quiet_s, watch.watched_s, watch.weak_at_s) == (130.0, 30.0, 130.0)
    assert limit_s(watch, LIMITS) == 430.0


@pytest.mark.parametrize(("weak_at_s", "limit"), [(0.0, 300.0), (1.0, 301.0), (300.0, 600.0), (590.0, 600.0)])
def test_h3_to_twice_the_time_out_at_most(weak_at_s: float, limit: float) -> None:
    assert limit_s(replace(QUIET, weak_at_s=weak_at_s), LIMITS) == limit


def test_h3_strong_beside_weak_evidence_is_strong() -> None:
    both = replace(lasting(WEAK, 30.0), committed=True)

    assert looked(QUIET, glance(30.0, both), LIMITS).quiet_s == 0.0


def test_h4_before_any_output_the_grace_at_the_start_comes_on_top() -> None:
    assert limit_s(Watch(), LIMITS) == 420.0
    assert limit_s(SPOKEN, LIMITS) == 300.0
    assert limit_s(Watch(weak_at_s=0.0), LIMITS) == 420.0
    assert limit_s(Watch(weak_at_s=200.0), LIMITS) == 500.0
    assert limit_s(Watch(weak_at_s=800.0), LIMITS) == 720.0


def test_the_evidence_is_counted_for_whoever_asks() -> None:
    watch = looked(QUIET, glance(30.0, lasting(WEAK, 30.0)), LIMITS)
    watch = looked(watch, replace(glance(30.0, lasting(STRONG, 30.0)), now=NOW + 60), LIMITS)
    watch = looked(watch, replace(glance(30.0, lasting(STRONG, 30.0)), now=NOW + 90), LIMITS)

    assert set(watch.signs) == {
        Count(Activity.CPU, 1, NOW + 30), Count(Activity.SWITCHES, 1, NOW + 30),
        Count(Activity.FILE, 2, NOW + 90),
    }  # fmt: skip
    assert watch.windows == 3
    assert watch.last_window == lasting(STRONG, 30.0)
    assert watch.longest_silence_s == 190.0


# H4: the end


def test_h4_a_run_without_any_evidence_is_ended_at_the_limit_and_not_before() -> None:
    assert finding(replace(QUIET, quiet_s=299.9, watched_s=299.9), LIMITS) is StallFinding.PATIENCE
    assert finding(replace(QUIET, quiet_s=300.0, watched_s=210.0), LIMITS) is StallFinding.STALL


def test_h4_it_has_to_be_really_watched_for_all_the_time_after_the_warning() -> None:
    assert finding(replace(QUIET, quiet_s=1e6, watched_s=209.9), LIMITS) is StallFinding.PATIENCE
    assert finding(replace(QUIET, quiet_s=1e6, watched_s=210.0), LIMITS) is StallFinding.STALL


def test_h4_h3_the_limit_that_weak_evidence_has_put_off_holds_for_what_was_watched_too() -> None:
    weak = replace(QUIET, quiet_s=1e6, weak_at_s=1e6)

    assert finding(replace(weak, watched_s=509.9), LIMITS) is StallFinding.PATIENCE
    assert finding(replace(weak, watched_s=510.0), LIMITS) is StallFinding.STALL


def test_h1_a_silent_run_is_warned_of_before_anything_else() -> None:
    assert finding(replace(QUIET, warned=False), LIMITS) is StallFinding.WARN
    assert finding(replace(QUIET, warned=False, silent_s=89.0), LIMITS) is StallFinding.PATIENCE
    assert finding(QUIET, LIMITS) is StallFinding.PATIENCE


def test_h4_hang_timeout_0_and_a_wait_switch_the_watch_off() -> None:
    watch = replace(QUIET, quiet_s=1e9, silent_s=1e9, watched_s=1e9, warned=False)

    assert finding(watch, SilenceLimits(hang_timeout_s=0.0)) is StallFinding.PATIENCE
    assert finding(replace(watch, excused=True), LIMITS) is StallFinding.PATIENCE
    assert finding(watch, LIMITS) is StallFinding.STALL


def test_h4_without_a_limit_nothing_is_ever_looked_at() -> None:
    assert next_look_s(SPOKEN, SilenceLimits(hang_timeout_s=0.0)) == float("inf")
    assert next_look_s(replace(SPOKEN, excused=True), SilenceLimits(hang_timeout_s=0.0)) == 30.0


# H5: which time counts


def test_h5_a_run_that_begins_has_not_been_silent() -> None:
    watch = begun(NOW, NOW, None, 0.0)

    assert watch == Watch()
    assert (watch.silent_s, watch.quiet_s, watch.longest_silence_s, watch.slept_s) == (0.0, 0.0, 0.0, 0.0)
    assert (watch.windows, watch.warnings, watch.warned, watch.signs) == (0, 0, False, ())
    assert signs(Window(elapsed_s=30.0), LIMITS) == ()


def test_h5_the_silence_of_an_adopted_run_is_that_of_its_log() -> None:
    watch = begun(NOW, NOW - 7200, NOW - 600, 7200.0)

    assert (watch.age_s, watch.silent_s, watch.quiet_s, watch.watched_s) == (7200.0, 600.0, 600.0, 0.0)
    assert watch.last_output_at == NOW - 600


def test_h5_without_any_output_it_is_silent_since_its_start() -> None:
    assert begun(NOW, NOW - 7200, None, 7200.0).silent_s == 7200.0


def test_h5_output_of_before_its_start_is_not_its_own() -> None:
    assert begun(NOW, NOW - 60, NOW - 600, 60.0).silent_s == 60.0


@pytest.mark.parametrize(
    ("started", "printed", "age_s", "silent_s"),
    [
        (NOW + 3600, NOW + 3600, 50.0, 0.0),  # set back an hour
        (NOW - 86_400, NOW - 86_400, 50.0, 50.0),  # set forward a day
        (NOW + 3600, None, -3600.0, 0.0),
    ],
)
def test_h5_a_clock_that_was_set_makes_no_silence_longer_than_the_run(
    started: float, printed: float | None, age_s: float, silent_s: float
) -> None:
    assert begun(NOW, started, printed, age_s).silent_s == silent_s


def test_h5_an_adopted_run_that_was_silent_for_hours_is_judged_by_what_is_seen_from_now_on() -> None:
    adopted = begun(NOW, NOW - 9 * HOUR_S, NOW - 8 * HOUR_S, 9 * HOUR_S)
    run = Made(prints=(-8 * HOUR_S,))

    (end,) = ends(run, LIMITS, until_s=HOUR_S, watch=adopted)

    assert end.found is StallFinding.STALL
    to_look_s = LIMITS.hang_timeout_s - LIMITS.warn_s
    assert to_look_s <= end.at_s <= to_look_s + 2 * LIMITS.window_s


def test_h5_output_counts_from_the_time_in_the_log() -> None:
    spoke = replace(glance(30.0), last_output_at=NOW + 25.0)

    watch = looked(replace(QUIET, weak_at_s=95.0, watched_s=5.0), spoke, LIMITS)

    assert (watch.silent_s, watch.quiet_s, watch.watched_s, watch.weak_at_s) == (5.0, 5.0, 0.0, None)
    assert watch.last_output_at == NOW + 25.0
    assert not watch.warned
    assert watch.longest_silence_s == 100.0


@pytest.mark.parametrize(("jump_s", "silent_s"), [(86_400.0, 30.0), (-3600.0, 0.0)])
def test_h5_a_clock_that_was_set_makes_new_output_no_older_than_the_last_look(
    jump_s: float, silent_s: float
) -> None:
    spoke = replace(glance(30.0), now=NOW + jump_s, last_output_at=NOW + 25.0)

    assert looked(QUIET, spoke, LIMITS).silent_s == silent_s


def test_h5_no_output_is_no_news() -> None:
    watch = looked(SPOKEN, replace(glance(30.0), last_output_at=None), LIMITS)

    assert watch.silent_s == 30.0
    assert watch.last_output_at == NOW


def test_h5_a_daemon_that_was_stopped_itself_does_not_hold_that_time_against_the_run() -> None:
    late = glance(1000.0, lasting(NOTHING, 1000.0), planned_s=30.0)
    watch = looked(QUIET, late, LIMITS)

    assert (watch.quiet_s, watch.watched_s, watch.silent_s) == (100.0, 0.0, 1100.0)
    assert finding(watch, LIMITS) is StallFinding.PATIENCE


@pytest.mark.parametrize(("elapsed_s", "counted_s"), [(61.0, 61.0), (61.1, 0.0)])
def test_h5_a_look_may_be_late_by_as_much_again_and_a_second(elapsed_s: float, counted_s: float) -> None:
    watch = looked(QUIET, glance(elapsed_s, lasting(NOTHING, elapsed_s), planned_s=30.0), LIMITS)

    assert watch.quiet_s - QUIET.quiet_s == pytest.approx(counted_s)
    assert watch.watched_s == counted_s


def test_h5_what_it_did_while_the_daemon_was_stopped_counts_for_it() -> None:
    late = glance(1000.0, lasting(STRONG, 1000.0), planned_s=30.0)

    assert looked(QUIET, late, LIMITS).quiet_s == 0.0


def test_h5_a_daemon_that_was_stopped_before_it_looked_at_the_tree_looks_at_it_first() -> None:
    watch = looked(SPOKEN, glance(1000.0, planned_s=90.0), LIMITS)

    assert finding(watch, LIMITS) is StallFinding.WARN
    assert finding(warned(watch), LIMITS) is StallFinding.PATIENCE


def test_h5_only_what_a_window_covers_was_watched() -> None:
    assert looked(QUIET, glance(30.0, lasting(NOTHING, 12.0)), LIMITS).watched_s == 12.0
    assert looked(QUIET, glance(30.0, Window(processes=1)), LIMITS).watched_s == 0.0


def test_h5_a_wait_is_not_counted_and_waits_are_looked_at_every_30_seconds() -> None:
    excused = replace(glance(500.0, lasting(NOTHING, 500.0)), excused=True)
    watch = looked(replace(QUIET, watched_s=50.0, weak_at_s=5.0), excused, LIMITS)

    assert (watch.silent_s, watch.quiet_s, watch.watched_s, watch.weak_at_s) == (0.0, 0.0, 0.0, None)
    assert watch.excused
    assert not watch.warned
    assert next_look_s(watch, LIMITS) == 30.0
    assert not looked(watch, glance(30.0), LIMITS).excused


@pytest.mark.parametrize(("since_s", "silent_s"), [(12.0, 12.0), (45.0, 30.0), (-5.0, 0.0)])
def test_h5_only_what_came_after_a_wait_is_silence(since_s: float, silent_s: float) -> None:
    waited = replace(QUIET, excused=True, silent_s=0.0, quiet_s=0.0)
    watch = looked(waited, replace(glance(30.0), since_excuse_s=since_s), LIMITS)

    assert (watch.silent_s, watch.quiet_s) == (silent_s, silent_s)


def test_h5_how_long_the_machine_slept_is_noted_and_never_counted() -> None:
    slept = replace(glance(30.0, lasting(NOTHING, 30.0)), slept_s=7200.0)
    watch = looked(replace(QUIET, slept_s=1.0), slept, LIMITS)

    assert watch.slept_s == 7201.0
    assert watch.quiet_s == 130.0
    assert watch.age_s == 30.0


# H6: reports, and the limit of a run's length


def test_h6_a_run_that_sends_heartbeats_may_be_without_one_for_a_minute_more() -> None:
    reports = replace(SPOKEN, reports=True)

    assert limit_s(reports, LIMITS) == 360.0
    assert limit_s(replace(reports, weak_at_s=100.0, last_output_at=None), LIMITS) == 360.0
    assert finding(replace(reports, quiet_s=360.0, watched_s=359.9), LIMITS) is StallFinding.PATIENCE
    assert finding(replace(reports, quiet_s=359.9, watched_s=360.0), LIMITS) is StallFinding.PATIENCE
    assert finding(replace(reports, quiet_s=360.0, watched_s=360.0), LIMITS) is StallFinding.STALL


def test_h6_a_report_starts_its_timer_anew_and_that_of_no_other_run() -> None:
    heard = replace(glance(30.0), heard=True)

    assert looked(replace(QUIET, reports=True), heard, LIMITS).quiet_s == 0.0
    assert looked(QUIET, heard, LIMITS).quiet_s == 130.0


def test_h6_it_is_neither_warned_of_nor_looked_at() -> None:
    beating = Made(prints=(0.0,), reports=True, beats=every(300.0, 9 * HOUR_S))
    watch = Watch(last_output_at=NOW, reports=True)

    seen = list(looks(beating, LIMITS, until_s=9 * HOUR_S, watch=watch))

    assert {look.found for look in seen} == {StallFinding.PATIENCE}
    assert seen[-1].watch.windows == 0


def test_h6_without_a_report_it_is_ended_in_time() -> None:
    watch = Watch(last_output_at=NOW, reports=True)

    (end,) = ends(Made(prints=(0.0,), beats=(50.0,)), LIMITS, until_s=HOUR_S, watch=watch)

    assert end.found is StallFinding.STALL
    assert 410.0 <= end.at_s <= 410.0 + LIMITS.window_s + SMALL_S


def test_h6_an_adopted_run_whose_reports_another_daemon_heard_is_judged_by_those_from_now_on() -> None:
    """It prints nothing for hours, and its heartbeats are not in the log."""
    adopted = replace(begun(NOW, NOW - 9 * HOUR_S, NOW - 8 * HOUR_S, 9 * HOUR_S), reports=True)
    run = Made(prints=(-8 * HOUR_S,))

    assert ends(replace(run, beats=every(100.0, HOUR_S)), LIMITS, until_s=HOUR_S, watch=adopted) == []
    (end,) = ends(run, LIMITS, until_s=HOUR_S, watch=adopted)
    assert 360.0 <= end.at_s <= 360.0 + LIMITS.window_s + SMALL_S


@pytest.mark.parametrize("hang_timeout_s", [10.0, 300.0, 7200.0])
def test_h6_a_daemon_that_was_stopped_for_long_has_unread_reports_and_ends_nothing(
    hang_timeout_s: float,
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    watch = replace(SPOKEN, reports=True, quiet_s=5.0, silent_s=5.0)
    planned_s = next_look_s(watch, limits)

    after = looked(watch, glance(2 * hang_timeout_s + 100, planned_s=planned_s), limits)

    assert planned_s <= 30.0
    assert after.quiet_s == 5.0
    assert finding(after, limits) is StallFinding.PATIENCE


def test_h6_a_run_that_is_longer_than_it_may_be_is_ended_whatever_it_does() -> None:
    limits = SilenceLimits(max_run_s=100.0)

    assert finding(replace(SPOKEN, age_s=99.9), limits) is StallFinding.PATIENCE
    for watch in (SPOKEN, replace(SPOKEN, excused=True), replace(SPOKEN, reports=True)):
        assert finding(replace(watch, age_s=100.0), limits) is StallFinding.TOO_LONG
    assert finding(replace(SPOKEN, age_s=100.0), replace(limits, hang_timeout_s=0.0)) is StallFinding.TOO_LONG


@pytest.mark.parametrize("hang_timeout_s", [0.0, 300.0])
def test_h6_it_is_looked_at_when_its_time_is_up(hang_timeout_s: float) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s, max_run_s=1000.0)
    talkative = Made(prints=every(50.0, 2000.0))

    (end,) = ends(talkative, limits, until_s=2000.0)

    assert end.found is StallFinding.TOO_LONG
    assert end.at_s == pytest.approx(1000.0, abs=0.3)


def test_h6_the_age_of_an_adopted_run_counts() -> None:
    adopted = begun(NOW, NOW - 600, NOW, 600.0)

    assert next_look_s(adopted, SilenceLimits(max_run_s=630.0)) == 30.0
    assert next_look_s(adopted, SilenceLimits(max_run_s=600.0)) == 0.2


# how often


def test_h1_the_next_look_is_at_the_warning_then_at_each_window() -> None:
    assert next_look_s(SPOKEN, LIMITS) == 90.0
    assert next_look_s(replace(SPOKEN, silent_s=80.0), LIMITS) == 10.0
    assert next_look_s(replace(SPOKEN, silent_s=89.99), LIMITS) == 0.2
    assert next_look_s(replace(SPOKEN, silent_s=90.0), LIMITS) == 30.0


watches = st.builds(
    Watch,
    age_s=st.floats(0, 1e6),
    last_output_at=st.none() | st.just(NOW),
    silent_s=st.floats(0, 1e6),
    quiet_s=st.floats(0, 1e6),
    watched_s=st.floats(0, 1e6),
    weak_at_s=st.none() | st.floats(0, 1e6),
    reports=st.booleans(),
    excused=st.booleans(),
    warned=st.booleans(),
)
all_limits = st.builds(
    SilenceLimits,
    hang_timeout_s=st.just(0.0) | st.floats(1, 1e5),
    startup_grace_s=st.floats(0, 1e4),
    warn_after_s=st.floats(0, 1e4),
    max_run_s=st.just(0.0) | st.floats(1, 1e6),
)


@given(watches, all_limits)
def test_a_look_is_never_sooner_than_in_a_fifth_of_a_second_and_never_much_too_late(
    watch: Watch, limits: SilenceLimits
) -> None:
    """Whatever is to be found by then is found within 60 seconds (H4)."""
    next_s = next_look_s(watch, limits)

    assert next_s >= 0.2
    if limits.max_run_s:
        assert next_s <= max(limits.max_run_s - watch.age_s, 0.2)
    if limits.hang_timeout_s and (watch.excused or watch.reports or is_watched(watch, limits)):
        assert next_s <= 30.0
    elif limits.hang_timeout_s:
        assert next_s <= max(limits.warn_s, 0.2)


@given(watches, all_limits, st.floats(0, 1e4), st.floats(0, 1e4))
def test_h3_no_limit_is_more_than_twice_the_time_out_and_the_grace_of_the_start(
    watch: Watch, limits: SilenceLimits, weak_at_s: float, later_s: float
) -> None:
    most_s = max(2 * limits.hang_timeout_s + limits.startup_grace_s, limits.hang_timeout_s + 60)
    weak, later = (limit_s(replace(watch, weak_at_s=at), limits) for at in (weak_at_s, weak_at_s + later_s))

    assert limits.hang_timeout_s <= limit_s(watch, limits) <= most_s + SMALL_S
    assert limit_s(replace(watch, weak_at_s=None), limits) <= weak <= later <= most_s + SMALL_S


@given(watches, all_limits, st.floats(0, 1e5), st.floats(-1e6, 1e6), st.booleans())
def test_h5_only_the_time_between_two_looks_counts_whatever_the_wall_clock_tells(
    watch: Watch, limits: SilenceLimits, elapsed_s: float, jump_s: float, looks_closer: bool
) -> None:
    window = lasting(NOTHING, elapsed_s) if looks_closer else None
    look = replace(glance(elapsed_s, window), last_output_at=watch.last_output_at)
    jumped = replace(look, now=look.now + jump_s)

    assert looked(watch, look, limits) == looked(watch, jumped, limits)


@given(watches, all_limits, st.floats(0, 1e5), st.floats(0, 1e5))
def test_h4_no_look_makes_a_run_quiet_for_longer_than_the_time_that_passed(
    watch: Watch, limits: SilenceLimits, elapsed_s: float, planned_s: float
) -> None:
    after = looked(watch, glance(elapsed_s, lasting(NOTHING, elapsed_s), planned_s=planned_s), limits)

    assert after.quiet_s <= watch.quiet_s + elapsed_s + SMALL_S
    assert after.watched_s <= watch.watched_s + elapsed_s + SMALL_S


# whole lives

time_outs = st.sampled_from([1.0, 2.0, 10.0, 47.0, 300.0, 3600.0])
lateness = st.sampled_from([0.0, 0.05, 0.9])


def after_the_limit_s(limits: SilenceLimits, late_s: float) -> float:
    """The latest that a limit is seen to be reached: the window that it falls in, and how late looks are."""
    looks_taken = 2 + 2 * (limits.hang_timeout_s + limits.startup_grace_s) / limits.window_s
    return limits.window_s + late_s * (looks_taken + 1) + SMALL_S


@given(time_outs, lateness, st.booleans())
def test_h4_a_run_without_any_evidence_is_ended_at_its_limit_and_not_before(
    hang_timeout_s: float, late_s: float, prints: bool
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    run = Made(prints=(0.0,) if prints else (), late_s=late_s)
    limit = hang_timeout_s + (0.0 if prints else 120.0)

    (end,) = ends(run, limits, until_s=3 * limit + 60)

    assert end.found is StallFinding.STALL
    assert limit <= end.at_s + SMALL_S
    assert end.at_s <= limit + after_the_limit_s(limits, late_s)
    if not late_s:
        assert end.at_s <= limit + min(limits.window_s, 60.0) + 0.2


@given(time_outs, lateness)
def test_h3_a_run_with_weak_evidence_alone_is_ended_at_twice_its_limit(
    hang_timeout_s: float, late_s: float
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    run = Made(prints=(0.0,), weak=True, late_s=late_s)

    (end,) = ends(run, limits, until_s=9 * hang_timeout_s + 60)

    assert 2 * hang_timeout_s <= end.at_s + SMALL_S
    assert end.at_s <= 2 * hang_timeout_s + 2 * after_the_limit_s(limits, late_s)
    if not late_s:
        assert end.at_s <= 2 * hang_timeout_s + limits.window_s + 0.2


@given(time_outs, st.lists(st.floats(0.01, 0.99), min_size=1, max_size=30), lateness)
def test_h2_a_run_with_strong_evidence_at_least_once_in_each_time_out_is_never_ended(
    hang_timeout_s: float, shares: list[float], late_s: float
) -> None:
    """However long it says nothing. Before the first warning nothing is looked at, nor needed."""
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    first_s = limits.warn_s + late_s + 0.3
    moments, at_s = [first_s], first_s
    for share in shares:
        at_s += share * hang_timeout_s
        moments.append(at_s)

    seen = looks(Made(prints=(0.0,), strong=tuple(moments), late_s=late_s), limits, until_s=at_s)

    assert all(look.found is not StallFinding.STALL for look in seen if look.at_s < at_s)


@given(time_outs, st.lists(st.floats(0.01, 0.99), min_size=1, max_size=30))
def test_h1_a_run_that_prints_at_least_once_in_each_time_out_is_never_ended(
    hang_timeout_s: float, shares: list[float]
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    moments, at_s = [0.0], 0.0
    for share in shares:
        at_s += share * hang_timeout_s
        moments.append(at_s)

    seen = looks(Made(prints=tuple(moments)), limits, until_s=at_s)

    assert all(look.found is not StallFinding.STALL for look in seen if look.at_s < at_s)


@given(
    time_outs,
    st.lists(st.tuples(st.floats(0, 1.2), st.floats(-1e6, 1e6)), max_size=3),
    st.booleans(),
)
def test_h5_a_clock_that_is_set_while_it_is_silent_changes_nothing(
    hang_timeout_s: float, jumps: list[tuple[float, float]], weak: bool
) -> None:
    limits = SilenceLimits(hang_timeout_s=hang_timeout_s)
    still = Made(weak=weak)
    set_often = replace(still, wall_jumps=tuple((share * hang_timeout_s, jump) for share, jump in jumps))

    ended = [ends(run, limits, until_s=5 * hang_timeout_s + 500) for run in (still, set_often)]

    assert [end.at_s for end in ended[0]] == [end.at_s for end in ended[1]]
    assert len(ended[0]) == 1


def test_each_sign_and_each_finding_goes_by_its_own_word() -> None:
    assert [*Activity] == ["file", "commit", "process", "io", "received", "cpu", "switches"]
    assert [*StallFinding] == ["patience", "warn", "stall", "too_long"]


def test_the_limits_are_those_of_a_configuration_that_says_nothing_of_them() -> None:
    assert SilenceLimits() == SilenceLimits(300.0, 120.0, 90.0, 4096, 2.0, 10.0, 0.0)


def test_of_what_was_not_looked_at_nothing_is_claimed() -> None:
    assert Changes() == Changes(0, None, committed=False)
    assert Window() == Window(0.0, 0, 0, 0, None, False, None, None, None, None)
    assert Glance(NOW, 1.0, 2.0) == Glance(NOW, 1.0, 2.0, None, 0.0, False, False, 0.0, None)
    assert Watch() == Watch(0.0, None, 0.0, 0.0, 0.0, None, False, False, False, 0, 0, 0.0, 0.0, None, ())


def test_h5_a_run_that_is_not_a_moment_old_has_not_been_silent_whatever_the_clocks_tell() -> None:
    assert begun(NOW, NOW - 600, None, 0.0) == Watch()


def test_h1_output_begins_a_silence_that_nobody_was_warned_of() -> None:
    silent = Watch(last_output_at=NOW - 100, silent_s=100.0, quiet_s=100.0, warned=True)

    spoke = looked(silent, Glance(NOW, 30.0, 30.0, last_output_at=NOW), SilenceLimits())

    assert spoke == Watch(age_s=30.0, last_output_at=NOW, longest_silence_s=100.0)


def test_h3_switches_that_this_system_does_not_tell_are_none_however_few_are_enough() -> None:
    window = Window(elapsed_s=30.0)

    assert signs(window, SilenceLimits(switches_per_s=0.5)) == ()
    assert signs(replace(window, switches_per_s=0.6), SilenceLimits(switches_per_s=0.5)) == (
        Activity.SWITCHES,
    )
