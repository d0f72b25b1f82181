"""The landing queue lands what is green, once, and loses nothing (M1, M2, M4, M5)."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ralphd.core.gate.verdict import Result
from ralphd.core.gate.weakened import UNCHECKED, TestCheck, TestCounts
from ralphd.core.landing.model import (
    BatchTested,
    BranchPushed,
    Doing,
    Hindered,
    LandingCandidate,
    LandingPolicy,
    LandingQueue,
    Merged,
    MergeDone,
    Standing,
    Target,
    TargetMoved,
    TargetTaken,
)
from ralphd.core.landing.step import (
    admit,
    begin,
    followed,
    is_due,
    needs_person,
    recalled,
    rejoined,
    step,
    unblocked,
    waits_for_checkout,
    withdrawn,
)
from ralphd.core.landing.views import calls_person, landing_of, next_words, queue_view, task_text
from ralphd.errors import WrongState
from ralphd.store.shared.landing import LandingFiles

EMPTY = LandingQueue("/repo/.git", "/repo", Target("main"), green="tip")
POLICY = LandingPolicy(test_retries=0, max_tries=3)


def wanted(name: str, head: str = "") -> LandingCandidate:
    return LandingCandidate(0, name, f"refs/heads/ralph/{name}", head or name, 1.0)


def of(*names: str) -> LandingQueue:
    queue = EMPTY
    for name in names:
        queue = admit(queue, wanted(name))
    return queue


class World:
    """Git and tests of a queue: which branches are red, which conflict with the target."""

    def __init__(self, *red: str, conflicting: tuple[str, ...] = ()) -> None:
        self.red, self.conflicting = set(red), set(conflicting)
        self.target = ["tip"]
        self.tests = 0

    def result(self, queue: LandingQueue) -> MergeDone | BatchTested | TargetMoved | BranchPushed:
        batch = queue.batch
        assert batch is not None
        match batch.doing:
            case Doing.MERGING:
                names = {id: queue.candidate(id).ralph for id in batch.ids}
                good = [id for id in batch.ids if names[id] not in self.conflicting]
                merged = tuple(
                    Merged(id, f"{self.target[-1]}+{'+'.join(names[i] for i in good[: at + 1])}")
                    for at, id in enumerate(good)
                )
                bad = {id: "conflict in f" for id in batch.ids if id not in good}
                return MergeDone(self.target[-1], self.target[-1], merged, bad)
            case Doing.TESTING | Doing.CHECKING | Doing.BASELINE:
                self.tests += 1
                is_red = bool(set(batch.commit.split("+")) & self.red)
                return BatchTested(Result.RED if is_red else Result.GREEN, "the log" if is_red else "")
            case Doing.MOVING:
                self.target.append(batch.commit)
                return TargetMoved()
            case Doing.PUSHING:
                (id,) = batch.ids
                return BranchPushed("no" if queue.candidate(id).ralph in self.red else "")

    def run(self, queue: LandingQueue) -> LandingQueue:
        while (queue := begin(queue)).batch is not None:
            queue = step(queue, self.result(queue), POLICY, 2.0)
        return queue


def states(queue: LandingQueue) -> dict[str, str]:
    return {each.ralph: each.standing.value for each in queue.candidates}


def test_eight_green_candidates_cost_one_test_run() -> None:
    world = World()
    queue = world.run(of(*"abcdefgh"))
    assert set(states(queue).values()) == {"landed"}
    assert world.tests == 1
    assert world.target == ["tip", "tip+a+b+c+d+e+f+g+h"]


def test_the_red_one_of_eight_is_found_by_halves() -> None:
    world = World("f")
    queue = world.run(of(*"abcdefgh"))
    assert states(queue) == dict.fromkeys("abcdegh", "landed") | {"f": "refused"}
    refused = queue.standing(Standing.REFUSED)[0]
    assert (refused.why, refused.tail, refused.tries) == (
        "the tests fail on top of tip+a+b",
        "the log",
        1,
    ) or (refused.why.startswith("the tests fail on top of") and refused.tail == "the log")
    assert world.tests <= 7


def test_a_conflict_leaves_the_others() -> None:
    queue = World(conflicting=("b",)).run(of("a", "b", "c"))
    assert states(queue) == {"a": "landed", "b": "refused", "c": "landed"}
    assert queue.candidate(2).why == "conflict in f"


def test_red_tests_of_the_target_blame_nobody() -> None:
    world = World("tip")
    queue = world.run(replace(of("a", "b"), green=""))
    assert states(queue) == {"a": "queued", "b": "queued"}
    assert queue.blocked == "the tests fail on the target itself, at tip: nothing lands until they pass"
    assert not is_due(queue, 9.0, "tip")
    assert is_due(queue, 9.0, "other")
    world.red.clear()
    assert set(states(world.run(unblocked(queue))).values()) == {"landed"}


def test_a_flaky_test_is_run_again() -> None:
    queue = step(begin(of("a")), World().result(begin(of("a"))), POLICY, 2.0)
    policy = replace(POLICY, test_retries=1)
    again = step(queue, BatchTested(Result.RED, "log"), policy, 2.0)
    assert again.batch is not None
    assert again.batch.doing is Doing.TESTING
    green = step(again, BatchTested(Result.GREEN), policy, 2.0)
    assert green.batch is not None
    assert green.batch.doing is Doing.MOVING


def test_tests_that_were_ended_from_outside_prove_nothing() -> None:
    queue = begin(of("a"))
    queue = step(queue, World().result(queue), POLICY, 2.0)
    queue = step(queue, BatchTested(Result.ENDED), POLICY, 2.0)
    assert queue.batch is not None
    queue = step(queue, BatchTested(Result.ENDED), POLICY, 2.0)
    assert (queue.batch, states(queue)) == (None, {"a": "queued"})
    assert "ended from outside" in queue.blocked


@pytest.mark.parametrize("first", [Result.ENDED, Result.RED])
def test_one_end_from_outside_is_no_red_run_and_blocks_nothing(first: Result) -> None:
    """A red run and an ended one blocked the queue; an ended one and a red one refused the branch."""
    policy = replace(POLICY, test_retries=1)
    queue = step(begin(of("a")), World().result(begin(of("a"))), policy, 2.0)
    second = Result.RED if first is Result.ENDED else Result.ENDED

    for result in (first, second):
        queue = step(queue, BatchTested(result), policy, 2.0)

    assert queue.batch is not None and queue.batch.doing is Doing.TESTING
    assert (queue.blocked, states(queue)) == ("", {"a": "queued"})
    queue = step(queue, BatchTested(Result.GREEN), policy, 2.0)
    assert queue.batch is not None and queue.batch.doing is Doing.MOVING


def test_a_setup_that_fails_is_what_is_blamed() -> None:
    queue = step(begin(of("a")), World().result(begin(of("a"))), POLICY, 2.0)
    queue = step(queue, BatchTested(Result.RED, "log", "the setup commands fail (exit 3)"), POLICY, 2.0)
    assert queue.candidate(1).why == "the setup commands fail (exit 3) on top of tip"


# Weakened tests (A9).

REPORT, REVERT = replace(POLICY, protect_tests="report"), replace(POLICY, protect_tests="revert")
RED_OLD = TestCheck(changed=("test_a.py",))
GONE = TestCheck(changed=("test_a.py",), gone=("test_a.py",))


def checked(
    queue: LandingQueue,
    check: TestCheck = UNCHECKED,
    policy: LandingPolicy = REPORT,
    *,
    ran: int = 5,
    result: Result = Result.RED,
) -> LandingQueue:
    """The queue after green tests of its first batch, and a run of the earlier tests."""
    queue = step(begin(queue), World().result(begin(queue)), policy, 2.0)
    queue = step(queue, BatchTested(Result.GREEN, counts=TestCounts(ran)), policy, 2.0)
    assert queue.batch is not None
    assert queue.batch.doing is Doing.CHECKING
    check = replace(check, after=queue.batch.check.after)
    queue = replace(queue, batch=replace(queue.batch, check=check))
    return step(queue, BatchTested(result if check.changed else Result.GREEN, "log"), policy, 2.0)


def moved(queue: LandingQueue) -> LandingCandidate:
    """The first candidate, once the target has moved."""
    assert queue.batch is not None
    assert queue.batch.doing is Doing.MOVING
    return step(queue, TargetMoved(), REPORT, 2.0).candidate(1)


def test_weakened_tests_are_noted_and_land() -> None:
    landed = moved(checked(of("a"), RED_OLD))
    assert landed.note == "weakens tests: the earlier version of test_a.py fails"
    assert moved(checked(of("a"), RED_OLD, result=Result.GREEN)).note == ""
    assert moved(checked(of("a"), TestCheck(unknown="no room"))).note.endswith("could not be run: no room")


def test_fewer_tests_than_on_the_target_are_noted() -> None:
    known = replace(of("a"), counts=TestCounts(6), counts_at="tip")
    assert moved(checked(known)).note == "weakens tests: 5 tests ran, 6 before"
    assert moved(checked(known, ran=6)).note == ""
    assert moved(checked(replace(known, counts_at="older"))).note == ""


@pytest.mark.parametrize("check", [GONE, TestCheck(hiding=("pytest.py",))])
def test_vanished_tests_wait_unless_a_person_asked(check: TestCheck) -> None:
    assert moved(checked(of("a"), check)).note.startswith("weakens tests: ")
    queue = checked(admit(EMPTY, replace(wanted("a"), is_auto=True)), check)
    waiting = queue.candidate(1)
    assert (queue.batch, waiting.standing, waiting.is_told) == (None, Standing.WAITING, False)
    assert waiting.why.endswith(": land it yourself")
    auto = admit(EMPTY, replace(wanted("a"), is_auto=True))
    assert moved(checked(auto, RED_OLD)).note  # a changed expectation is honest work, too


def test_protected_tests_refuse_what_weakens_them() -> None:
    refused = checked(of("a"), RED_OLD, REVERT).candidate(1)
    assert (refused.standing, refused.tries, refused.tail) == (Standing.REFUSED, 1, "log")
    assert refused.why == "weakens tests: the earlier version of test_a.py fails"


def test_weakening_is_found_by_halves() -> None:
    queue = checked(of("a", "b"), RED_OLD)
    assert (queue.batch, queue.suspects) == (None, (1, 2))


@pytest.mark.parametrize("policy", [REPORT, REVERT])
def test_weakening_is_blamed_on_a_green_base_alone(policy: LandingPolicy) -> None:
    queue = checked(replace(of("a"), green=""), RED_OLD, policy)
    assert queue.batch is not None
    assert (queue.batch.doing, queue.batch.commit) == (Doing.BASELINE, "tip")
    red = step(queue, BatchTested(Result.RED), policy, 2.0)
    assert moved(red).note == "weakens tests: the earlier version of test_a.py fails"
    green = step(queue, BatchTested(Result.GREEN, counts=TestCounts(7)), policy, 2.0)
    why = green.candidate(1).why if policy is REVERT else moved(green).note
    assert why == "weakens tests: 5 tests ran, 7 before; the earlier version of test_a.py fails"


def test_a_revert_is_not_checked() -> None:
    queue = begin(admit(EMPTY, replace(wanted("a"), undoes="sha")))
    queue = step(queue, World().result(queue), REVERT, 2.0)
    queue = step(queue, BatchTested(Result.GREEN), REVERT, 2.0)
    assert queue.batch is not None
    assert queue.batch.doing is Doing.MOVING


def test_somebody_elses_push_has_all_tested_again() -> None:
    queue = begin(of("a"))
    for fact in (World().result(queue), BatchTested(Result.GREEN), TargetTaken()):
        queue = step(queue, fact, POLICY, 2.0)
    assert queue.batch is not None
    assert (queue.batch.doing, queue.batch.ids, queue.batch.merged) == (Doing.MERGING, (1,), ())


def test_what_is_in_the_way_is_tried_again_later() -> None:
    queue = step(begin(of("a")), Hindered("no network", 60.0), POLICY, 2.0)
    assert begin(queue).batch is None
    assert not is_due(queue, 61.0, "")
    assert is_due(queue, 62.0, "")


def test_the_third_refusal_calls_a_person() -> None:
    world, queue = World("a"), EMPTY
    for number in (1, 2, 3):
        queue = world.run(admit(queue, wanted("a", f"head{number}")))
        assert calls_person(queue.candidates[-1], POLICY) is (number == 3)
    world.red.clear()
    queue = world.run(admit(queue, wanted("a", "good")))
    assert admit(queue, wanted("a", "more")).candidates[-1].tries == 0


def test_a_conflict_with_what_landed_since_costs_no_try() -> None:
    queue, tries = EMPTY, []
    for head, resolved in (("one", ()), ("two", (2,)), ("three", ()), ("four", (4,))):
        queue = begin(admit(queue, wanted("a", head)))
        conflicts = {queue.last_id: "conflict in f"}
        done = MergeDone("tip", f"base of {head}", (), conflicts, resolved=resolved)
        queue = step(queue, done, POLICY, 2.0)
        tries.append(queue.candidates[-1].tries)
        assert queue.candidates[-1].refused_at == f"base of {head}"
    assert tries == [1, 1, 2, 2]


def test_a_new_request_replaces_the_one_that_waits() -> None:
    queue = admit(EMPTY, wanted("a", "old"), waits_for="you decide")
    assert queue.standing(Standing.WAITING)[0].why == "you decide"
    queue = admit(queue, wanted("a", "new"))
    assert [(each.id, each.head) for each in queue.candidates] == [(2, "new")]


def test_an_older_candidate_names_the_newest_of_its_branch() -> None:
    world, queue = World("a"), EMPTY
    for head in ("old", "new"):
        queue = world.run(admit(queue, wanted("a", head)))
    steps = [each["next"] for each in queue_view(queue, ())["candidates"]]
    assert steps == ["", "see 2"]


def test_a_ralph_shows_where_its_last_branch_stands() -> None:
    queue = World("a").run(of("a", "b"))
    assert landing_of(queue, "c", is_active=False) is None
    shown = [landing_of(queue, name, is_active=False) or {} for name in ("a", "b")]
    assert [each["state"] for each in shown] == ["refused", "landed"]
    assert (shown[0]["target"], shown[0]["next"]) == ("main", "")
    held = step(begin(admit(queue, wanted("a", "new"))), Hindered("no network"), POLICY, 2.0)
    assert [(landing_of(held, name, is_active=False) or {})["blocked"] for name in ("a", "b")] == [
        "no network",
        None,
    ]


def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ralphd.core.landing.model.MOST_OPEN", 2)
    with pytest.raises(WrongState, match="2 branches wait"):
        of("a", "b", "c")


def test_what_decides_how_code_is_judged_needs_a_person() -> None:
    assert needs_person(["src/a.py", "docs/x.md"], ()) == ""
    assert "ralph.toml" in needs_person(["ralph.toml"], ())
    assert ".github/workflows/ci.yml" in needs_person([".github/workflows/ci.yml"], ())
    assert "sub/PROMPT.md" in needs_person(["sub/PROMPT.md"], ())
    assert "tests/test_a.py" in needs_person(["tests/test_a.py"], ("test_*.py",))


def test_a_refused_branch_names_who_works_on_it() -> None:
    queue = World("a").run(of("a"))
    ended = replace(queue.candidates[0], is_told=True)
    assert next_words(queue, queue.candidates[0], {"a"}) == ""  # its ralph has not got the task yet
    assert next_words(queue, ended, {"a"}) == "needs you: fix ralph/a, then ralphctl land a"
    ended = replace(ended, has_task=True)
    words = "a has the task; once it is done with new commits, ralph/a is queued again"
    assert next_words(queue, ended, {"a"}) == words
    assert next_words(queue, ended, {"b"}) == "needs you: ralphctl start a (it has the task)"
    assert next_words(queue, replace(ended, undoes="c"), {"a"}) == "needs you: revert it by hand"
    later = admit(queue, wanted("a", "new"))
    assert next_words(later, ended, {"a"}) == "see 2"
    assert next_words(later, replace(ended, standing=Standing.PUSHED), {"a"}) == "see 2"


def test_a_branch_that_is_only_pushed_moves_no_target() -> None:
    world = World("bad")
    queue = of("a")
    for name in ("good", "bad"):
        queue = admit(queue, replace(wanted(name), publishes=True))
    first = begin(queue).batch
    assert first is not None
    assert (first.ids, first.doing) == ((2,), Doing.PUSHING)
    queue = world.run(queue)
    assert states(queue) == {"a": "landed", "good": "pushed", "bad": "refused"}
    assert (world.target, world.tests) == (["tip", "tip+a"], 1)
    good, bad = (replace(each, is_told=True) for each in queue.candidates[1:])
    assert next_words(queue, good, ()) == "ralphctl land good --pr opens a pull request"
    assert calls_person(bad, POLICY)
    assert next_words(queue, bad, ()) == "needs you: fix ralph/bad, then ralphctl land bad --pr"
    waiting = admit(queue, replace(wanted("more"), publishes=True), waits_for="it changes ralph.toml")
    assert next_words(queue, waiting.candidates[-1], ()) == "ralphctl land more --pr"


def test_a_push_that_finds_no_network_is_repeated_later() -> None:
    queue = step(begin(admit(EMPTY, replace(wanted("a"), publishes=True))), Hindered("no", 60.0), POLICY, 2.0)
    assert begin(queue).batch is None
    again = begin(unblocked(queue)).batch
    assert again is not None
    assert again.doing is Doing.PUSHING
    assert is_due(queue, 62.0, "")


def test_what_has_landed_waits_for_a_checkout() -> None:
    queue = World().run(of("a"))
    assert not waits_for_checkout(queue)
    noted = queue.with_candidate(replace(queue.candidates[0], why="on ralph/landed"))
    assert waits_for_checkout(noted)
    assert not waits_for_checkout(followed(noted))


def test_a_task_is_one_short_line() -> None:
    candidate = replace(wanted("a"), id=7, why="conflict in " + "x" * 500)
    text = task_text(candidate, Target("main"))
    assert text.startswith("Landing 7: ralph/a does not land on main: conflict in xxx")
    assert text.endswith("; merge main (ralph/landed, if it exists) and fix it")
    assert len(text) <= 200
    text = task_text(candidate, Target("main", "origin", "/srv/origin"))
    assert text.endswith("; merge origin/main (git fetch first) and fix it")


class Landings(RuleBasedStateMachine):
    """Any order of requests, results, crashes and pushes of others, against what the target holds."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = EMPTY
        self.asked = 0
        self.red: set[str] = set()
        self.weak: set[str] = set()
        self.target: list[str] = ["tip"]
        self.tested: set[str] = {"tip"}
        self.landed: list[str] = []
        self.recalled: set[str] = set()

    @rule(is_red=st.booleans(), is_weak=st.booleans())
    def a_ralph_asks(self, is_red: bool, is_weak: bool) -> None:
        self.asked += 1
        name = f"r{self.asked}"
        self.red |= {name} if is_red else set()
        self.weak |= {name} if is_weak else set()
        self.queue = admit(self.queue, replace(wanted(name), is_auto=True))

    @rule()
    def the_daemon_looks(self) -> None:
        self.queue = begin(unblocked(self.queue))

    @rule(data=st.data())
    def an_item_is_taken_back(self, data: st.DataObject) -> None:
        """Its branch is out of the queue, wherever the batch is; what has landed stays known."""
        if waiting := self.queue.standing(Standing.QUEUED):
            name = data.draw(st.sampled_from(waiting)).ralph
            self.queue = recalled(self.queue, name)
            self.recalled.add(name)

    @rule()
    def the_daemon_dies(self) -> None:
        """What is on disk is all that the next daemon has."""
        from ralphd.store.shared.landing import _QUEUE

        self.queue = _QUEUE.load(_QUEUE.dump(self.queue))

    @rule()
    def somebody_pushes(self) -> None:
        self.target.append(f"{self.target[-1]}.p")

    @precondition(lambda self: self.queue.batch is not None)
    @rule(kind=st.sampled_from(["done", "done", "done", "ended", "hindered"]), flaky=st.booleans())
    def the_step_ends(self, kind: str, flaky: bool) -> None:
        batch, tip = self.queue.batch, self.target[-1]
        assert batch is not None
        fact: object = Hindered("no network", 1.0)
        if kind == "hindered":
            pass
        elif batch.doing is Doing.MERGING:
            there = tuple(id for id in batch.ids if self.queue.candidate(id).ralph in self.landed)
            ids = [id for id in batch.ids if id not in there]
            names = [self.queue.candidate(id).ralph for id in ids]
            merged = tuple(Merged(id, f"{tip}+{'+'.join(names[: at + 1])}") for at, id in enumerate(ids))
            fact = MergeDone(tip, tip, merged, present=there)
        elif batch.doing is not Doing.MOVING:
            parts = set(batch.commit.replace(".p", "").split("+"))
            result = Result.RED if parts & self.red and not flaky else Result.GREEN
            if batch.doing is Doing.CHECKING:
                result = Result.RED if parts & self.weak else Result.GREEN
                check = replace(batch.check, changed=("t",), gone=("t",))
                self.queue = replace(self.queue, batch=replace(batch, check=check))
            result = Result.ENDED if kind == "ended" else result
            if result is Result.GREEN:
                self.tested.add(batch.commit)
            fact = BatchTested(result)
        elif batch.commit in self.target:  # a daemon died after the push
            fact = TargetMoved()
        elif batch.tip != tip:
            fact = TargetTaken()
        else:
            assert batch.commit in self.tested  # nothing untested is ever pushed
            self.target.append(batch.commit)
            self.landed += [self.queue.candidate(id).ralph for id in batch.ids]
            fact = TargetMoved()
        self.queue = step(self.queue, fact, REPORT, 2.0)  # type: ignore[arg-type]

    @precondition(lambda self: self.queue.batch is not None and self.queue.batch.doing is Doing.MOVING)
    @rule()
    def the_daemon_dies_after_the_push(self) -> None:
        batch = self.queue.batch
        assert batch is not None
        if batch.commit not in self.target and batch.tip == self.target[-1]:
            assert batch.commit in self.tested
            self.target.append(batch.commit)
            self.landed += [self.queue.candidate(id).ralph for id in batch.ids]

    @invariant()
    def nothing_lands_by_itself_without_its_tests(self) -> None:
        assert not self.weak.intersection(self.landed)

    @invariant()
    def nothing_lands_twice(self) -> None:
        assert len(self.landed) == len(set(self.landed))

    @invariant()
    def nothing_is_lost(self) -> None:
        names = {each.ralph for each in self.queue.candidates}
        assert names | self.recalled == {f"r{number + 1}" for number in range(self.asked)}
        assert not self.recalled & {each.ralph for each in self.queue.standing(Standing.QUEUED)}
        landed = {each.ralph for each in self.queue.standing(Standing.LANDED)}
        assert landed <= set(self.landed)
        queue_view(self.queue, {"r1"})

    @invariant()
    def the_batch_waits_in_the_queue(self) -> None:
        batch = self.queue.batch
        for id in batch.ids if batch else ():
            assert self.queue.candidate(id).standing is Standing.QUEUED


