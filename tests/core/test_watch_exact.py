"""The watch to the letter: defaults, words, and what an empty look leaves (H1 to H6)."""

from dataclasses import replace

from ralphd.core.stall_detector import (
    Activity,
    Changes,
    Glance,
    SilenceLimits,
    StallFinding,
    Watch,
    Window,
    begun,
    looked,
    signs,
)
from tests.core.scenes import NOW


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
