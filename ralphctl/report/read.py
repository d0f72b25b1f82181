"""Read what a report is made of from files, with or without a daemon.

The originals are in the state directory, or in that of ``ralphctl build``; where they cannot be read, the
copies in ``.ralph/`` are used. git is asked for a limited time and takes no lock.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ralphctl.client import discovery
from ralphctl.format.humanize import View, objects, part
from ralphctl.offline import processes
from ralphctl.offline import state as offline
from ralphctl.report import gather, model
from ralphctl.report.history import HistoryReader, amount, moment, text, whole
from ralphctl.setup.detect import task_list
from ralphd import overview, wire
from ralphd.core.landing.model import LandingQueue
from ralphd.core.landing.views import queue_view
from ralphd.core.loop.inbox import ADDED, Inbox, Sent
from ralphd.core.plan import Plan, TaskStatus
from ralphd.core.time import rfc3339
from ralphd.errors import UnknownRalph
from ralphd.plain_files import peek

GIT_LIMIT_S: Final = 5.0
MOST_COMMITS: Final = 2000
_STATE, _HISTORY, _TASKS, _DEFINITION = "regent-state.json", "history.jsonl", "tasks.json", "ralph.json"
_LOG: Final = ("log", "--no-walk=unsorted", "--stdin", "--numstat", "-z", "--format=", "--no-renames")
_COUNT: Final = ("rev-list", "--count", "--no-merges", "--end-of-options")
_PLAIN: Final = ("--no-ext-diff", "--no-textconv", "--diff-merges=first-parent")
_NUMSTAT: Final = re.compile(r"(?:^|\0)\n*(\d+|-)\t(\d+|-)\t([^\0]+)")  # a dash for a binary file


def choose(
    name: str | None, directory: str, environ: Mapping[str, str], *, every: bool = False
) -> list[model.ReportSource]:
    """Return the ralph of this name; without a name that of ``directory``, else ``every`` one.

    Of several with the name, that of ``directory`` comes first, then the daemon's, then those of ``build``.
    Raise UnknownRalph.
    """
    sources = known(environ)
    here = nearest(directory, sources)
    if here is not None and name in (None, here.name) and not (every and name is None):
        return [here]
    if name is None and not sources:
        why = "there is none in this directory, nor in the state directory"
        raise UnknownRalph("no ralph is known", why=why, mend="ralphctl start DIR")
    chosen = [source for source in sources if name in (None, source.name)]
    if not chosen:
        raise UnknownRalph(f"no ralph named {name!r} is known", mend="ralphctl status --all")
    return chosen if name is None else [max(chosen, key=lambda each: (not each.is_build, _worked_at(each)))]


def choose_one(name: str | None, directory: str, environ: Mapping[str, str]) -> model.ReportSource:
    """Return the ralph of this name, else that of ``directory``, else the only one. Raise UnknownRalph."""
    chosen = choose(name, directory, environ)
    if len(names := {source.name for source in chosen}) > 1:
        raise offline.none_works_in(directory, names)
    return choose(names.pop(), directory, environ)[0]


def known(environ: Mapping[str, str]) -> list[model.ReportSource]:
    """Return all ralphs with files in the user's state directory or in that of ``ralphctl build``."""
    state, sources = Path(wire.state_directory(environ)), []
    for is_build, pattern in ((False, "ralphs/*"), (True, "build/*/ralphs/*")):
        for home in sorted(state.glob(pattern)):
            sources += in_home(home, is_build=is_build)
    return sources


def in_home(home: Path, *, is_build: bool = False) -> list[model.ReportSource]:
    """Return the ralph whose files are in ``home``, if there is one."""
    directory = (peek(home / _DEFINITION) or {}).get("directory")
    return [model.ReportSource(home.name, directory, home, is_build)] if isinstance(directory, str) else []


def nearest(directory: str, sources: Sequence[model.ReportSource]) -> model.ReportSource | None:
    """Return the ralph of ``directory`` or the nearest one above; of several, the last one at work."""
    for above in offline.upward(directory):
        if there := [source for source in sources if os.path.realpath(source.directory) == above]:
            return max(there, key=_worked_at)
        if (view := offline.last_view(above)) is not None:
            return model.ReportSource(str(view["name"]), above, None)
    return None


def _worked_at(source: model.ReportSource) -> float:
    try:
        return source.path(_STATE).stat().st_mtime
    except OSError:
        return 0.0


def read(source: model.ReportSource, since: float, until: float, now: float) -> model.RalphReport:
    """Read one ralph's files, and ask git what its commits changed."""
    definition, view, summary = gathered(source, since, until, now)
    changed = diffstat(Path(source.directory), summary.kept) if summary.kept else None
    state, tasks = reported_state(view), _tasks(source, definition)
    likely = None
    if source.home is not None and tasks is not None and tasks.open:
        from ralphd.store.shared.quota import forecast_for  # loads pydantic

        likely = forecast_for(source.home.parent.parent, source.name, [each.id for each in tasks.open], now)
    return model.RalphReport(source, view, state, summary, tasks, changed, budget_usd(definition), likely)


