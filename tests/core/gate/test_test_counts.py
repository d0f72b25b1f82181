"""How many tests ran is read from the last lines of known runners (A9).

The outputs are real ones of pytest 9.2, unittest of Python 3.11, cargo test 1.95, jest 30, vitest 4 and
Node 20. Those of ``go test`` are from its documentation.
"""

import time

import pytest

from ralphd.core.gate.weakened import COUNTED_LINES, TestCounts, counts_of

PYTEST = "======= 1 failed, 1 passed, 1 skipped, 1 deselected, 1 xfailed in 3.01s ========"
UNITTEST = "----------\nRan 4 tests in 0.001s\n\nOK (skipped=1, expected failures=1)"
CARGO = (
    "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n"
    "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
)
JEST = (
    "Test Suites: 1 passed, 1 total\nTests:       1 skipped, 1 todo, 2 passed, 4 total\nSnapshots:   0 total"
)
VITEST = (
    "\x1b[2m Test Files \x1b[22m \x1b[1m\x1b[32m1 passed\x1b[39m\x1b[22m\x1b[90m (1)\x1b[39m\n"
    "\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[32m2 passed\x1b[39m\x1b[22m\x1b[2m | \x1b[22m\x1b[33m1 skipped"
    "\x1b[39m\x1b[2m | \x1b[22m\x1b[90m1 todo\x1b[39m\x1b[90m (4)\x1b[39m"
)
CARGO_RED = """\
running 3 tests
test tests::adds ... ok
test tests::slow ... ignored
test tests::panics - should panic ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.08s

     Running tests/whole.rs (target/debug/deps/whole-caf4c2aed8f93934)

running 2 tests
test whole ... ok
test other ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s

error: test failed, to rerun pass `--test whole`
"""
CARGO_FILTER = """\
running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s

running 1 test
test whole ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s

   Doc-tests shop

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s
"""
JEST_COLOUR = (
    "\x1b[1mTest Suites: \x1b[22m\x1b[1m\x1b[32m1 passed\x1b[39m\x1b[22m, 1 total\n"
    "\x1b[1mTests:       \x1b[22m\x1b[1m\x1b[33m5 skipped\x1b[39m\x1b[22m, \x1b[1m\x1b[32m1 passed"
    "\x1b[39m\x1b[22m, 6 total"
)
VITEST_RED = (
    "\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[31m1 failed\x1b[39m\x1b[22m\x1b[2m | "
    "\x1b[22m\x1b[1m\x1b[32m3 passed\x1b[39m\x1b[22m\x1b[2m | \x1b[22m\x1b[33m1 skipped"
    "\x1b[39m\x1b[2m | \x1b[22m\x1b[90m1 todo\x1b[39m\x1b[90m (6)\x1b[39m"
)
NODE = """\
ok 4 - suite
  ---
  duration_ms: 0.737103
  type: 'suite'
  ...
1..4
# tests 5
# suites 1
# pass 3
# fail 0
# cancelled 0
# skipped 1
# todo 1
# duration_ms 124.406618
"""
NODE_SPEC = NODE.replace("# ", "\u2139 ")
GO = "ok  \texample.com/a\t0.003s\n?   \texample.com/b\t[no test files]\nFAIL\texample.com/c\t0.004s\nFAIL"
GO_V = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\nok  \texample.com/a\t0.003s"
GO_JSON = (
    '{"Time":"x","Action":"run","Package":"a","Test":"TestA"}\n'
    '{"Time":"x","Action":"pass","Package":"a","Test":"TestA","Elapsed":0}\n'
    '{"Time":"x","Action":"pass","Package":"a","Elapsed":0}'
)


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (PYTEST, TestCounts(1, 1, 2, 1)),
        ("1 failed, 2 passed, 1 skipped, 1 xfailed in 3.40s", TestCounts(2, 1, 2)),
        ("5 deselected in 1.90s", TestCounts(deselected=5)),
        ("no tests ran in 0.01s", TestCounts()),
        ("3 passed, 4 subtests passed, 1 warning in 61.00s (0:01:01)", TestCounts(3)),
        (UNITTEST, TestCounts(2, 0, 2)),
        ("Ran 1 test in 0.1s\n\nFAILED (failures=1)", TestCounts(0, 1)),
        (CARGO, TestCounts(4, 0, 1, 2)),
        (CARGO_RED, TestCounts(3, 1, 1)),
        (CARGO_FILTER, TestCounts(1, deselected=5)),
        (JEST, TestCounts(2, 0, 2)),
        (JEST_COLOUR, TestCounts(1, 0, 5)),
        (VITEST_RED, TestCounts(3, 1, 2)),
        (NODE, TestCounts(3, 0, 2)),
        (NODE_SPEC, TestCounts(3, 0, 2)),
        (f"{NODE}{NODE_SPEC}", TestCounts(6, 0, 4)),
        ("# tests of the parser\n# pass 3\n", None),
        (VITEST, TestCounts(2, 0, 2)),
        (GO, TestCounts(1, 1)),
        (GO_V, TestCounts(1, 0, 1)),
        (GO_JSON, TestCounts(1)),
        (f"2 passed in 0.1s\nmore\n{JEST}", TestCounts(4, 0, 2)),
        ("all good\n", None),
        ("", None),
        ("12 passed in a row", None),
    ],
)
def test_known_runners_are_counted(output: str, counts: TestCounts | None) -> None:
    assert counts_of(output.splitlines()) == counts


def test_go_prints_no_total_so_a_cut_output_is_partial() -> None:
    lines = ["--- PASS: TestA (0.00s)"] * (COUNTED_LINES + 9)

    assert counts_of(lines, is_cut=True) == TestCounts(COUNTED_LINES, is_partial=True)
    assert counts_of(["2 passed in 0.1s"], is_cut=True) == TestCounts(2)


@pytest.mark.parametrize("line", ["9" * 5000 + " passed in 1.0s", "Ran " + "9" * 5000 + " tests in 1.0s"])
def test_a_count_of_thousands_of_digits_is_none(line: str) -> None:
    assert counts_of([line, "OK"]) is None


@pytest.mark.parametrize(
    "line",
    ['{"Action":"pass",' + '"Action":"pass","Test":"' * 3000, "test result: ok. 1 passed; " + "1" * 60_000],
)
def test_a_hostile_line_takes_linear_time(line: str) -> None:
    began = time.process_time()

    assert counts_of([line]) is None

    assert time.process_time() - began < 5  # it took hours
