"""What becomes of commits, played against a model of a repository: what breaks it, what is in the way."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.gate.range import attributed
from ralphd.core.gate.step import begin, retaken, step
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
    Owner,
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
    TestRun,
    Verdict,
    VerdictKind,
    label_of,
    short,
)
from ralphd.core.gate.weakened import TestCounts
from ralphd.core.supervision.model import ReportedTask, RunId

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

    def answer(self, order: object) -> GateEvent:
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


def test_r7_one_bad_commit_is_reverted_without_a_push() -> None:
    repo = Repo(1, breaks=frozenset({1}))
    verdict = judged(repo)
    assert (verdict.kind, verdict.baseline, repo.reverted) == (VerdictKind.REVERTED, Baseline.GREEN, [1])
    assert repo.orders == ["RunTests", "RunTests", "Revert", "RunTests"]


def test_r7_a_pushed_commit_has_its_revert_pushed() -> None:
    repo = Repo(1, breaks=frozenset({1}), in_upstream=frozenset({1}))
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.pushed


def test_r7_an_unpushable_revert_stays_and_escalates() -> None:
    repo = Repo(1, breaks=frozenset({1}), in_upstream=frozenset({1}))
    judgement = begin(repo.boundary(), Baseline.GREEN)
    while not isinstance(judgement.order, Push):
        judgement = step(judgement, repo.answer(judgement.order), GatePolicy())
    verdict = step(judgement, Refused("not pushed: rejected"), GatePolicy()).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.calls, verdict.pauses) == (VerdictKind.REVERTED, True, False)
    assert "rejected" in verdict.why


def test_r5_a_bad_first_commit_reverts_all_three() -> None:
    repo = Repo(3, breaks=frozenset({1}))
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.reverted == [3, 2, 1]


def test_r5_commits_below_the_bad_one_stay() -> None:
    repo = Repo(3, breaks=frozenset({3}))
    judged(repo)
    assert repo.reverted == [3]


def test_r5_iteration_scope_reverts_all_at_once() -> None:
    repo = Repo(3, breaks=frozenset({3}))
    judged(repo, GatePolicy(minimal=False))
    assert repo.reverted == [3, 2, 1]
    assert repo.orders.count("Revert") == 1


def test_r3_a_flaky_test_reverts_nothing() -> None:
    repo = Repo(1, results=[Result.RED, Result.GREEN])
    verdict = judged(repo)
    assert verdict.kind is VerdictKind.KEPT
    assert "second run" in verdict.why


def test_r3_tests_that_hang_twice_revert_nothing() -> None:
    repo = Repo(1, results=[Result.TIMED_OUT, Result.TIMED_OUT])
    verdict = judged(repo, GatePolicy(test_retries=0))
    assert (verdict.kind, verdict.calls, verdict.pauses) == (VerdictKind.UNTESTED, True, False)
    assert not repo.reverted


@pytest.mark.parametrize("results", [[Result.RED, Result.TIMED_OUT], [Result.TIMED_OUT, Result.RED]])
def test_r3_a_time_out_among_red_runs_proves_nothing(results: list[Result]) -> None:
    repo = Repo(1, results=[*results])
    assert judged(repo).kind is VerdictKind.UNTESTED
    assert not repo.reverted


def test_r3_a_command_that_cannot_run_is_untested() -> None:
    repo = Repo(1, results=[Result.CANNOT_RUN])
    verdict = judged(repo)
    assert (verdict.kind, verdict.calls, repo.orders) == (VerdictKind.UNTESTED, True, ["RunTests"])


def test_r3_red_with_uncommitted_files_only_is_untested() -> None:
    repo = Repo(1, dirty=("a.py",), dirt_breaks=True)
    verdict = judged(repo)
    assert verdict.kind is VerdictKind.UNTESTED
    assert verdict.why.startswith("dirty")
    assert not repo.is_aside
    assert not repo.reverted


def test_r3_a_bad_commit_goes_despite_red_files() -> None:
    repo = Repo(2, breaks=frozenset({2}), dirty=("a.py",), dirt_breaks=True)
    assert judged(repo).kind is VerdictKind.REVERTED
    assert repo.reverted == [2]
    assert not repo.is_aside


@pytest.mark.parametrize("baseline", [Baseline.RED, Baseline.UNKNOWN])
def test_r4_a_red_baseline_blames_nothing(baseline: Baseline) -> None:
    repo = Repo(1, breaks=frozenset({1}), baseline=baseline)
    verdict = judged(repo)
    assert (verdict.kind, verdict.baseline, verdict.pauses) == (VerdictKind.UNTESTED, Baseline.RED, False)
    assert repo.orders == ["RunTests"]


def test_r4_the_first_green_after_red_is_kept() -> None:
    verdict = judged(Repo(1, baseline=Baseline.RED))
    assert (verdict.kind, verdict.baseline) == (VerdictKind.KEPT, Baseline.GREEN)


def test_r6_commits_that_change_nothing_are_restored() -> None:
    repo = Repo(2, always_red=True)
    verdict = judged(repo)
    assert (verdict.kind, verdict.pauses, repo.reverted) == (VerdictKind.UNTESTED, True, [])
    assert repo.orders[-1] == "Restore"


def test_r8_a_conflict_restores_all_and_pauses() -> None:
    repo = Repo(3, breaks=frozenset({1}), conflicts=frozenset({2}))
    verdict = judged(repo)
    assert (verdict.kind, verdict.pauses, repo.reverted) == (VerdictKind.UNTESTED, True, [])
    assert "conflict" in verdict.why


def test_r8_half_done_work_is_not_touched() -> None:
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
        ({"before": Position(None, "main")}, "first commit"),
    ],
)
def test_r2_a_doubtful_range_reverts_nothing(change: dict[str, object], words: str) -> None:
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


MERGED = tuple(JudgedCommit(sha(number), pulled=number == 2) for number in (3, 2, 1))
"""A merge of another branch between two commits of the run."""
ONCE = GatePolicy(test_retries=0)


def merged(*commits: JudgedCommit) -> GateRun:
    return step(begin(replace(Repo(3).boundary(), commits=commits), Baseline.GREEN), Ran(Result.RED), ONCE)


def test_r2_a_merge_is_left_not_reverted() -> None:
    run = merged(*MERGED)
    assert run.order == Revert((sha(3),)), "what is on top of it"
    run = step(step(run, CarriedOut(sha(4)), ONCE), Ran(Result.RED), ONCE)
    assert run.order == Restore(BEFORE)
    back = step(run, CarriedOut(BEFORE), ONCE)
    assert (back.order, back.reverted, back.is_back) == (RunTests(), (sha(3), sha(2), sha(1)), True)
    green = step(back, Ran(Result.GREEN), ONCE)
    assert green.verdict is not None and green.verdict.kind is VerdictKind.REVERTED
    assert "so the branch is back at 0000000" in green.verdict.why

    red = step(back, Ran(Result.RED), ONCE)
    assert red.order == Restore(sha(3)), "the commits are not to blame"
    verdict = step(red, CarriedOut(sha(3)), ONCE).verdict
    assert verdict is not None and verdict.pauses and verdict.kind is VerdictKind.UNTESTED


def test_r2_a_branch_goes_back_only_where_it_may() -> None:
    refused = step(merged(MERGED[1]), Refused("a file is in the way"), ONCE).verdict
    assert refused is not None and refused.pauses
    assert refused.why == "the tests fail, and it cannot be reverted: a file is in the way"
    moved = step(step(merged(MERGED[1]), CarriedOut(BEFORE), ONCE), Moved("a commit"), ONCE).verdict
    assert moved is not None and moved.is_open and moved.kind is VerdictKind.REVERTED
    for each in (replace(MERGED[1], upstream=True), replace(MERGED[1], owner=Owner.OTHER)):
        stays = merged(each).verdict
        assert stays is not None and (stays.calls, stays.pauses, stays.is_open) == (True, False, True)
        assert stays.why.endswith(f"nothing of that is reverted: {short((sha(2),))[0]}")


def test_a_moved_head_restores_files_and_is_judged_again() -> None:
    aside = replace(begin(Repo(1, dirty=("a",)).boundary(), Baseline.GREEN), is_aside=True)
    moved = step(aside, Moved("HEAD is at abc"), GatePolicy())
    assert (moved.order, moved.is_stale) == (PutBack(), False)
    back = step(moved, CarriedOut(None), GatePolicy())
    assert (back.order, back.is_stale, back.is_aside) == (RunTests(), True, False)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (SetAside(), "could not be tried without what is not committed: a lock"),
        (Restore(sha(1)), "the reverts are still there, and cannot be taken back: a lock"),
        (PutBack(), "a lock"),
    ],
)
def test_r8_an_impossible_order_is_reported_and_pauses(
    order: SetAside | Restore | PutBack, words: str
) -> None:
    judgement = replace(begin(Repo(1).boundary(), Baseline.GREEN), order=order, is_aside=order == PutBack())
    if isinstance(order, Restore):
        judgement = replace(judgement, planned=Verdict(VerdictKind.UNTESTED, "red"))
    verdict = step(judgement, Refused("a lock"), GatePolicy()).verdict
    assert verdict is not None
    assert verdict.pauses
    assert verdict.why.endswith(words)


def test_an_interrupted_judgement_is_repeated() -> None:
    repo = Repo(2, breaks=frozenset({1}))
    judgement = begin(repo.boundary(), Baseline.GREEN)
    while not (isinstance(judgement.order, RunTests) and judgement.reverted):
        judgement = step(judgement, repo.answer(judgement.order), GatePolicy())
    judgement = step(judgement, Cut("it was stopped"), GatePolicy())
    assert judgement.order == Restore(sha(2))
    verdict = step(judgement, repo.answer(judgement.order), GatePolicy()).verdict
    assert verdict is not None
    assert (verdict.is_open, verdict.pauses, verdict.baseline) == (True, False, Baseline.GREEN)


def test_a_wrong_answer_changes_nothing() -> None:
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
def test_a_judgement_ends_green_or_explains_itself(repo: Repo, retries: int, minimal: bool) -> None:
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
def test_a_judgement_survives_its_judge(repo: Repo, dies: list[bool]) -> None:
    repo.results.clear()
    other = replace(repo, reverted=[], orders=[])
    calm = judged(other)
    judgement: GateRun = begin(repo.boundary(), repo.baseline)
    while not isinstance(judgement.order, Say):
        answer = repo.answer(judgement.order)
        if dies and dies.pop() and not isinstance(judgement.order, Revert):  # reverts are known by their ref
            answer = repo.answer(judgement.order)
        judgement = step(judgement, answer, GatePolicy())
    assert judgement.verdict == calm
    assert repo.reverted == other.reverted


WAS, IS = Position("b" * 40, "main"), Position("a" * 40, "main")
ONE, TWO = JudgedCommit("1" * 40), JudgedCommit("2" * 40)
BOUNDARY = Boundary(WAS, IS, commits=(TWO, ONE))
UNTESTED, KEPT, REVERTED = VerdictKind.UNTESTED, VerdictKind.KEPT, VerdictKind.REVERTED
GREEN, UNKNOWN = Baseline.GREEN, Baseline.UNKNOWN
RED, TIMED_OUT, ENDED = Ran(Result.RED), Ran(Result.TIMED_OUT), Ran(Result.ENDED)
PASS, CANNOT = Ran(Result.GREEN), Ran(Result.CANNOT_RUN)
HEAD = CarriedOut("c" * 40)


def after(
    *events: GateEvent,
    boundary: Boundary = BOUNDARY,
    baseline: Baseline = GREEN,
    retries: int = 0,
    all_at_once: bool = False,
) -> GateRun:
    """A judgement to which this has happened."""
    judgement = begin(boundary, baseline)
    for event in events:
        judgement = step(judgement, event, GatePolicy(retries, minimal=not all_at_once))
    return judgement


# Boundary


def test_the_words_in_files_and_replies_are_these() -> None:
    assert [each.value for each in Baseline] == ["unknown", "green", "red"]
    assert [each.value for each in Result] == ["green", "red", "timed_out", "ended", "cannot_run"]
    assert [each.value for each in VerdictKind] == ["kept", "reverted", "untested"]


def test_a_commit_has_no_owner_by_default() -> None:
    assert JudgedCommit("a") == JudgedCommit("a", "", pulled=False, upstream=False)
    assert Boundary(WAS, IS) == Boundary(WAS, IS, descends=True, commits=(), trouble="", dirty=())
    assert (JudgedCommit("a").pulled, JudgedCommit("a").upstream, Boundary(WAS, IS).descends) == (
        False,
        False,
        True,
    )
    assert (JudgedCommit("a").subject, Boundary(WAS, IS).trouble) == ("", "")
    assert (Boundary(WAS, IS).commits, Boundary(WAS, IS).dirty) == ((), ())
    assert Boundary(WAS, IS).doubt == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"before": Position(None, "main")}, "the iteration made the repository's first commit"),
        (
            {"descends": False},
            "HEAD does not lead back to bbbbbbb, where the iteration began (amend, rebase, reset, merge)",
        ),
        ({"now": Position("a" * 40, None)}, "the branch is another: it was main, now it is none"),
        ({"before": Position("b" * 40, None)}, "the branch is another: it was none, now it is main"),
        ({"now": Position("a" * 40, "side")}, "the branch is another: it was main, now it is side"),
    ],
)  # fmt: skip
def test_r2_a_doubt_is_told_with_what_was_seen(change: dict[str, object], why: str) -> None:
    assert replace(BOUNDARY, **change).doubt == why  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"before": Position(None, "main")}, {"now": Position("a" * 40, "side")}])
def test_r2_a_branch_goes_back_only_on_itself_and_to_a_commit(change: dict[str, Position]) -> None:
    pulled = replace(BOUNDARY, commits=(replace(ONE, pulled=True),))

    assert pulled.can_go_back
    assert not replace(pulled, **change).can_go_back  # type: ignore[arg-type]  # positions alone


# Begin


def test_a_judgement_begins_with_tests_at_head() -> None:
    begun = begin(BOUNDARY, Baseline.RED)

    assert begun == GateRun(BOUNDARY, Baseline.RED, "a" * 40, RunTests())
    assert (begun.runs, begun.is_aside, begun.alone, begun.reverted, begun.planned) == (
        (),
        False,
        None,
        (),
        None,
    )
    assert (begun.left, begun.verdict) == ((TWO, ONE), None)
    assert GatePolicy() == GatePolicy(test_retries=1, minimal=True)
    assert Verdict(KEPT, "", GREEN) == Verdict(KEPT, "", GREEN, pauses=False, calls=False, is_open=False)
    plain = Verdict(KEPT, "", GREEN)
    assert (plain.pauses, plain.calls, plain.is_open) == (False, False, False)
    assert (GatePolicy().test_retries, GatePolicy().minimal) == (1, True)


@pytest.mark.parametrize("trouble", ["", "a rebase"])
def test_r1_the_same_commit_is_nothing_new(trouble: str) -> None:
    here = replace(BOUNDARY, now=WAS, trouble=trouble)
    assert begin(here, Baseline.RED).verdict == Verdict(KEPT, "there is no new commit", Baseline.RED)


@pytest.mark.parametrize("now", [Position("b" * 40, "side"), Position("a" * 40, "main")])
def test_r8_a_moved_branch_with_an_obstacle_pauses(now: Position) -> None:
    found = begin(replace(BOUNDARY, now=now, trouble="a rebase is half done"), GREEN).verdict
    assert found == Verdict(UNTESTED, "a rebase is half done", GREEN, pauses=True, is_open=True)


# The tests


def called(why: str) -> Verdict:
    return Verdict(UNTESTED, why, GREEN, calls=True)


@pytest.mark.parametrize(
    ("events", "retries", "runs"),
    [
        ((RED,), 1, 1), ((RED, RED), 2, 2), ((TIMED_OUT,), 0, 1), ((ENDED,), 0, 1), ((RED, TIMED_OUT), 2, 2),
        ((TIMED_OUT, RED), 2, 2),
    ],
)  # fmt: skip
def test_r3_what_is_not_green_is_run_again(events: tuple[Ran, ...], retries: int, runs: int) -> None:
    found = after(*events, retries=retries)
    assert (found.order, len(found.runs)) == (RunTests(), runs)


@pytest.mark.parametrize(
    ("events", "retries", "verdict"),
    [
        ((PASS,), 0, Verdict(KEPT, "the tests pass", GREEN)),
        ((RED, PASS), 1, Verdict(KEPT, "the tests pass, at a second run", GREEN)),
        ((TIMED_OUT, PASS), 0, Verdict(KEPT, "the tests pass, at a second run", GREEN)),
        ((TIMED_OUT, TIMED_OUT), 0, called("the tests did not end in time, twice")),
        ((RED, TIMED_OUT), 1, called("the tests did not end in time, twice")),
        ((TIMED_OUT, RED), 1, called("the tests did not end in time, twice")),
        (
            (ENDED, RED), 1,
            called("the tests were ended by somebody else, twice: by hand, or for memory"),
        ),
        (
            (CANNOT,), 3,
            called("the tests cannot be run: test_command is not found or not executable"),
        ),
    ],
)  # fmt: skip
def test_r3_what_the_tests_come_to(events: tuple[Ran, ...], retries: int, verdict: Verdict) -> None:
    assert after(*events, retries=retries).verdict == verdict


@pytest.mark.parametrize("baseline", [Baseline.RED, UNKNOWN])
def test_r4_red_after_a_red_baseline_ends_at_once(baseline: Baseline) -> None:
    why = "the tests failed, and were not green before: nothing is blamed on these commits"
    dirty = replace(BOUNDARY, dirty=("a",))
    assert after(RED, baseline=baseline, boundary=dirty, retries=2).verdict == Verdict(
        UNTESTED, why, Baseline.RED
    )


# What is not committed


@pytest.mark.parametrize(
    ("dirty", "names"),
    [(("a", "b", "c"), "a, b, c"), (("a", "b", "c", "d"), "a, b, c and 1 more")],
)
def test_r3_red_with_work_left_is_tried_without_it(dirty: tuple[str, ...], names: str) -> None:
    boundary = replace(BOUNDARY, dirty=dirty)
    aside = after(RED, boundary=boundary)
    assert aside.order == SetAside()
    alone = after(RED, HEAD, boundary=boundary)
    assert (alone.order, alone.runs, alone.is_aside) == (RunTests(), (), True)
    back = after(RED, HEAD, PASS, boundary=boundary)
    assert (back.order, back.alone, back.is_aside) == (PutBack(), Result.GREEN, True)
    over = after(RED, HEAD, PASS, HEAD, boundary=boundary)
    why = f"dirty: the tests pass without what is not committed: {names}"
    assert (over.verdict, over.is_aside) == (Verdict(UNTESTED, why, GREEN), False)


def test_r5_still_red_reverts_the_newest_and_repeats() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    red = after(RED, HEAD, RED, HEAD, boundary=boundary)
    assert (red.order, red.alone, red.is_aside) == (Revert((TWO.sha,)), Result.RED, False)
    gone = after(RED, HEAD, RED, HEAD, HEAD, boundary=boundary)
    assert (gone.order, gone.runs, gone.alone, gone.reverted) == (RunTests(), (), None, (TWO.sha,))
    assert (gone.head, gone.left) == ("c" * 40, (ONE,))
    again = after(RED, HEAD, RED, HEAD, HEAD, RED, boundary=boundary)
    assert again.order == SetAside()
    green = after(RED, HEAD, RED, HEAD, HEAD, RED, HEAD, PASS, HEAD, boundary=boundary).verdict
    assert green == Verdict(REVERTED, "the tests failed, and pass without it", GREEN)


def test_without_an_answer_files_return_without_blame() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    over = after(RED, HEAD, TIMED_OUT, TIMED_OUT, HEAD, boundary=boundary).verdict
    assert over == Verdict(UNTESTED, "the tests did not end in time, twice", GREEN, calls=True)


# Reverts


@pytest.mark.parametrize(
    ("all_at_once", "first", "why"),
    [
        (False, (TWO.sha,), "the tests failed, and pass without it"),
        (True, (TWO.sha, ONE.sha), "the tests failed, and pass without these 2 commits"),
    ],
)
def test_r5_reverts_come_newest_first(all_at_once: bool, first: tuple[str, ...], why: str) -> None:
    assert after(RED, all_at_once=all_at_once).order == Revert(first)
    over = after(RED, HEAD, PASS, all_at_once=all_at_once)
    assert (over.verdict, over.reverted) == (Verdict(REVERTED, why, GREEN), first)


def test_r6_used_up_and_still_red_all_comes_back() -> None:
    used = after(RED, HEAD, RED, HEAD, RED)
    assert (used.order, used.reverted) == (Restore("a" * 40), (TWO.sha, ONE.sha))
    over = after(RED, HEAD, RED, HEAD, RED, CarriedOut("a" * 40))
    why = "the tests fail without these commits too, which are not to blame: they are back"
    assert (over.verdict, over.reverted) == (Verdict(UNTESTED, why, UNKNOWN, pauses=True), ())
    assert (over.head, over.planned) == ("a" * 40, None)


@pytest.mark.parametrize(("upstream", "order"), [((ONE,), Say), ((TWO,), Push), ((ONE, TWO), Push)])
def test_r7_only_reverts_of_pushed_commits_are_pushed(
    upstream: tuple[JudgedCommit, ...], order: type
) -> None:
    commits = tuple(replace(each, upstream=each in upstream) for each in (TWO, ONE))
    found = after(RED, HEAD, PASS, boundary=replace(BOUNDARY, commits=commits))
    assert type(found.order) is order
    if order is Push:
        why = "the tests failed, and pass without it"
        assert found.planned == Verdict(REVERTED, why, GREEN)
        assert step(found, HEAD, GatePolicy()).verdict == Verdict(REVERTED, why, GREEN)
        rejected = Verdict(REVERTED, f"{why}; the revert is not pushed", GREEN, calls=True)
        assert step(found, Refused("the revert is not pushed"), GatePolicy()).verdict == rejected


def test_r2_in_doubt_red_is_told_with_the_doubt() -> None:
    boundary = replace(BOUNDARY, now=Position("a" * 40, "side"))
    why = "the tests fail, and nothing is reverted: the branch is another: it was main, now it is side"
    assert after(RED, boundary=boundary).verdict == Verdict(UNTESTED, why, UNKNOWN, pauses=True)


# What goes wrong


def paused(why: str) -> Verdict:
    return Verdict(UNTESTED, why, UNKNOWN, pauses=True)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((RED, Refused("a lock")), "the tests fail, and it cannot be reverted: a lock"),
        (
            (RED, HEAD, RED, HEAD, RED, Refused("a lock")),
            "the reverts are still there, and cannot be taken back: a lock",
        ),
    ],
)
def test_r8_what_cannot_go_on_pauses_and_says_why(events: tuple[GateEvent, ...], why: str) -> None:
    assert after(*events).verdict == paused(why)


def test_a_second_conflict_restores_the_first_commit() -> None:
    found = after(RED, HEAD, RED, Refused("a conflict"))
    why = "the tests fail, and it cannot be reverted: a conflict"
    assert (found.order, found.planned) == (Restore("a" * 40), paused(why))


def test_refusals_about_work_that_is_left() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    why = "the tests fail, and could not be tried without what is not committed: a lock"
    assert after(RED, Refused("a lock"), boundary=boundary).verdict == paused(why)
    lost = after(RED, HEAD, PASS, Refused("it changed"), boundary=boundary)
    left_open = Verdict(UNTESTED, "it changed", GREEN, pauses=True, is_open=True)
    assert (lost.verdict, lost.is_aside) == (left_open, False)


# Somebody else at work


MINE = replace(ONE, by_run=True)
THEIRS = JudgedCommit("3" * 40, by_run=False)
SHARED = attributed(replace(BOUNDARY, commits=(THEIRS, MINE)), knows_run=False)


def moved(run: GateRun, times: int, boundary: Boundary = BOUNDARY) -> GateRun:
    """A run during which HEAD moves so many times."""
    for _ in range(times):
        run = step(run, Moved("it is elsewhere"), GatePolicy(0))
        run = retaken(run, boundary, {}) if run.is_stale else run
    return run


def test_a_moved_head_is_judged_again_three_times() -> None:
    third = moved(begin(BOUNDARY, GREEN), 3)
    assert (third.order, third.retakes, third.verdict) == (RunTests(), 3, None)
    fourth = moved(begin(BOUNDARY, GREEN), 4).verdict
    assert fourth is not None
    assert (fourth.kind, fourth.baseline, fourth.is_open, fourth.pauses) == (UNTESTED, GREEN, True, False)
    assert "changed 4 times during the tests" in fourth.why
    assert "it is elsewhere" in fourth.why


def test_what_was_reverted_before_a_retake_is_known_by_its_reverts() -> None:
    revert = JudgedCommit("4" * 40, by_run=False, reverts=TWO.sha)
    now = replace(BOUNDARY, commits=(THEIRS, revert, TWO, ONE))
    run = step(after(RED, HEAD), Moved("it is elsewhere"), GatePolicy(0))
    again = retaken(run, attributed(now, knows_run=False), {revert.sha: TWO.sha})
    assert (again.reverted, [each.sha for each in again.left]) == ((TWO.sha,), [THEIRS.sha, ONE.sha])
    over = step(again, PASS, GatePolicy(0)).verdict
    assert over == Verdict(REVERTED, "the tests failed, and pass without it", GREEN)
    gone = retaken(run, attributed(BOUNDARY, knows_run=False), {revert.sha: TWO.sha})
    assert gone.reverted == ()


def test_a_give_up_keeps_the_reverts_and_leaves_the_rest_open() -> None:
    run = replace(after(RED, HEAD), retakes=3)
    found = step(run, Moved("it is elsewhere"), GatePolicy(0)).verdict
    assert found is not None
    assert (found.kind, found.is_open, found.pauses) == (REVERTED, True, False)
    aside = step(replace(run, is_aside=True), Moved("it is elsewhere"), GatePolicy(0))
    assert aside.order == PutBack()
    assert step(aside, HEAD, GatePolicy(0)).verdict == found


def test_a_retake_does_not_repeat_what_is_confirmed() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    red = after(RED, HEAD, RED, boundary=boundary)
    assert (red.order, red.confirmed) == (PutBack(), 2)
    again = retaken(step(step(red, Moved("x"), GatePolicy()), HEAD, GatePolicy()), boundary, {})
    assert step(again, RED, GatePolicy(2)).order == Revert((TWO.sha,))
    once = retaken(step(after(RED, boundary=boundary), Moved("x"), GatePolicy()), boundary, {})
    assert step(once, RED, GatePolicy(2)).order == SetAside()


def test_a_retake_repeats_a_red_that_was_confirmed_of_another_tree_only() -> None:
    policy = GatePolicy()
    dirty = replace(BOUNDARY, dirty=("a.py",))
    red = step(step(begin(dirty, GREEN), RED, policy), RED, policy)
    assert (red.order, red.confirmed) == (SetAside(), 1)
    again = retaken(replace(red, stale="x"), dirty, {})
    aside = step(step(again, RED, policy), HEAD, policy)
    assert (aside.is_aside, aside.order) == (True, RunTests())

    assert step(aside, RED, policy).order == RunTests()
    assert step(replace(aside, confirmed=2), RED, policy).order == PutBack()


def test_only_the_commits_of_the_run_are_reverted() -> None:
    assert after(RED, boundary=SHARED).order == Revert((MINE.sha,))
    over = after(RED, HEAD, PASS, boundary=SHARED)
    assert over.verdict == Verdict(REVERTED, "the tests failed, and pass without it", GREEN)
    assert over.finished(1.0, ()).commits == (MINE.sha,)


def test_a_red_commit_of_somebody_else_is_reported_and_not_tried_again() -> None:
    red = after(RED, HEAD, RED, boundary=SHARED)
    assert red.order == Restore("a" * 40)
    over = step(red, CarriedOut("a" * 40), GatePolicy(0))
    assert over.verdict is not None
    assert (over.verdict.kind, over.verdict.calls, over.verdict.is_open) == (UNTESTED, True, True)
    assert (over.verdict.pauses, over.verdict.baseline, over.excused) == (False, GREEN, THEIRS.sha)
    assert "it did not make 3333333: look there first" in over.verdict.why
    later = begin(SHARED, GREEN, excused=THEIRS.sha)
    assert step(later, RED, GatePolicy(2)).verdict == over.verdict
    newer = replace(SHARED, commits=(replace(THEIRS, sha="5" * 40, owner=Owner.OTHER), *SHARED.commits))
    assert step(begin(newer, GREEN, excused=THEIRS.sha), RED, GatePolicy(0)).order == Revert((MINE.sha,))
    assert step(later, PASS, GatePolicy(0)).excused == ""


@given(repos, st.lists(st.sampled_from(["", "moved", "cut"]), max_size=60), st.booleans())
def test_commits_of_others_stay_whatever_moves(repo: Repo, turns: list[str], minimal: bool) -> None:
    """The model: even commits are somebody else's; HEAD moves now and then, or the tests are cut."""
    repo.results.clear()
    commits = tuple(replace(each, by_run=bool(int(each.sha, 16) % 2)) for each in repo.boundary().commits)
    boundary = attributed(replace(repo.boundary(), commits=commits), knows_run=True)
    run = begin(boundary, repo.baseline)
    for _ in range(60 * (repo.count + 2)):
        if run.verdict is not None:
            break
        if run.is_stale:
            known = {sha(1000 + each): sha(each) for each in repo.reverted}
            reverts = tuple(JudgedCommit(each, by_run=False) for each in reversed(known))
            now = attributed(replace(boundary, commits=(*reverts, *commits)), knows_run=True)
            run = retaken(run, now, known)
        elif (turn := turns.pop() if turns else "") == "cut" and isinstance(run.order, RunTests):
            run = step(run, Cut("all was to end"), GatePolicy(1, minimal))
        elif turn == "moved" and isinstance(run.order, RunTests | SetAside | Revert):
            run = step(run, Moved("elsewhere"), GatePolicy(1, minimal))
        else:
            if isinstance(run.order, Restore):
                repo.reverted.clear()
                run = step(run, CarriedOut(None), GatePolicy(1, minimal))
            else:
                run = step(run, repo.answer(run.order), GatePolicy(1, minimal))
    assert run.verdict is not None, "it ends"
    assert not repo.is_aside
    assert all(each % 2 for each in repo.reverted)
    assert bool(repo.reverted) == (run.verdict.kind is REVERTED)


