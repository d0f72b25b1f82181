"""What becomes of commits, played against a model of a repository: what breaks it, what is in the way."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    CarriedOut,
    Cut,
    GatePolicy,
    JudgedCommit,
    JudgeEvent,
    Judgement,
    Moved,
    Position,
    Push,
    PutBack,
    Ran,
    Refused,
    Restore,
    Result,
    Revert,
    RunTests,
    Say,
    SetAside,
    Verdict,
    VerdictKind,
    begin,
    step,
)

BEFORE = "0" * 40


def sha(number: int) -> str:
    """The full name of the ``number``-th commit of the iteration, from 1."""
    return f"{number:040x}"


@dataclass
class Repo:
    """A repository as far as a judgement can see it: commits that break the tests, and what lies around."""

    count: int = 1
    breaks: frozenset[int] = frozenset()
    dirt_breaks: bool = False
    dirty: tuple[str, ...] = ()
    always_red: bool = False
    conflicts: frozenset[int] = frozenset()
    in_upstream: frozenset[int] = frozenset()
    baseline: Baseline = Baseline.GREEN
    results: list[Result] = field(default_factory=list)
    reverted: list[int] = field(default_factory=list)
    is_aside: bool = False
    pushed: bool = False
    orders: list[str] = field(default_factory=list)

    def boundary(self) -> Boundary:
        """The facts."""
        commits = tuple(
            JudgedCommit(sha(number), upstream=number in self.in_upstream)
            for number in range(self.count, 0, -1)
        )
        now = Position(sha(self.count), "main")
        return Boundary(Position(BEFORE, "main"), now, commits=commits, dirty=self.dirty)

    def head(self) -> str:
        """Where HEAD is: another name for each number of reverts."""
        return sha(1000 * len(self.reverted) + self.count)

    def answer(self, order: object) -> JudgeEvent:
        """Carry out an order."""
        self.orders.append(type(order).__name__)
        match order:
            case RunTests():
                return Ran(self.results.pop(0) if self.results else self._tested())
            case SetAside():
                self.is_aside = True
            case PutBack():
                self.is_aside = False
            case Revert(commits=commits):
                numbers = [int(each, 16) for each in commits]
                assert set(numbers) <= set(range(1, self.count + 1)), "outside of the range"
                assert not self.is_aside
                if self.conflicts & set(numbers):
                    return Refused("a conflict in a.py")
                self.reverted += numbers
            case Restore(head=head):
                assert head == sha(self.count)
                self.reverted.clear()
            case Push():
                self.pushed = True
        return CarriedOut(self.head())

    def _tested(self) -> Result:
        red = self.always_red or bool(self.breaks - set(self.reverted))
        red = red or (self.dirt_breaks and bool(self.dirty) and not self.is_aside)
        return Result.RED if red else Result.GREEN


def judged(repo: Repo, policy: GatePolicy | None = None) -> Verdict:
    """The verdict on a boundary of this repository, all orders carried out."""
    judgement = begin(repo.boundary(), repo.baseline)
    for _ in range(20 * (repo.count + 2)):
        if judgement.verdict is not None:
            return judgement.verdict
        judgement = step(judgement, repo.answer(judgement.order), policy or GatePolicy())
    raise AssertionError("it never ends")


def test_r3_green_is_kept_after_one_run() -> None:
    repo = Repo(3)
    assert judged(repo).kind is VerdictKind.KEPT
    assert repo.orders == ["RunTests"]


def test_r7_one_bad_commit_is_reverted_and_not_pushed_where_it_was_not() -> None:
    repo = Repo(1, breaks=frozenset({1}))
    verdict = judged(repo)
    assert (verdict.kind, verdict.baseline, repo.reverted) == (VerdictKind.REVERTED, Baseline.GREEN, [1])
    assert repo.orders == ["RunTests", "RunTests", "Revert", "RunTests"]


def test_r7_a_reverted_commit_that_is_in_the_upstream_has_its_revert_pushed() -> None:
    repo = Repo(1, breaks=frozenset({1}), in_upstream=frozenset({1}))
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.pushed


def test_r7_a_revert_that_cannot_be_pushed_is_a_revert_all_the_same_and_somebody_is_called() -> None:
    repo = Repo(1, breaks=frozenset({1}), in_upstream=frozenset({1}))
    judgement = begin(repo.boundary(), Baseline.GREEN)
    while not isinstance(judgement.order, Push):
        judgement = step(judgement, repo.answer(judgement.order), GatePolicy())
    verdict = step(judgement, Refused("not pushed: rejected"), GatePolicy()).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.calls, verdict.pauses) == (VerdictKind.REVERTED, True, False)
    assert "rejected" in verdict.why


def test_r5_of_three_with_the_first_bad_all_are_reverted_newest_first() -> None:
    repo = Repo(3, breaks=frozenset({1}))
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.reverted == [3, 2, 1]


def test_r5_commits_below_the_bad_one_stay() -> None:
    repo = Repo(3, breaks=frozenset({3}))
    judged(repo)
    assert repo.reverted == [3]


def test_r5_with_the_scope_of_an_iteration_all_go_at_once() -> None:
    repo = Repo(3, breaks=frozenset({3}))
    judged(repo, GatePolicy(minimal=False))
    assert repo.reverted == [3, 2, 1]
    assert repo.orders.count("Revert") == 1


def test_r3_a_flaky_test_that_passes_at_the_second_run_reverts_nothing() -> None:
    repo = Repo(1, results=[Result.RED, Result.GREEN])
    verdict = judged(repo)
    assert verdict.kind is VerdictKind.KEPT
    assert "second run" in verdict.why


def test_r3_tests_that_hang_twice_are_told_and_nothing_is_reverted() -> None:
    repo = Repo(1, results=[Result.TIMED_OUT, Result.TIMED_OUT])
    verdict = judged(repo, GatePolicy(test_retries=0))
    assert (verdict.kind, verdict.calls, verdict.pauses) == (VerdictKind.UNTESTED, True, False)
    assert not repo.reverted


@pytest.mark.parametrize("results", [[Result.RED, Result.TIMED_OUT], [Result.TIMED_OUT, Result.RED]])
def test_r3_a_time_out_among_red_runs_proves_nothing(results: list[Result]) -> None:
    repo = Repo(1, results=results)
    assert judged(repo).kind is VerdictKind.UNTESTED
    assert not repo.reverted


def test_r3_a_command_that_cannot_be_run_is_no_red_test() -> None:
    repo = Repo(1, results=[Result.CANNOT_RUN])
    verdict = judged(repo)
    assert (verdict.kind, verdict.calls, repo.orders) == (VerdictKind.UNTESTED, True, ["RunTests"])


def test_r3_what_is_red_only_with_uncommitted_files_is_untested_and_they_are_back() -> None:
    repo = Repo(1, dirty=("a.py",), dirt_breaks=True)
    verdict = judged(repo)
    assert verdict.kind is VerdictKind.UNTESTED
    assert verdict.why.startswith("dirty")
    assert not repo.is_aside
    assert not repo.reverted


def test_r3_a_bad_commit_goes_even_where_uncommitted_files_are_red_too() -> None:
    repo = Repo(2, breaks=frozenset({2}), dirty=("a.py",), dirt_breaks=True)
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.reverted == [2]
    assert not repo.is_aside


@pytest.mark.parametrize("baseline", [Baseline.RED, Baseline.UNKNOWN])
def test_r4_where_the_tests_were_not_green_before_nothing_is_blamed(baseline: Baseline) -> None:
    repo = Repo(1, breaks=frozenset({1}), baseline=baseline)
    verdict = judged(repo)
    assert (verdict.kind, verdict.baseline, verdict.pauses) == (VerdictKind.UNTESTED, Baseline.RED, False)
    assert repo.orders == ["RunTests"]


def test_r4_the_first_green_after_a_red_baseline_is_kept_and_counts() -> None:
    verdict = judged(Repo(1, baseline=Baseline.RED))
    assert (verdict.kind, verdict.baseline) == (VerdictKind.KEPT, Baseline.GREEN)


def test_r6_commits_without_which_it_is_red_too_are_put_back() -> None:
    repo = Repo(2, always_red=True)
    verdict = judged(repo)
    assert (verdict.kind, verdict.pauses, repo.reverted) == (VerdictKind.UNTESTED, True, [])
    assert repo.orders[-1] == "Restore"


def test_r8_a_conflict_leaves_all_as_it_was_and_pauses() -> None:
    repo = Repo(3, breaks=frozenset({1}), conflicts=frozenset({2}))
    verdict = judged(repo)
    assert (verdict.kind, verdict.pauses, repo.reverted) == (VerdictKind.UNTESTED, True, [])
    assert "conflict" in verdict.why


def test_r8_something_half_done_is_not_touched_and_not_tested() -> None:
    boundary = replace(Repo(1).boundary(), trouble="a rebase is half done")
    verdict = begin(boundary, Baseline.GREEN).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.pauses) == (VerdictKind.UNTESTED, True)


def test_r1_without_a_new_commit_nothing_is_run() -> None:
    here = Position(BEFORE, "main")
    verdict = begin(Boundary(here, here), Baseline.GREEN).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.baseline) == (VerdictKind.KEPT, Baseline.GREEN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"descends": False}, "does not lead back"),
        ({"now": Position(sha(1), "other")}, "branch"),
        ({"commits": (JudgedCommit(sha(1), pulled=True),)}, "pull"),
        ({"before": Position(None, "main")}, "first commit"),
    ],
)
def test_r2_a_range_in_doubt_is_tested_and_red_reverts_nothing(change: dict[str, object], words: str) -> None:
    boundary = replace(Repo(1).boundary(), **change)  # type: ignore[arg-type]
    red = begin(boundary, Baseline.GREEN)
    for _ in range(2):
        red = step(red, Ran(Result.RED), GatePolicy())
    assert red.verdict is not None
    assert (red.verdict.kind, red.verdict.pauses) == (VerdictKind.UNTESTED, True)
    assert words in red.verdict.why
    green = step(begin(boundary, Baseline.GREEN), Ran(Result.GREEN), GatePolicy())
    assert green.verdict is not None
    assert green.verdict.kind is VerdictKind.KEPT


def test_where_somebody_moves_head_meanwhile_what_was_set_aside_comes_back_and_it_pauses() -> None:
    aside = replace(begin(Repo(1, dirty=("a",)).boundary(), Baseline.GREEN), is_aside=True)
    moved = step(aside, Moved("HEAD is at abc"), GatePolicy())
    assert moved.order == PutBack()
    over = step(moved, CarriedOut(None), GatePolicy()).verdict
    assert over is not None
    assert over.pauses


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (SetAside(), "could not be tried without what is not committed: a lock"),
        (Restore(sha(1)), "the reverts are still there, and cannot be taken back: a lock"),
        (PutBack(), "a lock"),
    ],
)
def test_r8_what_cannot_be_carried_out_is_told_as_it_is_and_pauses(
    order: SetAside | Restore | PutBack, words: str
) -> None:
    judgement = replace(begin(Repo(1).boundary(), Baseline.GREEN), order=order, is_aside=order == PutBack())
    verdict = step(judgement, Refused("a lock"), GatePolicy()).verdict
    assert verdict is not None
    assert verdict.pauses
    assert verdict.why.endswith(words)


def test_what_is_cut_short_is_as_it_was_and_is_judged_at_the_next_boundary() -> None:
    repo = Repo(2, breaks=frozenset({1}))
    judgement = begin(repo.boundary(), Baseline.GREEN)
    while not (isinstance(judgement.order, RunTests) and judgement.reverted):
        judgement = step(judgement, repo.answer(judgement.order), GatePolicy())
    judgement = step(judgement, Cut("it was stopped"), GatePolicy())
    assert judgement.order == Restore(sha(2))
    verdict = step(judgement, repo.answer(judgement.order), GatePolicy()).verdict
    assert verdict is not None
    assert (verdict.is_open, verdict.pauses, verdict.baseline) == (True, False, Baseline.GREEN)


def test_what_is_no_answer_to_the_order_changes_nothing() -> None:
    judgement = begin(Repo(1).boundary(), Baseline.GREEN)
    assert step(judgement, CarriedOut(None), GatePolicy()) == judgement
    over = step(judgement, Ran(Result.GREEN), GatePolicy())
    assert step(over, Ran(Result.RED), GatePolicy()) == over


numbers = st.frozensets(st.integers(1, 5))
repos = st.builds(
    Repo,
    count=st.integers(1, 5),
    breaks=numbers,
    dirt_breaks=st.booleans(),
    dirty=st.sampled_from([(), ("a.py",)]),
    always_red=st.booleans(),
    conflicts=st.one_of(st.just(frozenset[int]()), numbers),
    in_upstream=numbers,
    baseline=st.sampled_from(Baseline),
    results=st.lists(st.sampled_from(Result), max_size=4),
)


@given(repos, st.integers(0, 2), st.booleans())
def test_the_end_is_green_or_it_has_stopped_and_said_so(repo: Repo, retries: int, minimal: bool) -> None:
    repo.breaks &= frozenset(range(1, repo.count + 1))
    told_otherwise = bool(repo.results)  # runs that do not say what is so
    verdict = judged(repo, GatePolicy(retries, minimal))
    assert not repo.is_aside, "what was set aside is back"
    assert bool(repo.reverted) == (verdict.kind is VerdictKind.REVERTED)
    assert repo.reverted == sorted(repo.reverted, reverse=True), "newest first"
    if verdict.kind is not VerdictKind.UNTESTED and not told_otherwise:
        repo.dirt_breaks = False
        assert repo.answer(RunTests()) == Ran(Result.GREEN)
    if repo.reverted:
        assert repo.baseline is Baseline.GREEN
    if repo.pushed:
        assert repo.in_upstream & set(repo.reverted)


@given(repos, st.lists(st.booleans(), max_size=40))
def test_a_judge_that_dies_over_an_order_gives_it_again_and_ends_the_same(
    repo: Repo, dies: list[bool]
) -> None:
    repo.results.clear()
    other = replace(repo, reverted=[], orders=[])
    calm = judged(other)
    judgement: Judgement = begin(repo.boundary(), repo.baseline)
    while not isinstance(judgement.order, Say):
        answer = repo.answer(judgement.order)
        if dies and dies.pop() and not isinstance(judgement.order, Revert):  # reverts are known by their ref
            answer = repo.answer(judgement.order)
        judgement = step(judgement, answer, GatePolicy())
    assert judgement.verdict == calm
    assert repo.reverted == other.reverted
