"""What a ralph did in a span, what was undone, where the time and the money went: from its record alone.

Entries come in the order in which they became known, as they were read; anything may be missing from them,
and some may be from before the span: they tell what was so when it began. Figures are exact: the shares of
the time add up to the span, and the money of the agents, like that of the tasks, to the whole.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from ralphd.core.night_entries import SHORT, Entry
from ralphd.core.night_gathering import GatheredTask, Gathering
from ralphd.core.night_model import AgentWork, Money, Night, TaskWork, Undone
from ralphd.core.night_times import Living, shares
from ralphd.core.time import Moment


class Source(Protocol):
    """Where the entries come from. ``torn`` lines could not be read.

    ``is_whole``: they are all there is: nothing was before the first one, and the span begins there.
    """

    @property
    def is_whole(self) -> bool: ...

    @property
    def torn(self) -> int: ...


def night(
    entries: Iterable[Entry],
    since: Moment,
    until: Moment,
    living: Living | None = None,
    *,
    now: Moment | None = None,
    source: Source | None = None,
) -> Night:
    """What the record tells of the time from ``since`` to ``until``, which is not after ``now``.

    ``source`` is asked, when the entries have been taken, what it was like to read them.
    """
    found, living = Gathering(since, until), living or Living()
    for entry in entries:
        found.take(entry)
    now = until if now is None else now
    stretches = found.timeline.finish(living, now)
    is_whole, torn = (False, 0) if source is None else (source.is_whole, source.torn)
    first = [at for at in (found.first_at, living.started_at) if at is not None]
    begin = min(max(since, min(first)), until) if is_whole and first else since
    _charge_the_silent(found)
    reverted = _reverted(found)
    tasks = tuple(_task_work(task, found, reverted) for task in found.tasks.values())
    agents = (AgentWork(agent, spent.money(), spent.failures) for agent, spent in found.agents.items())
    return Night(
        begin,
        until,
        shares(stretches, begin, until),
        tuple(sorted((task for task in tasks if _tells(task)), key=_dearest)),
        tuple(_with_return(each, found.put_back.get(key)) for key, each in found.undone.items()),
        tuple(sorted(agents, key=lambda work: (-work.money.micro_usd, -work.money.attempts))),
        tuple(sorted(found.failures.values(), key=lambda failure: -failure.count)),
        tuple(found.calls),
        sum((task.money for task in tasks), Money()),
        found.counts["iterations"],
        found.counts["attempts"],
        found.counts["runs"],
        found.counts["failed_runs"],
        tuple(sha for short, sha in found.made.items() if short not in reverted),
        tuple(sha for short, sha in found.made.items() if short in reverted),
        found.counts["unjudged"],
        found.last_at,
        found.head_before,
        tuple(_notes(found, torn)),
    )


def _charge_the_silent(found: Gathering) -> None:
    """Attempts without a cost: nobody knows it, but where the run tells its costs apart from them."""
    for run_id, agent, task in found.silent:
        if run_id not in found.told_apart:
            found.tasks[task].sum.unknown += 1
            found.agents[agent].unknown += 1


def _reverted(found: Gathering) -> frozenset[str]:
    """The commits that are gone, by the digits that all abbreviations have."""
    still = (each for key, each in found.undone.items() if key not in found.put_back)
    return frozenset(sha[:SHORT] for each in still for sha in each.commits)


def _task_work(task: GatheredTask, found: Gathering, reverted: frozenset[str]) -> TaskWork:
    gone = found.undone.keys() - found.put_back.keys()
    done = [at for key, at in task.done if key not in gone]
    return TaskWork(
        task.id,
        task.title,
        done[-1] if done else None,
        tuple(task.numbers),
        tuple(sha for short, sha in task.commits.items() if short not in reverted),
        tuple(sha for short, sha in task.commits.items() if short in reverted),
        task.sum.money(),
        task.sum.failures,
        task.last_failure,
    )


def _tells(task: TaskWork) -> bool:
    """Whether there is anything to be told of it: a cost without a task is of none, an undo of one before."""
    return bool(task.id is not None or task.money != Money() or task.numbers or task.kept or task.done_at)


def _dearest(task: TaskWork) -> tuple[int, int]:
    return -task.money.micro_usd, -task.money.attempts


def _with_return(undone: Undone, back_at: Moment | None) -> Undone:
    return replace(undone, back_at=back_at)


def _notes(found: Gathering, torn: int) -> Iterable[str]:
    if torn:
        lines = "1 line" if torn == 1 else f"{torn} lines"
        yield f"{lines} of the record could not be read: what was told there is missing"
    if found.undated:
        yield f"left out: {_entries(found.undated)} of the record without a time"
    if found.set_back_at is not None:
        yield "the clock was set back meanwhile: times overlap, and durations may be off by as much"
    for kind, times in found.unknown_kinds.items():
        yield f"left out: {_entries(times)} of the kind {kind!r}, which this ralphctl does not know"


def _entries(times: int) -> str:
    return "1 entry" if times == 1 else f"{times} entries"
