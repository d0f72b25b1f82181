"""What machines of a fleet request of each other: whether one lives, a ralph's view and log, stop, pause …

The list is closed: no request starts a command. The hub lets only some machines read or change others, and
each machine can refuse both (``[fleet] share_logs``, ``remote_control``). What a machine misses is kept for
a day.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.model import WANTS, HostName, Want
from ralphd.core.fleet.names import decoded_name, want_key
from ralphd.core.supervision.door import Caller
from ralphd.core.text import one_line
from ralphd.daemon.fleet.member import Member
from ralphd.daemon.fleet.sharing.logs import portion_of
from ralphd.daemon.ralph.callers import REQUESTED_BY
from ralphd.dataclass import dataclass
from ralphd.errors import HubSilent, NotFound, RalphdError, RoleMissing, UnknownRalph, UsageError, WrongState
from ralphd.fleet.fabric import Bucket, HubUnreachable, JsonObject, NoSuchHost
from ralphd.process.log.log import RalphLog
from ralphd.store import files
from ralphd.wire import is_name

logger = logging.getLogger(__name__)

STATUS: Final = "status"
RALPH: Final = "ralph"
EXPLAIN: Final = "explain"
LOG: Final = "log"
DRAINS: Final = ("drain", "undrain")
ASK_S: Final = 5.0
_BY_CHARS: Final = 100
_FAULT_CHARS: Final = 500
_MOST_WANTS: Final = 1000


class LocalRalphs(Protocol):
    """The ralphs of this machine."""

    async def view_bytes(self, name: str) -> bytes:
        """Return one ralph."""

    async def order(self, name: str, verb: str) -> bytes:
        """Have a ralph stop, pause or resume."""

    async def explain(self, name: str) -> dict[str, Any]:
        """Return why the Regent last acted on a ralph."""

    def log(self, name: str) -> RalphLog:
        """Return the log of a ralph."""

    def ended(self, name: str) -> Callable[[], bool]:
        """Return a function: whether nothing of a ralph runs until a person acts."""


@dataclass(slots=True)
class Control:
    """Answers the requests of other machines, and sends those of people here."""

    member: Member
    ralphs: LocalRalphs
    wants_file: Path
    """The ids of the last wants that were carried out: the hub repeats each for a day."""

    # --- of others -------------------------------------------------------------------------------------

    async def answer(self, route: str, body: JsonObject) -> JsonObject:
        """Answer a request of another machine; a refusal is an answer too."""
        try:
            return await self._answered(route, body)
        except RalphdError as fault:
            return {"fault": {"slug": fault.slug, "what": fault.what, "why": fault.why, "try": fault.mend}}

    async def _answered(self, route: str, body: JsonObject, *, is_own: bool = False) -> JsonObject:
        if route == STATUS:
            key, token = body.get("lease"), body.get("token")
            return {"holds": type(token) is int and self.member.holds(str(key), token)}
        name, by = str(body.get("name")), one_line(str(body.get("by")), _BY_CHARS)
        if route == RALPH and is_name(name):
            return dict(json.loads(await self.ralphs.view_bytes(name)))
        if route in (LOG, EXPLAIN) and is_name(name):
            return await self._shown(route, name, body, is_own=is_own)
        if not (is_own or self.member.spec().remote_control):
            what = f"{self.member.host} takes no requests of other machines"
            raise WrongState(what, why="remote_control = false")
        if route in DRAINS:
            self.member.drain(ends=route == "undrain")
            return {"host": self.member.host, "draining": self.member.draining}
        if route not in WANTS or not is_name(name):
            raise UsageError(f"{self.member.host} does not know the request {route[:40]!r}")
        return dict(json.loads(await self._order(name, route, by)))

    async def _shown(self, route: str, name: str, body: JsonObject, *, is_own: bool) -> JsonObject:
        if not (is_own or self.member.spec().share_logs):
            what = f"{self.member.host} shows no output of its ralphs to other machines"
            raise WrongState(what, why="[fleet] share_logs = false in its configuration")
        if route == EXPLAIN:
            return await self.ralphs.explain(name)
        log = self.ralphs.log(name)
        has_ended = self.ralphs.ended(name)()  # asked before: nothing comes after it
        return {**await asyncio.to_thread(portion_of, log, body), "ended": has_ended}

    async def _order(self, name: str, verb: str, by: str) -> bytes:
        logger.info("%s, as %s asked", verb, by, extra={"ralph": name})
        token = REQUESTED_BY.set(Caller(os.getpid(), os.getuid(), command=by))
        try:
            return await self.ralphs.order(name, verb)
        finally:
            REQUESTED_BY.reset(token)

    async def carry_out_wants(self) -> None:
        """Do what people wanted of this machine's ralphs while it was absent, until cancelled."""
        done = await asyncio.to_thread(self._carried_out)
        async for entry in self.member.fabric.watch(Bucket.WANTS):
            want = self.member.picture.take(Bucket.WANTS, entry)
            host, _, encoded = entry.key.partition(".")
            if not isinstance(want, Want) or host != self.member.host or want.id in done:
                continue
            try:
                if not self.member.spec().remote_control:
                    raise ValueError("fleet.remote_control is false")
                await self._order(decoded_name(encoded), want.want, want.by)
            except (RalphdError, ValueError) as fault:
                logger.warning("%s of %s, as %s wanted: %s", want.want, encoded, want.by, fault)
            done = [*done, want.id][-_MOST_WANTS:]
            await asyncio.to_thread(files.write_whole, self.wants_file, files.as_json({"v": 1, "done": done}))

    def _carried_out(self) -> list[str]:
        try:
            return [str(each) for each in (files.read_json(self.wants_file) or {}).get("done", ())]
        except (files.Broken, TypeError) as fault:
            logger.warning("%s cannot be used: %s", self.wants_file, fault)
            return []

    # --- of people here --------------------------------------------------------------------------------

    async def request(self, host: str, route: str, body: Mapping[str, Any]) -> JsonObject:
        """Ask another machine, or this one. Raises RalphdError, HubUnreachable, NoSuchHost."""
        if host == self.member.host:
            return await self._answered(route, body, is_own=True)
        if self.member.fabric.is_connected and self.member.picture.known(Bucket.HOSTS, host) is None:
            raise NotFound(f"no host {host} in this fleet", mend="ralphctl fleet status")
        reply = await self.member.fabric.request(host, route, body, limit_s=ASK_S)
        if isinstance(fault := reply.get("fault"), Mapping):
            words = {key: one_line(str(fault.get(key) or ""), _FAULT_CHARS) for key in ("what", "why", "try")}
            kind = UnknownRalph if fault.get("slug") == UnknownRalph.slug else WrongState
            mend = words["try"] and f"on {host}: {words['try']}"
            raise kind(f"{host}: {words['what']}", why=words["why"], mend=mend)
        return reply

    async def read(self, host: str, route: str, body: Mapping[str, Any]) -> JsonObject:
        """Ask a machine for what a person wants to see. Raises RalphdError."""
        try:
            return await self.request(host, route, body)
        except (NoSuchHost, HubUnreachable) as fault:
            raise hub_fault(self.member, host, fault, reads=True) from fault

    async def order(self, host: str, name: str, verb: str, by: str, want_id: str) -> JsonObject:
        """Have a ralph on any machine stop, pause or resume; for an absent machine the want is kept.

        The want of an item is its goal, which goes where it is taken over. Raises RalphdError; HubUnreachable
        or NoSuchHost where the hub takes nothing.
        """
        body, member = {"name": name, "by": f"{by} on {self.member.host}"}, self.member
        try:
            view = await self.request(host, verb, body)
            return {"done": True, "ralph": {**view, "name": f"{host}/{name}"}}
        except (NoSuchHost, HubUnreachable) as absent:
            if not member.fabric.is_connected or _is_forbidden(absent):
                raise
        known = member.picture.known(Bucket.ITEMS, name)
        if known is not None and known.value.holder == host:
            await member.act(name, verb, body["by"])
        else:
            want = Want(want_id, verb, body["by"], member.services.clock.now())
            await member.fabric.put(Bucket.WANTS, want_key(HostName(host), name), write_value(want))
        return {"done": False, "ralph": None}


def hub_fault(member: Member, host: str, fault: Exception, *, reads: bool = False) -> RalphdError:
    """Return what a person is told of a request that the hub, or a host if one is named, did not answer."""
    if _is_forbidden(fault):
        what, role = (
            ("see into others", "watch") if reads else ("give orders to others", "run (to drain: own)")
        )
        mend = f"ralphctl fleet leave, and its next lines; on the hub: ralphctl fleet token --role {role}"
        why = f"it joined without that role: {fault}"
        return RoleMissing(f"this machine may not {what}", why=why, mend=mend)
    if host and member.fabric.is_connected and (lines := member.picture.last_known(host)):
        return HubSilent(lines[0], why="\n".join(lines[1:]), mend="ralphctl fleet status")
    who = f"the hub is unreachable, and {host} with it" if host else "the hub does not answer"
    return HubSilent(who, why=str(fault), mend="ralphctl fleet status")


def _is_forbidden(fault: Exception) -> bool:
    return "permissions violation" in str(fault).lower()
