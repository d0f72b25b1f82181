"""One account on three hosts: one burnt call per limit, one probe per reset. Time is the test's."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ralphd.config.specs import AccountSpec, AccountsSpec, FleetSpec
from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.fit import misfits
from ralphd.core.fleet.model import AccountLimit, HostName, HostRecord, Item, ItemId, Login
from ralphd.core.fleet.names import account_key
from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Force
from ralphd.core.quota.model import PROBE_S, AccountRules, QuotaClock, QuotaLimit
from ralphd.daemon.fleet.member import Member
from ralphd.daemon.fleet.quota import FleetQuota, installed_accounts, logins, shared_name
from ralphd.daemon.services import EventPublisher, Services
from ralphd.fleet.fabric import Bucket
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.shared.quota import QuotaFiles, QuotaMember, quota_directory
from tests.fleet.memory import MemoryFabric, MemoryHub

ACCOUNT, KEY = "claude@work", account_key("claude", "work")
ACCOUNTS = AccountsSpec(named={"work": AccountSpec(agent="claude")})
RULES = AccountRules()
NOW = 1.8e9
ANSWERS_AFTER_S, LASTS_S, GUESS_S = 5.0, 20.0, 300.0


@dataclass
class Vendor:
    """The service: it refuses until ``until``, and names that reset, or none."""

    until: float = 0.0
    names_reset: bool = True
    calls: list[tuple[float, str]] = field(default_factory=list)


@dataclass
class Loop:
    """A built-in loop: it asks, calls, answers after a while, ends, and begins again."""

    name: str
    files: QuotaMember
    now: Callable[[], float]
    vendor: Vendor
    real: Callable[[], float]
    force: Force = Force.NOTHING
    is_silent: bool = False
    called_at: float | None = None
    answered: bool = False

    def turn(self) -> None:
        at = self.now()
        if self.called_at is None:
            force, self.force = self.force, Force.NOTHING
            if self._change(lambda clock: _asked(clock, self.files.by, at, force)):
                self.called_at, self.answered = self.real(), False
                self.vendor.calls.append((self.real() - NOW, self.name))
            return
        age_s = self.real() - self.called_at
        if self.called_at < self.vendor.until:
            guessed = not self.vendor.names_reset or self.vendor.until <= at
            until = at + GUESS_S if guessed else self.vendor.until
            met = QuotaLimit(until, at, "5-hour limit", self.files.by, guessed)
            self.called_at = None
            self.meets(met)
        elif age_s >= ANSWERS_AFTER_S and not self.answered and not self.is_silent:
            self.answered = True
            self._change(lambda clock: (quota.answered(clock, self.files.by, at), True))
        elif age_s >= LASTS_S and not self.is_silent:
            self.called_at = None
            self._change(lambda clock: (quota.ended(clock, self.files.by), True))

    def meets(self, limit: QuotaLimit) -> None:
        self._change(lambda clock: (quota.ended(quota.limit_met(clock, limit), self.files.by), True))

    def _change(self, decide: Callable[[QuotaClock], tuple[QuotaClock, bool]]) -> bool:
        def named(clock: QuotaClock) -> tuple[QuotaClock, bool]:
            return decide(quota.named(clock, "claude", is_stable=True))

        return self.files.change(ACCOUNT, named)


def _asked(clock: QuotaClock, by: str, at: float, force: Force) -> tuple[QuotaClock, bool]:
    asked = quota.ask(clock, by, at, RULES, force=force)
    return asked.clock, asked.hold is None


@dataclass
class QuotaHost:
    """A host without its tasks: the test lets it look."""

    member: Member
    quota: FleetQuota
    loops: list[Loop] = field(default_factory=list)

    def clock(self) -> QuotaClock:
        return QuotaFiles(quota_directory(self.member.services.state_directory)).peek(ACCOUNT)

    def why(self, at: float) -> str:
        hold = quota.hold_of(self.clock(), "new.1", at, RULES)
        return "" if hold is None else hold.why


class HostClock(Clock):
    """The world's time, and how wrong this host is."""

    def __init__(self, real: Callable[[], float], ahead_s: float) -> None:
        self._real, self._ahead_s = real, ahead_s

    def now(self) -> float:
        return self._real() + self._ahead_s


