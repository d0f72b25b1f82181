"""The daemon as its API sees it: state to show, and requests to carry out."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ralphd import __version__
from ralphd.config import configuration as config
from ralphd.core.supervision import events as requests
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.model import SETTLED, Paused, RunId
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon import lifecycle
from ralphd.daemon.admission import Admission, notes_of, refuse_to_replace
from ralphd.daemon.landing.queues import LandingQueues
from ralphd.daemon.lifecycle import HowToEnd, Roster
from ralphd.daemon.ralph.callers import REQUESTED_BY, Callers
from ralphd.daemon.regent import Regent
from ralphd.daemon.registration import Registration, checked
from ralphd.daemon.reload import renewed
from ralphd.daemon.services import QuotaWatch, Services, UserConfiguration
from ralphd.daemon.trees.plan import WorktreeOrder
from ralphd.daemon.trees.trees import Trees
from ralphd.daemon.webhooks import DaemonsWebhooks
from ralphd.errors import ConfigFaults, NoFleet, ShuttingDown, WrongState
from ralphd.process import tree
from ralphd.process.activity.proc_stats import resources_of
from ralphd.process.machine import return_freed_memory
from ralphd.store.loop_files import change_inbox

if TYPE_CHECKING:
    from pathlib import Path

    from ralphd.core.loop.inbox import Inbox
    from ralphd.core.supervision.reports import Report
    from ralphd.daemon.fleet.fleet import Fleet
    from ralphd.daemon.web.keeper import PageKeeper
    from ralphd.notify.client import WebhookClient
    from ralphd.process.log.log import RalphLog

logger = logging.getLogger(__name__)

FIRST_PRUNE_S, PRUNE_EVERY_S = 10.0, 60.0
"""The first time soon: a daemon that is killed again and again, once a minute, would never prune."""
VAULTS_EVERY_S = 24 * 3600.0
REPORT_S = 2.0
EVENTS_KEPT_S = 30 * 24 * 3600.0
STATUS_KEPT_S = 0.02
"""Less than anybody sees. To compare what 100 ralphs show takes 1 ms, all else of a reply 0.2 ms."""
CLOSING_S = 10.0
"""What is left to do when no run is left: replies under way, the database."""
_ORDERS: Mapping[str, type[requests.Event]] = {
    "stop": requests.StopRequested, "pause": requests.PauseRequested, "resume": requests.ResumeRequested,
}  # fmt: skip


class Host:
    """Everything that the API needs. Used on the event loop only."""

    def __init__(self, services: Services, courier: "WebhookClient") -> None:
        self.events, self.hub, self.ready = services.news.events, services.news.hub, False
        self._services = services
        self.stopping = services.stopping  # set when a shutdown begins: open streams end then
        self._roster = Roster(services.state_directory / "ralphs")
        services.busy = lambda: [each.account.definition.directory for each in self._roster.busy()]
        services.applicants, services.unadopted = self._roster.applicants, self._roster.unadopted
        self._admission = Admission(self._roster, services)
        self.trees = Trees(self._roster, services, self._registered, self._admission.begin)
        services.no_room = self.trees.no_room
        self._users = UserConfiguration(services)
        self.callers = Callers(self._roster, services, self._users)
        self.webhooks = DaemonsWebhooks(services, self._users, self._roster, courier)
        self.landing = LandingQueues(self._roster, services, self.send, partial(self.start, continues=True))
        services.landing_of, services.why_unqueued = self.landing.of, self.landing.why_unqueued
        self._quota = QuotaWatch(services)
        self._fleet: Fleet | None = None
        self._page: PageKeeper | None = None
        self._started_at = services.clock.now()
        self._status, self._status_until = b"", 0.0
        self._registering, self._sending, self._pinning = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._shutdown: asyncio.Future[HowToEnd] = asyncio.get_running_loop().create_future()
        self._shutdown_by: Caller | None = None

    # --- start and end --------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Take over what an earlier daemon left (P1, G2)."""
        self._users.read()
        await self.webhooks.read()
        await lifecycle.recover(self._roster, self._services, self.events)
        await self.landing.recover()
        await self.trees.resume()
        if (self._services.state_directory / "fleet" / "fleet.json").is_file():
            from ralphd.daemon.fleet.joined import join_fleet  # a daemon outside of a fleet does not load it

            self._fleet = join_fleet(self, self._services, self._users)

    async def look_round(self) -> None:
        """Poll what changes without a request, until cancelled."""
        works = {
            "starts": lambda: lifecycle.retry_starts(self._roster, self._services),
            "a look at the ralphs": lambda: lifecycle.look_round(self._roster, self._services, self.events),
            "landing": self.landing.run, "quota": self._quota.watch,
        }  # fmt: skip
        works |= {} if self._fleet is None else {"fleet": self._fleet.run}
        await asyncio.gather(*(self._services.endure(topic, work) for topic, work in works.items()))

    async def prune(self) -> None:
        """Soon and once a minute: delete old logs and events, report refusals, keep the webhooks' file.

        Unused vaults are deleted at the start and once a day.
        """
        due, rest_s = 0.0, FIRST_PRUNE_S
        while True:
            if (now := self._services.clock.now()) >= due:
                due = now + VAULTS_EVERY_S
                await lifecycle.prune_vaults(self._roster, self._services)
            await asyncio.sleep(rest_s)
            rest_s = PRUNE_EVERY_S
            await self.callers.report_held()
            await self.webhooks.keep()
            await lifecycle.prune_all(self._roster, total_bytes=self._users.present.logs.total_bytes)
            await self.events.prune(self._services.clock.now() - EVENTS_KEPT_S)
            return_freed_memory()

    def reload(self) -> tuple[config.Difference, ...] | ConfigFaults:
        """Read the user's own file again (SIGHUP). Return what has changed, or all its faults."""
        with self._services.systemd.reloading():
            changes = self._users.read()
        self._follow_web()
        return changes

    def _follow_web(self) -> None:
        spec = self._users.present.web
        if self._page is None and spec.listen and self._services.tied is None:
            from ralphd.daemon.web.keeper import PageKeeper  # a daemon without a page does not load it

            self._page = PageKeeper(self._services)
        if self._page is not None:
            self._page.follow(spec)

    async def shutdown(self, runs: HowToEnd, *, by_signal: bool = False) -> None:
        """Request a shutdown: with the runs finished, left alone, or killed. A later ``now`` wins.

        ``by_signal``: first report the runs that may have sent it, for REPORT_S at most.
        """
        if by_signal and not self._shutdown.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    if await self.callers.report_enders():
                        while await self._is_sending():  # noqa: ASYNC110 - the worker sends it
                            await asyncio.sleep(0.02)
        if not self._shutdown.done():
            self._shutdown_by = REQUESTED_BY.get()
            self._shutdown.set_result(runs)
        elif runs == "now":
            await lifecycle.ask_all_to_end(self._roster, self._services, kill=True)

    async def _is_sending(self) -> bool:
        due = await self.events.next_due_at()
        return due is not None and due <= self._services.clock.now()

    async def wait_for_shutdown(self) -> HowToEnd:
        """Wait for a shutdown request and publish it; return what becomes of the runs."""
        how = await asyncio.shield(self._shutdown)
        by = {} if self._shutdown_by is None else {"by": self._shutdown_by.shown()}
        logger.info("shutting down: runs %s", how)
        await self._services.news.tell("daemon.stopping", {"runs": how} | by)
        return how

    def say_ready(self) -> None:
        """Answer every request from now on, and notify systemd."""
        self.ready = True
        self._services.systemd.ready(lifecycle.in_words(self._roster))
        self._follow_web()

    async def end(self, runs: HowToEnd) -> None:
        """Carry out a shutdown."""
        self.stopping.set()
        limit_s = lifecycle.longest_deadline_s(self._roster) + lifecycle.KILL_LIMIT_S + CLOSING_S
        self._services.systemd.stopping(f"ending: {lifecycle.in_words(self._roster)}", limit_s=limit_s)
        if self._page is not None:
            await self._page.close()
        await self.landing.close(leaves_tests=runs == "leave" and self._services.tied is None)
        await lifecycle.end_runs(self._roster, self._services, runs)
        await self._roster.close()

    # --- state ----------------------------------------------------------------------------------------

    def daemon_view(self) -> dict[str, Any]:
        """Return the daemon as the API shows it."""
        problems = self._services.problems()
        return {
            "pid": os.getpid(), "version": __version__, "started_at": rfc3339(self._started_at),
            "state_directory": str(self._services.state_directory),
            "socket": str(self._services.socket_path),
            "status": "degraded" if problems else "ok", "problems": problems,
            "tree_means": tree.tree_means(), "ralphs": len(self._roster),
        }  # fmt: skip

    async def status_bytes(self, *, resources: bool = False) -> bytes:
        """Return the reply of ``GET /v1/status``: without resources, the last one for STATUS_KEPT_S."""
        if not resources and time.monotonic() < self._status_until:
            return self._status
        daemon = json.dumps(self.daemon_view())
        views = b", ".join(await self._views([*self._roster], resources=resources))
        status = f'{{"version": "{__version__}", "daemon": {daemon}, "ralphs": ['.encode() + views + b"]}"
        if not resources:
            self._status, self._status_until = status, time.monotonic() + STATUS_KEPT_S
        return status

    def forget_status(self) -> None:
        """Make the reply of ``GET /v1/status`` anew: a request has changed something."""
        self._status_until = 0.0

    def quota_views(self) -> list[dict[str, Any]]:
        """Return the accounts of the agents. Blocks."""
        return self._quota.views()

    def metrics(self) -> bytes:
        """Return the daemon and every ralph in the text format of Prometheus."""
        from ralphd.daemon.metrics import measured, metrics_text

        return metrics_text(measured(self._roster, self._services, self.events, self._started_at))

    def regents(self) -> list[Regent]:
        """Return the Regents of all ralphs, by name."""
        return [*self._roster]

    async def view_bytes(self, name: str, *, resources: bool = False) -> bytes:
        """Return one ralph. Raises UnknownRalph."""
        return (await self._views([self._roster.get(name)], resources=resources))[0]

    async def _views(self, regents: list[Regent], *, resources: bool) -> list[bytes]:
        if not resources:
            return [regent.view_bytes() for regent in regents]
        leaders = {each.name: pid for each in regents if (pid := each.account.facts.ralph_pid) is not None}
        used = await asyncio.to_thread(resources_of, leaders)
        views = (each.view() | {"resources": used.get(each.name)} for each in regents)
        return [json.dumps(view, ensure_ascii=False).encode(errors="replace") for view in views]

    def log(self, name: str) -> "RalphLog":
        """Return the log of a ralph's runs. Raises UnknownRalph."""
        return self._roster.get(name).log

    def ended(self, name: str) -> Callable[[], bool]:
        """Return a function: whether nothing of a ralph runs until a person acts. Raises UnknownRalph."""
        account = self._roster.get(name).account
        return lambda: (
            isinstance(state := account.supervision.state, SETTLED)
            or (isinstance(state, Paused) and state.resume_at is None)
        )

    async def past(
        self, name: str, what: Literal["runs", "iterations", "verdicts", "repairs"], limit: int
    ) -> list[dict[str, Any]]:
        """Return the last of these in the history, newest first. Raises UnknownRalph."""
        return await asyncio.to_thread(getattr(self._roster.get(name).account.records, what), limit)

    async def undo(self, name: str, iteration: int | None, repair: int | None) -> dict[str, Any]:
        """Restore what the gate has reverted, or undo a repair.

        Raises UnknownRalph, WrongState, DirectoryBusy, NotUndone.
        """
        return await self._changeable(name).undo(iteration, repair)

    async def undo_alone(self, home: "Path", iteration: int | None, repair: int | None) -> dict[str, Any]:
        """Do the same while no daemon supervises anything in this state directory."""
        loaded = await lifecycle.load(home, self._roster, self._services)
        regent = loaded or self._roster.get(home.name)
        try:
            return await regent.undo(iteration, repair, is_alone=True)
        finally:
            regent.holds.release()

    async def explain(self, name: str) -> dict[str, Any]:
        """Explain the Regent's last action, or the state of the watch over a run. Raises UnknownRalph."""
        return await self._roster.get(name).explain()

    # --- requests -------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> bytes:
        """Register a ralph, and start it if requested. A refusal changes nothing."""
        return (await self._registered(registration)).view_bytes()

    async def _registered(self, registration: Registration) -> Regent:
        self._refuse_when_stopping()
        async with self._registering:
            wanted = await checked(registration, self._roster.directories(), self._services)
            return await self._admission.admit(wanted, start=registration.start, resume=registration.resume)

    async def start_in_worktrees(self, order: WorktreeOrder) -> list[bytes]:
        """Start ralphs in worktrees of their own (W1). Raise RalphdError."""
        self._refuse_when_stopping()
        return [regent.view_bytes() for regent in await self.trees.start(order)]

    async def start(
        self, name: str, flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None, *, resume: bool | None = None, continues: bool = False,
    ) -> bytes:  # fmt: skip
        """Start a known ralph again. Raises UnknownRalph, CommandNotStartable, DirectoryBusy, AlreadyRunning.

        ``resume`` False: the built-in loop begins from the start, its checkpoint put aside. ``continues``: as
        in ``StartRequested``.
        """
        regent = self._changeable(name)
        if flags or resume is False:
            refuse_to_replace(regent)
        if isinstance(regent.account.supervision.state, SETTLED):
            await self.trees.restore(name)
            async with self._pinning:
                await self._admission.pin(regent, flags or {}, environment or {})
            await self.trees.prepare(regent)
        await self._admission.begin(regent, resume, continues=continues)
        return regent.view_bytes()

    async def reload_ralph(self, name: str) -> tuple[bytes, tuple[config.Difference, ...], str]:
        """Pin a ralph to the present contents of its files; a run that lives keeps the earlier configuration.

        Return the view, the changes, and when they hold: ``now`` or ``next_run``. Raises UnknownRalph, and
        ConfigFaults with every fault: then nothing changes.
        """
        self._refuse_when_stopping()
        async with self._pinning:  # an earlier reading of the files never comes last
            try:
                renewal = await asyncio.to_thread(renewed, self._roster.get(name).account)
            except ConfigFaults as faults:
                mend, why = "fix them; ralphctl config check lists them", faults.why
                raise ConfigFaults(f"{name} is not reloaded: {faults.what}", why=why, mend=mend) from faults
            regent = self._roster.get(name)  # it may have been forgotten during the read
            account = regent.account
            if renewal.changes:
                notes = await asyncio.to_thread(notes_of, account, renewal.definition)
                account.redefine(replace(renewal.definition, goal=account.definition.goal))
                account.notes = list(notes)
                await account.save()
                logger.info("reloaded: %d changes", len(renewal.changes), extra={"ralph": name})
            return regent.view_bytes(), renewal.changes, "next_run" if account.is_governed_by_a_run else "now"

    async def ask(self, name: str, kind: Callable[..., requests.Event], **how: bool) -> bytes:
        """Have a request of this kind acted upon (G1, G2); return the view at once. Raises UnknownRalph."""
        regent = self._changeable(name)
        await regent.request(kind(self._services.clock.now(), **how))
        return regent.view_bytes()

    async def order(self, name: str, verb: str) -> bytes:
        """Have a ralph ``stop``, ``pause`` or ``resume`` for a person elsewhere. Raises UnknownRalph."""
        return await self.ask(name, _ORDERS[verb])

    def fleet(self) -> "Fleet":
        """Return this machine's part of its fleet. Raises NoFleet."""
        if self._fleet is None:
            why = "it has not joined one, or this daemon has been started before that"
            mend = "ralphctl fleet join TOKEN, then ralphctl regent restart"
            raise NoFleet("this machine is in no fleet", why=why, mend=mend)
        return self._fleet

    async def acknowledge(self, name: str) -> bytes:
        """Acknowledge the open incident; no reminder follows. Raises UnknownRalph."""
        regent = self._changeable(name)
        await regent.incidents.acknowledge()
        return regent.view_bytes()

    async def send(self, name: str, change: "Callable[[Inbox, Moment], Inbox]") -> bytes:
        """Change the inbox of a ralph's built-in loop and return it. Raises UnknownRalph, WrongState."""
        account = self._changeable(name).account
        if not account.definition.runs_own_loop:
            why = "only the built-in loop takes tasks and notes"
            raise WrongState(f"{name} runs a command of its own", why=why)
        at = self._services.clock.now()
        async with self._sending:
            sent = await asyncio.to_thread(change_inbox, account.files.home, lambda kept: change(kept, at))
        return json.dumps(sent).encode()

    async def land(self, name: str, branch: str | None, *, publishes: bool) -> bytes:
        """Queue a branch to land, or to be pushed. Raises UnknownRalph, NotLandable, ConfigFaults."""
        self._refuse_when_stopping()
        queued = await self.landing.land(name, branch, publishes=publishes)
        if (caller := REQUESTED_BY.get()) is not None:  # the path of the request does not name the ralph
            await self.callers.record(caller, RequestedAction("land", name))
        return json.dumps(queued).encode()

    async def undo_landing(self, name: str, number: int | None) -> bytes:
        """Queue the revert of what landed. Raises UnknownRalph, NotLandable."""
        self._refuse_when_stopping()
        return json.dumps(await self.landing.undo(name, number)).encode()

    async def report(
        self, name: str, run_id: RunId, report_id: str, digest: str, report: "Report"
    ) -> dict[str, Any]:
        """Act once on a run's report, and answer it. Raises UnknownRalph, StaleReport."""
        return await self._roster.get(name).report(run_id, report_id, digest, report)

    async def forget(self, name: str) -> None:
        """Forget a ralph that does not run: its state and logs. The working directory stays as it is."""
        async with self._registering:  # its name is free when its files are gone
            await self._roster.drop(self._roster.get(name))
        await self.trees.release(name)
        self._services.forget(name)

    def _changeable(self, name: str) -> Regent:
        """Return the Regent of a ralph for a request that changes something."""
        self._refuse_when_stopping()
        return self._roster.get(name)

    def _refuse_when_stopping(self) -> None:
        if self._shutdown.done():
            raise ShuttingDown("ralphd is shutting down", mend="ralphctl regent start, when it is gone")
