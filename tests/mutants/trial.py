"""The tests against each change: in a warm interpreter where that will do, in a cold one otherwise."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.mutants.change import Change
from tests.mutants.cold import tried_cold
from tests.mutants.warm import NEEDS_COLD, Tell, try_warm


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a change: noticed by a test, or not; ``ran`` is how many tests were asked."""

    change: Change
    noticed: bool
    ran: int


class BrokenTestsError(Exception):
    """The tests cannot be run; the text says why."""


def trials(changes: Sequence[Change], tests: Sequence[str], *, at_once: int) -> Iterator[Result | str]:
    """Try every change. A text is the name of a test that fails without any, and is not asked.

    Raises BrokenTestsError where the tests cannot be run at all.
    """
    left, without = [], []
    for at, noticed, ran in _told_by_a_fork(lambda tell: try_warm(changes, tests, at_once, tell)):
        if isinstance(at, str):
            without.append(f"--deselect={at}")
            yield at
        elif ran == NEEDS_COLD:
            left.append(at)
        else:
            yield Result(changes[at], noticed, ran)
    asked = (*tests, *without)
    if left and not all(passed for _, passed in tried_cold([None], asked, at_once=1)):
        raise BrokenTestsError("the tests fail without any change")
    for change, survived in tried_cold([changes[at] for at in left], asked, at_once=at_once):
        assert change is not None
        yield Result(change, not survived, 1)


def _told_by_a_fork(work: Callable[[Tell], None]) -> Iterator[tuple[int | str, bool, int]]:
    """What ``work`` tells, from a process of its own: this one must not import what is changed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _work_and_tell(work, writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            told = json.loads(line)
            if isinstance(told, str):
                os.waitpid(pid, 0)
                raise BrokenTestsError(told)
            yield told[0], told[1], told[2]
    if os.waitpid(pid, 0)[1]:
        raise BrokenTestsError("the interpreter that ran the tests has died")


def _work_and_tell(work: Callable[[Tell], None], writing: int) -> None:
    code = 1
    with contextlib.suppress(BaseException):
        try:
            work(lambda *told: _write_line(writing, told))
            code = 0
        except Exception as error:
            _write_line(writing, str(error) or repr(error))
    os._exit(code)


def _write_line(writing: int, told: object) -> None:
    os.write(writing, f"{json.dumps(told)}\n".encode())
