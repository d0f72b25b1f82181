"""Decide whether an iteration weakened the tests that judge it (A9).

Two facts show it. The earlier version of a test file that the iteration changed fails on the new code; and
fewer tests ran than at the last green boundary. Honest work changes expectations too, so what follows is the
user's choice: ``[regent] protect_tests``.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import dropwhile
from typing import Final, TypeAlias

from ralphd.core.text import first_names
from ralphd.dataclass import dataclass

# How many tests ran, from the last lines that a test runner printed.
#
# Known are pytest, unittest, jest, vitest, ``node --test``, ``go test`` (plain, ``-v`` and ``-json``) and
# ``cargo test``. The numbers of several runs in one output are added. The output of any other runner has no
# counts; then only the earlier versions of the test files can show what was changed.

COUNTED_LINES: Final = 2000
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class TestCounts:
    """The tests of one run. ``is_partial``: earlier lines that count tests are missing."""

    __test__ = False

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    deselected: int = 0
    is_partial: bool = False

    @property
    def ran(self) -> int:
        return self.passed + self.failed

    def __add__(self, other: "TestCounts") -> "TestCounts":
        names = ("passed", "failed", "skipped", "deselected")
        numbers = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **numbers, is_partial=self.is_partial or other.is_partial)


_Numbers: TypeAlias = dict[str, int]

_FAILED: Final = ("failed", "error", "errors", "FAILED")
_SKIPPED: Final = ("skipped", "xfailed", "todo", "ignored", "disabled")
_DELETED: Final = ("deselected", "filtered out")
# Tests may print anything: each form takes linear time, and a count is short, as Python reads 4300 digits.
_WORD: Final = re.compile(r"(\d{1,9}) (filtered out|[a-z]+)")

_PYTEST: Final = re.compile(
    r"=*\s*((?:\d{1,9} [a-z ]+, )*\d{1,9} [a-z ]+|no tests ran) in [\d.]+s(?: \([\d:]+\))?\s*=*"
)
_JEST: Final = re.compile(r"Tests:\s+((?:\d{1,9} [a-z]+, )*)\d{1,9} total")
_VITEST: Final = re.compile(r"\s+Tests  ((?:\d{1,9} [a-z]+(?: \| )?)+)\s*\(\d{1,9}\)|\s+Tests  (no tests)")
_CARGO: Final = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9} passed; .*\d{1,9} filtered out).*")
_RAN: Final = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s")
_UNITTEST_END: Final = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?")
_NODE: Final = re.compile(r"(?:#|\u2139) (tests|pass|fail|cancelled|skipped|todo) (\d{1,9})")
_GO_PACKAGE: Final = re.compile(r"(ok  |FAIL)\t\S+(?:\t| \[).*")
_GO_TEST: Final = re.compile(r"\s*--- (PASS|FAIL|SKIP): .* \([\d.]+s\)")
_GO_JSON: Final = re.compile(r'\{(?:"Time"[^,]*,)?"Action":"(pass|fail|skip)"[^{}]{0,999}?,"Test".*\}')


def counts_of(lines: list[str], *, is_cut: bool = False) -> TestCounts | None:
    """Return the counts in the last lines of an output; None where no known runner printed them.

    ``is_cut``: there were more lines. That matters to ``go test``, which prints no total.
    """
    plain = [_COLOUR.sub("", line).rstrip() for line in lines[-COUNTED_LINES:]]
    found = [*_totals(plain), *_unittest(plain), *_node(plain), *_go(plain, is_cut=is_cut)]
    return sum(found[1:], found[0]) if found else None


def _totals(lines: list[str]) -> Iterator[TestCounts]:
    """Yield the counts of runners that print a total on one line."""
    for line in lines:
        for form in (_PYTEST, _JEST, _VITEST, _CARGO):
            if matched := form.fullmatch(line):
                yield _counts({word: int(number) for number, word in _WORD.findall(matched[1] or "")})
                break


def _counts(numbers: _Numbers) -> TestCounts:
    def total(*words: str) -> int:
        return sum(numbers.get(word, 0) for word in words)

    return TestCounts(total("passed", "xpassed"), total(*_FAILED), total(*_SKIPPED), total(*_DELETED))


def _unittest(lines: list[str]) -> Iterator[TestCounts]:
    """Yield the counts of unittest: the number on one line, failures and skips on a later one."""
    for number, line in enumerate(lines):
        if not (ran := _RAN.fullmatch(line)):
            continue
        ends = (_UNITTEST_END.fullmatch(each) for each in lines[number + 1 : number + 4])
        words = next((end[1] or "" for end in ends if end), "")
        numbers = {word: int(count) for word, count in re.findall(r"([a-z ]{1,30})=(\d{1,9})", words)}
        named = {word.strip(): count for word, count in numbers.items()}
        failed = named.get("failures", 0) + named.get("errors", 0) + named.get("unexpected successes", 0)
        skipped = named.get("skipped", 0) + named.get("expected failures", 0)
        yield TestCounts(max(int(ran[1]) - failed - skipped, 0), failed, skipped)


def _node(lines: list[str]) -> Iterator[TestCounts]:
    """Yield the counts of ``node --test``, which ends with one number per line, ``tests`` first."""
    for number, line in enumerate(lines):
        if (each := _NODE.fullmatch(line)) and each[1] == "tests":
            block = (_NODE.fullmatch(other) for other in lines[number + 1 : number + 7])
            numbers = {other[1]: int(other[2]) for other in block if other}
            failed = numbers.get("fail", 0) + numbers.get("cancelled", 0)
            skipped = numbers.get("skipped", 0) + numbers.get("todo", 0)
            yield TestCounts(numbers.get("pass", 0), failed, skipped)


def _go(lines: list[str], *, is_cut: bool) -> Iterator[TestCounts]:
    """Yield the counts of ``go test``: its tests with ``-v`` or ``-json``, else its packages with tests."""
    results = [
        each[1].lower() for line in lines if (each := _GO_TEST.fullmatch(line) or _GO_JSON.fullmatch(line))
    ]
    if results:
        passed, failed, skipped = (results.count(word) for word in ("pass", "fail", "skip"))
        yield TestCounts(passed, failed, skipped, is_partial=is_cut)
        return
    packages = [each for line in lines if (each := _GO_PACKAGE.fullmatch(line)) and "no tests" not in line]
    if packages:
        failed = sum(each[1] == "FAIL" for each in packages)
        yield TestCounts(len(packages) - failed, failed, is_partial=is_cut)


# The test files, and what became of the tests.

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
        found.append(f"the earlier version of {first_names(check.changed, _NAMED)} fails")
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
