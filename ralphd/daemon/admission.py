"""Register a ralph, replace its definition, start it: what is refused changes nothing (E5)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphd.config.configuration import Configuration
from ralphd.config.values import run_environment
from ralphd.core.supervision.events import StartRequested
from ralphd.core.supervision.model import Supervision
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.daemon.registration import Candidate, notes_on
from ralphd.daemon.reload import renewed
from ralphd.errors import AlreadyRunning, DaemonBusy, RalphdError, UsageError
from ralphd.loop.workdir_files import read_plan
from ralphd.store.checkpoint import CheckpointManager, put_back, take_over
from ralphd.store.mirror import Mirror
from ralphd.store.shared.quota import forecast_for
from ralphd.store.state import Definition, RalphFiles, RegentState

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.services import Services


FORECAST = "forecast for "


class Admission:
    """Registers ralphs, and replaces the definition of known ones."""

    def __init__(self, roster: "Roster", services: "Services") -> None:
        self._roster, self._services = roster, services

    async def admit(self, wanted: Candidate, *, start: bool, resume: bool | None) -> Regent:
        """Register a new ralph, or replace the definition of a known one that does not run."""
        if (known := self._roster.find(wanted.definition.name)) is None:
            return await self._take_on(wanted, start=start, resume=resume)
        await self._replace(known, wanted, start=start, resume=resume)
        return known

    async def _take_on(self, wanted: Candidate, *, start: bool, resume: bool | None) -> Regent:
        name, directory = wanted.definition.name, wanted.definition.directory
        files = RalphFiles(self._roster.home / name)
        account = RalphRecord(files, wanted.definition, RegentState(Supervision()), self._services)
        account.notes = list(wanted.notes)
        account.telling.introduce()
        regent = Regent(account, self._services)
        regent.holds.take()  # before anything is written: another Regent's files there are not ours
        mirrored = Mirror(directory).exists()
        try:
            await asyncio.to_thread(_write_new, account, wanted)
            self._roster.take_in(regent)  # with its files: what polls it would miss them
            if start:
                await self.begin(regent, resume)
            else:
                await account.telling.registered(account.told())
        except (RalphdError, OSError) as fault:
            await self._roster.drop(regent)
            if not mirrored:
                await asyncio.to_thread(Mirror(directory).remove)
            if isinstance(fault, OSError):
                raise DaemonBusy(f"{name} cannot be saved", why=str(fault), mend="df -h") from fault
            raise
        return regent

    async def _replace(self, regent: Regent, wanted: Candidate, *, start: bool, resume: bool | None) -> None:
        refuse_to_replace(regent)
        account = regent.account
        definition, notes = account.definition, account.notes
        environment = await asyncio.to_thread(account.files.load_environment)
        account.redefine(replace(wanted.definition, goal=definition.goal))
        account.notes = [*wanted.notes, "replaced the earlier definition of this name"]
        try:
            await asyncio.to_thread(account.files.save_environment, wanted.environment)
            if start:
                await self.begin(regent, resume)
            else:
                await account.save()
        except (RalphdError, OSError):
            account.redefine(definition)
            account.notes = notes
            await asyncio.to_thread(account.files.save_environment, environment)
            await account.save()
            raise

    async def pin(self, regent: Regent, flags: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Pin the present configuration, with the flags of earlier starts, and the environment if given."""
        account, files = regent.account, regent.account.files
        before = await asyncio.to_thread(files.load_environment)
        directory, commands = account.definition.directory, self._services.commands
        environ = run_environment(environment, directory, commands) if environment else before
        renewal = await asyncio.to_thread(renewed, account, flags, environ)
        notes = await asyncio.to_thread(notes_of, account, renewal.definition, environ)
        if environ != before:
            await asyncio.to_thread(files.save_environment, environ)
        account.redefine(renewal.definition)
        account.notes = list(notes)

    async def begin(self, regent: Regent, resume: bool | None, *, continues: bool = False) -> None:
        """Start a ralph. ``resume`` False: its checkpoint is put aside, and restored if the start fails.

        ``continues``: as in ``StartRequested``.
        """
        await asyncio.to_thread(self._foretell, regent.account)
        async with _checkpoint_settled(regent.account, resume=resume):
            await regent.request(StartRequested(self._services.clock.now(), continues))

    def _foretell(self, account: RalphRecord) -> None:
        """Note what the open tasks are likely to take, if enough tasks were finished before (Q7)."""
        definition, at = account.definition, self._services.clock.now()
        plan = read_plan(definition.directory, account.configuration.ralph.tasks)
        if definition.runs_own_loop and plan is not None and plan.open:
            ids = [task.id for task in plan.open]
            told = forecast_for(self._services.state_directory, definition.name, ids, at)
            note = [f"{FORECAST}the open tasks ({told.open}): {told.words()}"] if told.hours else []
            account.notes = [*(each for each in account.notes if not each.startswith(FORECAST)), *note]


def notes_of(
    account: RalphRecord, definition: Definition, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the notes on ``definition``. Raises RalphdError where it cannot be pinned. Blocks."""
    environ = account.files.load_environment() if environ is None else environ
    configuration = Configuration.from_pinned(definition.configuration)
    return notes_on(definition.directory, configuration, definition.command, environ)


def refuse_to_replace(regent: Regent) -> None:
    """Raise AlreadyRunning where something runs, or soon will."""
    state = regent.account.supervision.state
    if regent.has_a_run or state.kind in ("starting", "waiting_for_retry"):
        pid = regent.account.facts.ralph_pid
        what = f"{regent.name} is {regent.doing} already" + (f" (pid {pid})" if pid else "")
        mend = f"ralphctl stop {regent.name}, then start it again; or ralphctl restart {regent.name}"
        raise AlreadyRunning(what, mend=mend)


@asynccontextmanager
async def _checkpoint_settled(account: RalphRecord, *, resume: bool | None) -> AsyncIterator[None]:
    definition, home = account.definition, account.files.home
    if resume is False and not definition.runs_own_loop:
        why = f"{definition.name} runs a command of its own, which keeps its checkpoints by itself"
        mend = f"ralphctl start {definition.name}"
        raise UsageError("a start without the checkpoint is for the built-in loop", why=why, mend=mend)
    if not definition.runs_own_loop or account.is_governed_by_a_run:  # none, or the run's
        yield
        return

    def settle() -> Path | None:
        take_over(home, definition.directory)
        return CheckpointManager(home, definition.directory).discard() if resume is False else None

    kept_as = await asyncio.to_thread(settle)
    try:
        yield
    except (RalphdError, OSError):
        await asyncio.to_thread(put_back, home, definition.directory, kept_as)
        raise
    finally:
        await account.look_at_loop_files()


def _write_new(account: RalphRecord, wanted: Candidate) -> None:
    files = account.files
    Mirror(account.definition.directory).make()
    files.create()
    files.save_environment(wanted.environment)
    files.save_definition(account.definition)
    files.save_record(RegentState(account.supervision), account.definition)