def test_what_is_cut_stays_open() -> None:
    cut = Verdict(UNTESTED, "all was to end", Baseline.RED, is_open=True)
    assert after(Cut("all was to end"), baseline=Baseline.RED).verdict == cut
    boundary = replace(BOUNDARY, dirty=("a",))
    aside = after(RED, HEAD, Cut("all was to end"), boundary=boundary)
    assert (aside.order, aside.planned) == (PutBack(), replace(cut, baseline=GREEN))
    assert step(aside, HEAD, GatePolicy()).verdict == replace(cut, baseline=GREEN)
    back = after(RED, HEAD, Cut("all was to end"))
    assert (back.order, back.planned) == (Restore("a" * 40), replace(cut, baseline=GREEN))


@pytest.mark.parametrize("event", [RED, Cut("x"), Moved("x"), Refused("x"), HEAD])
def test_what_was_said_stays_said(event: GateEvent) -> None:
    over = after(PASS)
    assert step(over, event, GatePolicy()) == over


@pytest.mark.parametrize(
    ("events", "event"), [((), HEAD), ((RED,), PASS), ((RED,), Cut("x")), ((RED, HEAD, RED, HEAD, RED), PASS)]
)
def test_what_answers_another_order_changes_nothing(events: tuple[GateEvent, ...], event: GateEvent) -> None:
    before = after(*events)
    assert step(before, event, GatePolicy()) == before


