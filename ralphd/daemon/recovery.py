"""Rebuild what an earlier daemon left: load each ralph, then replay the ends that it missed (P1, F2, G2).

A daemon may die at any line, so nothing here asks how it ended. It leaves:

- run directories, written by the shims: which process was started, its output, its exit. They are the truth.
- ``history.jsonl``, the events, ``regent-state.json``: copies, written in that order for each fact. The state
  is last: while it says that a run lives, the end of that run is replayed, and counted once, because the
  counts are saved with it. History and events come first and know their entries by key, so a replay adds
  nothing to them; after the state they could be lost, since nothing replays what the state has.

``load`` makes the record from those files; a broken one is set aside and rebuilt from the runs. ``catch_up``
then walks the runs, oldest first: a run that lives is adopted, one that is over and not in the history is fed
to the Regent as the event that was missed. One by one, since the Regent's answer (start again, give up)
decides what the next directory means.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphd.config.configuration import Configuration
from ralphd.config.values import run_environment
from ralphd.core.supervision import events, model
from ralphd.core.supervision.events import Event, RunEnded, Spawned
from ralphd.daemon.ralph.live_run import ending_of
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults, DirectoryUnusable, NewerState, UnusableState
from ralphd.process.rundir import RunDirectory, RunRecord
from ralphd.process.spawn import Run, read_ended, who_runs
from ralphd.process.start_errors import LACKING
from ralphd.store.files import Broken, read_json, remove_leftovers, set_aside
from ralphd.store.gate import load_gate
from ralphd.store.history import repair
from ralphd.store.mirror import Mirror
from ralphd.store.state import AGENTS, Definition, Facts, RalphFiles, RegentState

if TYPE_CHECKING:
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

BEFORE_A_DEFINITION = {"env", "runs"}
"""What a registration writes before ``ralph.json``; the ralph is registered when that is there."""
SURVIVORS_AGAIN_S = 1.0
NO_DEFINITION = (ConfigFaults, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A file that was broken, where it went, and what it was rebuilt from."""

    ralph: str
    file: str
    kept_as: str | None
    rebuilt_from: str


def _recovered(path: Path, kept_as: Path | None, rebuilt_from: str) -> Recovered:
    """Describe a file of a ralph's own folder, which has the ralph's name."""
    return Recovered(path.parent.name, path.name, str(kept_as) if kept_as else None, rebuilt_from)


def run_directories(runs: Path, *, also: model.RunId | None = None) -> list[RunDirectory]:
    """Return all runs that are kept, and ``also``, which somebody may have removed; oldest first."""
    paths = set() if also is None else {runs / also}
    with suppress(FileNotFoundError):
        paths |= {path for path in runs.iterdir() if path.is_dir()}
    return [RunDirectory(path) for path in sorted(paths)]


def load(files: RalphFiles, services: "Services", recovered: list[Recovered]) -> RalphRecord | None:
    """Return a ralph as its files describe it; append to ``recovered`` what had to be rebuilt.

    None where no ralph was ever registered, or nothing is left of one: its name is free. Raises UnusableState
    when there is nothing to rebuild it from though it has runs, NewerState when a newer ralphd wrote it.
    """
    remove_leftovers(files.home, of=files.own)  # only ours: a loop that lives writes its own files there
    before = len(recovered)
    try:
        if (definition := _definition(files, recovered)) is None:
            return None
        sound = len(recovered) == before
        record = _record(files, recovered)
    except NewerState as newer:
        why = f"{newer.what}\n{newer.why}"
        raise NewerState(f"{files.home.name} cannot be used", why=why, mend=newer.mend) from newer
    if record is None:
        record = _rebuilt(files, definition.goal)
    elif sound:  # ralph.json is written before the state, so its goal is the newer one
        record = replace(record, supervision=replace(record.supervision, goal=definition.goal))
    else:  # the definition came from an intent, with the goal of that run's start
        definition = replace(definition, goal=record.supervision.goal)
    _set_aside_broken(files, services, recovered)
    _renew_environment(files, definition, services)
    account = RalphRecord(files, definition, record, services)
    if len(recovered) > before:
        account.redefine(definition)  # what was rebuilt is saved with the next state
    return account


