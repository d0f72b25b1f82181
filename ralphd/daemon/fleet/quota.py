"""The quota clocks of this machine and those of its fleet, brought together (Q2, Q3; docs/quota.md).

The loops know only the files of their host, with a daemon or without. So this writes into them what the fleet
knows, and to the fleet what they met: each round follows from both, and what the hub did not take is tried
again. While the hub is unreachable, or this daemon is gone, the clocks of the host count alone.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from ralphd.agents.description import DESCRIBED, description_of
from ralphd.agents.identity import AT, Account, account_of
from ralphd.agents.known import agent_of
from ralphd.config.specs import AccountsSpec, AgentSpec
from ralphd.core.fleet import quota
from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.model import AccountLimit, Login
from ralphd.core.fleet.names import account_key
from ralphd.core.quota.clock import named
from ralphd.core.quota.model import QuotaClock
from ralphd.dataclass import dataclass
from ralphd.fleet.fabric import Bucket, HubUnreachable, WrongRevision
from ralphd.process.machine import wait_at_most
from ralphd.store.shared.quota import FAULTS, QuotaMember, quota_directory

if TYPE_CHECKING:
    from ralphd.daemon.fleet.member import Member

LOOK_S: Final = 1.0
TOPIC: Final = "fleet quota"


def installed_accounts() -> Iterator[Account]:
    """Yield the accounts of the agents on the PATH of the daemon. Reads the files of their logins. Blocks."""
    for agent in DESCRIBED:
        if shutil.which(description_of(agent).program):
            account = account_of(agent_of(agent, AgentSpec()), {}, os.environ)
            yield account or Account("", agent, is_stable=False)


def logins(
    installed: Iterable[Account], accounts: AccountsSpec, clocks: Mapping[str, QuotaClock]
) -> Iterator[Login]:
    """Yield the logins of this machine: those of installed agents, and the accounts that the user named."""
    for each in installed:
        name = each.id.removeprefix(f"{each.agent}-") if each.is_stable else ""
        yield Login(each.agent, name, _limited_until(clocks, each.id))
    for name, spec in accounts.named.items():
        yield Login(spec.agent, name, _limited_until(clocks, f"{spec.agent}{AT}{name}"))


def _limited_until(clocks: Mapping[str, QuotaClock], account: str) -> float | None:
    clock = clocks.get(account)
    return clock.limit.until if clock is not None and clock.limit is not None else None


def shared_name(clock: QuotaClock) -> str:
    """Return what the fleet calls an account: its name, or the digest of its id; empty: it stays here."""
    _, at, name = clock.account.partition(AT)
    return name if at else clock.account.removeprefix(f"{clock.agent}-") if clock.is_stable else ""


@dataclass(slots=True)
class FleetQuota:
    """The part of a member that keeps the clocks together."""

    member: "Member"
    _files: QuotaMember = field(init=False)
    _seen: object = None
    _clocks: dict[str, QuotaClock] = field(default_factory=dict)
    _applied: dict[str, int] = field(default_factory=dict)
    """The revision of each key that the clock here has had."""

    def __post_init__(self) -> None:
        directory = quota_directory(self.member.services.state_directory)
        self._files = QuotaMember(directory, f"fleet-{secrets.token_hex(6)}")

    async def run(self) -> None:
        """Look when a value of the fleet changes, and every LOOK_S, until cancelled."""
        try:
            while True:
                self.member.limits_changed.clear()
                if self.member.fabric.is_connected:
                    await self.look()
                await wait_at_most(LOOK_S, self.member.limits_changed)
        finally:
            self._files.leave()

    async def look(self) -> None:
        """Bring each account's clock and the fleet's value together, once."""
        fault = None
        is_limited = any(each.state != quota.OPEN for each in self.member.picture.limits.values())
        # A list, since the picture changes while a thread reads.
        for clock in await asyncio.to_thread(self._present, [*self._logged_in()], is_limited=is_limited):
            try:
                await self._bring_together(clock)
            except FAULTS as error:
                fault = f"the clock of {clock.account} is not shared: {error}"
        self.member.services.trouble(TOPIC, fault)

    def _present(self, logged_in: list[QuotaClock], *, is_limited: bool) -> list[QuotaClock]:
        """Return the clocks to look at: none while nothing is limited, and no file has changed. Blocks."""
        signature, before = self._files.signature(), self._seen
        if signature == before and not is_limited and not any(each.limit for each in self._clocks.values()):
            return []
        self._seen, self._clocks = signature, {each.account: each for each in self._files.clocks()}
        every = {each.account: each for each in logged_in} | self._clocks
        return [each for each in every.values() if each.agent and shared_name(each)]

    def _logged_in(self) -> Iterator[QuotaClock]:
        """Yield a clock for each account that this machine can use, whether or not it was used already."""
        record = self.member.picture.known(Bucket.HOSTS, self.member.host)
        names = self.member.accounts().named
        for login in record.value.logins if record is not None else ():
            if login.account:
                at = AT if login.account in names else "-"
                yield QuotaClock(f"{login.agent}{at}{login.account}", login.agent, is_stable=True)

    async def _bring_together(self, clock: QuotaClock) -> None:
        services, name = self.member.services, shared_name(clock)
        key, host = account_key(clock.agent, name), self._host_time()
        shared, revision = self._shared(key)

        def here(before: QuotaClock) -> tuple[QuotaClock, QuotaClock]:
            before = named(before, clock.agent, is_stable=True)
            after = quota.applied(before, shared, host, self._files.by)
            return after, after

        present = clock
        if here(clock)[0] != clock:
            present = await asyncio.to_thread(self._files.change, clock.account, here)
            await services.look_at_clocks()
            services.freed.set()
        if shared.limit is not None and shared.limit.state != quota.OPEN:
            self._applied[key] = revision
            shared = replace(shared, is_applied=True)
        held = [each.accounts for each in services.holds.values() if each is not None]
        is_wanted = bool(present.waiting) or any(clock.account in accounts for accounts in held)
        value = quota.to_write(present, name, shared, host, is_wanted=is_wanted)
        if value is not None:
            await self._write(key, value, revision)

    def _host_time(self) -> quota.HostTime:
        ahead_s = quota.ahead_s(self._offset_s(), self.member.picture.offsets_s().values())
        return quota.HostTime(self.member.host, self.member.services.clock.now(), ahead_s)

    def _offset_s(self) -> float:
        """Return by how much the clock here is ahead of the hub's."""
        return self.member.picture.offsets_s().get(self.member.host, 0.0)

    def _shared(self, key: str) -> tuple[quota.SharedLimit, int]:
        picture = self.member.picture
        if (known := picture.known(Bucket.QUOTA, key)) is None:
            return quota.SharedLimit(None), 0
        stored_at, unchanged_s = known.stored_at + self._offset_s(), picture.monotonic() - known.seen_at
        is_applied = self._applied.get(key) == known.revision
        return quota.SharedLimit(known.value, stored_at, unchanged_s, is_applied), known.revision

    async def _write(self, key: str, value: AccountLimit, revision: int) -> None:
        """Write by compare-and-swap. Another host's value comes through the watch, and is looked at then."""
        fabric, text = self.member.fabric, write_value(value)
        with suppress(HubUnreachable, WrongRevision):
            if revision:
                try:
                    await fabric.update(Bucket.QUOTA, key, text, revision=revision)
                    return
                except WrongRevision:
                    if await fabric.get(Bucket.QUOTA, key) is not None:
                        return
            await fabric.create(Bucket.QUOTA, key, text)  # never set, or the hub has lost its store
