"""The choice of the next task, and the record of how each task went (L1).

The user's list says which tasks there are and which are ticked; the ledger says how often each one failed
and whether its commits and its review stood. A task is done when neither objects. A ledger is never changed
in place: every function returns a new one.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.gate.verdict_views import notice_of
from ralphd.core.loop.inbox import ADDED
from ralphd.core.loop.model import Ledger, Previous, TaskRecord, TaskState
from ralphd.core.plan import Plan, Task, TaskStatus, parse
from ralphd.core.supervision.backoff import grown
from ralphd.core.text import first_names
from ralphd.dataclass import dataclass

if TYPE_CHECKING:
    from ralphd.core.gate.verdict import Verdict

PROMPT_ALONE = Task("prompt", "the prompt", TaskStatus.PENDING)
"""Stands for the work where the task list is absent."""

MOST_FAILURE_CHARS = 500
MOST_KEPT_CHARS = 200
"""Of each line of a failed attempt, for a later iteration."""
TOO_LONG = (FailureKind.TIMEOUT, FailureKind.STALL)
"""After these the next attempt has more time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The task to do next; None where none may be tried, and ``used_up`` are the ones that are still open."""

    task: Task | None
    used_up: tuple[Task, ...] = ()


def is_open(task: Task, ledger: Ledger) -> bool:
    """Return whether work is left on a task: it is not ticked, or its commits or its review failed since."""
    return not _is_done(task, record_of(task, ledger))


def open_tasks(plan: Plan | None, ledger: Ledger) -> tuple[Task, ...]:
    """Return the open tasks in the list's order; without a list, or in an empty one, the prompt is a task."""
    return tuple(task for task in tasks_of(plan) if not task.elsewhere and is_open(task, ledger))


def tasks_of(plan: Plan | None) -> tuple[Task, ...]:
    """Return all tasks, done or not; those that a person added come first."""
    return (PROMPT_ALONE,) if plan is None else (*plan.added, *(plan.tasks or (PROMPT_ALONE,)))


def as_listed(task: Task, plan: Plan | None) -> Task | None:
    """Return a task as the list has it now; None if it was removed."""
    return next((each for each in tasks_of(plan) if each.id == task.id), None)


def unticked(plan: Plan | None) -> set[str]:
    """Return the ids of the open tasks in the list itself."""
    return set() if plan is None else {task.id for task in plan.open}


def progress(plan: Plan | None, ledger: Ledger) -> tuple[int, int] | None:
    """Return how many tasks are done, and how many there are; None without a list."""
    if not has_tasks(plan):
        return None
    total = sum(not task.elsewhere for task in tasks_of(plan))
    return total - len(open_tasks(plan, ledger)), total


def complete_words(plan: Plan | None) -> str:
    """Return why a loop has nothing to do, for people."""
    others = sum(task.elsewhere for task in tasks_of(plan))
    return f"its tasks are done; {others} in the list are not its own" if others else "all tasks are done"


def has_tasks(plan: Plan | None) -> bool:
    """Return whether there is a list with at least one task."""
    return plan is not None and bool(plan.tasks)


def latest(known: Plan | None, read: Plan | None) -> Plan | None:
    """Return the list that counts: if an agent broke, emptied or deleted it, the known one still does."""
    if known is None or not known.tasks or (read is not None and read.tasks and read.fault is None):
        return read
    return replace(known, added=() if read is None else read.added)


def lost(before: Plan | None, after: Plan | None) -> str:
    """Return what became of a list of tasks that can no longer be used, in words; empty: it still can.

    An empty list is a loss only while tasks were open: an agent may clear away what is done.
    """
    if before is None or not before.tasks or before.fault is not None:
        return ""
    if after is None or not after.file:
        return f"{before.file} is not there"
    if after.fault is not None:
        return after.fault
    return f"{after.file} lists no task" if before.open and not after.tasks else ""


def lost_again(losses: tuple[int, ...], iteration: int) -> tuple[int, ...]:
    """Return the iterations in a row that lost the list, ``iteration`` included."""
    if iteration in losses:
        return losses
    return (*losses, iteration) if losses[-1:] == (iteration - 1,) else (iteration,)


