"""What a host may do at the hub, and what nats-server refuses it, with real keys and TLS."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralphd.core.fleet.model import HostName
from ralphd.core.fleet.names import is_host_name
from ralphd.fleet.fabric import Bucket, HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import keys
from tests.fleet.hub_server import RunningHub, hub_in
from tests.helpers import eventually

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

# A connection that meets a reload ends within the handshake; nats-py then makes a writer without a transport.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function StreamWriter:pytest.PytestUnraisableExceptionWarning"
)
SOON_S = 0.5
"""How long a refused publish is waited for: it is never answered."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with hub_in(tmp_path_factory.mktemp("hub") / "hub") as found:
        asyncio.run(filled(found))
        yield found


async def filled(found: RunningHub) -> None:
    """Make buckets, events, and a value of another host in each."""
    from nats.js.api import KeyValueConfig

    async with found.user(found.admin_seed(), "hub") as admin:
        stream = admin.jetstream()
        for bucket in Bucket:
            values = await stream.create_key_value(KeyValueConfig(bucket=bucket, history=1, direct=False))
            await values.put("h2", b"{}")
        await stream.add_stream(name="EV", subjects=["ralph.ev.>"])
        await stream.publish("ralph.ev.h2.r.started", b"{}")


@dataclass
class Actor:
    """A connection, and the reasons of what was refused."""

    client: "Client"
    faults: list[str] = field(default_factory=list)

    async def asks(self, subject: str, body: Any = None) -> dict[str, Any]:
        """The answer to a request; an empty one if nothing came."""
        from nats.errors import Error

        try:
            data = b"" if body is None else json.dumps(body).encode()
            answer: dict[str, Any] = json.loads(
                (await self.client.request(subject, data, timeout=5 if not self.faults else SOON_S)).data
            )
        except Error as error:
            return {"error": f"{error!r} {self.faults}"}
        return answer

    async def refused(self, subject: str, body: Any = None) -> bool:
        """Whether nats-server refuses to take a message, and says so."""
        await self.client.publish(subject, b"" if body is None else json.dumps(body).encode())
        await keys.settled(self.client)
        return bool(
            await eventually(
                lambda: [each for each in self.faults if f'Publish to "{subject}"'.lower() in each]
            )
        )

    async def reads(self, reason: str) -> bool:
        """Whether the server gives this reason; nats-py makes it lower case."""
        return bool(await eventually(lambda: [each for each in self.faults if reason.lower() in each]))

    async def may_publish(self, subject: str, body: Any = None) -> bool:
        """Whether a stream stores a message of ours."""
        return "seq" in await self.asks(subject, body)

    async def deaf(self, subject: str) -> bool:
        """Whether nats-server refuses a subscription, and says so."""
        await self.client.subscribe(subject)
        await keys.settled(self.client)
        return bool(
            await eventually(
                lambda: [each for each in self.faults if f'Subscription to "{subject}"'.lower() in each]
            )
        )


@pytest.fixture
async def host(running: RunningHub) -> AsyncIterator[Actor]:
    """A host that has joined, called h1."""
    members = {each.name: each for each in hub.read_record(running.directory).hosts}
    path = running.directory.parent / "h1.seed"
    if "h1" not in members:
        path.write_text(await running.add("h1"))
    actor_faults: list[str] = []
    async with running.user(path.read_text(), "h1", actor_faults) as client:
        yield Actor(client, actor_faults)


async def has_read(actor: Actor, _: RunningHub) -> bool:
    buckets = [await actor.client.jetstream().key_value(bucket) for bucket in Bucket]
    return [(await each.get("h2")).value for each in buckets] == [b"{}"] * len(Bucket)


async def has_watched(actor: Actor, _: RunningHub) -> bool:
    seen = []
    for bucket in Bucket:
        watcher: Any = await (await actor.client.jetstream().key_value(bucket)).watchall()
        # The values and a None at their end; nats-py may give the None first.
        seen.append(await watcher.updates(timeout=5) or await watcher.updates(timeout=5))
        await watcher.stop()
    return None not in seen


async def answers_control(actor: Actor, running: RunningHub) -> bool:
    async def reply(message: "Msg") -> None:
        await message.respond(b'{"ok": 1}')

    await actor.client.subscribe("ralph.ctl.h1.>", cb=reply)
    await keys.settled(actor.client)
    async with running.user(running.admin_seed(), "hub") as admin:
        return (await admin.request("ralph.ctl.h1.stop.r", b"", timeout=5)).data == b'{"ok": 1}'


