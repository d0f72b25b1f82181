"""What a new daemon finds on disk, and what it makes of it (P1, F2, G2).

The run directories are the truth and the state is a copy of it: what the state missed, because a daemon died
before it had written it down, is told again from there.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphd.core.events import Event, RunEnded, Spawned, SpawnFailed
from ralphd.core.model import (
    HAS_A_RUN,
    Ending,
    Goal,
    Moment,
    Pausing,
    Running,
    Starting,
    State,
    Stopping,
    Supervision,
)
from ralphd.daemon.account import Account
from ralphd.daemon.regent import Regent
from ralphd.daemon.services import Services
from ralphd.errors import NewerState
from ralphd.process.spawn import Run, RunDirectory, read_ended
from ralphd.store.files import Broken
from ralphd.store.history import History
from ralphd.store.state import Definition, Facts, RalphFiles, Record


@dataclass(frozen=True, slots=True)
class Recovered:
    """A file that was broken, where it went, and what it was rebuilt from."""

    ralph: str
    file: str
    kept_as: str | None
    rebuilt_from: str


class Unusable(Exception):
    """A ralph that cannot be supervised by this daemon; its files are left as they are."""


def run_directories(runs: Path) -> list[RunDirectory]:
    """All runs that are kept, oldest first."""
    try:
        return [RunDirectory(path) for path in sorted(runs.iterdir()) if path.is_dir()]
    except FileNotFoundError:
        return []


def load(files: RalphFiles, services: Services, recovered: list[Recovered]) -> Account:
    """The account of a ralph as its files tell it; notes in ``recovered`` what had to be rebuilt.

    Raises Unusable when there is nothing to rebuild it from, or when a newer ralphd wrote it.
    """
    try:
        definition = _definition(files, recovered)
        record = _record(files, definition, recovered)
        history = History(files.history_file)
    except NewerState as newer:
        raise Unusable(str(newer)) from newer
    # ralph.json holds the goal: it is written first.
    supervision = record.supervision
    if supervision.goal is not definition.goal:
        supervision = Supervision(definition.goal, supervision.state, supervision.tally)
    return Account(files, definition, Record(supervision, record.facts), history, services)


def _definition(files: RalphFiles, recovered: list[Recovered]) -> Definition:
    kept_as = None
    try:
        if (found := files.load_definition()) is not None:
            return found
    except Broken as broken:
        kept_as = broken.kept_as
    for directory in reversed(run_directories(files.runs)):
        intent = directory.intent()
        try:
            definition = Definition.from_json(_object(intent, "definition"))
        except (KeyError, TypeError, ValueError):
            continue
        files.save_definition(definition)
        recovered.append(
            Recovered(
                definition.name,
                files.definition_file.name,
                _text(kept_as),
                f"the intent of {directory.run_id}",
            )
        )
        return definition
    raise Unusable(f"{files.definition_file} is missing or broken, and no run tells what it was")


def _record(files: RalphFiles, definition: Definition, recovered: list[Recovered]) -> Record:
    kept_as = None
    try:
        if (found := files.load_record()) is not None:
            return found
    except Broken as broken:
        kept_as = broken.kept_as
    record = _rebuilt(files, definition.goal)
    source = "its newest run" if record.facts.run_id else "nothing: it has no runs"
    recovered.append(Recovered(definition.name, files.state_file.name, _text(kept_as), source))
    return record


def _rebuilt(files: RalphFiles, goal: Goal) -> Record:
    """The state before the end of the newest run, which is then told again; what was counted is gone."""
    found = [run for directory in run_directories(files.runs) if (run := directory.run_record())]
    if not found:
        return Record(Supervision(goal))
    run = found[-1]
    facts = Facts(run_id=run.run_id, ralph_pid=run.pid, started_at=run.started_at)
    states: dict[Goal, State] = {
        Goal.RUNNING: Running(run.run_id),
        Goal.PAUSED: Pausing(run.run_id, run.started_at, run.started_at),
        Goal.STOPPED: Stopping(run.run_id, run.started_at, run.started_at),
    }
    return Record(Supervision(goal, states[goal]), facts)


async def catch_up(regent: Regent, at: Moment) -> AsyncIterator[Event]:
    """The facts that a ralph's runs hold and its state does not, oldest first; a run that lives is adopted.

    To be fed one by one: what is missed next depends on what became of the last.
    """
    account = regent.account
    for directory in run_directories(account.files.runs):
        believed = getattr(account.supervision.state, "run_id", None) == directory.run_id
        if account.history.has(directory.run_id) and not believed:
            continue
        if (run := Run.adopt(directory)) is not None and (born := await run.ready()) is not None:
            regent.adopt(run, born)
            continue
        if _never_ran(directory):
            continue
        record = await asyncio.to_thread(read_ended, directory)
        starting = isinstance(account.supervision.state, Starting)
        if record.fault is not None:
            if starting:
                yield SpawnFailed(record.ended_at, record.fault.text)
            continue
        if starting and (born := directory.run_record()) is not None:
            account.note_run(born)
            yield Spawned(born.started_at, directory.run_id)
        elif not believed:
            await account.enter_end(await regent.ending(record))  # known to nobody, and long over
            continue
        yield RunEnded(await regent.ending(record))
    state = account.supervision.state
    if regent.living is None and isinstance(
        state, HAS_A_RUN
    ):  # its directory was removed: nobody saw the end
        yield RunEnded(Ending(state.run_id, at))


def _never_ran(directory: RunDirectory) -> bool:
    """Whether a spawn was interrupted before there was a process: no record of one, and no output."""
    if directory.run_record() is not None or directory.exit_record() is not None:
        return False
    return not any(path.stat().st_size for path in directory.path.glob("log.*"))


def _object(found: Any, key: str) -> dict[str, Any]:
    value = found[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is no object")
    return value


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
