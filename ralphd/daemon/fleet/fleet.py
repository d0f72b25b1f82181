"""The daemon's part of a fleet as the API sees it; made only where this machine has joined one."""

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from ralphd.core.fleet import names
from ralphd.core.fleet.checked import Rejected, read_value
from ralphd.core.fleet.model import Item, LeaseForm
from ralphd.daemon.fleet.clones import Clones
from ralphd.daemon.fleet.control import EXPLAIN, LOG, RALPH, Control, hub_fault
from ralphd.daemon.fleet.member import Member
from ralphd.daemon.fleet.quota import FleetQuota
from ralphd.daemon.fleet.sharing.events import EventSender, SharedEvents
from ralphd.daemon.fleet.sharing.logs import RemoteLog
from ralphd.daemon.fleet.sharing.ralphs import OtherRalphs
from ralphd.dataclass import dataclass
from ralphd.errors import UsageError
from ralphd.fleet.fabric import HubUnreachable, JsonObject, NoSuchHost
from ralphd.git import repo
from ralphd.git.fence.fence import Fence, RemoteRefused, Unreachable
from ralphd.store.files import make_private_directory

CHECK_S: Final = 20.0
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Fleet:
    """What a person can see and request of the fleet from this machine."""

    member: Member
    control: Control
    sender: EventSender
    _others: OtherRalphs = field(init=False)

    def __post_init__(self) -> None:
        self._others = OtherRalphs(self.member.host, self.member.picture, self.ralph)

    async def run(self) -> None:
        """Take part, until cancelled."""
        serve, quota = partial(self.member.fabric.serve, self.control.answer), FleetQuota(self.member)
        await self.member.run(serve, self.control.carry_out_wants, self.sender.run, quota.run)

    @property
    def events(self) -> SharedEvents:
        """The events of all machines."""
        return SharedEvents(self.member.fabric, partial(hub_fault, self.member, "", reads=True))

    def view(self) -> dict[str, Any]:
        """Return hosts, items and limits, also with the hub unreachable: then as last known."""
        member, is_connected = self.member, self.member.fabric.is_connected
        problems = "; ".join(each for each in member.services.problems() if each.startswith("fleet "))
        return {
            "host": member.host,
            "connected": is_connected,
            "problem": problems if is_connected else str(getattr(member.fabric, "problem", "")),
            **member.picture.view(),
        }

    async def submit(self, asked: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Add an item. Raises UsageError, HubSilent."""
        item_id = names.new_item_id(token_bytes(5))
        words = {key: value for key, value in asked.items() if value is not None}
        value = {"v": 1, "id": item_id, "branch": f"ralph/{item_id}", "by": f"{by} on {self.member.host}"}
        item = read_value(Item, value | words)
        if isinstance(item, Rejected):
            why, mend = item.why.removeprefix("Item."), "ralphctl fleet submit --help"
            raise UsageError("this cannot be an item of a fleet", why=why, mend=mend)
        form = await asyncio.to_thread(self._usable_form, item)
        with self._hub():
            return await self.member.submit(replace(item, form=form))

    def _usable_form(self, item: Item) -> LeaseForm:
        """Try with refs of its own in which form the remote takes leases; look for the base. Blocks."""
        fence = remote_fence(self.member.work_directory, item)
        base = fence.read(item.base)
        if isinstance(base, Unreachable):
            raise UsageError(f"{item.repo} cannot be reached from here", why=base.why)
        if not base.tip:
            raise UsageError(f"{item.repo} has no branch {item.base}", mend="--base BRANCH")
        usable = fence.check()
        if isinstance(usable, RemoteRefused | Unreachable):
            why = f"a fleet moves a ref and a branch in one atomic push: {usable.why}"
            raise UsageError(f"{item.repo} cannot be used by a fleet", why=why)
        return usable.form

    async def act(self, item_id: str, verb: str, by: str) -> dict[str, Any]:
        """Carry out a person's verb on an item. Raises NotFound, WrongState, HubSilent."""
        with self._hub():
            return await self.member.act(item_id, verb, f"{by} on {self.member.host}")

    async def take_over(self, item_id: str, by: str) -> dict[str, Any]:
        """Take an item from a machine that a person knows to be gone. Raises RalphdError."""
        logger.info("takeover of %s, as %s asked", item_id, by)
        with self._hub():
            return await self.member.take_from_absent(item_id)

    async def order(self, host: str, name: str, verb: str, by: str) -> dict[str, Any]:
        """Have a ralph on any machine stop, pause or resume. Raises RalphdError."""
        with self._hub(host):
            return dict(await self.control.order(host, name, verb, by, token_bytes(8).hex()))

    async def drain(self, host: str, verb: str, by: str) -> dict[str, Any]:
        """Have a machine give back its items, or take part again. Raises RalphdError."""
        with self._hub(host):
            return dict(await self.control.request(host, verb, {"by": f"{by} on {self.member.host}"}))

    async def ralph(self, host: str, name: str) -> dict[str, Any]:
        """Return the view of a ralph on any machine, under its name in the fleet. Raises RalphdError."""
        return {**await self.control.read(host, RALPH, {"name": name}), "name": f"{host}/{name}"}

    async def ralphs(self) -> dict[str, Any]:
        """Return the views of the ralphs of the other machines, as last known, and the name of this one."""
        views = await self._others.views(is_connected=self.member.fabric.is_connected)
        return {"host": self.member.host, "ralphs": views}

    async def explain(self, host: str, name: str) -> dict[str, Any]:
        """Return why the Regent of a ralph on any machine last acted. Raises RalphdError."""
        return dict(await self.control.read(host, EXPLAIN, {"name": name}))

    def log(self, host: str, name: str) -> RemoteLog:
        """Return the log of a ralph on any machine."""

        async def ask(body: JsonObject) -> JsonObject:
            return await self.control.read(host, LOG, {**body, "name": name})

        return RemoteLog(host, ask, asyncio.get_running_loop())

    @contextmanager
    def _hub(self, host: str = "") -> Iterator[None]:
        try:
            yield
        except (HubUnreachable, NoSuchHost) as fault:
            raise hub_fault(self.member, host, fault) from fault


def remote_fence(work_directory: Path, item: Item) -> Fence:
    """Return the leases of an item's remote, to read them without a clone of it. Blocks."""
    place, scratch = work_directory / "remotes", Clones(work_directory / "clones", os.environ).scratch
    make_private_directory(scratch)  # what git reads there, no run may write
    if not (place / ".git" / "HEAD").is_file():
        make_private_directory(work_directory)
        repo.answer(work_directory, "init", "--quiet", "--template=", str(place), limit_s=CHECK_S)
    return Fence(place, item.repo, os.environ, item.form, limit_s=CHECK_S, scratch=scratch)
