"""Read how many tests ran from the last lines that a test runner printed (A9).

Known are pytest, unittest, jest, vitest, ``node --test``, ``go test`` (plain, ``-v`` and ``-json``) and
``cargo test``. The numbers of several runs in one output are added. The output of any other runner has no
counts; then only the earlier versions of the test files can show what was changed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
_WORD: Final = re.compile(r"(\d+) (filtered out|[a-z]+)")

_PYTEST: Final = re.compile(
    r"=*\s*((?:\d+ [a-z ]+, )*\d+ [a-z ]+|no tests ran) in [\d.]+s(?: \([\d:]+\))?\s*=*"
)
_JEST: Final = re.compile(r"Tests:\s+((?:\d+ [a-z]+, )*)\d+ total")
_VITEST: Final = re.compile(r"\s+Tests  ((?:\d+ [a-z]+(?: \| )?)+)\s*\(\d+\)|\s+Tests  (no tests)")
_CARGO: Final = re.compile(r"test result: (?:ok|FAILED)\. (\d+ passed; .*\d+ filtered out).*")
_RAN: Final = re.compile(r"Ran (\d+) tests? in [\d.]+s")
_UNITTEST_END: Final = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?")
_NODE: Final = re.compile(r"(?:#|\u2139) (tests|pass|fail|cancelled|skipped|todo) (\d+)")
_GO_PACKAGE: Final = re.compile(r"(ok  |FAIL)\t\S+(?:\t| \[).*")
_GO_TEST: Final = re.compile(r"\s*--- (PASS|FAIL|SKIP): .* \([\d.]+s\)")
_GO_JSON: Final = re.compile(r'\{.*"Action":"(pass|fail|skip)".*"Test":".*\}')


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
        numbers = {word: int(count) for word, count in re.findall(r"([a-z ]+)=(\d+)", words)}
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