def with_restored_tasks(file: str, before: str, after: str) -> tuple[str, str]:
    """Add the open tasks that a revert has removed to a list again.

    Return the text of the list, and the titles for the log. ``before`` is its text just before the revert,
    ``after`` the text since. The agent may have committed a person's new task, and no line shows who wrote
    it, so all open tasks come back. The marks are those of ``after``; if a line or a task of it would be
    lost, or it has no task, it is returned as it is.
    """
    left = {each.id: each.status for each in parse(file, after).tasks}
    gone = [each.title for each in parse(file, before).open if each.id not in left]
    marks = {line.replace("[x]", "[ ]"): line for line in after.split("\n")}
    lines = [marks.get(line.replace("[x]", "[ ]"), line) for line in before.split("\n")]
    text = "\n".join(lines)
    stays = left.items() <= {each.id: each.status for each in parse(file, text).tasks}.items()
    is_whole = stays and set(marks.values()) <= set(lines)
    return text if gone and left and is_whole else after, first_names(gone)


def initial_plan(read: Plan | None, list_file: str | None, ledger: Ledger) -> Plan | None:
    """Return the list that counts at the start of a loop; ``list_file`` is that of the loop before.

    It is restored from the ledger if an agent broke, emptied or deleted it before the loop was killed.
    """
    if list_file is None:
        return read
    states = {True: TaskStatus.DONE, False: TaskStatus.PENDING}
    known = (Task(id_, each.title, states[each.state is TaskState.COMPLETE]) for id_, each in ledger.items()
             if id_ != PROMPT_ALONE.id and not id_.startswith(ADDED))  # fmt: skip
    return latest(Plan(list_file, tuple(known)), read)


def choose(plan: Plan | None, ledger: Ledger, *, max_task_failures: int) -> Choice:
    """Return the next task: all pending ones first, then the failed ones, the least often failed first (L1).

    A task that was in progress when the loop died counts as pending.
    """
    candidates = may_be_tried(plan, ledger, max_task_failures=max_task_failures)
    pending = [task for task in candidates if record_of(task, ledger).state is not TaskState.FAILED]
    if not candidates:
        return Choice(None, open_tasks(plan, ledger))
    failed = sorted(candidates, key=lambda task: record_of(task, ledger).failure_count)
    return Choice((pending or failed)[0])


def may_be_tried(plan: Plan | None, ledger: Ledger, *, max_task_failures: int) -> tuple[Task, ...]:
    """Return the open tasks that have not failed too often."""
    most, left = max_task_failures, open_tasks(plan, ledger)
    return tuple(task for task in left if not is_used_up(record_of(task, ledger).failure_count, most))


def is_used_up(failures: int, most: int) -> bool:
    """Return whether a task failed more than ``most`` times [000-T4]; 0: no limit."""
    return 0 < most < failures


def record_of(task: Task, ledger: Ledger) -> TaskRecord:
    """Return the record of a task, a new one where there is none."""
    return ledger.get(task.id) or TaskRecord(task.id, task.title)


def began(ledger: Ledger, task: Task, *, reviewed: bool = False) -> Ledger:
    """Mark a task as in progress; with ``reviewed`` it is not done before its review has passed."""
    record = replace(record_of(task, ledger), title=task.title, state=TaskState.IN_PROGRESS)
    return {**ledger, task.id: replace(record, unreviewed=reviewed, unjudged=False)}


def unreviewed(plan: Plan | None, ledger: Ledger) -> tuple[str, ...]:
    """Return the ids of tasks that are ticked in the list and whose review has not passed."""
    ticked = (task.id for task in tasks_of(plan) if task.status is TaskStatus.DONE)
    return tuple(id_ for id_ in ticked if id_ in ledger and ledger[id_].unreviewed)


def without_reviews(ledger: Ledger) -> Ledger:
    """Expect no review any more: a ticked task is done."""
    return {id_: replace(record, unreviewed=False) for id_, record in ledger.items()}