class QuotaWorld:
    """Three hosts, a hub, one account."""

    def __init__(self) -> None:
        self.now = NOW
        self.hub = MemoryHub(self.real, self.real)
        self.vendor = Vendor()
        self.hosts: list[QuotaHost] = []

    def real(self) -> float:
        return self.now

    @property
    def calls(self) -> list[tuple[float, str]]:
        return self.vendor.calls

    @property
    def value(self) -> dict[str, Any]:
        return dict(self.hub.values[Bucket.QUOTA][KEY].value)

    def loop(self, number: int, name: str) -> Loop:
        host = self.hosts[number - 1]
        directory = quota_directory(host.member.services.state_directory)
        loop = Loop(
            name, QuotaMember(directory, f"{name}.1"), host.member.services.clock.now, self.vendor, self.real
        )
        host.loops.append(loop)
        return loop

    async def passes(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass: at each step the hosts take the news, look, and their loops act."""
        for _ in range(round(seconds / step_s)):
            self.now += step_s
            for host in self.hosts:
                await settled()
                if host.member.fabric.is_connected:
                    await host.quota.look()
                for loop in host.loops:
                    loop.turn()


async def settled() -> None:
    """Let the watchers take what the hub has."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def a_world(state: Path, *ahead_s: float) -> AsyncIterator[QuotaWorld]:
    world, tasks = QuotaWorld(), []
    for number, each_s in enumerate((*ahead_s, 0.0, 0.0, 0.0)[:3], 1):
        name = HostName(f"h{number}")
        own, clock = state / name, HostClock(world.real, each_s)
        own.mkdir()
        events = await EventStore.open(own / "events.db")
        services = Services(own, own / "sock", 0o077, clock, EventPublisher(events, Hub(), clock))
        member = Member(
            name, "b1", MemoryFabric(world.hub, name), services, FleetSpec, lambda: ACCOUNTS, own, list,
            lambda *_: pytest.fail("no item is there"),
        )  # fmt: skip
        member.picture.monotonic = world.real
        await member.fabric.connect()
        tasks += [asyncio.create_task(_follow(member, each)) for each in (Bucket.HOSTS, Bucket.QUOTA)]
        record = HostRecord(name, "b1", "0", logins=(Login("claude", "work"),), at=clock.now())
        await member.fabric.put(Bucket.HOSTS, name, write_value(record))
        world.hosts.append(QuotaHost(member, FleetQuota(member)))
        await events.close()
    try:
        yield world
    finally:
        for host in world.hosts:
            await host.member.fabric.close()
        await asyncio.gather(*tasks)


async def _follow(member: Member, bucket: Bucket) -> None:
    async for entry in member.fabric.watch(bucket):
        member.picture.take(bucket, entry)


async def test_one_call_a_limit_and_one_probe(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 100.0
        world.loop(1, "a")
        await world.passes(5)
        for host in (1, 2, 3):
            for name in ("b", "c"):
                world.loop(host, f"{name}{host}")
        await world.passes(90)
        assert [name for _, name in world.calls] == ["a"]
        assert world.hosts[1].why(world.now) == "account claude@work: 5-hour limit (met by host h1)"
        await world.passes(8)
        assert len(world.calls) == 2, "one probe in the whole fleet"
        assert world.calls[1][0] >= 100.0
        assert (world.value["state"], world.value["until"]) == ("probing", NOW + 100.0)
        prober = world.value["by"]
        assert all(
            each.why(world.now).endswith(f"host {prober} tries it first")
            for each in world.hosts
            if each.member.host != prober
        )
        await world.passes(8)
        assert {name for _, name in world.calls[2:]} >= {"b1", "c1", "b2", "c2", "b3", "c3"} - {
            world.calls[1][1]
        }
        assert world.value["state"] == "open"
        assert all(each.clock().limit is None for each in world.hosts)


async def test_a_new_limit_of_the_probe_closes_all(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 50.0
        for host in (1, 2, 3):
            world.loop(host, f"a{host}")
            await world.passes(3)
        await world.passes(40)
        for reset in (150.0, 250.0):
            before = len(world.calls)
            world.vendor.until = NOW + reset
            await world.passes(100)
            assert len(world.calls) == before + 1
        await world.passes(30)
        assert world.value["state"] == "open"
        assert {name for _, name in world.calls[3:]} == {"a1", "a2", "a3"}


async def test_a_silent_probe_leaves_its_place_after_a_minute(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 20.0
        for host in (1, 2, 3):
            world.loop(host, f"a{host}").is_silent = True
            await world.passes(3)
        await world.passes(200)
        probes = [at for at, _ in world.calls[1:]]
        assert len({name for _, name in world.calls[1:]}) == 3
        assert all(later - earlier >= PROBE_S - 1 for earlier, later in pairwise(probes))


async def test_without_the_hub_each_host_has_its_clock(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.hub.cut("h1", "h2", "h3")
        world.vendor.until = NOW + 100.0
        for name in ("a", "b"):
            for host in (1, 2):
                world.loop(host, f"{name}{host}")
            await world.passes(15)
        assert sorted(name for _, name in world.calls) == ["a1", "a2"]
        world.hub.heal()
        world.loop(3, "a3")
        await world.passes(3)
        assert (world.value["state"], world.value["until"]) == ("limited", NOW + 100.0)
        assert [name for _, name in world.calls if name == "a3"] == []
        await world.passes(72)
        assert len(world.calls) == 3, "one probe"
        world.hub.cut("h1", "h2", "h3")
        await world.passes(120)
        assert {name for _, name in world.calls[2:]} == {"a1", "b1", "a2", "b2", "a3"}
        world.hub.heal()
        await world.passes(3)
        assert world.value["state"] == "open"


@pytest.mark.parametrize("ahead_s", [-18000.0, 18000.0])
@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("names_reset", [False, True])
async def test_a_wrong_clock_costs_no_calls(
    tmp_path: Path, ahead_s: float, wrong: int, names_reset: bool
) -> None:
    clocks = [0.0, 0.0, 0.0]
    clocks[wrong] = ahead_s
    async with a_world(tmp_path, *clocks) as world:
        world.vendor.until, world.vendor.names_reset = NOW + 300.0, names_reset
        for host in (1, 2, 3):
            world.loop(host, f"a{host}")
            await world.passes(3)
        await world.passes(285)
        assert [name for _, name in world.calls] == ["a1"]
        await world.passes(11)
        assert len(world.calls) == 2, "one probe"
        await world.passes(15)
        assert {name for _, name in world.calls} == {"a1", "a2", "a3"}


async def test_of_hosts_that_try_together_one_has_the_turn(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 10.0
        for host in (1, 2, 3):
            world.loop(host, f"a{host}")
            await world.passes(2)
        world.now = NOW + 11.0
        world.hub.delay_s = 0.01
        await asyncio.gather(*(each.quota.look() for each in world.hosts))
        world.hub.delay_s = 0.0
        world.hub.answers_to_lose = 1
        await world.passes(3)
        assert len(world.calls) == 2, "one probe"
        assert world.value["state"] == "probing"


async def test_hosts_that_meet_one_limit_keep_the_later_end(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        for number, end in enumerate((60.0, 90.0, 75.0), 1):
            world.loop(number, "a").meets(QuotaLimit(NOW + end, NOW, "5-hour limit", "a.1"))
        await asyncio.gather(*(each.quota.look() for each in world.hosts))
        await world.passes(5)
        assert world.value["until"] == NOW + 90.0
        ends = [limit.until for each in world.hosts if (limit := each.clock().limit) is not None]
        assert ends == 3 * [NOW + 90.0]


async def test_a_person_who_skips_the_wait_opens_it_for_all(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 1000.0
        for host in (1, 2, 3):
            world.loop(host, f"a{host}")
            await world.passes(3)
        world.vendor.until = 0.0
        world.hosts[1].loops[0].force = Force.ALL
        await world.passes(4)
        assert [name for _, name in world.calls] == ["a1", "a2"]
        await world.passes(6)
        assert [name for _, name in world.calls][:4] == ["a1", "a2", "a3", "a1"]
        assert world.value["state"] == "open"


async def test_a_hub_that_lost_its_store_learns_it_again(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 50.0
        for host in (1, 2, 3):
            world.loop(host, f"a{host}")
            await world.passes(3)
        world.hub.wipe()
        await world.passes(45)
        assert len(world.calls) == 2, "one probe"
        assert world.value["state"] == "probing"


async def test_a_new_daemon_takes_what_the_fleet_knows(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.vendor.until = NOW + 50.0
        for host in (1, 2):
            world.loop(host, f"a{host}")
            await world.passes(3)
        second = world.hosts[1]
        second.quota = FleetQuota(second.member)  # the one before is gone, with its place in the clock
        await world.passes(3)
        assert [name for _, name in world.calls] == ["a1"]
        assert second.why(world.now) == "account claude@work: 5-hour limit (met by host h1)"
        await world.passes(60)
        assert world.value["state"] == "open"


def test_an_account_that_only_this_machine_knows_stays_here() -> None:
    path = QuotaClock("claude-0123456789ab", "claude")
    assert shared_name(path) == ""
    assert shared_name(quota.named(path, "claude", is_stable=True)) == "0123456789ab"
    assert shared_name(QuotaClock("claude@work", "claude")) == "work"


def test_a_login_that_the_fleet_knows_as_limited_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("claude", "gemini"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".claude.json").write_text('{"oauthAccount": {"accountUuid": "u-1"}}')
    for variable in ("PATH", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    installed = [*installed_accounts()]
    claude, gemini = (each for each in installed if each.agent in ("claude", "gemini"))
    here = {gemini.id: QuotaClock(gemini.id, limit=QuotaLimit(NOW + 60.0, NOW))}
    found = [*logins(installed, AccountsSpec(), here)]
    digest = claude.id.removeprefix("claude-")
    assert [(each.agent, each.account, each.limited_until) for each in found] == [
        ("claude", digest, None),
        ("gemini", "", NOW + 60.0),
    ]

    host = HostRecord(HostName("h1"), "b1", "0", logins=tuple(found), slots=1, allow_repos=("*",))
    item = Item(ItemId("i-aaaa"), "https://example.com/app.git", "main", "ralph/i-aaaa")
    assert misfits(item, host, {}, NOW) == ()
    limit = AccountLimit("claude", digest, "limited", NOW + 100.0, by=HostName("h2"))
    [why] = misfits(item, host, {account_key("claude", digest): limit}, NOW)
    assert why.startswith(f"needs a login that is not limited; claude {digest}, gemini is, until ")


async def test_a_value_under_the_key_of_another_account_is_dropped(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        value = AccountLimit("claude", "other", "limited", NOW + 100.0, by=HostName("h2"))
        await world.hosts[0].member.fabric.put(Bucket.QUOTA, KEY, write_value(value))
        await world.passes(2)
        assert world.hosts[1].member.picture.limits == {}
        assert world.hosts[1].clock().limit is None


@pytest.mark.parametrize("seed", range(3))
async def test_after_any_faults_the_account_opens_again(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with a_world(tmp_path, 0.0, chance.choice([0.0, 7200.0, -7200.0])) as world:
        for host in (1, 2, 3):
            for name in ("a", "b"):
                world.loop(host, f"{name}{host}")
        for _ in range(12):
            fault = chance.randrange(8)
            match fault:
                case 0:
                    world.vendor.until = world.now + chance.choice([20.0, 60.0, 200.0])
                    world.vendor.names_reset = chance.random() < 0.7
                case 1:
                    world.hub.cut(chance.choice(["h1", "h2", "h3"]))
                case 2:
                    world.hub.heal()
                case 3:
                    world.hub.wipe()
                case 4:
                    world.hub.lose_writes(chance.randrange(3))
                case 5:
                    world.hub.answers_to_lose = chance.randrange(3)
                case 6:
                    begun_again = chance.choice(world.hosts)
                    begun_again.quota = FleetQuota(begun_again.member)
                case 7:
                    chance.choice(chance.choice(world.hosts).loops).force = Force.ALL
            await world.passes(chance.choice([1, 5, 20]))
        world.hub.heal()
        world.vendor.until = 0.0
        await world.passes(GUESS_S + 4 * PROBE_S, 5.0)
        before = len(world.calls)
        await world.passes(2 * LASTS_S, 5.0)
        assert {name for _, name in world.calls[before:]} == {"a1", "b1", "a2", "b2", "a3", "b3"}
        value = world.hub.values[Bucket.QUOTA].get(KEY)
        assert value is None or value.value["state"] == "open"
        assert all(each.clock().limit is None for each in world.hosts)