Check = Callable[[Actor, RunningHub], Awaitable[bool]]
READ_EV = {"stream_name": "EV", "config": {"deliver_subject": "_INBOX_h1.x", "ack_policy": "none"}}
CHECKS: dict[str, Check] = {
    "may put its own presence": lambda host, _: host.may_publish("$KV.hosts.h1", {}),
    "may write leases": lambda host, _: host.may_publish("$KV.leases.repo.main", {}),
    "may write items": lambda host, _: host.may_publish("$KV.items.i-1", {}),
    "may write quota": lambda host, _: host.may_publish("$KV.quota.claude.team", {}),
    "may publish its own events": lambda host, _: host.may_publish("ralph.ev.h1.r.started", {}),
    "may answer control requests": answers_control,
    "may read all buckets": has_read,
    "may watch all buckets": has_watched,
    "may not put another's presence": lambda host, _: host.refused("$KV.hosts.h2", {}),
    "may not publish another's events": lambda host, _: host.refused("ralph.ev.h2.r.started", {}),
    "may not control another": lambda host, _: host.refused("ralph.ctl.h2.stop", {}),
    "may not want of another": lambda host, _: host.refused("$KV.wants.h2.r", {}),
    "may not answer for another": lambda host, _: host.deaf("ralph.ctl.h2.>"),
    "may not read another's inbox": lambda host, _: host.deaf("_INBOX_h2.>"),
    "may not read all inboxes": lambda host, _: host.deaf("_INBOX.>"),
    "may not see who joins": lambda host, _: host.deaf("ralph.join.request"),
    "may not let hosts in": lambda host, _: host.refused("ralph.join.request", {}),
    "may not delete a bucket": lambda host, _: host.refused("$JS.API.STREAM.DELETE.KV_leases"),
    "may not purge a bucket": lambda host, _: host.refused("$JS.API.STREAM.PURGE.KV_leases"),
    "may not change a bucket": lambda host, _: host.refused("$JS.API.STREAM.UPDATE.KV_leases", {}),
    "may not make a stream": lambda host, _: host.refused("$JS.API.STREAM.CREATE.MINE", {}),
    "may not consume EV": lambda host, _: host.refused("$JS.API.CONSUMER.CREATE.EV", READ_EV),
    "may not get from EV": lambda host, _: host.refused("$JS.API.STREAM.MSG.GET.EV", {"seq": 1}),
    "may not read pages of EV": lambda host, _: host.refused("$JS.API.DIRECT.GET.EV", {"seq": 1}),
    "may not read logs of another": lambda host, _: host.refused("ralph.ctl.h2.log", {}),
    "may not subscribe to events": lambda host, _: host.deaf("ralph.ev.>"),
    "may not subscribe to all": lambda host, _: host.deaf(">"),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_a_host(check: Check, host: Actor, running: RunningHub) -> None:
    assert await check(host, running)


async def test_nobody_connects_without_a_key(running: RunningHub) -> None:
    with pytest.raises(HubUnreachable, match="does not know this key"):
        async with running.user(keys.new_seed(), "h1"):
            pass


async def test_a_host_asks_for_status_before_takeover(host: Actor, running: RunningHub) -> None:
    async def reply(message: "Msg") -> None:
        await message.respond(b'{"ok": 1}')

    async with running.user(running.admin_seed(), "hub") as other:
        await other.subscribe("ralph.ctl.h3.>", cb=reply)
        await keys.settled(other)

        assert await host.asks("ralph.ctl.h3.status") == {"ok": 1}


_MAY_READ = ("ralph.ctl.h2.ralph", "ralph.ctl.h2.log", "ralph.ctl.h2.explain", "$JS.API.DIRECT.GET.EV")


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("watch", _MAY_READ, ("ralph.ctl.h2.stop", "ralph.ctl.h2.drain", "$KV.wants.h2.r")),
        ("run", (*_MAY_READ, "ralph.ctl.h2.stop", "$KV.wants.h2.r"), ("ralph.ctl.h2.drain",)),
        ("own", (*_MAY_READ, "ralph.ctl.h2.resume", "ralph.ctl.h2.drain"), ("ralph.ctl.h2.other",)),
        ("boss", (), ("ralph.ctl.h2.ralph",)),
    ],
)
async def test_a_role_permits_what_it_names(
    running: RunningHub, role: str, may: tuple[str, ...], may_not: tuple[str, ...]
) -> None:
    seed = await running.add(role, role=role)
    faults: list[str] = []
    async with running.user(seed, role, faults) as client:
        actor = Actor(client, faults)
        for subject in may:
            await client.publish(subject, b"{}")
        for subject in (*may_not, "$KV.hosts.h2"):
            assert await actor.refused(subject, {})
        assert not [each for each in faults for subject in may if f'"{subject}"'.lower() in each]


async def test_a_value_delivered_as_control_is_recognized(host: Actor, running: RunningHub) -> None:
    """nats-server lets a consumer deliver to any subject that somebody subscribes to as it stands."""
    assert await host.may_publish("$KV.items.forged", {"evil": 1})
    seen: list[Msg] = []

    async def note(message: "Msg") -> None:
        seen.append(message)

    consumer = {
        "deliver_subject": "ralph.ctl.h4.stop",
        "ack_policy": "none",
        "filter_subject": "$KV.items.forged",
    }
    async with running.user(running.admin_seed(), "hub") as other:
        await other.subscribe("ralph.ctl.h4.stop", cb=note)
        await keys.settled(other)
        body = {"stream_name": "KV_items", "config": consumer}
        assert "error" not in await host.asks("$JS.API.CONSUMER.CREATE.KV_items", body)

        await eventually(lambda: seen)

    assert (seen[0].subject, seen[0].reply[:8]) == ("$KV.items.forged", "$JS.ACK.")


def test_permissions_are_written_as_they_are_meant() -> None:
    permissions = hub.host_permissions(HostName("h1"))

    assert permissions["subscribe"] == {"allow": ["_INBOX_h1.>", "ralph.ctl.h1.>"]}
    assert permissions["allow_responses"] is True
    writes = [each for each in permissions["publish"]["allow"] if not each.startswith("$JS.API.")]
    assert writes == [
        *("$KV.hosts.h1", "$KV.leases.>", "$KV.items.>", "$KV.quota.>", "ralph.ev.h1.>", "$JS.FC.>"),
        "ralph.ctl.*.status",
    ]
    calls = {each.partition(".KV_")[0] for each in permissions["publish"]["allow"] if "$JS.API" in each}
    assert not {call for call in calls if ("DELETE" in call and "CONSUMER" not in call) or "PURGE" in call}


def test_names_that_would_widen_permissions_are_refused(tmp_path: Path) -> None:
    for name in ("", "*", ">", "a.b", "a b", "A", "-a", "a" * 64, 'a"', "a\n", "é"):
        assert not is_host_name(name), name
