"""Picking the next task, and what is remembered of how tasks went (L1, 000-T4)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ralphd.core.backoff import grown
from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.gate.verdict_views import VerdictMessage
from ralphd.core.loop.model import Previous
from ralphd.core.loop.state import Ledger, TaskRecord, TaskState
from ralphd.core.plan import Plan, Task, TaskStatus

PROMPT_ALONE = Task("prompt", "what the prompt asks for", TaskStatus.PENDING)
"""Stands for the work where there is no task list."""

MOST_FAILURE_CHARS = 500
TOO_LONG = (FailureKind.TIMEOUT, FailureKind.STALL)
"""After these the next attempt has more time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is open: the task to be done next, None where none may be; ``used_up`` failed too often."""

    task: Task | None
    used_up: tuple[Task, ...] = ()


def is_open(task: Task, ledger: Ledger) -> bool:
    """Whether there is work left on a task: by the list, or since its commits or its review say so."""
    record = ledger.get(task.id)
    return task.status is not TaskStatus.DONE or (record is not None and not _may_be_done(record))


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


def initial_plan(found: Plan | None, list_file: str | None, ledger: Ledger) -> Plan | None:
    """The list as a loop begins with it, ``list_file`` being the one that it had before it was killed.

    What an agent had broken, emptied or deleted by then is still what it was.
    """
    if list_file is None:
        return found
    known = (record for id_, record in ledger.items() if id_ != PROMPT_ALONE.id)
    return latest(Plan(list_file, tuple(map(_as_task, known))), found)


def _as_task(record: TaskRecord) -> Task:
    is_done = record.standing is TaskState.COMPLETE
    return Task(record.id, record.title, TaskStatus.DONE if is_done else TaskStatus.PENDING)


def choose(plan: Plan | None, ledger: Ledger, *, max_task_failures: int) -> Choice:
    """The next task: all that are pending first, then those that failed, the least often first (L1).

    A task that was in progress when the loop died counts as pending.
    """
    may_be = may_be_tried(plan, ledger, max_task_failures=max_task_failures)
    pending = [task for task in may_be if record_of(task, ledger).standing is not TaskState.FAILED]
    if pending:
        return Choice(pending[0])
    if not may_be:
        return Choice(None, open_tasks(plan, ledger))
    return Choice(min(may_be, key=lambda task: record_of(task, ledger).failure_count))


def may_be_tried(plan: Plan | None, ledger: Ledger, *, max_task_failures: int) -> tuple[Task, ...]:
    """The open tasks that have not failed too often. ``max_task_failures`` 0 is no limit."""
    return tuple(
        task
        for task in open_tasks(plan, ledger)
        if not max_task_failures or record_of(task, ledger).failure_count < max_task_failures
    )


def record_of(task: Task, ledger: Ledger) -> TaskRecord:
    """What is remembered of a task."""
    return ledger.get(task.id) or TaskRecord(task.id, task.title)


def began(ledger: Ledger, task: Task, *, reviewed: bool = False) -> Ledger:
    """A task is being worked on; one that is ``reviewed`` is not done before that."""
    record = replace(record_of(task, ledger), title=task.title, standing=TaskState.IN_PROGRESS)
    return {**ledger, task.id: replace(record, unreviewed=reviewed, unjudged=False)}


def unreviewed(plan: Plan | None, ledger: Ledger) -> tuple[str, ...]:
    """The tasks that the list says are done, and whose review has not said so."""
    ticked = (task.id for task in tasks_of(plan) if task.status is TaskStatus.DONE)
    return tuple(id_ for id_ in ticked if id_ in ledger and ledger[id_].unreviewed)


def without_reviews(ledger: Ledger) -> Ledger:
    """No review is waited for any more: what the list says is done is done."""
    return {id_: replace(record, unreviewed=False) for id_, record in ledger.items()}


def failed_once(ledger: Ledger, task: Task, kind: FailureKind, why: str) -> Ledger:
    """An attempt at a task failed: counted where it is the task's fault; the next may have more time."""
    record = record_of(task, ledger)
    count = record.failure_count + meaning(kind).for_the_task
    factor = grown(record.timeout_factor) if kind in TOO_LONG else record.timeout_factor
    record = replace(record, failure_count=count, last_kind=kind, last_failure=why[:MOST_FAILURE_CHARS])
    record = replace(record, timeout_factor=factor)
    return {**ledger, task.id: record}


def previous(ledger: Ledger, task: Task) -> Previous | None:
    """What is remembered of a task's last failure, in an earlier iteration or run (000-T2).

    A revert is told in words of its own.
    """
    record = record_of(task, ledger)
    if record.reverted is not None and record.last_failure == record.reverted.words[:MOST_FAILURE_CHARS]:
        return None
    return None if record.last_kind is None else Previous(0, "", record.last_kind, record.last_failure)


def ended(ledger: Ledger, task: Task, standing: TaskState) -> Ledger:
    """An iteration with a task is over. What it had failed before is forgotten when that was ``judged``."""
    record = replace(record_of(task, ledger), standing=standing)
    if standing is TaskState.COMPLETE:  # its review included
        record = replace(record, reopened=False, unreviewed=False, unjudged=True)
    return {**ledger, task.id: record}


