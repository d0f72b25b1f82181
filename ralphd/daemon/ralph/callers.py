"""Who sends requests: the run that a process belongs to, what it may request, and the record of that."""

import logging
import re
import time
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING

from ralphd.core.incidents import of_an_end
from ralphd.core.supervision import door
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.model import RunId
from ralphd.core.time import rfc3339
from ralphd.errors import RalphdError
from ralphd.process.activity.probe import RunTree
from ralphd.process.peer_run import Peer, first_ender, run_of
from ralphd.process.shim import command_line
from ralphd.store.shared.landing import has_landing_test

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services, UserConfiguration

logger = logging.getLogger(__name__)

SCAN_S = 0.2
_KINDS = ("runs", "tests")
_IN_URL = re.compile(r"(?<=://)(?:[^\s/@]*@)?([^\s/?#]*)\S*")
"""What follows the host may be a token: the address of a webhook is a password."""

REQUESTED_BY: ContextVar[Caller | None] = ContextVar("REQUESTED_BY", default=None)
"""Who sent the request that this task serves; the door sets it."""


class Callers:
    """Identifies the processes that send requests. Used on the event loop only."""

    def __init__(self, roster: "Roster", services: "Services", users: "UserConfiguration") -> None:
        self._roster, self._services, self._users = roster, services, users
        self._refusals = door.RefusalCounter()

    def caller(self, peer: Peer) -> Caller:
        """Return who sent a request, as of now."""
        run_id = run_of(peer.pid, peer.uid, peer.ticks, self._is_known)
        owner = None if run_id is None else self._owner(run_id)
        ralph = None if owner is None else owner.name
        command = _IN_URL.sub(r"\1/…", command_line(peer.pid))
        return Caller(peer.pid, peer.uid, run_id, ralph, command)

    def is_within(self, peer: Peer) -> bool:
        return self.caller(peer).run_id is not None

    def _owner(self, run_id: RunId) -> "Regent | None":
        """Return the Regent of a run or test run, also of one that has ended."""
        alive = (each for each in self._roster if run_id in (each.living, each.gate.test_run))
        homes = ((each, each.account.files.home) for each in self._roster)
        ended = (each for each, home in homes if any((home / kind / run_id).is_dir() for kind in _KINDS))
        return next(chain(alive, ended), None)

    def _is_known(self, run_id: RunId) -> bool:
        """Whether a run is a ralph's, or a test run of a landing queue."""
        return has_landing_test(self._services.state_directory, run_id) or self._owner(run_id) is not None

    def permits(self, caller: Caller, asked: RequestedAction) -> bool:
        return door.is_permitted(asked, caller, self._users.present.regent.runs_may)

    async def refuse(self, caller: Caller, asked: RequestedAction) -> None:
        """Report a refusal, at most once per run and action in a minute."""
        if count := self._refusals.count(caller, asked, self._services.clock.now()):
            await self._report(caller, asked, count)

    async def report_held(self) -> None:
        """Report the refusals that were only counted."""
        for caller, asked, count in self._refusals.due(self._services.clock.now()):
            await self._report(caller, asked, count)

    async def _report(self, caller: Caller, asked: RequestedAction, count: int) -> None:
        text, ralph = door.refusal_text(caller, asked, count), caller.ralph
        data = {"message": text, "action": asked.action, "count": count, "by": caller.shown()}
        logger.warning("%s", text, extra={"ralph": ralph})
        to = () if (regent := self._find(ralph)) is None else regent.account.told().destinations
        tell = self._services.news.tell
        await tell("agent.refused", data, ralph=ralph, run_id=caller.run_id, destinations=to)

    async def record(self, caller: Caller, asked: RequestedAction) -> None:
        """Enter a request that was carried out into the log, and into the history of its ralph."""
        logger.info("%s requested by %s", asked.action, caller, extra={"ralph": asked.ralph})
        data = {"action": asked.action, "by": caller.shown()}
        if (regent := self._find(asked.ralph)) is not None:
            at = self._services.clock.now()
            key = f"{asked.action}/{rfc3339(at)}/{caller.pid}"
            await regent.enter_request(key, at, {"run_id": regent.account.facts.run_id, **data})
        if asked.action in door.UNANNOUNCED:
            data = {"message": f"{asked}, requested by {caller}", **data}
            await self._services.news.tell("request.accepted", data, ralph=asked.ralph)

    async def report_enders(self) -> bool:
        """Escalate for each run whose tree holds a program that ends services; return whether one does."""
        deadline = time.monotonic() + SCAN_S
        found = [
            (regent, record.run_id, *ender)
            for regent in self._roster
            if (record := regent.run_record) and (ender := first_ender(RunTree(record).pids(), deadline))
        ]
        for regent, run_id, pid, command in found:
            call = of_an_end(run_id, regent.name, pid, command)
            logger.warning("%s", call.message, extra={"ralph": regent.name})
            await regent.escalate(call)
        return bool(found)

    def _find(self, ralph: str | None) -> "Regent | None":
        try:
            return None if ralph is None else self._roster.find(ralph)
        except RalphdError:
            return None