Landings.TestCase.settings = settings(stateful_step_count=40)
TestLandings = Landings.TestCase


def test_a_queue_reads_as_it_was_written(tmp_path: object) -> None:
    from pathlib import Path

    files = LandingFiles.of(Path(str(tmp_path)), Path("/repo/.git"))
    files.create()
    assert files.load() is None
    queue = begin(of("a", "b"))
    queue = step(queue, World().result(queue), POLICY, 2.0)
    files.save(queue)
    assert files.load() == files.peek() == queue
    assert files.queue_file.stat().st_mode & 0o777 == 0o600
    files.queue_file.write_text("torn")
    assert files.peek() is None
    assert files.queue_file.read_text() == "torn"


def test_a_branch_that_was_pushed_is_not_copied() -> None:
    queue = admit(EMPTY, wanted("a", "old"))
    queue = queue.with_candidate(
        replace(queue.candidate(1), standing=Standing.LANDED, commit="c2", copies=(("old", "c2"),))
    )
    assert queue.copied("refs/heads/ralph/a") == (("old", "c2"),)
    assert queue.copied("refs/heads/ralph/b") == (("old", "c2"),)  # it may be based on the other
    undo = replace(wanted("a"), undoes="c2", copies=(("o1", "c1"), ("old", "c2")))
    assert undo.undone == ("c2", "c1") and admit(queue, undo).copied("refs/heads/ralph/a") == (("old", "c2"),)
    assert replace(undo, copies=()).undone == ("c2",) and wanted("a").undone == ()
    assert admit(queue, replace(wanted("a", "new"), publishes=True)).copied("refs/heads/ralph/a") is None


