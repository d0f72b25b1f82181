"""Hosts one Regent per ralph: registers, finds, recovers and ends them."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ralphd import __version__, config
from ralphd.core.delivery import Destination
from ralphd.core.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
)
from ralphd.core.model import Supervision
from ralphd.core.moments import parse_rfc3339, rfc3339
from ralphd.daemon import recovery
from ralphd.daemon.account import ESCALATION, Account
from ralphd.daemon.recovery import Recovered, Unusable
from ralphd.daemon.regent import LEFT_ALONE, Regent
from ralphd.daemon.registration import Candidate, Registration, candidate
from ralphd.daemon.services import Services
from ralphd.errors import (
    AlreadyRunning,
    ConfigFaults,
    NewerState,
    RalphdError,
    ShuttingDown,
    UnknownRalph,
    WrongState,
)
from ralphd.notify.hub import Hub
from ralphd.process import tree
from ralphd.process.output import Log, prune
from ralphd.process.resources import resources_of
from ralphd.store.events import EventStore
from ralphd.store.history import History
from ralphd.store.state import Definition, RalphFiles, Record

logger = logging.getLogger(__name__)

LOOK_ROUND_S = 8.0
"""A deleted ``.ralph`` is back within 10 s (design section 4)."""
PRUNE_EVERY_S = 60.0
ESCALATIONS_LOOKED_AT = 200
START_LIMIT_S = 20.0
"""No run that does not answer holds up the start of the daemon longer than this."""

Ending = Literal["finish", "leave", "now"]


class Host:
    """All Regents of a daemon. Used on the event loop only."""

    def __init__(self, services: Services, events: EventStore, hub: Hub) -> None:
        self.events = events
        self.hub = hub
        self.ready = False
        self._services = services
        self._started_at = services.clock.now()
        self._regents: dict[str, Regent] = {}
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self._unusable: dict[str, str] = {}
        self._users: config.Configuration | None = None
        self._registering = asyncio.Lock()
        self._shutdown: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    # --- coming and going -----------------------------------------------------------------------------

    @property
    def stopping(self) -> asyncio.Event:
        """Set as soon as the daemon is on its way out: open streams end then."""
        return self._services.stopping

    async def recover(self) -> None:
        """Load every ralph, adopt the runs that live, go on with what was wanted (P1, G2)."""
        recovered: list[Recovered] = []
        for home in sorted(self._home().iterdir()) if self._home().exists() else ():
            if home.is_dir():
                await self._load(home, recovered)
        for found in recovered:
            logger.warning("recovered %s of %s from %s", found.file, found.ralph, found.rebuilt_from)
            data = {"file": found.file, "kept_as": found.kept_as, "rebuilt_from": found.rebuilt_from}
            await self._services.news.tell("state.recovered", data, ralph=found.ralph)
        if self.events.recovered:
            await self._queue_again()
        await asyncio.gather(*(self._revive(regent) for regent in self._regents.values()))

    async def _queue_again(self) -> None:
        """The outbox was lost: escalations that may not have been sent are sent again, under the same id."""
        await self._services.news.tell(
            "state.recovered", {"file": "events.db", "kept_as": self.events.recovered}
        )
        for regent in self._regents.values():
            account = regent.account
            for entry in reversed(await asyncio.to_thread(account.history.newest, ESCALATIONS_LOOKED_AT)):
                if entry.get("kind") == ESCALATION:
                    await self._services.news.tell(
                        "ralph.escalated",
                        entry["data"],
                        ralph=regent.name,
                        run_id=entry["run_id"],
                        at=parse_rfc3339(entry["at"]),
                        key=entry["key"],
                        destinations=account.configuration.destinations(),
                    )

    async def _load(self, home: Path, recovered: list[Recovered]) -> None:
        try:
            account = await asyncio.to_thread(recovery.load, RalphFiles(home), self._services, recovered)
        except Unusable as unusable:
            self._unusable[home.name] = str(unusable)
            self._services.trouble(f"ralph {home.name}", str(unusable))
        else:
            self._regents[account.definition.name] = Regent(account, self._services)

    async def _revive(self, regent: Regent) -> None:
        self._supervise(regent)
        now = self._services.clock.now
        try:
            async with asyncio.timeout(START_LIMIT_S):
                async for missed in recovery.catch_up(regent, now()):
                    await self._feed(regent, missed)
                await self._feed(regent, DaemonStarted(now(), regent.living))
        except TimeoutError:
            self._services.trouble(f"ralph {regent.name}", "its last run does not answer; still looking")

    async def _feed(self, regent: Regent, event: Event) -> None:
        with suppress(RalphdError):  # told and written down by the Regent; nobody waits for it here
            await regent.ask(event)

    def _supervise(self, regent: Regent) -> None:
        task = asyncio.get_running_loop().create_task(regent.supervise(), name=f"regent {regent.name}")
        self._supervisors[regent.name] = task

    async def look_round(self) -> None:
        """Every few seconds, for as long as the daemon lives: mirrors, locks, logs that grew too large."""
        rounds = 0
        while True:
            await asyncio.sleep(LOOK_ROUND_S)
            for regent in tuple(self._regents.values()):
                await regent.look_round()
            self._services.trouble("events", self.events.degraded)
            rounds += 1
            if rounds % int(PRUNE_EVERY_S // LOOK_ROUND_S) == 0:
                await self._prune()

    async def _prune(self) -> None:
        for regent in tuple(self._regents.values()):
            living = {regent.living} if regent.living else set()
            total = regent.account.configuration.logs.total_bytes
            with suppress(OSError):
                await asyncio.to_thread(prune, regent.account.files.runs, total_bytes=total, living=living)

    def reload(self) -> None:
        """Read the daemon's own part of the configuration anew: the user's file (SIGHUP)."""
        try:
            self._users = config.load(None, environ=os.environ)
        except ConfigFaults as faults:
            logger.error("not reloaded: %s", faults)
        else:
            logger.info("reloaded the user's configuration")

    async def shutdown(self, runs: Ending) -> None:
        """Ask the daemon to end: with its runs finished, left alone, or killed. Asked again, ``now`` wins."""
        if not self._shutdown.done():
            self._shutdown.set_result(runs)
        elif runs == "now":
            await self._end_runs(now=True)

    async def wait_for_shutdown(self) -> Ending:
        """What the daemon was asked to do with its runs, once it was."""
        return await asyncio.shield(self._shutdown)

    async def end(self, runs: Ending) -> None:
        """Carry a shutdown out: no run is left, unless they are to be left (section 3, the signals)."""
        self.stopping.set()
        if runs != "leave":
            await self._end_runs(now=runs == "now")
            await self._await_ends()
        for task in self._supervisors.values():
            task.cancel()
        await asyncio.gather(*self._supervisors.values(), return_exceptions=True)

    async def _end_runs(self, *, now: bool) -> None:
        event = DaemonStopping(self._services.clock.now(), now)
        await asyncio.gather(*(self._feed(regent, event) for regent in self._regents.values()))

    async def _await_ends(self) -> None:
        deadlines = [regent.account.configuration.regent.stop_deadline_seconds for regent in self._busy()]
        try:
            async with asyncio.timeout(max(deadlines, default=0.0)):
                await self._no_run_left()
        except TimeoutError:
            await self._end_runs(now=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_LIMIT_S):
                    await self._no_run_left()

    def _busy(self) -> list[Regent]:
        return [regent for regent in self._regents.values() if regent.has_a_run]

    async def _no_run_left(self) -> None:
        while self._busy():  # noqa: ASYNC110 - short, and at the daemon's very end
            await asyncio.sleep(0.02)

    # --- what is so -----------------------------------------------------------------------------------

    def daemon_view(self) -> dict[str, Any]:
        """The daemon as the API shows it."""
        troubles = self._services.troubles
        return {
            "pid": os.getpid(),
            "version": __version__,
            "started_at": rfc3339(self._started_at),
            "state_directory": str(self._services.state_directory),
            "socket": str(self._services.socket_path),
            "status": "degraded" if troubles else "ok",
            "problems": [f"{topic}: {what}" for topic, what in troubles.items()],
            "tree_means": tree.tree_means(),
            "ralphs": len(self._regents),
        }

    async def status_bytes(self, *, resources: bool = False) -> bytes:
        """The reply of ``GET /v1/status``."""
        daemon = json.dumps(self.daemon_view())
        views = b", ".join(
            [await self._view(regent, resources) for _, regent in sorted(self._regents.items())]
        )
        return f'{{"version": "{__version__}", "daemon": {daemon}, "ralphs": ['.encode() + views + b"]}"

    def views(self) -> list[bytes]:
        """Every ralph, by name."""
        return [regent.view_bytes() for _, regent in sorted(self._regents.items())]

    async def view_bytes(self, name: str, *, resources: bool = False) -> bytes:
        """One ralph. Raises UnknownRalph."""
        return await self._view(self._regent(name), resources)

    async def _view(self, regent: Regent, resources: bool) -> bytes:
        if not resources:
            return regent.view_bytes()
        pid = regent.account.facts.ralph_pid
        used = None if pid is None else await asyncio.to_thread(resources_of, pid)
        return json.dumps(regent.view() | {"resources": used}).encode()

    def log(self, name: str) -> Log:
        """The log of a ralph's runs. Raises UnknownRalph."""
        return self._regent(name).log

    async def runs(self, name: str, limit: int) -> list[dict[str, Any]]:
        """The runs that are over, newest first, from the history. Raises UnknownRalph."""
        return await asyncio.to_thread(self._regent(name).account.history.newest, limit)

    def destinations(self) -> Mapping[str, Destination]:
        """Where deliveries go, by id, over all ralphs."""
        configurations = [regent.account.configuration for regent in self._regents.values()]
        every = [known.destinations() for known in (*configurations, self._users) if known is not None]
        return {destination.id: destination for some in every for destination in some}

    # --- what is asked --------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> bytes:
        """Register a ralph, and start it where that is asked. What is refused changes nothing."""
        self._refuse_when_stopping()
        async with self._registering:
            wanted = await asyncio.to_thread(
                candidate, registration, self._directories(), self._services.state_directory
            )
            return await self._take_on(wanted, start=registration.start)

    def _directories(self) -> dict[str, Path]:
        return {name: regent.account.definition.directory for name, regent in self._regents.items()}

    async def _take_on(self, wanted: Candidate, *, start: bool) -> bytes:
        known = self._regents.get(wanted.name)
        if wanted.name in self._unusable:
            raise NewerState(f"{wanted.name} cannot be used", why=self._unusable[wanted.name])
        if known is not None:
            return await self._replace(known, wanted, start=start)
        files = RalphFiles(self._home() / wanted.name)
        regent = Regent(await asyncio.to_thread(self._new_account, files, wanted), self._services)
        regent.account.notes = list(wanted.notes)
        self._regents[wanted.name] = regent
        self._supervise(regent)
        try:
            regent.holds.take()
            await asyncio.to_thread(files.mirror, wanted.directory)
            await self._services.news.tell(
                "ralph.registered", {"directory": str(wanted.directory)}, ralph=wanted.name
            )
            if start:
                await regent.ask(StartRequested(self._services.clock.now()))
        except RalphdError:
            await self._forget(regent)
            raise
        return regent.view_bytes()

    def _new_account(self, files: RalphFiles, wanted: Candidate) -> Account:
        files.create()
        files.save_environment(wanted.environment)
        definition = self._definition(wanted)
        files.save_definition(definition)
        record = Record(Supervision())
        files.save_record(record, definition)
        return Account(files, definition, record, History(files.history_file), self._services)

    def _definition(self, wanted: Candidate) -> Definition:
        return Definition(
            name=wanted.name,
            directory=wanted.directory,
            command=wanted.command,
            configuration=wanted.configuration.pinned(),
            registered_at=self._services.clock.now(),
            flags=wanted.flags,
        )

    async def _replace(self, regent: Regent, wanted: Candidate, *, start: bool) -> bytes:
        """A known ralph that does not run gets the new definition, and says so."""
        account = regent.account
        self._refuse_to_replace(regent)
        before, notes = account.definition, account.notes
        if start:
            regent.holds.take()
        account.redefine(replace(self._definition(wanted), goal=before.goal))
        account.notes = [*wanted.notes, "replaced the earlier definition of this name"]
        await asyncio.to_thread(account.files.save_environment, wanted.environment)
        try:
            if start:
                await regent.ask(StartRequested(self._services.clock.now()))
            else:
                await account.save()
        except RalphdError:
            account.redefine(before)
            account.notes = notes
            await account.save()
            raise
        return regent.view_bytes()

    def _refuse_to_replace(self, regent: Regent) -> None:
        state = regent.account.supervision.state
        if regent.has_a_run or state.kind in ("starting", "waiting_for_retry"):
            pid = regent.account.facts.ralph_pid
            raise AlreadyRunning(
                f"{regent.name} is {state.kind.replace('_', ' ')} already" + (f" (pid {pid})" if pid else ""),
                mend=f"ralphctl stop {regent.name}, then start it again; or ralphctl restart {regent.name}",
            )

    async def start(self, name: str, flags: Mapping[str, Any] | None = None) -> bytes:
        """Start a known ralph again. Raises UnknownRalph, CommandNotStartable, DirectoryBusy."""
        regent = self._regent(name)
        if flags:
            self._refuse_to_replace(regent)
        if isinstance(regent.account.supervision.state, LEFT_ALONE):
            await self._pin(regent, flags or {})
        return await self._ask(name, StartRequested(self._services.clock.now()))

    async def _pin(self, regent: Regent, flags: Mapping[str, Any]) -> None:
        """A start takes the configuration as it is now, with the flags of earlier starts (section 8)."""
        account = regent.account
        both = {**(account.definition.flags or {}), **flags}
        environ = await asyncio.to_thread(account.files.load_environment)
        configuration = await asyncio.to_thread(
            config.load, account.definition.directory, flags=both, environ=environ
        )
        account.redefine(replace(account.definition, flags=both, configuration=configuration.pinned()))

    async def stop(self, name: str, *, now: bool) -> bytes:
        """Ask a ralph to stop; answers at once (G1)."""
        return await self._ask(name, StopRequested(self._services.clock.now(), now))

    async def restart(self, name: str) -> bytes:
        """Stop, then start (G2)."""
        return await self._ask(name, RestartRequested(self._services.clock.now()))

    async def pause(self, name: str) -> bytes:
        """Pause a ralph (G2)."""
        return await self._ask(name, PauseRequested(self._services.clock.now()))

    async def resume(self, name: str) -> bytes:
        """Go on after a pause."""
        return await self._ask(name, ResumeRequested(self._services.clock.now()))

    async def skip_wait(self, name: str) -> bytes:
        """Do not wait any longer."""
        return await self._ask(name, SkipWaitRequested(self._services.clock.now()))

    async def forget(self, name: str) -> None:
        """Forget a ralph that is at rest: its state, its logs. The working directory stays as it is."""
        regent = self._regent(name)
        state = regent.account.supervision.state
        if regent.has_a_run or state.kind in ("starting", "waiting_for_retry", "paused"):
            raise WrongState(
                f"{name} is {state.kind.replace('_', ' ')}",
                why="only a ralph that is stopped can be forgotten",
                mend=f"ralphctl stop {name}",
            )
        await self._forget(regent)

    async def _forget(self, regent: Regent) -> None:
        regent.holds.release()
        self._regents.pop(regent.name, None)
        task = self._supervisors.pop(regent.name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, regent.account.files.home, ignore_errors=True)

    async def _ask(self, name: str, event: Event) -> bytes:
        self._refuse_when_stopping()
        regent = self._regent(name)
        await regent.ask(event)
        return regent.view_bytes()

    def _refuse_when_stopping(self) -> None:
        if self.stopping.is_set() or self._shutdown.done():
            raise ShuttingDown("ralphd is shutting down", mend="ralphctl regent start, when it is gone")

    def _regent(self, name: str) -> Regent:
        if name in self._regents:
            return self._regents[name]
        if name in self._unusable:
            raise NewerState(f"{name} cannot be used", why=self._unusable[name])
        raise UnknownRalph(f"there is no ralph {name!r}", mend="ralphctl status")

    def _home(self) -> Path:
        return self._services.state_directory / "ralphs"
