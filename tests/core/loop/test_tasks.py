"""Which task is next, and what is remembered of how tasks went (L1, 000-T4)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import notice_of
from ralphd.core.loop import tasks
from ralphd.core.loop.model import Previous, TaskRecord, TaskState
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.model import ReportedTask
from tests.core.loop.scenes import plan_of, verdict_of

A, B = plan_of("A", "B").tasks


def ledger_of(*records: TaskRecord) -> Mapping[str, TaskRecord]:
    """What is remembered of these."""
    return {record.id: record for record in records}


def test_l1_pending_tasks_come_before_failed_ones() -> None:
    failed = [TaskRecord(id_, "", TaskState.FAILED, count) for id_, count in (("A", 3), ("B", 1), ("C", 2))]
    plan = plan_of("A", "B", "C", "D")

    assert tasks.choose(plan, ledger_of(*failed), max_task_failures=5).task == plan.tasks[3]
    done = plan_of("A", "B", "C", "D", done=["D"])
    assert tasks.choose(done, ledger_of(*failed), max_task_failures=5).task == plan.tasks[1]


@pytest.mark.parametrize(("most", "may_be_tried"), [(2, False), (3, True), (4, True), (0, True)])
def test_a_task_fails_only_so_often(most: int, may_be_tried: bool) -> None:
    choice = tasks.choose(
        plan_of("A"), ledger_of(TaskRecord("A", "", TaskState.FAILED, 3)), max_task_failures=most
    )

    assert (choice.task is not None, choice.used_up == ()) == (may_be_tried, may_be_tried)


def test_l1_tasks_under_way_come_first() -> None:
    ledger = ledger_of(TaskRecord("A", "", TaskState.FAILED, 1), TaskRecord("B", "", TaskState.PENDING, 2))

    assert tasks.choose(plan_of("A", "B"), ledger, max_task_failures=5).task == B
    assert tasks.began(ledger, B)["B"] == TaskRecord("B", "do B", TaskState.IN_PROGRESS, 2)


def test_l1_an_interrupted_task_is_pending_again() -> None:
    ledger = tasks.sync_with_plan(tasks.began({}, A), plan_of("A", "B"))

    assert ledger["A"].state is TaskState.PENDING
    assert tasks.choose(plan_of("A", "B"), ledger, max_task_failures=1).task == A


def test_what_was_put_back_takes_turns_with_a_prompt_that_is_never_done() -> None:
    added = Task("+1", "more", TaskStatus.PENDING, added=True)
    plan = replace(plan_of(), added=(added,))
    ledger, chosen = ledger_of(TaskRecord("+1", "more", TaskState.FAILED, 2)), []
    for _ in range(4):
        task = tasks.choose(plan, ledger, max_task_failures=0).task
        assert task is not None
        chosen.append(task.id)
        end = TaskState.FAILED if task == added else TaskState.COMPLETE
        ledger = tasks.sync_with_plan(tasks.ended(ledger, task, end), plan)

    assert chosen == ["prompt", "+1", "prompt", "+1"]


def test_the_end_of_the_prompt_makes_what_was_put_back_pending() -> None:
    ledger = ledger_of(TaskRecord("+1", "more", TaskState.FAILED, 2))

    after = tasks.ended(ledger, tasks.PROMPT_ALONE, TaskState.PENDING)

    assert after["+1"] == TaskRecord("+1", "more", TaskState.PENDING, 2)


def test_ticked_is_complete_and_unticked_is_open() -> None:
    ledger = tasks.sync_with_plan({}, plan_of("A", "B", done=["A"]))
    assert (ledger["A"].state, ledger["B"].state) == (TaskState.COMPLETE, TaskState.PENDING)

    assert tasks.sync_with_plan(ledger, plan_of("A", "B"))["A"].state is TaskState.PENDING


def test_a_task_that_is_done_elsewhere_does_not_hide_those_after_it() -> None:
    plan = replace(plan_of("A", "B"), tasks=(replace(A, elsewhere=True), B))

    assert tasks.sync_with_plan({}, plan) == ledger_of(TaskRecord("B", "do B"))


def test_a_deferred_task_stays_so_when_reread() -> None:
    ledger = tasks.ended({}, A, TaskState.FAILED)

    assert tasks.sync_with_plan(ledger, plan_of("A"))["A"].state is TaskState.FAILED


def test_r9_a_reverted_task_is_open_until_redone() -> None:
    plan = plan_of("A", done=["A"])
    was = TaskRecord("A", "its title", TaskState.COMPLETE)
    reverted = tasks.reopened({"A": was}, ["A", "gone"])
    assert reverted["A"] == TaskRecord("A", "its title", TaskState.PENDING, reopened=True)
    assert reverted["gone"].state is TaskState.PENDING
    ledger = tasks.sync_with_plan(reverted, plan)
    assert ledger["A"].title == "do A"  # as the list calls it now

    assert ledger["A"].state is TaskState.PENDING
    assert tasks.open_tasks(plan, ledger) == plan.tasks
    assert tasks.open_tasks(plan, tasks.ended(ledger, A, TaskState.COMPLETE)) == ()
    assert tasks.redone(ledger, ["A", "unknown"]) == {**ledger, "A": replace(ledger["A"], reopened=False)}


def test_only_a_completed_task_is_cleared() -> None:
    ledger = tasks.failed_once({}, A, Previous(1, "claude", FailureKind.TIMEOUT, "too long"))

    done = tasks.ended(ledger, A, TaskState.COMPLETE)
    assert (done["A"].unjudged, done["A"].failure_count) == (True, 1)
    assert tasks.judged(done, None, a_round=3)["A"] == TaskRecord("A", "do A", TaskState.COMPLETE)
    kept = tasks.ended(ledger, A, TaskState.FAILED)["A"]
    assert (kept.failure_count, kept.last_failure, kept.timeout_factor) == (1, "too long", 1.5)


def test_a_failure_is_kept_within_bounds() -> None:
    long = "x" * 10_000
    ledger = tasks.failed_once({}, A, Previous(1, "claude", FailureKind.RATE_LIMIT, long, (long,)))

    previous = tasks.previous(ledger, A)
    assert previous is not None
    assert (previous.kind, len(previous.why)) == (FailureKind.RATE_LIMIT, tasks.MOST_FAILURE_CHARS)
    assert previous.lines == (long[:200],)
    assert ledger["A"].failure_count == 0
    assert tasks.previous(ledger, B) is None


@pytest.mark.parametrize("known", [None, Plan("prd.json"), Plan("prd.json", fault="no JSON")])
def test_an_empty_list_gives_way(known: Plan | None) -> None:
    assert tasks.latest(known, plan_of("A")) == plan_of("A")
    assert tasks.latest(known, None) is None


def test_a_list_gives_way_to_readable_ones_only() -> None:
    broken = Plan("prd.json", plan_of("A").tasks, fault="half of it")

    assert tasks.latest(plan_of("A", "B"), broken) == plan_of("A", "B")
    assert tasks.latest(plan_of("A", "B"), plan_of("B")) == plan_of("B")


def entitled(title: str, *, done: bool = False) -> Task:
    """A task that its title names."""
    return Task(title, title, TaskStatus.DONE if done else TaskStatus.PENDING)


@pytest.mark.parametrize(
    ("now", "heir"),
    [
        ((entitled("Add a login (half done)"),), "Add a login (half done)"),
        ((entitled("a login"),), "a login"),
        ((entitled("Mend it"),), None),  # another one
        ((entitled("Add a login (done)", done=True),), None),
        ((entitled("Add a login"), entitled("Add a login page")), None),  # it is still there itself
        ((entitled("add a login to the docs, and test it"),), None),  # it was there before
        ((), None),
    ],
)
def test_a_renamed_task_is_still_that_task(now: tuple[Task, ...], heir: str | None) -> None:
    task = entitled("Add a login")
    was = Plan("TASKS.md", (task, entitled("add a login to the docs, and test it")))

    found = tasks.renamed(task, was, Plan("TASKS.md", now))

    assert (None if found is None else found.id) == heir


def test_memories_of_a_task_follow_its_title() -> None:
    ledger = tasks.moved(
        tasks.failed_once({"B": TaskRecord("B")}, A, Previous(1, "claude", FailureKind.UNKNOWN, "why")), A, B
    )

    assert set(ledger) == {"B"}
    assert (ledger["B"].id, ledger["B"].title, ledger["B"].failure_count) == ("B", "do B", 1)


def test_without_a_list_the_prompt_is_a_task() -> None:
    assert tasks.tasks_of(None) == (Task("prompt", "the prompt", TaskStatus.PENDING),)
    assert tasks.tasks_of(Plan("prd.json")) == tasks.tasks_of(None)


def test_l14_a_task_waits_only_for_wanted_reviews() -> None:
    waits = tasks.began({}, A, reviewed=True)
    assert waits["A"].unreviewed
    assert not tasks.began(waits, A)["A"].unreviewed


def test_l14_a_ticked_task_still_needs_its_review() -> None:
    ledger, ticked = tasks.began({}, A, reviewed=True), plan_of("A", "B", done=["A"])

    assert [task.id for task in tasks.open_tasks(ticked, ledger)] == ["A", "B"]
    assert tasks.sync_with_plan(ledger, ticked)["A"].state is TaskState.PENDING
    assert [task.id for task in tasks.open_tasks(ticked, tasks.without_reviews(ledger))] == ["B"]


def test_l14_without_reviews_nothing_else_is_forgotten() -> None:
    record = TaskRecord("A", "do A", TaskState.FAILED, 2, unreviewed=True)

    assert tasks.without_reviews({"A": record}) == {"A": TaskRecord("A", "do A", TaskState.FAILED, 2)}


@pytest.mark.parametrize("kind", FailureKind)
def test_only_timeouts_get_more_time(kind: FailureKind) -> None:
    grows = kind in (FailureKind.TIMEOUT, FailureKind.STALL)

    assert tasks.failed_once({}, A, Previous(1, "claude", kind, "why"))["A"].timeout_factor == (
        1.5 if grows else 1.0
    )


def test_t2_a_failure_is_remembered_with_its_number_and_agent() -> None:
    ledger = tasks.failed_once({}, A, Previous(1, "claude", FailureKind.UNKNOWN, "why"))

    assert tasks.previous(ledger, A) == Previous(1, "claude", FailureKind.UNKNOWN, "why")


def test_a_new_list_renames_no_task() -> None:
    assert tasks.renamed(A, None, plan_of("do A")) is None
    assert tasks.renamed(A, plan_of("A"), None) is None


def test_r9_a_forgotten_reverted_task_keeps_its_id() -> None:
    assert tasks.reopened({}, ["A"]) == {"A": TaskRecord("A", reopened=True)}


def test_l14_a_task_done_in_the_list_awaits_review() -> None:
    ledger = tasks.began(tasks.began({}, A, reviewed=True), B, reviewed=True)

    assert tasks.unreviewed(plan_of("A", "B", "C", done=["A", "C"]), ledger) == ("A",)


def test_a_list_that_was_lost_is_restored_from_the_ledger() -> None:
    ledger = ledger_of(TaskRecord("A", "do A", TaskState.COMPLETE), TaskRecord("B", "do B"))

    assert tasks.initial_plan(None, "prd.json", ledger) == plan_of("A", "B", done=["A"])
    assert tasks.initial_plan(None, None, ledger) is None


def test_a_task_that_begins_again_has_no_verdict_to_wait_for() -> None:
    ledger = ledger_of(TaskRecord("A", unjudged=True))

    assert tasks.began(ledger, A)["A"] == TaskRecord("A", "do A", TaskState.IN_PROGRESS)


def test_r9_a_completed_task_waits_for_its_verdict_alone() -> None:
    ledger = ledger_of(TaskRecord("A", "do A", reopened=True, unreviewed=True))

    assert tasks.ended(ledger, A, TaskState.COMPLETE)["A"] == TaskRecord(
        "A", "do A", TaskState.COMPLETE, unjudged=True
    )


def test_r9_a_verdict_is_expected_for_newly_completed_tasks() -> None:
    was = ledger_of(TaskRecord("A", state=TaskState.COMPLETE), TaskRecord("B"))
    ledger = ledger_of(*(TaskRecord(id_, state=TaskState.COMPLETE) for id_ in "ABC"))

    after = tasks.unjudged(was, ledger)

    assert {id_ for id_, record in after.items() if record.unjudged} == {"B"}


REVERTED = verdict_of("b1", VerdictKind.REVERTED, "red", "A", ("abc1234",), ("abc1234",))


def test_r9_a_reverted_task_has_failed_and_is_open() -> None:
    ledger = ledger_of(TaskRecord("A", state=TaskState.COMPLETE, unjudged=True))

    assert tasks.judged(ledger, REVERTED, a_round=3)["A"] == TaskRecord(
        "A",
        failure_count=1,
        last_kind=FailureKind.AGENT_INCOMPLETE,
        last_failure="its commit was reverted (abc1234): red",
        reopened=True,
        reverted=notice_of(REVERTED),
    )


def test_r9_a_revert_replaces_the_failure_that_was_remembered_before() -> None:
    timeout = Previous(4, "claude", FailureKind.TIMEOUT, "too long", ("line 1", "line 2"))
    ledger = tasks.ended(tasks.failed_once({}, A, timeout), A, TaskState.COMPLETE)
    assert (ledger["A"].last_attempt, ledger["A"].last_lines) == (4, timeout.lines)

    record = tasks.judged(ledger, REVERTED, a_round=3)["A"]

    assert (record.last_kind, record.last_attempt, record.last_lines) == (
        FailureKind.AGENT_INCOMPLETE,
        0,
        (),
    )


def test_r9_a_revert_counts_once() -> None:
    ledger = ledger_of(TaskRecord("A", failure_count=1), TaskRecord("B", state=TaskState.FAILED))
    one = tasks.judged(ledger, REVERTED, a_round=3)["A"]
    two = tasks.judged(ledger, replace(REVERTED, task=ReportedTask("B")), a_round=3)["B"]
    three = tasks.judged(ledger, replace(REVERTED, task=ReportedTask("C")), a_round=3)["C"]

    assert (one.state, one.failure_count) == (TaskState.PENDING, 1)
    assert (two.state, two.failure_count) == (TaskState.FAILED, 0)
    assert three == TaskRecord("C", reopened=True, reverted=notice_of(REVERTED))


def test_r9_a_revert_without_a_task_reopens_what_waits() -> None:
    ledger = ledger_of(TaskRecord("A", state=TaskState.COMPLETE, unjudged=True))

    assert set(tasks.judged(ledger, replace(REVERTED, task=None), a_round=3)) == {"A"}


def test_of_what_waits_a_task_whose_tick_a_revert_took_is_lost_where_the_agent_did_another_one() -> None:
    waits = TaskRecord("A", state=TaskState.COMPLETE, unjudged=True)
    ledger = ledger_of(waits, TaskRecord("B"), replace(waits, id="C"))
    of_two = replace(REVERTED, task=ReportedTask("B"), commits=("abc1234", "def5678"))

    partly = tasks.judged(ledger, of_two, a_round=3, taken={"C"})
    own_only = tasks.judged(ledger, of_two, a_round=3, taken={"B"})
    unknown = tasks.judged(ledger, of_two, a_round=3)  # the list is in no commit, so the ticks stay
    wholly = tasks.judged(ledger, replace(of_two, reverted=of_two.commits), a_round=3, taken={"C"})

    assert partly["A"] == TaskRecord("A", state=TaskState.COMPLETE)
    lost = [{id_ for id_, each in after.items() if each.reverted} for after in (partly, own_only)]
    assert lost == [{"B", "C"}, {"B"}]
    for after in (unknown, wholly):
        assert {id_ for id_, each in after.items() if each.reverted} == {"A", "B", "C"}


def test_what_is_reverted_is_open_again_though_the_next_verdict_is_on_these_commits_too() -> None:
    done = {id_: TaskRecord(id_, state=TaskState.COMPLETE, unjudged=True) for id_ in "AB"}
    both = replace(REVERTED, commits=("abc1234", "def5678"), is_open=True)

    left_open = tasks.judged(done, both, a_round=3)

    assert left_open["A"] == tasks.judged(done, REVERTED, a_round=3)["A"]
    assert left_open["B"] == done["B"], "its verdict is still to come"
    kept = verdict_of("b2", VerdictKind.KEPT, "green", "B", ("def5678", "fed4321"))
    after = tasks.judged(left_open, kept, a_round=3)
    assert after["A"] == left_open["A"] and after["B"] == TaskRecord("B", state=TaskState.COMPLETE)


def test_a_failure_after_a_revert_is_told() -> None:
    reverted = tasks.judged(ledger_of(TaskRecord("A", unjudged=True)), REVERTED, a_round=3)
    failed = tasks.failed_once(reverted, A, Previous(1, "claude", FailureKind.TIMEOUT, "too long"))

    assert tasks.previous(reverted, A) is None
    assert tasks.previous(failed, A) == Previous(1, "claude", FailureKind.TIMEOUT, "too long")


def test_r9_only_commits_that_stay_end_a_revert() -> None:
    ledger = ledger_of(TaskRecord("A", reverted=notice_of(REVERTED)))
    kept = verdict_of("b2", VerdictKind.KEPT, "green", "A", ("def5678",))

    assert tasks.judged(ledger, kept, a_round=3)["A"] == TaskRecord("A")
    assert tasks.judged(ledger, replace(kept, commits=()), a_round=3) == ledger
    assert tasks.judged(ledger, replace(kept, task=ReportedTask("gone")), a_round=3) == ledger


LISTS = st.one_of(
    st.none(),
    st.builds(Plan, st.sampled_from(["", "prd.json"]), fault=st.sampled_from([None, "prd.json is not JSON"])),
    st.builds(plan_of, st.just("A"), st.just("B"), done=st.sets(st.sampled_from("AB"))),
)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (plan_of("A"), None, "prd.json is not there"),
        (plan_of("A"), Plan("", added=(A,)), "prd.json is not there"),
        (plan_of("A"), Plan("prd.json", fault="prd.json is not JSON"), "prd.json is not JSON"),
        (plan_of("A"), Plan("prd.json"), "prd.json lists no task"),
        (plan_of("A", done=["A"]), Plan("prd.json"), ""),  # cleared away when all was done
        (plan_of("A", done=["A"]), None, "prd.json is not there"),
        (plan_of("A", "B"), plan_of("B"), ""),
        (Plan("prd.json"), None, ""),
        (Plan("prd.json", plan_of("A").tasks, fault="half of it"), None, ""),
    ],
)
def test_a_list_that_can_no_longer_be_used_is_lost(before: Plan, after: Plan | None, what: str) -> None:
    assert tasks.lost(before, after) == what


@given(LISTS, LISTS)
def test_a_list_with_tasks_is_never_lost(before: Plan | None, after: Plan | None) -> None:
    is_lost = bool(tasks.lost(before, after))
    assert not (is_lost and after is not None and after.tasks)
    assert is_lost or before is None or not before.open or (after is not None and bool(after.tasks))


@given(st.lists(st.booleans(), max_size=20))
def test_losses_are_counted_only_in_a_row(lost: list[bool]) -> None:
    losses: tuple[int, ...] = ()
    for iteration, is_lost in enumerate(lost, start=1):
        for _attempt in range(2 if is_lost else 0):
            losses = tasks.lost_again(losses, iteration)
        in_a_row = len(lost[:iteration]) - next((at for at in range(iteration, 0, -1) if not lost[at - 1]), 0)
        assert not is_lost or len(losses) == in_a_row


def test_progress_counts_the_tasks_of_this_ralph_only() -> None:
    plan = plan_of("A", "B", "C", "D", done=["A", "D"])
    ours = replace(plan, tasks=(*plan.tasks[:3], replace(plan.tasks[3], elsewhere=True)))

    assert tasks.progress(ours, {}) == (1, 3)
    assert tasks.progress(plan, {}) == (2, 4)
    assert tasks.progress(plan_of(), {}) is tasks.progress(None, {}) is None
