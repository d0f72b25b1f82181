"""Whether an iteration weakened its tests, and what follows (A9)."""

import pytest

from ralphd.core.gate.step import begin, step
from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    CarriedOut,
    Cut,
    GateEvent,
    GatePolicy,
    GateRun,
    JudgedCommit,
    Moved,
    Position,
    PutBack,
    Ran,
    Refused,
    Result,
    Revert,
    RunTests,
    Shown,
    ShowOld,
    TestRun,
    Verdict,
    VerdictKind,
)
from ralphd.core.gate.weakened import (
    TestCheck,
    TestCounts,
    Weakened,
    has_fewer,
    hiding_runner,
    is_protected,
    script_files,
    weakened,
    weakened_text,
)
from ralphd.core.supervision.model import RunId

REVERT = GatePolicy(0, protect_tests="revert")
REPORT = GatePolicy(0, protect_tests="report")
FIVE = TestCounts(5)
SHOWN = Shown(("tests/test_a.py",), ())


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("test_a.py", True),
        ("a/b/test_a.py", True),
        ("a/conftest.py", True),
        ("src/a.test.tsx", True),
        ("src/__tests__/a.js", True),
        ("pkg/a_test.go", True),
        ("tests/a.rs", True),
        ("src/testing.py", False),
        ("tests/helper.sh", False),
        ("src/attest.py", False),
    ],
)
def test_usual_names_are_test_files(path: str, *, is_test: bool) -> None:
    assert is_protected(path, ()) is is_test


def test_named_patterns_replace_the_usual_ones() -> None:
    assert is_protected("run-tests.sh", ["*.sh"]) and is_protected("a/b/c.py", ["a/*"])
    assert not is_protected("test_a.py", ["*.sh"])


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("./t.sh", ["t.sh"]),
        ("sh t.sh && bash -e x/y.sh --fast", ["t.sh", "x/y.sh"]),
        ("cd sub; CI=1 timeout 60 ../run.sh | tee log", ["run.sh"]),
        ("exec python3.11 tests/run.py tests/a.py", ["tests/run.py"]),
        ("make test", []),
        ("python -m unittest -q a.py", []),
        ("sh -c 'exit 0'", []),
        ("cd", []),
        ("", []),
    ],
)
def test_the_scripts_of_a_test_command_are_found(command: str, files: list[str]) -> None:
    assert list(script_files(command)) == files


def test_a_new_module_can_hide_the_runner() -> None:
    added = ("unittest.py", "pytest/__init__.py", "pytest/a.py", "sub/unittest.py")
    assert hiding_runner("python -m unittest -q", added) == ("unittest.py",)
    assert hiding_runner("python -m pytest -m fast", added) == ("pytest/__init__.py",)
    assert hiding_runner("cd sub && python -m unittest", added) == ()
    assert hiding_runner("pytest", added) == ()


def test_a_hidden_runner_is_red_without_another_run() -> None:
    hides = Shown((), (), ("unittest.py",))
    kept = after(ran(run_of(), REPORT, Result.GREEN), REPORT, hides)
    text = "Python imports unittest.py instead of the test runner"
    assert (verdict(kept).kind, verdict(kept).weakened) == (VerdictKind.KEPT, Weakened.VANISHED)
    assert verdict(kept).why == f"the tests pass, but {text}"
    reverts = after(ran(run_of(), REVERT, Result.GREEN), REVERT, hides)
    assert isinstance(reverts.order, Revert)
    back = after(
        ran(after(reverts, REVERT, CarriedOut("0")), REVERT, Result.GREEN), REVERT, Ran(Result.GREEN)
    )
    assert (verdict(back).kind, verdict(back).why) == (VerdictKind.REVERTED, text)


@pytest.mark.parametrize(
    ("before", "now", "fewer"),
    [
        (None, TestCounts(1), False),
        (FIVE, TestCounts(5), False),
        (FIVE, TestCounts(9), False),
        (FIVE, TestCounts(4, 0, 1), True),
        (FIVE, None, True),
        (TestCounts(), None, False),
        (TestCounts(5, is_partial=True), None, False),
        (FIVE, TestCounts(3, is_partial=True), False),
    ],
)
def test_fewer_tests_is_a_fact_only_of_whole_counts(
    before: TestCounts | None, now: TestCounts | None, *, fewer: bool
) -> None:
    assert has_fewer(before, now) is fewer