def unjudged(before: Ledger, after: Ledger) -> Ledger:
    """The later ledger, with a verdict to come for whatever was done since."""
    done = {id_: each for id_, each in after.items() if each.standing is TaskState.COMPLETE}
    new = {
        id_: each for id_, each in done.items() if before.get(id_, each).standing is not TaskState.COMPLETE
    }
    return {**after, **{id_: replace(each, unjudged=True) for id_, each in new.items()}}


def judged(ledger: Ledger, verdict: VerdictMessage | None, *, a_round: int) -> Ledger:
    """The ledger after a verdict (R9); None: nobody judges.

    What was done and stays has a clean sheet if it opens again. What was reverted is open, and that is a
    failure of the task's: after each ``a_round`` of them it is put back behind the others.
    """
    waiting = [id_ for id_, record in ledger.items() if record.unjudged]
    if verdict is not None and verdict.is_open:
        return ledger
    if verdict is None or (note := verdict.note) is None:
        if verdict is not None and verdict.commits and verdict.task is not None and verdict.task in ledger:
            # New commits of it stay, be it that it failed: it is looked at once more, and they are enough.
            ledger = {**ledger, verdict.task: replace(ledger[verdict.task], reverted=None)}
        return {**ledger, **{id_: _clean(ledger[id_]) for id_ in waiting}}
    mine = () if verdict.task is None else (verdict.task,)
    gone = waiting if verdict.is_whole or verdict.task not in waiting else mine
    kept = {id_: _clean(ledger[id_]) for id_ in waiting if id_ not in gone}
    ledger = {**ledger, **kept}
    after = dict(reopened(ledger, dict.fromkeys((*mine, *gone))))
    for id_ in dict.fromkeys((*mine, *gone)):
        record, was = replace(after[id_], reverted=note, unjudged=False), ledger.get(id_)
        if was is not None and was.unjudged:
            count, words = record.failure_count + 1, note.words[:MOST_FAILURE_CHARS]
            standing = record.standing if count % a_round else TaskState.FAILED
            record = replace(record, failure_count=count, last_failure=words, standing=standing)
            record = replace(record, last_kind=FailureKind.AGENT_INCOMPLETE)
        elif was is not None and was.standing is TaskState.FAILED:  # counted already, and put back
            record = replace(record, standing=TaskState.FAILED)
        after[id_] = record
    return after


def put_back(ledger: Ledger, undone: Iterable[str]) -> Ledger:
    """The ledger when a person has put back what was reverted at these boundaries.

    The tasks are looked at once more, and need no new commit.
    """
    of = set(undone)
    tasks = {id_: each for id_, each in ledger.items() if each.reverted and each.reverted.boundary in of}
    return {**ledger, **{id_: replace(each, reverted=None) for id_, each in tasks.items()}}


def _clean(record: TaskRecord) -> TaskRecord:
    return TaskRecord(record.id, record.title, record.standing)


def renamed(task: Task, was: Plan | None, now: Plan | None) -> Task | None:
    """What became of a task that is gone from the list: an open one, new there, with more or less title.

    Where the list gives no names of its own a task is known by its title, and agents write beside it how far
    they are.
    """
    if was is None or now is None or task.id in {each.id for each in now.tasks}:
        return None
    known, title = {each.id for each in was.tasks}, _stem(task.title)
    new = [(each, _stem(each.title)) for each in now.open if each.id not in known]
    return next((each for each, its in new if task.id in known and (title in its or its in title)), None)


def _stem(title: str) -> str:
    """A title without what stands in brackets at its end."""
    return title.casefold().partition(" (")[0].partition(" [")[0]


def moved(ledger: Ledger, task: Task, heir: Task) -> Ledger:
    """What is remembered of a task goes with it to its new name."""
    others = {id_: record for id_, record in ledger.items() if id_ != task.id}
    return {**others, heir.id: replace(record_of(task, ledger), id=heir.id, title=heir.title)}


def reopened(ledger: Ledger, ids: Iterable[str]) -> Ledger:
    """The commits of these tasks were reverted: they are open, whatever the list says."""
    again = {
        task: replace(ledger.get(task) or TaskRecord(task), standing=TaskState.PENDING, reopened=True)
        for task in ids
    }
    return {**ledger, **again}


def sync_with_plan(ledger: Ledger, plan: Plan | None) -> Ledger:
    """The ledger as the list has it now: what is ticked is complete; what was in progress is pending."""
    return {**ledger, **{task.id: _abreast(task, record_of(task, ledger)) for task in tasks_of(plan)}}


def _abreast(task: Task, record: TaskRecord) -> TaskRecord:
    standing = record.standing
    if task.status is TaskStatus.DONE and _may_be_done(record):
        standing = TaskState.COMPLETE
    elif standing in (TaskState.IN_PROGRESS, TaskState.COMPLETE):
        standing = TaskState.PENDING
    return replace(record, title=task.title, standing=standing)


def _may_be_done(record: TaskRecord) -> bool:
    """Whether the list's word that a task is done is enough."""
    return not (record.reopened or record.unreviewed)