def failed_once(ledger: Ledger, task: Task, failure: Previous) -> Ledger:
    """Record a failed attempt. It counts where the task is at fault; the next one may get more time."""
    record, kind = record_of(task, ledger), failure.kind
    record = replace(
        record, last_kind=kind, last_failure=failure.why[:MOST_FAILURE_CHARS],
        failure_count=record.failure_count + meaning(kind).for_the_task,
        timeout_factor=grown(record.timeout_factor) if kind in TOO_LONG else record.timeout_factor,
        last_attempt=failure.attempt, last_agent=failure.agent,
        last_lines=tuple(line[:MOST_KEPT_CHARS] for line in failure.lines),
    )  # fmt: skip
    return {**ledger, task.id: record}


def previous(ledger: Ledger, task: Task) -> Previous | None:
    """Return a task's last failure in an earlier iteration or run; a revert has a section of its own."""
    record = record_of(task, ledger)
    words = None if record.reverted is None else record.reverted.words[:MOST_FAILURE_CHARS]
    if record.last_kind is None or record.last_failure == words:
        return None
    failure, lines = record.last_failure, record.last_lines
    return Previous(record.last_attempt, record.last_agent, record.last_kind, failure, lines)


def attempted(ledger: Ledger, task: Task, more: int) -> Ledger:
    """Count an attempt that is about to start; ``more`` -1: it did not, its account has a limit (Q2)."""
    record = record_of(task, ledger)
    return {**ledger, task.id: replace(record, attempts=max(record.attempts + more, 0))}


def ended(ledger: Ledger, task: Task, state: TaskState) -> Ledger:
    """Record the end of an iteration. Earlier failures are forgotten only after the verdict.

    The prompt alone is never done, so what was put back behind it has its turn after each of its iterations.
    """
    if task.id == PROMPT_ALONE.id:
        put_back = (each for each in ledger.values() if each.state is TaskState.FAILED)
        ledger = {**ledger, **{each.id: replace(each, state=TaskState.PENDING) for each in put_back}}
    record = replace(record_of(task, ledger), state=state)
    if state is TaskState.COMPLETE:  # its review included
        record = replace(record, reopened=False, unreviewed=False, unjudged=True)
    return {**ledger, task.id: record}


def unjudged(before: Ledger, after: Ledger) -> Ledger:
    """Return ``after`` with a verdict expected for each task that was completed since ``before``."""
    done = TaskState.COMPLETE
    new = {id_ for id_, it in after.items() if it.state is done and before.get(id_, it).state is not done}
    return {id_: replace(each, unjudged=each.unjudged or id_ in new) for id_, each in after.items()}


def judged(
    ledger: Ledger, verdict: "Verdict | None", *, a_round: int, taken: Collection[str] = (),
    did_another: bool = False,
) -> Ledger:  # fmt: skip
    """Apply a verdict (R9); None: no gate is configured. ``taken`` are the tasks whose ticks a revert took.

    ``did_another``: the agent did another task than the one of the verdict. A revert then counts against
    both, otherwise an agent that always does the same task would be run for ever.

    A task whose commits stay starts without failures if it opens again. A task whose commits were reverted is
    open again, which counts as a failure: after every ``a_round`` of them it is put back behind the others.
    An open verdict decides on what was reverted only: the next one covers the other commits.
    """
    waiting = [id_ for id_, record in ledger.items() if record.unjudged]
    if verdict is None:
        return {**ledger, **{id_: _clean(ledger[id_]) for id_ in waiting}}
    note = notice_of(verdict)
    if verdict.is_open and note is None:
        return ledger
    task = None if verdict.task is None else verdict.task.id
    if note is None:
        if verdict.commits and task is not None and task in ledger:
            # Its new commits stay even if the attempt failed: the next one needs none to be done.
            ledger = {**ledger, task: replace(ledger[task], reverted=None)}
        return {**ledger, **{id_: _clean(ledger[id_]) for id_ in waiting}}
    own = () if task is None else (task,)
    is_whole = len(verdict.reverted) == len(verdict.commits)
    lost = waiting if is_whole or task not in waiting else own
    if lost is waiting and not is_whole and taken:  # an agent did another task, or a run ended unjudged
        lost = [id_ for id_ in waiting if id_ in taken]
    if not verdict.is_open:
        ledger = {**ledger, **{id_: _clean(ledger[id_]) for id_ in waiting if id_ not in lost}}
    after = dict(reopened(ledger, dict.fromkeys((*own, *lost))))
    for id_ in dict.fromkeys((*own, *lost)):
        record, was = replace(after[id_], reverted=note, unjudged=False), ledger.get(id_)
        if was is not None and (was.unjudged or (did_another and id_ == task)):
            count = record.failure_count + 1
            record = replace(
                record, failure_count=count, last_kind=FailureKind.AGENT_INCOMPLETE, last_attempt=0,
                last_failure=note.words[:MOST_FAILURE_CHARS], last_lines=(),
                state=record.state if count % a_round else TaskState.FAILED,
            )  # fmt: skip
        elif was is not None and was.state is TaskState.FAILED:  # counted already, and put back
            record = replace(record, state=TaskState.FAILED)
        after[id_] = record
    return after