# a gate run, from its tests to the verdict that is kept


UNDER_WAY = GateRun(
    Boundary(Position(BEFORE, "main"), Position(sha(1), "main"), commits=(JudgedCommit(sha(1)),)),
    Baseline.GREEN,
    sha(1),
    RunTests(),
    boundary_id="r1/4",
    run_id=RunId("r1"),
    number=2,
    task=ReportedTask("T-1"),
    tail="1 failed",
)
GREEN_RUN = TestRun(RunId("t1"), Result.GREEN, 0.5)
RED_RUN = TestRun(RunId("t2"), Result.RED, 1.5)


def test_the_words_of_the_last_red_tests_are_kept() -> None:
    red = UNDER_WAY.tested(RED_RUN, "2 failed")
    green = red.tested(GREEN_RUN, "all passed")

    assert (red.tests, red.tail) == ((RED_RUN,), "2 failed")
    assert (green.tests, green.tail) == ((RED_RUN, GREEN_RUN), "2 failed")


def test_a9_earlier_tests_are_not_counted_among_those_of_the_present_tree() -> None:
    now = UNDER_WAY.tested(GREEN_RUN, "", TestCounts(5))
    shown = replace(now, check=replace(now.check, is_shown=True))

    old = shown.tested(RED_RUN, "", TestCounts(3))

    assert old.check.after == TestCounts(5)
    assert [each.is_old for each in old.tests] == [False, True]


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (Position(sha(1), "main"), None),
        (Position("ab" * 20, "main"), "HEAD was at 0000000 of main, and is at abababa of main"),
        (Position(sha(1), "side"), "HEAD was at 0000000 of main, and is at 0000000 of side"),
        (Position(None, "main"), "HEAD was at 0000000 of main, and is at nothing of main"),
    ],
)
def test_a_head_that_somebody_moved_is_described(at: Position, why: str | None) -> None:
    assert UNDER_WAY.moved(at) == (None if why is None else Moved(why))