def _definition(files: RalphFiles, recovered: list[Recovered]) -> Definition | None:
    kept_as = None
    try:
        definition = files.load_definition()
        if definition is not None and _is_sound(definition, files):
            return definition
        kept_as = None if definition is None else set_aside(files.definition_file)
    except Broken as broken:
        kept_as = broken.kept_as
    directories = run_directories(files.runs)
    for directory in reversed(directories):
        if (intended := _intended(directory, files)) is not None:
            source = f"the intent of {directory.run_id}"
            recovered.append(_recovered(files.definition_file, kept_as, source))
            return intended
    if directories:
        why = f"{files.definition_file} is missing or broken, and no run tells what it was"
        mend = f"mv {files.home} {files.home.parent.parent}/{files.home.name}.old; ralphctl regent restart"
        raise UnusableState(f"{files.home.name} cannot be used", why=why, mend=mend)
    if kept_as is not None:
        source = "nothing, since it has no runs: register it again"
        recovered.append(_recovered(files.definition_file, kept_as, source))
    elif {path.name for path in files.home.iterdir()} <= BEFORE_A_DEFINITION:
        shutil.rmtree(files.home, ignore_errors=True)  # a registration that was cut off
    return None


def _is_sound(definition: Definition, files: RalphFiles) -> bool:
    try:
        Configuration.from_pinned(definition.configuration).policy()
    except NO_DEFINITION:
        return False
    return definition.name == files.home.name


def _intended(directory: RunDirectory, files: RalphFiles) -> Definition | None:
    with suppress(*NO_DEFINITION, NewerState):
        definition = files.complete(Definition.from_json(_object(directory.intent(), "definition")))
        return definition if _is_sound(definition, files) else None
    return None


def _record(files: RalphFiles, recovered: list[Recovered]) -> RegentState | None:
    """Return the state as it was saved; None when it has to be rebuilt. Raises NewerState."""
    kept_as = None
    try:
        if (record := files.load_record()) is not None:
            return record
    except Broken as broken:
        kept_as = broken.kept_as
    ran = any(directory.run_record() for directory in run_directories(files.runs))
    if ran or kept_as is not None:  # else a registration was cut off
        source = "its newest run" if ran else "nothing: it has no runs"
        recovered.append(_recovered(files.state_file, kept_as, source))
    return None


def _set_aside_broken(files: RalphFiles, services: "Services", recovered: list[Recovered]) -> None:
    """Set aside the files that nothing can be made from: gate, environment, lines of the history.

    Raises NewerState.
    """
    try:
        load_gate(files.gate_file)
    except Broken as broken:
        source = "nothing: the tests run once before the next start"
        recovered.append(_recovered(files.gate_file, broken.kept_as, source))
    try:
        values = read_json(path := files.environment_file)
        # The runs would fail by another value.
        if values is None or not all(isinstance(values[key], str) or key == AGENTS for key in values):
            raise Broken(path, "missing, or not a table of texts", set_aside(path))
    except Broken as broken:
        source = "nothing: its next runs get little more than a PATH, until it is registered again"
        recovered.append(_recovered(path, broken.kept_as, source))
    history = files.history_file
    try:
        kept_as = repair(history)
    except OSError as fault:
        logger.warning("a broken record cannot be repaired: %s: %s", history, fault)
        services.trouble(f"history of {files.home.name}", f"{history} is broken: {fault.strerror}")
        return
    if kept_as is not None:  # ends that are missing now are entered again by catch_up
        recovered.append(_recovered(history, kept_as, "its own whole lines and what its runs left"))


def _renew_environment(files: RalphFiles, definition: Definition, services: "Services") -> None:
    """Fit the environment of the runs to this installation: another version or place may have saved it."""
    saved = files.load_environment()
    environment = run_environment(saved, definition.directory, services.commands)
    if environment != saved:
        with suppress(OSError):
            files.save_environment(environment)


def _rebuilt(files: RalphFiles, goal: model.Goal) -> RegentState:
    # As if the newest run still lived: catch_up replays its end. What was counted is lost.
    runs = [run for directory in run_directories(files.runs) if (run := directory.run_record())]
    if not runs:
        return RegentState(model.Supervision(goal))
    run = runs[-1]
    facts = Facts(run_id=run.run_id, ralph_pid=run.pid, started_at=run.started_at)
    states: dict[model.Goal, model.State] = {
        model.Goal.RUNNING: model.Running(run.run_id),
        model.Goal.PAUSED: model.Pausing(run.run_id, run.started_at, run.started_at),
        model.Goal.STOPPED: model.Stopping(run.run_id, run.started_at, run.started_at),
    }
    return RegentState(model.Supervision(goal, states[goal]), facts)


