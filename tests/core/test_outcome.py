"""What the end of a run means: E1 to E3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.model import Ending, Outcome, State
from ralphd.core.outcome import in_words, outcome
from tests.core.scenes import EXIT_0, LOST, NOW, PAUSING, RUN, RUNNING, STOPPING, ended


def test_e1_exit_0_is_done() -> None:
    assert outcome(RUNNING, EXIT_0) is Outcome.DONE


@pytest.mark.parametrize("hello", [True, False])
def test_e1_exit_75_is_a_pause_from_any_command(hello: bool) -> None:
    assert outcome(RUNNING, ended(code=75, hello=hello)) is Outcome.PAUSED


@pytest.mark.parametrize(("code", "meaning"), [(5, "limit"), (2, "refused"), (78, "refused")])
def test_e2_codes_of_a_run_that_said_hello_mean_what_it_agreed_to(code: int, meaning: str) -> None:
    assert outcome(RUNNING, ended(code=code, hello=True)) is Outcome(meaning)


@pytest.mark.parametrize("code", [5, 2, 78])
def test_e2_the_same_codes_of_any_other_command_are_failures(code: int) -> None:
    assert outcome(RUNNING, ended(code=code)) is Outcome.FAILED


@pytest.mark.parametrize("code", [1, 3, 4, 69, 74, 76, 124, 126, 127, 130, 137, 255])
@pytest.mark.parametrize("hello", [True, False])
def test_e3_any_other_code_is_a_failure(code: int, hello: bool) -> None:
    assert outcome(RUNNING, ended(code=code, hello=hello)) is Outcome.FAILED


@pytest.mark.parametrize("signal", [2, 9, 11, 15])
@pytest.mark.parametrize("hello", [True, False])
def test_e3_a_signal_that_we_did_not_send_is_a_failure_whatever_its_number(signal: int, hello: bool) -> None:
    assert outcome(RUNNING, ended(signal=signal, hello=hello)) is Outcome.FAILED


def test_e3_an_end_that_nobody_saw_is_lost() -> None:
    assert LOST.lost
    assert outcome(RUNNING, LOST) is Outcome.LOST


def test_a_run_killed_for_silence_is_a_stall_even_if_it_ended_well() -> None:
    assert outcome(RUNNING, Ending(RUN, NOW, signal=9, stalled=True)) is Outcome.STALLED
    assert outcome(RUNNING, Ending(RUN, NOW, code=0, stalled=True)) is Outcome.STALLED


@pytest.mark.parametrize("state", [STOPPING, PAUSING])
@given(code=st.none() | st.integers(0, 255), signal=st.none() | st.integers(1, 64), stalled=st.booleans())
def test_e3_what_we_asked_to_end_ended_as_asked(
    state: State, code: int | None, signal: int | None, stalled: bool
) -> None:
    ending = Ending(RUN, NOW, code=code, signal=signal, stalled=stalled, said_hello=True)

    assert outcome(state, ending) is Outcome.ASKED


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
        (ended(signal=40), "signal 40"),
        (LOST, "lost: nobody saw how it ended"),
    ],
)
def test_e2_an_end_is_told_in_words(ending: Ending, words: str) -> None:
    assert in_words(ending) == words


def test_signals_have_the_names_that_this_system_gives_them() -> None:
    import signal

    for number in range(1, 32):
        words = in_words(ended(signal=number))
        assert words in (signal.Signals(number).name, f"signal {number}")