def put_back(ledger: Ledger, undone: Iterable[str]) -> Ledger:
    """Forget the reverts at these boundaries: a person restored the commits, and no new ones are needed.

    The commits stay, so the failures before them count no longer.
    """
    boundaries = set(undone)
    tasks = (each for each in ledger.values() if each.reverted and each.reverted.boundary in boundaries)
    return {**ledger, **{each.id: replace(_clean(each), reopened=each.reopened) for each in tasks}}


def _clean(record: TaskRecord) -> TaskRecord:
    return TaskRecord(record.id, record.title, record.state)


def renamed(task: Task, was: Plan | None, current: Plan | None) -> Task | None:
    """Return the open task that replaced ``task`` in the list, with a longer or a shorter title.

    A list without ids identifies a task by its title, and agents add their progress to titles.
    """
    if was is None or current is None or task.id in {each.id for each in current.tasks}:
        return None
    known, title = {each.id for each in was.tasks}, _stem(task.title)
    new = [(each, _stem(each.title)) for each in current.open if each.id not in known]
    return next((each for each, its in new if task.id in known and (title in its or its in title)), None)


def _stem(title: str) -> str:
    return title.casefold().partition(" (")[0].partition(" [")[0]


def moved(ledger: Ledger, task: Task, heir: Task) -> Ledger:
    """Move the record of a task to its new name."""
    others = {id_: record for id_, record in ledger.items() if id_ != task.id}
    return {**others, heir.id: replace(record_of(task, ledger), id=heir.id, title=heir.title)}


def reopened(ledger: Ledger, ids: Iterable[str]) -> Ledger:
    """Open these tasks again, whatever the list says: their commits were reverted."""
    again = (ledger.get(id_) or TaskRecord(id_) for id_ in ids)
    return {**ledger, **{each.id: replace(each, state=TaskState.PENDING, reopened=True) for each in again}}


def redone(ledger: Ledger, ids: Iterable[str]) -> Ledger:
    """Let the list say again whether these tasks are done: they were ticked together with new commits."""
    return {**ledger, **{id_: replace(ledger[id_], reopened=False) for id_ in ids if id_ in ledger}}


def sync_with_plan(ledger: Ledger, plan: Plan | None) -> Ledger:
    """Return the ledger as the list has it now: ticked is complete, in progress is pending."""
    synced = dict(ledger)
    for task in [each for each in tasks_of(plan) if not each.elsewhere]:
        record = record_of(task, ledger)
        state = record.state
        if _is_done(task, record):
            state = TaskState.COMPLETE
        elif state in (TaskState.IN_PROGRESS, TaskState.COMPLETE):
            state = TaskState.PENDING
        synced[task.id] = replace(record, title=task.title, state=state)
    return synced


def _is_done(task: Task, record: TaskRecord) -> bool:
    is_ticked = record.state is TaskState.COMPLETE if task.added else task.status is TaskStatus.DONE
    return is_ticked and not (record.reopened or record.unreviewed)
