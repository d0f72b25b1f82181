"""What a new daemon finds on disk, and what it makes of it (P1, F2, G2).

The run directories are the truth and the state is a copy of it: what the state missed, because a daemon died
before it had written it down, is told again from there.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ralphd.config.configuration import Configuration
from ralphd.core.supervision.events import Event, RunEnded, Spawned, SpawnFailed
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    ExitFacts,
    Goal,
    Pausing,
    Running,
    Starting,
    State,
    Stopping,
    Supervision,
)
from ralphd.core.time import Moment
from ralphd.daemon.ralph.live_run import ending_of
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.daemon.services import Services
from ralphd.errors import ConfigFaults, DirectoryUnusable, NewerState, UnusableState
from ralphd.process.rundir import RunDirectory, RunRecord
from ralphd.process.spawn import Run, read_ended
from ralphd.store.files import Broken, read_json, remove_leftovers, set_aside
from ralphd.store.gate import load_gate
from ralphd.store.history import History, repair
from ralphd.store.mirror import Mirror
from ralphd.store.state import Definition, Facts, RalphFiles, RegentState

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


def run_directories(runs: Path) -> list[RunDirectory]:
    """All runs that are kept, oldest first."""
    try:
        return [RunDirectory(path) for path in sorted(runs.iterdir()) if path.is_dir()]
    except FileNotFoundError:
        return []


def load(files: RalphFiles, services: Services, recovered: list[Recovered]) -> RalphRecord | None:
    """The account of a ralph as its files tell it; notes in ``recovered`` what had to be rebuilt.

    None where no ralph was ever registered, or nothing is left of one: its name is free. Raises UnusableState
    when there is nothing to rebuild it from though it has runs, NewerState when a newer ralphd wrote it.
    """
    remove_leftovers(files.home, of=files.own)  # a loop that lives writes its own files there
    before = len(recovered)
    try:
        definition = _definition(files, recovered)
        if definition is None:
            return None
        sound = len(recovered) == before
        record = _record(files, definition, recovered)
    except NewerState as newer:
        raise NewerState(
            f"{files.home.name} cannot be used", why=f"{newer.what}\n{newer.why}", mend=newer.mend
        ) from newer
    if record is None:
        record = _rebuilt(files, definition.goal)
    elif sound:  # ralph.json holds the goal: it is written first
        record = replace(record, supervision=replace(record.supervision, goal=definition.goal))
    else:  # an intent tells what was wanted when that run began
        definition = replace(definition, goal=record.supervision.goal)
    _look_at_gate(files, recovered)
    _remove_leftovers_in_mirror(definition.directory)
    _look_at_environment(files, recovered)
    _look_at_history(files, services, recovered)
    account = RalphRecord(files, definition, record, History(files.history_file), services)
    if len(recovered) > before:
        account.redefine(definition)  # what was rebuilt is saved with the next thing written down
    return account


def _definition(files: RalphFiles, recovered: list[Recovered]) -> Definition | None:
    kept_as = None
    try:
        found = files.load_definition()
        if found is not None and _is_sound(found, files):
            return found
        kept_as = None if found is None else set_aside(files.definition_file)
    except Broken as broken:
        kept_as = broken.kept_as
    directories = run_directories(files.runs)
    for directory in reversed(directories):
        if (intended := _intended(directory, files)) is not None:
            source = f"the intent of {directory.run_id}"
            recovered.append(Recovered(intended.name, files.definition_file.name, _text(kept_as), source))
            return intended
    if directories:
        raise UnusableState(
            f"{files.home.name} cannot be used",
            why=f"{files.definition_file} is missing or broken, and no run tells what it was",
            mend=f"mv {files.home} {files.home.parent.parent}/{files.home.name}.old; ralphctl regent restart",
        )
    if kept_as is not None:
        source = "nothing, since it has no runs: register it anew"
        recovered.append(Recovered(files.home.name, files.definition_file.name, _text(kept_as), source))
    elif {path.name for path in files.home.iterdir()} <= BEFORE_A_DEFINITION:
        shutil.rmtree(files.home, ignore_errors=True)  # a registration that was cut off
    return None


def _is_sound(definition: Definition, files: RalphFiles) -> bool:
    """Whether a ralph of this name can be supervised by it. Raises NewerState."""
    try:
        Configuration.from_pinned(definition.configuration).policy()
    except NO_DEFINITION:
        return False
    return definition.name == files.home.name


def _intended(directory: RunDirectory, files: RalphFiles) -> Definition | None:
    """The definition that a run was started by, where it can be used."""
    try:
        definition = Definition.from_json(_object(directory.intent(), "definition"))
        return definition if _is_sound(definition, files) else None
    except (*NO_DEFINITION, NewerState):
        return None


def _record(files: RalphFiles, definition: Definition, recovered: list[Recovered]) -> RegentState | None:
    """The state as it was written down; None when it has to be rebuilt. Raises NewerState."""
    kept_as = None
    try:
        if (found := files.load_record()) is not None:
            return found
    except Broken as broken:
        kept_as = broken.kept_as
    ran = any(directory.run_record() for directory in run_directories(files.runs))
    if ran or kept_as is not None:  # else a registration was cut off
        source = "its newest run" if ran else "nothing: it has no runs"
        recovered.append(Recovered(definition.name, files.state_file.name, _text(kept_as), source))
    return None


def _remove_leftovers_in_mirror(directory: Path) -> None:
    mirror = Mirror(directory)
    with suppress(DirectoryUnusable, OSError):
        if mirror.exists():
            remove_leftovers(mirror.path)


def _look_at_environment(files: RalphFiles, recovered: list[Recovered]) -> None:
    """Have no broken environment for the runs: they would fail by it."""
    path = files.environment_file
    try:
        found = read_json(path) or {}
        if all(isinstance(value, str) for value in found.values()):
            return
        kept_as = set_aside(path)
    except Broken as broken:
        kept_as = broken.kept_as
    source = "nothing: its next runs get little more than a PATH, until it is registered anew"
    recovered.append(Recovered(files.home.name, path.name, _text(kept_as), source))


def _look_at_gate(files: RalphFiles, recovered: list[Recovered]) -> None:
    """Have no broken record of the guard: what was under way then is not known. Raises NewerState."""
    try:
        load_gate(files.gate_file)
    except Broken as broken:
        source = "nothing: the tests run once before the next start"
        recovered.append(Recovered(files.home.name, files.gate_file.name, _text(broken.kept_as), source))


def _look_at_history(files: RalphFiles, services: Services, recovered: list[Recovered]) -> None:
    """Have nothing but entries in the record; the ends of runs that are missing then are entered again."""
    path, topic = files.history_file, f"history of {files.home.name}"
    try:
        kept_as = repair(path)
    except OSError as fault:
        logger.warning("a broken record cannot be mended: %s: %s", path, fault)
        services.trouble(topic, f"{path} is broken: {fault.strerror}")
        return
    if kept_as is not None:
        source = "its own whole lines and what its runs left"
        recovered.append(Recovered(files.home.name, path.name, str(kept_as), source))


def _rebuilt(files: RalphFiles, goal: Goal) -> RegentState:
    """The state before the end of the newest run, which is then told again; what was counted is gone."""
    found = [run for directory in run_directories(files.runs) if (run := directory.run_record())]
    if not found:
        return RegentState(Supervision(goal))
    run = found[-1]
    facts = Facts(run_id=run.run_id, ralph_pid=run.pid, started_at=run.started_at)
    states: dict[Goal, State] = {
        Goal.RUNNING: Running(run.run_id),
        Goal.PAUSED: Pausing(run.run_id, run.started_at, run.started_at),
        Goal.STOPPED: Stopping(run.run_id, run.started_at, run.started_at),
    }
    return RegentState(Supervision(goal, states[goal]), facts)


async def catch_up(regent: Regent, at: Moment, recovered: list[Recovered]) -> AsyncIterator[Event]:
    """The facts that a ralph's runs hold and its state does not, oldest first; a run that lives is adopted.

    To be fed one by one: what is missed next depends on what became of the last. Where a living run's record
    was lost it is written anew, and noted in ``recovered``.
    """
    account = regent.account
    await regent.resume_gate()
    for directory in run_directories(account.files.runs):
        believed = getattr(account.supervision.state, "run_id", None) == directory.run_id
        if account.history.has(directory.run_id) and not believed:
            continue
        _govern_by_intent(account, directory)
        if (run := Run.adopt(directory)) is not None and (born := await run.ready()) is not None:
            if directory.run_record() is None:
                recovered.append(await asyncio.to_thread(_written_anew, regent.name, directory, born))
            regent.adopt(run, born)
            continue
        if _never_ran(directory):
            continue
        record = await asyncio.to_thread(read_ended, directory)
        while record.lost and record.survivors:  # nothing is started before the tree is gone (S6)
            await asyncio.sleep(SURVIVORS_AGAIN_S)
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
            await account.enter_end(
                await ending_of(account, regent.log, record)
            )  # known to nobody, and long over
            continue
        await regent.after_run(record, seen=False)
        yield RunEnded(await ending_of(account, regent.log, record))
    state = account.supervision.state
    if regent.living is None and isinstance(state, HAS_A_RUN):
        await regent.gate.idle()
        yield RunEnded(ExitFacts(state.run_id, at))  # its directory was removed: nobody saw the end
    if regent.living is None:
        account.take_up()


def _govern_by_intent(account: RalphRecord, directory: RunDirectory) -> None:
    """Follow the rules that a run was started by: the definition may have been reloaded since."""
    try:
        found = _object(directory.intent(), "definition")["configuration"]
    except (KeyError, TypeError):
        return
    if found == account.in_force.definition.configuration:
        return
    if (started_by := _intended(directory, account.files)) is not None:
        account.govern_by(started_by)


def _written_anew(name: str, directory: RunDirectory, born: RunRecord) -> Recovered:
    kept_as = set_aside(directory.run_file)
    with suppress(OSError):  # a full disk: the next daemon finds it out again
        directory.save_run_record(born)
    file = directory.run_file.name
    return Recovered(name, file, _text(kept_as), f"the processes of {directory.run_id} that live")


def _never_ran(directory: RunDirectory) -> bool:
    """Whether a spawn was interrupted before there was a process: no record of one, and no output."""
    if directory.run_file.exists() or directory.exit_record() is not None:
        return False
    return not any(path.stat().st_size for path in directory.path.glob("log.*"))


def _object(found: Any, key: str) -> dict[str, Any]:
    value = found[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is no object")
    return value


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