def test_a_red_earlier_version_is_a_changed_expectation_or_worse() -> None:
    red = TestCheck(FIVE, FIVE, ("a", "b", "c", "d"), is_done=True, is_red=True)
    gone = TestCheck(None, None, ("a",), ("a",), is_done=True, is_red=True)

    assert weakened(red) is Weakened.CHANGED
    assert weakened_text(red) == "the earlier version of a, b, c and 1 more fails"
    assert weakened(gone) is Weakened.VANISHED
    assert weakened_text(gone) == "the earlier version of a fails; deleted or emptied: a"
    assert weakened(TestCheck(None, None, ("a",), ("a",), is_done=True)) is Weakened.NOT
    assert weakened(TestCheck(FIVE, None)) is Weakened.NOT, "not done"
    skips = TestCheck(FIVE, TestCounts(3, 0, 2, 1), is_done=True)
    assert weakened_text(skips) == "3 tests ran, 5 before, 2 more skipped, 1 more deselected"


def run_of(count: int = 1, before: TestCounts | None = FIVE, baseline: Baseline = Baseline.GREEN) -> GateRun:
    commits = tuple(JudgedCommit(f"{number:040x}") for number in range(count, 0, -1))
    boundary = Boundary(Position("0" * 40, "main"), Position(commits[0].sha, "main"), commits=commits)
    return begin(boundary, baseline, check=TestCheck(before=before))


def ran(run: GateRun, policy: GatePolicy, result: Result, counts: TestCounts | None = FIVE) -> GateRun:
    assert isinstance(run.order, RunTests)
    return step(run.tested(TestRun(RunId("r"), result, 0.1), result, counts), Ran(result), policy)


def after(run: GateRun, policy: GatePolicy, *answers: GateEvent) -> GateRun:
    for answer in answers:
        run = step(run, answer, policy)
    return run


def verdict(run: GateRun) -> Verdict:
    assert run.verdict is not None, run.order
    return run.finished(1.0, ())


def test_report_keeps_commits_and_names_what_changed() -> None:
    run = after(ran(run_of(), REPORT, Result.GREEN), REPORT, SHOWN)
    run = ran(run, REPORT, Result.RED)
    assert isinstance(run.order, PutBack)

    found = verdict(after(run, REPORT, CarriedOut("1")))

    assert (found.kind, found.weakened, found.baseline) == (VerdictKind.KEPT, "changed", Baseline.GREEN)
    assert found.why == "the tests pass, but the earlier version of tests/test_a.py fails"
    assert found.tests == ("green", "red_with_earlier_tests")


@pytest.mark.parametrize("result", [Result.GREEN, Result.CANNOT_RUN])
def test_only_red_earlier_versions_count(result: Result) -> None:
    run = ran(after(ran(run_of(), REVERT, Result.GREEN), REVERT, SHOWN), REVERT, result)

    assert verdict(after(run, REVERT, CarriedOut("1"))).why == "the tests pass"


@pytest.mark.parametrize("cut", [Result.TIMED_OUT, Result.ENDED])
def test_a_run_of_earlier_versions_that_is_cut_is_repeated_once_and_proves_nothing(cut: Result) -> None:
    policy = GatePolicy(1, protect_tests="revert")
    shown = after(ran(run_of(), policy, Result.GREEN), policy, SHOWN)

    twice = ran(ran(shown, policy, cut), policy, cut)
    why = "the earlier versions of the tests could not be run: they did not end by themselves, twice"
    kept = verdict(after(twice, policy, CarriedOut("1")))
    assert (kept.kind, kept.why) == (VerdictKind.KEPT, f"the tests pass, but {why}")

    for results in ((Result.RED, cut, Result.RED), (cut, Result.RED, Result.RED)):
        run = shown
        for result in results:
            run = ran(run, policy, result)
        assert run.order == PutBack() and run.check.is_red and not run.check.unknown
    green = ran(ran(shown, policy, cut), policy, Result.GREEN)
    assert verdict(after(green, policy, CarriedOut("1"))).why == "the tests pass"