async def catch_up(regent: "Regent", recovered: list[Recovered]) -> AsyncIterator[Event]:
    """Yield the events that the runs hold and the state does not, oldest first; adopt a run that lives.

    Feed each to the Regent before asking for the next. Where the record of a living run was lost, or all of
    its directory, it is written again, and appended to ``recovered``.
    """
    account = regent.account
    await asyncio.to_thread(_clean, Mirror(account.definition.directory))
    await regent.resume_gate()
    lives = getattr(account.supervision.state, "run_id", None)
    directories = run_directories(account.files.runs, also=lives)
    await asyncio.to_thread(account.history.recall, {each.run_id for each in directories} - {lives})
    for directory in directories:
        # ``believed``: the state says that this run lives. It wins over an entry in the history, which may
        # have been written just before the daemon died: the Regent has yet to answer that end.
        believed = getattr(account.supervision.state, "run_id", None) == directory.run_id
        if (account.history.has(directory.run_id) and not believed) or directory.run_id == regent.living:
            continue
        _govern_by_intent(account, directory)
        is_removed = believed and directory.run_record() is None and not directory.is_locked()
        if is_removed and (born := await asyncio.to_thread(who_runs, directory)) is not None:
            recovered.append(await asyncio.to_thread(_written_again, regent.name, directory, born))
        if (run := Run.adopt(directory)) is not None and (born := await run.ready()) is not None:
            if directory.run_record() is None:
                recovered.append(await asyncio.to_thread(_written_again, regent.name, directory, born))
            regent.adopt(run, born)
            continue
        if not believed and _never_ran(directory):
            continue  # the daemon died between the directory and the process
        record = await asyncio.to_thread(read_ended, directory)
        while record.lost and record.survivors:  # nothing is started before the tree is gone (S6)
            await asyncio.sleep(SURVIVORS_AGAIN_S)
            record = await asyncio.to_thread(read_ended, directory)
        starting = isinstance(account.supervision.state, model.Starting)
        if record.fault is not None and not believed:
            if starting:
                failed = events.SpawnPostponed if record.fault.errno in LACKING else events.SpawnFailed
                yield failed(record.ended_at, record.fault.text)
            continue  # a command that could not be started is no run
        if starting and (born := directory.run_record()) is not None:
            account.note_run(born)
            yield Spawned(born.started_at, directory.run_id)
        elif not believed:
            # Unknown to the state and long over: into the history alone, for it leads to nothing now.
            await account.enter_end(await ending_of(account, regent.log, record))
            continue
        await regent.after_run(record, seen=False)
        yield RunEnded(await ending_of(account, regent.log, record))
    if regent.living is None:
        account.take_up()


def _clean(mirror: Mirror) -> None:
    with suppress(DirectoryUnusable, OSError):
        if mirror.exists():
            remove_leftovers(mirror.path)


def _govern_by_intent(account: RalphRecord, directory: RunDirectory) -> None:
    # A run keeps the rules that it was started by: the definition may have been reloaded since.
    try:
        configuration = _object(directory.intent(), "definition")["configuration"]
    except (KeyError, TypeError):
        return
    is_other = configuration != account.in_force.definition.configuration
    if is_other and (started_by := _intended(directory, account.files)) is not None:
        account.govern_by(started_by)


def _written_again(name: str, directory: RunDirectory, born: RunRecord) -> Recovered:
    kept_as = set_aside(directory.run_file)
    with suppress(OSError):  # a full disk: the next daemon finds the run by its processes again
        directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.save_run_record(born)
    source = f"the processes of {directory.run_id} that live"
    return replace(_recovered(directory.run_file, kept_as, source), ralph=name)


def _never_ran(directory: RunDirectory) -> bool:
    # No record of a process, and no output of one whose record was lost.
    has_record = directory.run_file.exists() or directory.exit_record() is not None
    return not (has_record or any(path.stat().st_size for path in directory.path.glob("log.*")))


def _object(found: Any, key: str) -> dict[str, Any]:
    value = found[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not an object")
    return value
