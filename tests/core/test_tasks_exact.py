"""What is remembered of tasks, field by field (L1, L14, 000-T2, 000-T7)."""

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import tasks
from ralphd.core.loop.model import Previous
from ralphd.core.loop.state import TaskRecord, TaskState
from ralphd.core.plan import Plan, Task, TaskStatus
from tests.core.loop_scenes import plan_of

A, B = plan_of("A", "B").tasks


def test_without_a_list_the_prompt_is_the_only_task_and_is_called_so() -> None:
    assert tasks.tasks_of(None) == (Task("prompt", "what the prompt asks for", TaskStatus.PENDING),)
    assert tasks.tasks_of(Plan("prd.json")) == tasks.tasks_of(None)


def test_l14_a_task_that_is_worked_on_waits_for_a_review_only_where_there_are_reviews() -> None:
    waits = tasks.began({}, A, reviewed=True)
    assert waits["A"].unreviewed
    assert not tasks.began(waits, A)["A"].unreviewed


def test_l14_what_waits_for_its_review_is_not_done_though_it_is_ticked() -> None:
    ledger, ticked = tasks.began({}, A, reviewed=True), plan_of("A", "B", done=["A"])

    assert [task.id for task in tasks.open_tasks(ticked, ledger)] == ["A", "B"]
    assert tasks.sync_with_plan(ledger, ticked)["A"].standing is TaskState.PENDING
    assert [task.id for task in tasks.open_tasks(ticked, tasks.without_reviews(ledger))] == ["B"]


def test_l14_where_there_are_no_reviews_any_more_nothing_else_is_forgotten() -> None:
    record = TaskRecord("A", "do A", TaskState.FAILED, 2, unreviewed=True)

    assert tasks.without_reviews({"A": record}) == {"A": TaskRecord("A", "do A", TaskState.FAILED, 2)}


@pytest.mark.parametrize("kind", FailureKind)
def test_t7_only_what_took_too_long_is_given_more_time(kind: FailureKind) -> None:
    grows = kind in (FailureKind.TIMEOUT, FailureKind.STALL)

    assert tasks.failed_once({}, A, kind, "why")["A"].timeout_factor == (1.5 if grows else 1.0)


def test_t2_of_a_failure_that_is_remembered_the_number_and_the_agent_are_not() -> None:
    ledger = tasks.failed_once({}, A, FailureKind.UNKNOWN, "why")

    assert tasks.previous(ledger, A) == Previous(0, "", FailureKind.UNKNOWN, "why")


def test_where_a_list_came_or_went_no_task_has_another_name() -> None:
    assert tasks.renamed(A, None, plan_of("do A")) is None
    assert tasks.renamed(A, plan_of("A"), None) is None


def test_r9_a_reverted_task_that_nobody_remembers_is_remembered_by_its_id() -> None:
    assert tasks.reopened({}, ["A"]) == {"A": TaskRecord("A", reopened=True)}


def test_l14_a_task_waits_for_its_review_once_the_list_says_that_it_is_done() -> None:
    ledger = tasks.began(tasks.began({}, A, reviewed=True), B, reviewed=True)

    assert tasks.unreviewed(plan_of("A", "B", "C", done=["A", "C"]), ledger) == ("A",)
