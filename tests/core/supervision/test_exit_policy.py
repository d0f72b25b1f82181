"""What the end of a run means: E1 to E3."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.supervision.exit_policy import failure_kind, in_words, outcome
from ralphd.core.supervision.model import ExitFacts, LastWord, Outcome, RunReports, State
from tests.core.supervision.scenes import (
    EXIT_0,
    HELLO,
    HUNG,
    LOST,
    NOW,
    PAUSING,
    RUN,
    RUNNING,
    STOPPING,
    TOO_LONG,
    ended,
)


def test_e1_exit_0_is_done() -> None:
    assert outcome(RUNNING, EXIT_0, RunReports()) is Outcome.DONE


@pytest.mark.parametrize("hello", [True, False])
def test_e1_exit_75_is_a_pause_from_any_command(hello: bool) -> None:
    assert outcome(RUNNING, ended(code=75), RunReports(hello=hello)) is Outcome.PAUSED


@pytest.mark.parametrize(("code", "meaning"), [(5, "limit"), (2, "refused"), (78, "refused")])
def test_e2_exit_codes_after_hello_mean_as_agreed(code: int, meaning: str) -> None:
    assert outcome(RUNNING, ended(code=code), HELLO) is Outcome(meaning)


@pytest.mark.parametrize("code", [5, 2, 78])
def test_e2_without_hello_these_codes_are_failures(code: int) -> None:
    assert (
        outcome(RUNNING, ended(code=code), RunReports(iterates=True, beats=True, signals=True))
        is Outcome.FAILED
    )


@pytest.mark.parametrize("code", [1, 3, 4, 69, 74, 76, 124, 126, 127, 130, 137, 255])
@pytest.mark.parametrize("hello", [True, False])
def test_e3_any_other_code_is_a_failure(code: int, hello: bool) -> None:
    assert outcome(RUNNING, ended(code=code), RunReports(hello=hello)) is Outcome.FAILED


@pytest.mark.parametrize("signal", [2, 9, 11, 15])
@pytest.mark.parametrize("hello", [True, False])
def test_e3_a_foreign_signal_is_a_failure(signal: int, hello: bool) -> None:
    assert outcome(RUNNING, ended(signal=signal), RunReports(hello=hello)) is Outcome.FAILED


def test_e3_an_end_that_nobody_saw_is_lost() -> None:
    assert LOST.lost
    assert outcome(RUNNING, LOST, RunReports()) is Outcome.LOST


@pytest.mark.parametrize(("state", "meaning"), [(HUNG, Outcome.STALLED), (TOO_LONG, Outcome.TIMED_OUT)])
@given(code=st.none() | st.integers(1, 255), signal=st.none() | st.integers(1, 64), hello=st.booleans())
def test_h4_a_run_that_we_ended_is_overdue(
    state: State, meaning: Outcome, code: int | None, signal: int | None, hello: bool
) -> None:
    """Even if nothing was seen of it (K1)."""
    ending = ExitFacts(RUN, NOW, code=code, signal=signal)

    assert outcome(state, ending, RunReports(hello=hello)) is meaning


@pytest.mark.parametrize("state", [HUNG, TOO_LONG])
def test_h4_a_run_that_ended_well_first_is_done(state: State) -> None:
    assert outcome(state, EXIT_0, RunReports()) is Outcome.DONE


@pytest.mark.parametrize("state", [STOPPING, PAUSING, replace(STOPPING, again=True)])
@given(code=st.none() | st.integers(0, 255), signal=st.none() | st.integers(1, 64), beats=st.booleans())
def test_e3_what_we_asked_to_end_ended_as_asked(
    state: State, code: int | None, signal: int | None, beats: bool
) -> None:
    ending = ExitFacts(RUN, NOW, code=code, signal=signal)

    assert outcome(state, ending, RunReports(hello=True, beats=beats)) is Outcome.ASKED


@pytest.mark.parametrize("ending", [EXIT_0, ended(code=1), ended(signal=15), LOST])
def test_e4_a_run_stopped_at_a_limit_reached_it(ending: ExitFacts) -> None:
    assert outcome(STOPPING, ending, RunReports(limit="5 iterations")) is Outcome.LIMIT


@pytest.mark.parametrize("state", [PAUSING, replace(STOPPING, again=True)])
def test_g1_a_request_outweighs_the_limit(state: State) -> None:
    assert outcome(state, EXIT_0, RunReports(limit="5 iterations")) is Outcome.ASKED


@pytest.mark.parametrize(
    ("meant", "kind"),
    [
        (Outcome.STALLED, "stall"),
        (Outcome.TIMED_OUT, "timeout"),
        (Outcome.FAILED, "unknown"),
        (Outcome.LOST, "unknown"),
        (Outcome.DONE, None),
        (Outcome.PAUSED, None),
        (Outcome.LIMIT, None),
        (Outcome.REFUSED, None),
        (Outcome.ASKED, None),
    ],
)
def test_k4_only_a_failure_has_a_kind(meant: Outcome, kind: str | None) -> None:
    assert failure_kind(meant) == kind


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (ended(code=1), "exit 1"),
        (ended(code=0), "exit 0"),
        (ended(code=126), "exit 126: found, but not executable"),
        (ended(code=127), "exit 127: command not found"),
        (ended(signal=9), "SIGKILL"),
        (ended(signal=15), "SIGTERM"),
        (ended(signal=11), "SIGSEGV"),
        (ended(signal=1), "SIGHUP"),
        (ended(signal=2), "SIGINT"),
        (ended(signal=6), "SIGABRT"),
        (ended(signal=10), "SIGUSR1"),
        (ended(signal=12), "SIGUSR2"),
        (ended(signal=13), "SIGPIPE"),
        (ended(signal=40), "signal 40"),
        (LOST, "lost: its exit status is unknown"),
    ],
)
def test_e2_an_end_is_told_in_words(ending: ExitFacts, words: str) -> None:
    assert in_words(ending) == words


def test_signals_have_the_names_of_this_system() -> None:
    import signal

    for number in range(1, 32):
        words = in_words(ended(signal=number))
        assert words in (signal.Signals(number).name, f"signal {number}")


def test_l10_complete_means_done_at_the_limit() -> None:
    said = RunReports(limit="5 iterations", last_word=LastWord(0, "complete"))

    assert outcome(STOPPING, ended(code=0), said) is Outcome.DONE


def test_l10_no_progress_is_the_word_for_getting_nowhere() -> None:
    said = RunReports(last_word=LastWord(0, "no_progress"))

    assert outcome(RUNNING, ended(code=0), said) is Outcome.NO_PROGRESS


def test_e3_a_signal_outweighs_the_code() -> None:
    assert outcome(RUNNING, ended(code=0, signal=9), RunReports()) is Outcome.FAILED


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (14, "SIGALRM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
    ],
)
def test_the_rarer_signals_are_told_by_name_too(signal: int, name: str) -> None:
    assert in_words(ended(signal=signal)) == name