def test_flaky_earlier_versions_get_another_try() -> None:
    policy = GatePolicy(1, protect_tests="revert")
    run = ran(after(ran(run_of(), policy, Result.GREEN), policy, SHOWN), policy, Result.RED)
    run = ran(run, policy, Result.GREEN)

    assert verdict(after(run, policy, CarriedOut("1"))).kind is VerdictKind.KEPT


def test_revert_treats_a_red_earlier_version_as_red_commit_by_commit() -> None:
    run = ran(run_of(2), REVERT, Result.GREEN)
    for head in ("a", "b"):
        assert isinstance(run.order, ShowOld)
        run = ran(after(run, REVERT, SHOWN), REVERT, Result.RED)
        run = after(run, REVERT, CarriedOut("1"))
        assert isinstance(run.order, Revert) and len(run.order.commits) == 1
        run = ran(after(run, REVERT, CarriedOut(head)), REVERT, Result.GREEN)

    found = verdict(after(run, REVERT, Ran(Result.GREEN)))

    assert (found.kind, len(found.reverted), found.weakened) == (VerdictKind.REVERTED, 2, "changed")
    assert found.why == "the earlier version of tests/test_a.py fails"


def test_fewer_tests_are_reverted_or_reported() -> None:
    run = ran(run_of(), REVERT, Result.GREEN, TestCounts(3))
    run = after(run, REVERT, Ran(Result.GREEN))
    assert isinstance(run.order, Revert)

    found = verdict(after(ran(run_of(), REPORT, Result.GREEN, None), REPORT, Ran(Result.GREEN)))

    assert found.weakened is Weakened.VANISHED
    assert found.why == "the tests pass, but the output no longer shows how many tests ran (5 before)"


def test_history_in_doubt_reverts_nothing() -> None:
    run = run_of()
    boundary = Boundary(run.boundary.before, run.boundary.now, descends=False, commits=run.boundary.commits)
    run = ran(begin(boundary, Baseline.GREEN, check=run.check), REVERT, Result.GREEN, TestCounts(3))

    found = verdict(after(run, REVERT, Ran(Result.GREEN)))

    assert (found.kind, found.pauses) == (VerdictKind.UNTESTED, True)
    assert found.why.startswith("3 tests ran, 5 before, and nothing is reverted: HEAD")


def test_nothing_is_checked_where_it_is_off_or_the_baseline_is_not_green() -> None:
    assert verdict(ran(run_of(), GatePolicy(), Result.GREEN, None)).why == "the tests pass"
    unknown = run_of(baseline=Baseline.UNKNOWN)
    assert verdict(ran(unknown, REVERT, Result.GREEN, None)).why == "the tests pass"


def test_earlier_versions_that_cannot_be_shown_cost_nobody_a_commit() -> None:
    run = after(ran(run_of(), REVERT, Result.GREEN), REVERT, Refused("a filter"))
    assert isinstance(run.order, PutBack), "a part of them may be in the work tree"
    found = verdict(after(run, REVERT, CarriedOut("1")))

    assert found.kind is VerdictKind.KEPT
    assert found.why == "the tests pass, but the earlier versions of the tests could not be run: a filter"


def test_present_files_return_whatever_interrupts() -> None:
    run = after(ran(run_of(), REVERT, Result.GREEN), REVERT, SHOWN)
    cut, moved = after(run, REVERT, Cut("stop")), after(run, REVERT, Moved("HEAD moved"))
    assert isinstance(cut.order, PutBack) and isinstance(moved.order, PutBack)

    assert verdict(after(cut, REVERT, CarriedOut("1"))).kind is VerdictKind.UNTESTED
    again = after(moved, REVERT, CarriedOut("1"))
    assert isinstance(again.order, RunTests) and not again.check.is_shown
