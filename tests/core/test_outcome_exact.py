"""What the end of a run means, to the letter: words that are compared, names of signals (E1 to E3, L10)."""

import pytest

from ralphd.core.supervision.exit_policy import in_words, outcome
from ralphd.core.supervision.model import LastWord, Outcome, RunReports
from tests.core.scenes import RUNNING, STOPPING, ended


def test_l10_complete_is_the_word_for_done_at_the_limit() -> None:
    said = RunReports(limit="5 iterations", last_word=LastWord(0, "complete"))

    assert outcome(STOPPING, ended(code=0), said) is Outcome.DONE


def test_l10_no_progress_is_the_word_for_getting_nowhere() -> None:
    said = RunReports(last_word=LastWord(0, "no_progress"))

    assert outcome(RUNNING, ended(code=0), said) is Outcome.NO_PROGRESS


def test_e3_an_end_by_a_signal_is_a_failure_whatever_code_stands_beside_it() -> None:
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
