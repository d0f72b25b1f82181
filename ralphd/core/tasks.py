"""Picking the next task, and what is remembered of how tasks went (L1, 000-T4)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ralphd.core.failure import FailureKind, meaning
from ralphd.core.ledger import Ledger, Standing, TaskRecord
from ralphd.core.plan import Plan, Task, TaskStatus

PROMPT_ALONE = Task("prompt", "what the prompt asks for", TaskStatus.PENDING)
"""Stands for the work where there is no task list."""

MOST_FAILURE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Choice:
    """What is open: the task to be done next, None where none may be; ``used_up`` failed too often."""

    task: Task | None
    used_up: tuple[Task, ...] = ()


def is_open(task: Task, ledger: Ledger) -> bool:
    """Whether there is work left on a task: by the list, or because its commits were reverted."""
    record = ledger.get(task.id)
    return task.status is not TaskStatus.DONE or (record is not None and record.reopened)


def open_tasks(plan: Plan | None, ledger: Ledger) -> tuple[Task, ...]:
    """The tasks to be done, in the list's order; without a list, or in an empty one, the prompt is one."""
    return tuple(task for task in tasks_of(plan) if is_open(task, ledger))


def tasks_of(plan: Plan | None) -> tuple[Task, ...]:
    """All tasks, done or not."""
    return plan.tasks if has_tasks(plan) and plan is not None else (PROMPT_ALONE,)


def has_tasks(plan: Plan | None) -> bool:
    """Whether there is a list that lists something."""
    return plan is not None and bool(plan.tasks)


def latest(known: Plan | None, found: Plan | None) -> Plan | None:
    """The list as it counts now: one that an agent broke, emptied or deleted is still what it was."""
    if not has_tasks(known) or (found is not None and found.tasks and found.fault is None):
        return found
    return known


def choose(plan: Plan | None, ledger: Ledger, *, max_task_failures: int) -> Choice:
    """The next task: all that are pending first, then those that failed, the least often first (L1).

    A task that was in progress when the loop died counts as pending. ``max_task_failures`` 0 is no limit.
    """
    left = open_tasks(plan, ledger)
    records = [record_of(task, ledger) for task in left]
    may_be = [
        (task, record)
        for task, record in zip(left, records, strict=True)
        if not max_task_failures or record.failure_count < max_task_failures
    ]
    pending = [task for task, record in may_be if record.standing is not Standing.FAILED]
    if pending:
        return Choice(pending[0])
    if not may_be:
        return Choice(None, left)
    return Choice(min(may_be, key=lambda each: each[1].failure_count)[0])


def record_of(task: Task, ledger: Ledger) -> TaskRecord:
    """What is remembered of a task."""
    return ledger.get(task.id) or TaskRecord(task.id, task.title)


def began(ledger: Ledger, task: Task) -> Ledger:
    """A task is being worked on."""
    record = replace(record_of(task, ledger), title=task.title, standing=Standing.IN_PROGRESS)
    return {**ledger, task.id: record}


def failed_once(ledger: Ledger, task: Task, kind: FailureKind, why: str) -> Ledger:
    """An attempt at a task failed: counted where the kind is the task's fault."""
    record = record_of(task, ledger)
    count = record.failure_count + meaning(kind).for_the_task
    record = replace(record, failure_count=count, last_kind=kind, last_failure=why[:MOST_FAILURE_CHARS])
    return {**ledger, task.id: record}


def ended(ledger: Ledger, task: Task, standing: Standing) -> Ledger:
    """An iteration with a task is over. A task that was done starts with a clean sheet if it opens again."""
    record = replace(record_of(task, ledger), standing=standing)
    if standing is Standing.COMPLETE:
        record = replace(record, failure_count=0, reopened=False)
    return {**ledger, task.id: record}


def reopened(ledger: Ledger, ids: Iterable[str]) -> Ledger:
    """The commits of these tasks were reverted: they are open, whatever the list says."""
    again = {
        task: replace(ledger.get(task) or TaskRecord(task), standing=Standing.PENDING, reopened=True)
        for task in ids
    }
    return {**ledger, **again}


def abreast(ledger: Ledger, plan: Plan | None) -> Ledger:
    """The ledger as the list has it now: what is ticked is complete; what was in progress is pending."""
    return {**ledger, **{task.id: _abreast(task, record_of(task, ledger)) for task in tasks_of(plan)}}


def _abreast(task: Task, record: TaskRecord) -> TaskRecord:
    standing = record.standing
    if task.status is TaskStatus.DONE and not record.reopened:
        standing = Standing.COMPLETE
    elif standing in (Standing.IN_PROGRESS, Standing.COMPLETE):
        standing = Standing.PENDING
    return replace(record, title=task.title, standing=standing)
