"""Changes put into the living code of an interpreter that has all tests loaded.

Only the tests that run the changed lines are asked, the quickest first: milliseconds for a change. What is
decided at import (constants, tables, defaults) is put in as far as that goes, and the tests of its module
are asked, then all others; where none notices, only an interpreter that has not imported it yet can tell. The
same holds for a function that was run while the tests were loaded. The defaults of a dataclass are put in
whole: what no test notices has survived.
"""

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import coverage
import pytest

from tests.mutants.change import Change
from tests.mutants.cold import OPTIONS
from tests.mutants.forks import SURVIVED, tried
from tests.mutants.living import BreaksImportError, put_in

NEEDS_COLD = -1
"""In the place of a number of tests: the change cannot be put in, or may have come too late to be noticed."""
NOTICED = 1
CANNOT = 3
Tell = Callable[[int | str, bool, int], None]
"""The place of a change in the list, whether it was noticed, how many tests were asked; or the name of a
test that fails without any change, and is not asked."""


def try_warm(changes: Sequence[Change], tests: Sequence[str], at_once: int, tell: Tell) -> None:
    """Tell what came of each change, by its place in ``changes``."""
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    trials = _Trials(changes, at_once, tell)
    with trials.measuring():
        code = pytest.main([*OPTIONS, *tests], plugins=[trials])
    if not trials.asked:
        raise ValueError("the tests cannot be loaded")
    if code == pytest.ExitCode.INTERNAL_ERROR:  # pytest reports what was raised, and says no more of it
        raise RuntimeError("a change could not be tried: its process ended before it was put in")


class _Trials:
    """A plugin of pytest: in the place of one run of the tests, one with each change."""

    def __init__(self, changes: Sequence[Change], at_once: int, tell: Tell) -> None:
        self._changes = changes
        self._at_once = at_once
        self._tell = tell
        self._failed = False
        self._seconds: list[float] = []
        self._broken: set[int] = set()
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, messages=False, include=sorted({c.file for c in changes})
        )
        self.asked = False

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Lines are seen from the loading of the tests on."""
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            self.asked = True
            self._run_unchanged(session)
            self._run_changed(session)
        return True

    def _run_unchanged(self, session: pytest.Session) -> None:
        for at, item in enumerate(session.items):
            self._coverage.switch_context(str(at))
            began = time.process_time()
            if not self._passes(item):
                self._broken.add(at)
                self._tell(item.nodeid, False, 0)
            self._seconds.append(time.process_time() - began)
        self._coverage.stop()
        self._leave_out_what_cannot_be_asked_again(session)

    def _leave_out_what_cannot_be_asked_again(self, session: pytest.Session) -> None:
        """A test that fails when it is run a second time would notice any change."""

        def attempt(tests: Sequence[int]) -> int:
            return SURVIVED if all(self._passes(session.items[test]) for test in tests) else NOTICED

        def fail(parts: list[Sequence[int]]) -> list[Sequence[int]]:
            asked = tried(parts, attempt, at_once=self._at_once, cpu_s=lambda _: 3 + 5 * sum(self._seconds))
            return [part for part, code in asked if code != SURVIVED]

        able = [test for test in range(len(session.items)) if test not in self._broken]
        for part in fail([[test] for test in able] if fail([able]) else []):
            self._broken.update(part)
            self._tell(session.items[part[0]].nodeid, False, 0)

    def _passes(self, item: pytest.Item) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._failed

    def _run_changed(self, session: pytest.Session) -> None:
        within, late = [], set()
        for at, (tests, is_late) in enumerate(self._who_is_asked()):
            if is_late:
                late.add(at)
            if tests:
                within.append((at, tests))
            else:
                self._tell(at, False, NEEDS_COLD if is_late else 0)

        def attempt(trial: tuple[int, list[int]]) -> int:
            try:
                if not put_in(self._changes[trial[0]]):
                    return CANNOT
            except BreaksImportError:
                return NOTICED
            return NOTICED if any(not self._passes(session.items[test]) for test in trial[1]) else SURVIVED

        def cpu_s(trial: tuple[int, list[int]]) -> float:
            return 3 + 5 * sum(self._seconds[test] for test in trial[1])

        for (at, tests), code in tried(within, attempt, at_once=self._at_once, cpu_s=cpu_s):
            is_class = self._changes[at].statement.lstrip().startswith(("@", "class "))
            is_unknown = code == CANNOT or (code == SURVIVED and at in late and not is_class)
            self._tell(at, code != SURVIVED, NEEDS_COLD if is_unknown else len(tests))

    def _who_is_asked(self) -> Iterator[tuple[list[int], bool]]:
        """Of each change, the tests to ask, and whether it may have had its effect at import."""
        data = self._coverage.get_data()
        ran: dict[str, dict[int, list[str]]] = defaultdict(dict)
        for file in {change.file for change in self._changes}:
            ran[file] = data.contexts_by_lineno(str(Path(file).resolve()))
        everyone = sorted(set(range(len(self._seconds))) - self._broken, key=self._seconds.__getitem__)
        for change in self._changes:
            by_line = ran[change.file]
            lines = range(change.first, change.last + 1) if change.function else by_line
            who = {test for line in lines for test in by_line.get(line, ())}
            able = {int(test) for test in who if test} - self._broken
            tests = sorted(able, key=self._seconds.__getitem__)
            if not change.function:
                tests += [test for test in everyone if test not in able]
            yield tests, not change.function or "" in who