def test_a_run_that_began_without_a_commit_names_nothing() -> None:
    moved = replace(UNDER_WAY, head=None).moved(Position(sha(1), "main"))
    assert moved == Moved("HEAD was at nothing of main, and is at 0000000 of main")


@pytest.mark.parametrize(("reverted", "refs"), [((sha(1),), ("refs/a",)), ((), ())])
def test_a_verdict_is_completed_by_its_run(reverted: tuple[str, ...], refs: tuple[str, ...]) -> None:
    decided = Verdict(VerdictKind.REVERTED, "the tests failed", Baseline.GREEN, calls=True)
    run = replace(UNDER_WAY, reverted=reverted, order=Say(decided)).tested(RED_RUN, "2 failed")

    assert run.finished(7.0, ("refs/a",)) == Verdict(
        VerdictKind.REVERTED, "the tests failed", Baseline.GREEN, calls=True, boundary_id="r1/4",
        run_id=RunId("r1"), number=2, task=ReportedTask("T-1"), commits=(sha(1),), reverted=reverted,
        tests=("red",), tests_s=(1.5,), refs=refs, tail="2 failed", at=7.0,
    )  # fmt: skip


def test_a_verdict_names_the_commits_that_stay_beside_the_reverted_ones() -> None:
    reverted = replace(TWO, owner=Owner.GATE)
    theirs = replace(THEIRS, owner=Owner.OTHER)
    boundary = replace(BOUNDARY, commits=(theirs, reverted, ONE))
    said = Say(Verdict(REVERTED, "the tests failed", GREEN))
    run = replace(begin(boundary, GREEN), reverted=(TWO.sha,), order=said)

    assert run.finished(7.0, ()).commits == (TWO.sha, ONE.sha)


def test_refs_are_named_by_ralph_run_and_report() -> None:
    assert label_of("shop", "r1", "r1") == "shop/r1"
    assert label_of("shop", "r1", "r1/4") == "shop/r1-8c44cf18"


def test_people_read_seven_characters_of_a_commit() -> None:
    assert short(("0123456789" * 4, "ab")) == ("0123456", "ab")


def test_owners_have_the_words_of_gate_json() -> None:
    assert [each.value for each in Owner] == ["run", "other", "gate"]