def test_what_a_person_asked_for_is_not_replaced_by_a_proposal() -> None:
    queue = admit(of("a"), replace(wanted("a", "newer"), is_auto=True), waits_for="you decide")
    assert [(each.head, each.standing) for each in queue.candidates] == [
        ("a", Standing.QUEUED), ("newer", Standing.WAITING),
    ]  # fmt: skip
    again = admit(queue, wanted("a", "newest"))
    assert [(each.head, each.standing) for each in again.candidates] == [("newest", Standing.QUEUED)]


def test_a_move_without_an_answer_is_asked_again() -> None:
    queue = begin(of("a"))
    queue = step(queue, MergeDone("tip", "tip", (Merged(1, "m1"),)), POLICY, 1.0)
    moving = step(queue, BatchTested(Result.GREEN), POLICY, 1.0)
    blocked = step(moving, Hindered("the remote is away", 60.0), POLICY, 1.0)
    assert blocked.batch == moving.batch and blocked.blocked == "the remote is away"
    landed = step(unblocked(blocked), TargetMoved(), POLICY, 70.0)
    assert (landed.candidate(1).standing, landed.candidate(1).commit) == (Standing.LANDED, "m1")


@pytest.mark.parametrize("result", [Result.GREEN, Result.RED])
def test_what_landed_is_joined_with_a_persons_commits(result: Result) -> None:
    waits = replace(of("a").candidate(1), standing=Standing.LANDED, commit="m1", why="on ralph/landed")
    queue = rejoined(replace(EMPTY, candidates=(waits,)))
    queue = step(queue, MergeDone("mine", "both", ()), POLICY, 1.0)
    assert queue.batch is not None and (queue.batch.doing, queue.batch.commit) == (Doing.TESTING, "both")
    queue = step(queue, BatchTested(result), POLICY, 1.0)
    if result is Result.RED:
        assert queue.batch is None and "on the target itself, at both" in queue.blocked
        return
    assert queue.batch is not None and queue.batch.doing is Doing.MOVING
    dirty = step(queue, TargetMoved("on ralph/landed: there are changes"), POLICY, 1.0)
    assert (dirty.left, waits_for_checkout(dirty)) == ("both", True)
    queue = step(queue, TargetMoved(), POLICY, 1.0)
    assert queue.batch is None and queue.candidate(1).why == "" and queue.left == ""
    assert not waits_for_checkout(queue)


def test_only_what_works_in_one_place_is_tested_together() -> None:
    queue = admit(admit(of("a"), replace(wanted("b"), inside="svc")), wanted("c"))
    assert (batch := begin(queue).batch) is not None and batch.ids == (1, 3)


def test_what_needs_a_person_at_the_tip_waits() -> None:
    queue = begin(admit(EMPTY, replace(wanted("a"), is_auto=True)))
    queue = step(queue, MergeDone("tip", "tip", (), waits={1: "it changes ralph.toml"}), POLICY, 1.0)
    assert queue.batch is None and queue.candidate(1).standing is Standing.WAITING
    assert withdrawn(queue, "b") == queue and withdrawn(queue, "a").candidates == ()
