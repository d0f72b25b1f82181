"""Decide whether an iteration weakened the tests that judge it (A9).

Two facts show it. The earlier version of a test file that the iteration changed fails on the new code; and
fewer tests ran than at the last green boundary. Honest work changes expectations too, so what follows is the
user's choice: ``[regent] protect_tests``.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import dropwhile
from typing import Final

from ralphd.core.gate.test_counts import TestCounts

TEST_FILES: Final = (
    *("test_*.py", "*_test.py", "tests.py", "conftest.py"),
    *("*[._-]test.[jt]s", "*[._-]test.[cm][jt]s", "*[._-]test.[jt]sx", "*/__tests__/*", "__tests__/*"),
    *("*[._-]spec.[jt]s", "*[._-]spec.[cm][jt]s", "*[._-]spec.[jt]sx", "*.bats"),
    *("*_test.go", "tests/*.rs", "*/tests/*.rs", "*_spec.rb", "*_test.rb", "*_test.exs"),
    *("*Test.java", "*Tests.java", "*Test.kt", "*Test.php", "*Tests.cs"),
)
"""The test files of each language, where ``[regent] protect`` names none."""
_NAMED: Final = 3
_PREFIX: Final = re.compile(r"(exec|env|time|nice|timeout|-\S*|\w+=\S*|\d+[smh]?)$")
_INTERPRETER: Final = re.compile(r"(.*/)?(sh|bash|dash|zsh|node|ruby|perl|python[\d.]*)$")


class Weakened(StrEnum):
    """What became of the tests. ``VANISHED``: fewer of them ran, or a file was deleted or emptied."""

    NOT = ""
    CHANGED = "changed"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class TestCheck:
    """The check of one boundary, as far as it is known.

    ``before`` are the counts of the last green boundary, ``after`` those of the present tree. ``changed`` are
    the test files that are tested in their earlier version, ``gone`` those of them that were deleted or
    emptied. ``is_shown``: the earlier versions are in the work tree. ``is_red``: they fail, each of ``tries``
    times. ``unknown`` is why they could not be tested. ``blamed`` is why commits are reverted.
    ``start_commit`` has the scripts of ``test_command`` as they were when the ralph was started, empty:
    unknown. ``hiding`` are new files that Python imports instead of the test runner.
    """

    __test__ = False

    before: TestCounts | None = None
    after: TestCounts | None = None
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_shown: bool = False
    is_done: bool = False
    is_red: bool = False
    tries: int = 0
    unknown: str = ""
    blamed: str = ""
    start_commit: str = ""
    hiding: tuple[str, ...] = ()

    def again(self) -> "TestCheck":
        """Return the check of the tree after a revert."""
        return TestCheck(before=self.before, blamed=self.blamed, start_commit=self.start_commit)

    def done(self) -> "TestCheck":
        """Return the check with its result."""
        return replace(self, is_shown=False, is_done=True)


UNCHECKED: Final = TestCheck()


def is_protected(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a file is a test file. A pattern without ``/`` is compared with the name alone."""
    name = path.rpartition("/")[2]
    return any(
        fnmatch.fnmatchcase(path if "/" in pattern else name, pattern) for pattern in patterns or TEST_FILES
    )


def _started(command: str) -> Iterator[tuple[str, str]]:
    """Yield the file that each simple command starts, and the module of Python; one of them is empty."""
    folder = ""
    for part in re.split(r"[;&|\n]+", command):
        first, *rest = [*dropwhile(_PREFIX.match, part.split()), ""]
        if first == "cd":
            folder = posixpath.join(folder, rest[0])
        elif _INTERPRETER.match(first):
            operand = next((word for word in rest if not word.startswith("-")), "")
            options = rest[: rest.index(operand)] if operand else []
            if "-m" in options:
                yield "", "" if folder else operand
            elif "-c" not in options:
                yield posixpath.normpath(posixpath.join(folder, operand)), ""
        elif "/" in first:
            yield posixpath.normpath(posixpath.join(folder, first)), ""


def script_files(command: str) -> tuple[str, ...]:
    """Return the files that a test command starts: ``./t.sh``, ``sh t.sh``, ``python tests/run.py``."""
    return tuple(dict.fromkeys(path for path, _ in _started(command) if path))


def hiding_runner(command: str, added: Iterable[str]) -> tuple[str, ...]:
    """Return the ``added`` files that ``python -m NAME`` in a test command imports instead of the runner."""
    runners = {module.partition(".")[0] for _, module in _started(command)} - {""}
    names = {name for each in runners for name in (f"{each}.py", f"{each}/__init__.py")}
    return tuple(path for path in added if path in names)


def has_fewer(before: TestCounts | None, after: TestCounts | None) -> bool:
    """Return whether fewer tests ran; an output that shows no counts any more counts as none."""
    if before is None or not before.ran:
        return False
    if after is None:
        return not before.is_partial
    return not (before.is_partial or after.is_partial) and after.ran < before.ran


def weakened(check: TestCheck) -> Weakened:
    """Return what became of the tests; NOT before the check is done."""
    if not check.is_done:
        return Weakened.NOT
    if has_fewer(check.before, check.after) or check.hiding or (check.gone and check.is_red):
        return Weakened.VANISHED
    return Weakened.CHANGED if check.is_red else Weakened.NOT


def weakened_text(check: TestCheck) -> str:
    """Return what was found, in words; empty where nothing was."""
    found = [_fewer(check)] if check.is_done and has_fewer(check.before, check.after) else []
    if check.is_red:
        more = f" and {len(check.changed) - _NAMED} more" if len(check.changed) > _NAMED else ""
        found.append(f"the earlier version of {', '.join(check.changed[:_NAMED])}{more} fails")
    if check.gone and check.is_red:
        found.append(f"deleted or emptied: {', '.join(check.gone[:_NAMED])}")
    if check.hiding:
        found.append(f"Python imports {', '.join(check.hiding[:_NAMED])} instead of the test runner")
    if check.unknown:
        found.append(f"the earlier versions of the tests could not be run: {check.unknown}")
    return "; ".join(found)


def _fewer(check: TestCheck) -> str:
    before, after = check.before or TestCounts(), check.after
    if after is None:
        return f"the output no longer shows how many tests ran ({before.ran} before)"
    skipped, deselected = after.skipped - before.skipped, after.deselected - before.deselected
    more = f", {skipped} more skipped" if skipped > 0 else ""
    more += f", {deselected} more deselected" if deselected > 0 else ""
    return f"{after.ran} test{'' if after.ran == 1 else 's'} ran, {before.ran} before{more}"
