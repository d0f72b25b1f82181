"""The last thing that got anywhere, as ``status`` tells it: no output alone, nothing that failed or went."""

from dataclasses import replace

import pytest

from ralphd.core.gate.verdict import Baseline, Verdict, VerdictKind
from ralphd.core.record import LastChange, change_of
from ralphd.core.supervision.events import (
    CommitsRestored,
    Committed,
    Event,
    RunEnded,
    StartRequested,
    VerdictReached,
)
from ralphd.core.supervision.model import (
    AnsweredReport,
    Done,
    Next,
    Reason,
    ReportedTask,
    RunReports,
    Supervision,
    Tally,
    Waiting,
)
from ralphd.core.supervision.reports import IterationFinished
from tests.core.supervision.scenes import EXIT_0, NOW, RUN, RUNNING, ralph, report

LIVES = ralph(RUNNING)
TASK = ReportedTask("T-7", "Parse the flags")
DID = IterationFinished(number=7, task=TASK, complete=True, commits=("aaa1111", "bbb2222", "ccc3333"))
PAUSE = Waiting(Reason.ITERATION_PAUSE, NOW, NOW + 1)
ONE_MORE = ralph(PAUSE, tally=Tally(iteration=1))


def judged(kind: VerdictKind, *commits: str) -> VerdictReached:
    """A verdict on the commits of iteration 7."""
    return VerdictReached(
        Verdict(kind, "why", Baseline.GREEN, run_id=RUN, number=7, task=TASK, commits=commits, at=NOW)
    )


@pytest.mark.parametrize(
    ("event", "after", "what"),
    [
        (
            report(DID), LIVES,
            "iteration 7 finished, its task is done, commits ccc3333, bbb2222 and 1 more: Parse the flags",
        ),
        (report(replace(DID, complete=False, commits=())), LIVES, "iteration 7 finished: Parse the flags"),
        (report(IterationFinished()), LIVES, "an iteration finished"),
        (report(replace(DID, failed=True)), LIVES, None),
        (judged(VerdictKind.KEPT, "abc1234"), LIVES, "commit abc1234 kept, of iteration 7: Parse the flags"),
        (
            VerdictReached(replace(judged(VerdictKind.KEPT, "abc1234").verdict, number=None)), LIVES,
            "commit abc1234 kept: Parse the flags",
        ),
        (
            judged(VerdictKind.KEPT, "abc1234", "def5678", "aaa1111"), LIVES,
            "commits abc1234, def5678 and 1 more kept, of iteration 7: Parse the flags",
        ),
        (judged(VerdictKind.KEPT), LIVES, None),
        (judged(VerdictKind.REVERTED, "abc1234"), LIVES, None),
        (
            CommitsRestored(NOW, "b", RUN, commits=("abc1234", "def5678", "aaa1111")), LIVES,
            "put back, as you asked: commits abc1234, def5678 and 1 more",
        ),
        (Committed(NOW, RUN, 1), ONE_MORE, "commit def5678"),
        (Committed(NOW, RUN, 2), ONE_MORE, "2 commits, the last one def5678"),
        (Committed(NOW, RUN, 1), LIVES, None),
        (RunEnded(EXIT_0), ralph(Done()), "all is done"),
        (RunEnded(EXIT_0), ralph(Done("limit", "5 iterations")), None),
        (RunEnded(EXIT_0), ONE_MORE, "iteration 1 finished, at commit def5678"),
        (RunEnded(EXIT_0), ralph(PAUSE), None),
        (StartRequested(NOW), LIVES, None),
    ],
)  # fmt: skip
def test_what_got_anywhere_is_told_in_words(event: Event, after: Supervision, what: str | None) -> None:
    assert change_of(LIVES, event, after, "def5678") == (None if what is None else LastChange(what, NOW))


def test_what_was_reverted_or_is_reported_again_is_no_change() -> None:
    reverted = ralph(RUNNING, said=RunReports(reverted=True, judged=f"{RUN}/1"))
    known = ralph(RUNNING, said=RunReports(answered=(AnsweredReport("1", repr(DID), Next.CONTINUE),)))
    assert change_of(reverted, report(DID), LIVES, None) is None
    assert change_of(known, report(DID), LIVES, None) is None


def test_a_long_title_is_cut() -> None:
    long = change_of(LIVES, report(replace(DID, task=ReportedTask("T", "x" * 999))), LIVES, None)
    assert long is not None and len(long.what) == 160 and long.what.endswith("…")


def test_a_title_that_just_fits_is_not_cut() -> None:
    task = ReportedTask("T", "x" * (160 - len("iteration 7 finished: ")))
    fits = change_of(LIVES, report(replace(DID, complete=False, commits=(), task=task)), LIVES, None)
    assert fits is not None and fits.what == f"iteration 7 finished: {task.title}"


def test_only_the_reverted_iteration_itself_is_no_change() -> None:
    other = ralph(RUNNING, said=RunReports(reverted=True, judged=f"{RUN}/0"))
    kept = ralph(RUNNING, said=RunReports(reverted=False, judged=f"{RUN}/1"))
    assert change_of(other, report(DID), LIVES, None) is not None
    assert change_of(kept, report(DID), LIVES, None) is not None


def test_without_a_commit_an_iteration_is_told_alone() -> None:
    assert change_of(LIVES, RunEnded(EXIT_0), ONE_MORE, None) == LastChange("iteration 1 finished", NOW)
