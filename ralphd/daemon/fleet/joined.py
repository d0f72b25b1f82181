"""Make the daemon's part of a fleet from what ``ralphctl fleet join`` has left in the state directory."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ralphd.config.configuration import data_home
from ralphd.core.fleet.checked import read_value, write_value
from ralphd.core.fleet.items import is_old
from ralphd.core.fleet.lease_model import LeaseRules, TakeLease
from ralphd.core.fleet.model import Item, Lease
from ralphd.core.time import Moment
from ralphd.daemon.fleet.clones import Clones
from ralphd.daemon.fleet.control import Control
from ralphd.daemon.fleet.fleet import Fleet, remote_fence
from ralphd.daemon.fleet.holder import Holder
from ralphd.daemon.fleet.landing import Landings
from ralphd.daemon.fleet.member import Member
from ralphd.daemon.fleet.sharing.events import EventSender
from ralphd.daemon.fleet.watcher import Watcher
from ralphd.daemon.fleet.work import RalphWork
from ralphd.errors import RalphdError
from ralphd.fleet.fabric import JsonObject
from ralphd.fleet.hub import joining
from ralphd.fleet.hub.files import read_record
from ralphd.process import shim
from ralphd.store import files

if TYPE_CHECKING:
    from ralphd.daemon.host import Host
    from ralphd.daemon.services import Services, UserConfiguration
    from ralphd.fleet.nats import NatsFabric

TOPIC: Final = "fleet"
logger = logging.getLogger(__name__)


def join_fleet(host: "Host", services: "Services", users: "UserConfiguration") -> Fleet | None:
    """Return this machine's part; None where it cannot take part, which is a problem of the daemon's."""
    directory = services.state_directory / "fleet"
    try:
        own = joining.membership(directory)
        fabric = None if own is None else _fabric(directory, own)
    except (RalphdError, ImportError) as fault:
        mend = "make install FLEET=1, or with pip: .[fleet]" if isinstance(fault, ImportError) else ""
        services.trouble(TOPIC, f"this machine cannot take part: {fault} {mend}".rstrip())
        return None
    if own is None or fabric is None:
        return None
    spec = users.present.fleet
    work_directory = Path(spec.work_directory or data_home(os.environ) / "fleet").expanduser()
    holds = directory / joining.HOLDS
    rules = LeaseRules(
        spec.lease_seconds, spec.takeover_wait_seconds, spec.offline_push_seconds, spec.max_offline_seconds
    )

    async def report(kind: str, data: dict[str, Any]) -> None:
        await services.news.tell(kind, data)

    def hold(item: Item, start: TakeLease | Lease | None) -> Holder:
        work = RalphWork(item, host, work_directory, os.environ)
        return Holder(
            item, own.host, shim.boot_id(), fabric, work, rules,
            record=partial(_record, holds, item), report=report, start=start,
        )  # fmt: skip

    member = Member(
        own.host, shim.boot_id(), fabric, services, lambda: users.present.fleet,
        lambda: users.present.accounts, work_directory, lambda: [each.name for each in host.regents()], hold,
    )  # fmt: skip
    member.drained = directory / "draining"
    member.draining = member.drained.exists()
    member.watcher = Watcher(
        own.host, fabric, rules, fits=member.may_take, take=member.take_over, report=report,
        fence_of=lambda item: asyncio.to_thread(remote_fence, work_directory, member.picture.item(item)),
    )  # fmt: skip
    clones = Clones(work_directory / "clones", os.environ)
    member.landings = Landings(own.host, shim.boot_id(), fabric, rules, clones, member.picture.form_of)
    services.turn_of = member.landings.turn
    member.recorded, member.keep = [*_recorded(holds)], partial(_keep, directory / joining.ITEMS)
    for item in _kept(directory / joining.ITEMS, services.clock.now()):
        member.picture.remember(item)
    sender = EventSender(
        fabric, host.events, directory / "events.json", lambda: users.present.fleet.share_events,
        services.trouble,
    )  # fmt: skip
    return Fleet(member, Control(member, host, directory / "wants.json"), sender)


def _fabric(directory: Path, own: joining.Joined) -> "NatsFabric":
    from ralphd.fleet.nats import HubSettings, NatsFabric

    replicas, hub = int(own.hub_host == own.host), directory.parent / "hub"
    if replicas and hub.exists():
        replicas = read_record(hub).servers
    seed, ca = directory / "host.seed", directory / "ca.pem"
    return NatsFabric(HubSettings(own.servers, own.host, seed_file=seed, ca_file=ca, replicas=replicas))


def _record(directory: Path, item: Item, lease: JsonObject | None) -> None:
    """Write down what this machine holds, for the daemon after this one. Blocks for a moment."""
    path = directory / f"{item.id}.json"
    if lease is None:
        path.unlink(missing_ok=True)
        return
    files.make_private_directory(directory)
    files.write_whole(path, files.as_json({"v": 1, "item": write_value(item), "lease": dict(lease)}))


def _keep(directory: Path, item: Item) -> None:
    """Write down an item of the fleet, for a hub that loses its store. Blocks for a moment."""
    files.make_private_directory(directory)
    files.write_whole(directory / f"{item.id}.json", files.as_json(write_value(item)))


def _kept(directory: Path, now: Moment) -> Iterator[Item]:
    for path in sorted(directory.glob("i-*.json")):
        with suppress(files.Broken):
            item = read_value(Item, files.read_json(path))
            if isinstance(item, Item) and is_old(item, now):
                path.unlink(missing_ok=True)
            elif isinstance(item, Item):
                yield item


def _recorded(directory: Path) -> Iterator[tuple[Item, Lease]]:
    for path in sorted(directory.glob("i-*.json")):
        try:
            stored = files.read_json(path) or {}
        except files.Broken as fault:
            logger.warning("%s cannot be used: %s", path, fault)
            continue
        item, lease = read_value(Item, stored.get("item")), read_value(Lease, stored.get("lease"))
        if isinstance(item, Item) and isinstance(lease, Lease):
            yield item, lease
        else:
            logger.warning("%s cannot be used: %s", path, item if not isinstance(item, Item) else lease)