def gathered(
    source: model.ReportSource, since: float, until: float, now: float
) -> tuple[View, View, model.SpanSummary]:
    """Return a ralph's definition and view, and what its history says about the span."""
    definition = (source.home and peek(source.home / _DEFINITION)) or {}
    view = _view(source, definition)
    reader, gatherer = HistoryReader(source.path(_HISTORY)), gather.Gatherer(since, until)
    for entry in reader.entries(rfc3339(since)):
        gatherer.add(entry)
    return definition, view, gatherer.finish(reported_state(view), now, reader)


def budget_usd(definition: View) -> float:
    """Return the ralph's ``max_cost_usd``; 0 without a limit."""
    return amount(part(_values(definition), "ralph").get("max_cost_usd")) or 0.0


def _view(source: model.ReportSource, definition: View) -> View:
    state = peek(source.path(_STATE))
    last = offline.view_of(state, source.directory) if state else offline.last_view(source.directory)
    view = (last or {"state": "idle"}) | {"name": source.name, "directory": source.directory}
    view = offline.landing_view(view, _queues(source.home.parent.parent) if source.home else ())
    if isinstance(definition.get("command"), list):
        view["command"] = definition["command"]
    lock = source.home.parent.parent / "lock" if source.home else None
    daemon = processes.lock_holder(lock) if lock else discovery.lock_owner(source.directory)
    return view if daemon else offline.without_daemon(view, ended_with_it=source.is_build)


@cache
def _queues(state: Path) -> list[LandingQueue]:
    """Return the landing queues of a state directory. Each file is read once."""
    return offline.landing_queues(str(state))


def landing(reports: Sequence[model.RalphReport], since: float, until: float) -> list[dict[str, Any]]:
    """Return the landing queues of these ralphs: what landed in the span, newest first, and what has not.

    ``commits`` is how many a branch brought, None if git does not know.
    """
    known = {each.source.name: each for each in reports if each.source.home}
    active = {name for name, report in known.items() if overview.is_at_work(report.view)}
    states = dict.fromkeys(each.source.home.parent.parent for each in known.values() if each.source.home)
    views = [queue_view(each, active) for state in states for each in _queues(state)]
    for view in views:
        kept = []
        by_number = sorted(view["candidates"], key=lambda each: int(each["number"]))
        newest = {each["branch"]: each["number"] for each in by_number}
        for each in view["candidates"]:
            is_last = newest[each["branch"]] == each["number"]
            is_within = since <= (moment(each["ended_at"]) or 0) < until
            has_ended = each["state"] in ("landed", "pushed") and not overview.is_aside(each)
            is_shown = is_within if has_ended else is_last or overview.is_aside(each)
            if is_shown and (each["ralph"] in known or len(reports) > 1):  # a removed ralph landed, too
                span = f"{each['commit']}^1..{each['commit']}"
                is_merge = each["commit"] and not each["copies"]
                commits = _git(Path(view["repository"]), *_COUNT, span) if is_merge else None
                kept.append(each | {"commits": int(commits) if commits else len(each["copies"]) or None})
        view["candidates"] = kept
    return [view for view in views if view["candidates"]]


def reported_state(view: View) -> model.ReportedState:
    """Return what a view says about the present; anything may be missing in it."""
    state, wait = text(view.get("state")), part(view, "wait")
    goes_on_at = moment(wait.get("until"))
    has_stopped = state == "failed" or (state == "paused" and goes_on_at is None)
    agents = objects(part(view, "pool"), "agents")
    out = [each for each in agents if each.get("in") is False and each.get("until") is None]
    run_id = text(view.get("run_id")) if overview.has_a_run(view) else ""
    return model.ReportedState(
        state, overview.known_reason(text(wait.get("reason"))) if wait else None, goes_on_at,
        has_stopped and text(view.get("pause_reason")) not in model.REQUESTED_PAUSES,
        tuple(name for each in out if (name := text(each.get("name")))),
        run_id, moment(view.get("started_at")) if run_id else None,
    )  # fmt: skip


def _tasks(source: model.ReportSource, definition: View) -> model.TaskListState | None:
    values = _values(definition)
    plan = task_list(Path(source.directory), text(part(values, "ralph").get("tasks")) or "auto")
    plan = _own_part(source, plan) if plan is not None and source.home is not None else plan
    most_failures = whole(part(values, "agents").get("max_task_failures")) or 0
    memory = part(peek(source.path(_TASKS)) or {}, "tasks")
    return task_list_state(plan, memory, most_failures=most_failures, added=inbox_of(source).tasks)


