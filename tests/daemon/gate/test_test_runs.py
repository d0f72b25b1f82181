"""What the end of a run of the tests says of the tree (R3)."""

import signal

import pytest

from ralphd.core.gate.verdict import Result
from ralphd.core.supervision.model import RunId
from ralphd.daemon.gate.test_runs import judged
from ralphd.process.rundir import ExitRecord, StartFault


def ended(
    code: int | None = None, number: int | None = None, *, fault: StartFault | None = None
) -> ExitRecord:
    """A run of the tests that ended so."""
    is_lost = code is None and number is None and fault is None
    return ExitRecord(RunId("r1"), code, number, 1.0, 2.0, None, (), (), 0, fault, is_lost)


@pytest.mark.parametrize(
    ("record", "result"),
    [
        (ended(0), Result.GREEN),
        (ended(1), Result.RED),
        (ended(255), Result.RED),
        (ended(126), Result.CANNOT_RUN),
        (ended(127), Result.CANNOT_RUN),
        (ended(fault=StartFault(2, "chdir: gone")), Result.CANNOT_RUN),
        (ended(number=signal.SIGSEGV), Result.RED),
        (ended(number=signal.SIGABRT), Result.RED),
        (ended(number=signal.SIGKILL), Result.ENDED),
        (ended(number=signal.SIGTERM), Result.ENDED),
        (ended(), Result.ENDED),
    ],
)
def test_red_is_what_the_tests_say_themselves(record: ExitRecord, result: Result) -> None:
    assert judged(record, timed_out=False)[0] is result
    assert judged(record, timed_out=True)[0] is Result.TIMED_OUT