def _own_part(source: model.ReportSource, plan: Plan) -> Plan:
    """Mark the open tasks that other ralphs do, or that this one was not asked to, as the loop does (W1)."""
    state = source.path("").parents[1]
    if not (state / "trees" / f"{source.name}.json").exists():
        return plan
    from ralphd.core.worktrees.rules import only
    from ralphd.store.shared.claims import claims_path, worktree_of  # loads pydantic

    if (tree := worktree_of(state, source.name)) is None:
        return plan
    path = claims_path(state, tree.repository, os.path.normpath(f"{tree.inside}/{plan.file}"))
    claims = part(peek(path) or {}, "claims") if tree.shares else {}
    others = {id_ for id_ in claims if part(claims, id_).get("ralph") != source.name}
    return only(plan, {*(tree.tasks or (task.id for task in plan.tasks))} - others)


def inbox_of(source: model.ReportSource) -> Inbox:
    """Return the tasks that people added to a ralph's list, and the notes that no agent has got."""
    if source.home is None or not (source.home / "inbox.json").exists():
        return Inbox()
    from ralphd.store.loop_files import pending_inbox  # loads pydantic

    return pending_inbox(source.home)


def _values(definition: View) -> View:
    return part(part(definition, "configuration"), "values")


def task_list_state(
    plan: Plan | None, memory: View, *, most_failures: int, added: Sequence[Sent] = ()
) -> model.TaskListState | None:
    """Return the state of the list by what it says and what the loop remembers; None without a list.

    A ticked task counts as open where its commits were reverted, or its review is still to come.
    """
    records = {id_: each for id_, each in memory.items() if isinstance(each, Mapping)}
    complete = {id_ for id_, each in records.items() if each.get("status") == "complete"}
    file = plan.file if plan is not None and plan.tasks else None
    if plan is not None and plan.tasks:
        listed = [(task.id, task.title, task.status is TaskStatus.DONE)
                  for task in plan.tasks if not task.elsewhere]  # fmt: skip
    else:
        listed = [(id_, text(each.get("title")), id_ in complete) for id_, each in records.items()
                  if id_ != "prompt" and not id_.startswith(ADDED)]  # fmt: skip
    listed = [*((task.id, task.text, task.id in complete) for task in added), *listed]
    every = []
    for id_, title, is_ticked in listed:
        record = records.get(id_, {})
        failures = max(whole(record.get("failure_count")) or 0, 0)
        is_used_up, why = 0 < most_failures < failures, text(record.get("last_failure"))
        state = _task_state(record, is_ticked=is_ticked, is_used_up=is_used_up)
        every.append(model.ListedTask(id_, title or id_, failures, why, is_used_up, state))
    left = [task for task in every if task.state != "done"]
    return model.TaskListState(file, len(every), len(every) - len(left), left, every) if every else None


def _task_state(record: View, *, is_ticked: bool, is_used_up: bool) -> str:
    reopened, unreviewed = record.get("reopened") is True, record.get("unreviewed") is True
    states = {
        "done": is_ticked and not (reopened or unreviewed), "working": record.get("status") == "in_progress",
        "given up": is_used_up, "reverted": reopened, "in review": is_ticked,
        "failed": record.get("failure_count"),
    }  # fmt: skip
    return next((state for state, holds in states.items() if holds), "open")


# --- git --------------------------------------------------------------------------------------------------


def diffstat(directory: Path, commits: Sequence[str]) -> model.Diffstat | None:
    """Return the sum over ``commits``; None where git is missing or does not answer in time."""
    deadline = time.monotonic() + GIT_LIMIT_S
    types = _git(directory, "cat-file", "--batch-check", given=commits[-MOST_COMMITS:])
    if types is None:
        return None
    there = [line.split()[0] for line in types.splitlines() if line.split()[1:2] == ["commit"]]
    left_s = max(deadline - time.monotonic(), 0.1)
    numbers = _git(directory, *_LOG, *_PLAIN, given=there, limit_s=left_s) if there else ""
    if numbers is None:
        return None
    changes = _NUMSTAT.findall(numbers)
    added, removed = (sum(int(change[i]) for change in changes if change[i] != "-") for i in (0, 1))
    files = len({name for _, _, name in changes})
    return model.Diffstat(len(there), len(commits) - len(there), files, added, removed)


def _git(directory: Path, *words: str, given: Sequence[str] = (), limit_s: float = GIT_LIMIT_S) -> str | None:
    from ralphd.git import repo

    lines = "".join(f"{line}\n" for line in given).encode()
    code, printed = repo.answer(directory, *words, limit_s=limit_s, given=lines) or (1, b"")
    return printed.decode(errors="surrogateescape") if code == 0 else None
