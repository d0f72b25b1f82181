"""A small world for the fleet's decisions: one git, one hub that may forget, and a daemon that obeys."""

from dataclasses import dataclass, field, replace

from ralphd.core.fleet.items import advanced, is_holder, released, taken_over
from ralphd.core.fleet.lease import begin_claim, is_claimable, resume_hold, step
from ralphd.core.fleet.lease_model import (
    HostAnswered,
    KeySeen,
    KeyWritten,
    LeaseFact,
    LeaseHold,
    LeaseNews,
    LeaseOrder,
    LeaseRules,
    MoveRef,
    Orders,
    PushWanted,
    RefMoved,
    RefSeen,
    Stage,
    TakeLease,
    Tick,
    WriteKey,
)
from ralphd.core.fleet.model import ENDED, HAS_HOLDER, HostName, Item, ItemId, ItemState, Lease
from ralphd.core.fleet.takeover import LeaseWatch, WatchPhase
from ralphd.core.fleet.takeover import step as watch_step

RULES = LeaseRules()
ITEM = Item(ItemId("i-abcd"), "git@host:team/app.git", "main", "ralph/i-abcd", max_tries=3)
Order = WriteKey | MoveRef | LeaseOrder | TakeLease


@dataclass
class Git:
    """A lease ref and a branch, moved together by compare-and-swap. It never forgets."""

    blobs: dict[str, Lease] = field(default_factory=dict)
    sha: str = ""
    tip: str = ""
    parents: dict[str, str] = field(default_factory=dict)
    holders: dict[int, set[str]] = field(default_factory=dict)
    stale: list[MoveRef] = field(default_factory=list)

    def push(self, order: MoveRef) -> bool:
        if order.expected != self.sha or (order.commit and order.last != self.tip):
            return False
        before = self.blobs.get(self.sha)
        if order.commit:
            assert self.is_ancestor(self.tip, order.commit), "an acknowledged commit is gone"
            mine = (order.lease.boot, order.lease.token)
            if before is not None and ((before.boot, before.token) != mine or not before.host):
                self.stale.append(order)
            self.tip = order.commit
        self.sha = f"b{len(self.blobs) + 1}"
        self.blobs[self.sha] = order.lease
        if order.lease.host:
            self.holders.setdefault(order.lease.token, set()).add(order.lease.host)
        return True

    def is_ancestor(self, old: str, new: str) -> bool:
        while new and new != old:
            new = self.parents[new]
        return new == old

    def seen(self) -> RefSeen:
        return RefSeen(self.sha, self.blobs.get(self.sha), self.tip)


@dataclass
class HubData:
    """The lease's key and the item, each with its revision; 0: it was never set."""

    lease: Lease | None = None
    lease_revision: int = 0
    item: Item | None = ITEM
    item_revision: int = 1
    last: int = 1


@dataclass
class FleetHost:
    """A daemon: it carries out orders in any order, and keeps only its lease over a crash."""

    name: HostName
    git: Git
    hub: list[HubData]
    boot: int = 1
    now: float = 0.0
    slept_s: float = 0.0
    is_up: bool = True
    is_asleep: bool = False
    has_hub: bool = True
    has_git: bool = True
    connected_since: float = 0.0
    hold: LeaseHold | None = None
    watch: LeaseWatch | None = None
    orders: list[Order] = field(default_factory=list)
    late: list[MoveRef | WriteKey] = field(default_factory=list)
    kept: Lease | None = None
    copy: Item = ITEM
    head: str | None = None
    commits: int = 0
    peer: "FleetHost | None" = None
    must_hold: bool = False
    events: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    @property
    def at(self) -> float:
        return self.now - self.slept_s

    @property
    def data(self) -> HubData:
        return self.hub[-1]

    def feed(self, fact: LeaseFact) -> None:
        orders: Orders
        if self.hold is not None:
            self._feed_hold(self.hold, fact)
        elif self.watch is not None:
            self.watch, orders = watch_step(self.watch, fact, RULES, self.at)
            self.orders += orders

    def _feed_hold(self, hold: LeaseHold, fact: LeaseFact) -> None:
        moving = hold.moving
        self.hold, orders = step(hold, fact, RULES, self.at)
        if moving is not None and self.hold.lease == moving and self.hold.moving != moving and moving.pushed:
            self.acknowledged.append(moving.pushed)
        self.kept = self.hold.lease if self.hold.is_active else None
        self.orders += orders

    def tick(self) -> None:
        since = self.connected_since if self.has_hub else None
        self.feed(Tick(since, self.now))
        if self.hold is not None and not self.hold.is_active and not self.orders:
            self.events.append(self.hold.stage.value)
            self.hold, self.head = None, None
        if self.watch is not None and self.hold is None and self.has_hub:
            self.feed(KeySeen(self.data.lease, self.data.lease_revision))

    def look(self) -> None:
        """Claim, or watch, an item that is not done: what the daemon does between two ticks."""
        item = self.data.item
        if not (self.has_hub and self.has_git) or self.hold is not None or item is None:
            return
        key, ref = KeySeen(self.data.lease, self.data.lease_revision), self.git.seen()
        is_wanted = item.goal == "running" and (item.state is ItemState.OPEN or item.state in HAS_HOLDER)
        if not is_wanted:
            self.watch = None
        elif is_claimable(key.lease, ref, self.name):
            self._claim(key, ref)
        elif self.watch is None:
            self.watch = LeaseWatch(key, self.at, 0.5)

    def _claim(self, key: KeySeen, ref: RefSeen) -> None:
        item, boot = self.data.item or self.copy, f"{self.name}-{self.boot}"
        self.watch, self.head, self.must_hold = None, None, False
        self.hold, orders = begin_claim(item, self.name, boot, key, ref, at=self.at, boottime_s=self.now)
        self.kept, self.orders = self.hold.lease, list(orders)

    def carry_out(self, index: int, fate: str) -> None:
        """``lost``: nothing was applied. ``applied``: its answer is lost. ``late``: applied after that."""
        order = self.orders.pop(index % len(self.orders))
        is_git = isinstance(order, MoveRef) or order is LeaseOrder.READ_REF
        fate = fate if (self.has_git if is_git else self.has_hub) else "lost"
        silent = LeaseNews.GIT_SILENT if is_git else LeaseNews.HUB_SILENT
        match order:
            case MoveRef(commit=commit, last=last) if commit and not self.git.is_ancestor(last, commit):
                self.feed(LeaseNews.REF_REFUSED)
            case MoveRef() | WriteKey():
                if fate == "late":
                    self.late.append(order)
                if fate in ("late", "lost"):
                    return self.feed(silent)
                answer = self.apply(order)
                return self.feed(silent if fate == "applied" else answer)
            case LeaseOrder.READ_REF:
                self.feed(self.git.seen() if fate == "ok" else silent)
            case LeaseOrder.READ_KEY:
                self.feed(KeySeen(self.data.lease, self.data.lease_revision) if fate == "ok" else silent)
            case LeaseOrder.ASK_HOST:
                self.feed(HostAnswered(self._asked() if fate == "ok" else None))
            case TakeLease(key=key, ref=ref):
                self._claim(key, ref)
                self.events.append("take")
            case LeaseOrder.HOLD_ITEM:
                self.must_hold = True
            case _:
                self.events.append(order)
        return None

    def _asked(self) -> bool | None:
        peer = self.peer
        if peer is None or peer.is_asleep or not (peer.is_up and peer.has_hub):
            return None
        return peer.hold is not None and peer.hold.is_active

    def apply(self, order: MoveRef | WriteKey) -> LeaseFact:
        if isinstance(order, MoveRef):
            return RefMoved(self.git.sha) if self.git.push(order) else LeaseNews.REF_REFUSED
        if order.revision != self.data.lease_revision:
            return LeaseNews.KEY_REFUSED
        last = self.data.last + 1
        self.hub.append(replace(self.data, lease=order.lease, lease_revision=last, last=last))
        return KeyWritten(last)

    def work(self) -> None:
        """Commit on top of what was fetched once the lease was held, and push."""
        if self.hold is None or not self.hold.may_attempt or not (self.has_git or self.head is not None):
            return
        if self.head is None:
            self.head = self.hold.lease.pushed
        self.commits += 1
        commit = f"{self.name}{self.boot}.{self.commits}"
        self.git.parents[commit], self.head = self.head, commit
        self.feed(PushWanted(commit))

    def note(self, *, is_done: bool = False) -> None:
        """Bring the item up to date with the lease; give the lease back where the item is not ours."""
        hold, item = self.hold, self.data.item
        if not self.has_hub or item is None:
            if self.has_hub:
                self._write_item(self.copy)
            return
        self.copy = item
        if hold is None or hold.stage is not Stage.HOLDING:
            if hold is not None and hold.stage is Stage.RELEASED:
                self._write_item(released(item, self.name, hold.lease.token, why="drain", is_try=False))
            return
        token = hold.lease.token
        if is_holder(item, self.name, token):
            if self.must_hold or (is_done and not hold.commit):
                state = ItemState.HELD if self.must_hold else ItemState.DONE
                self._write_item(advanced(item, self.name, token, state, self.now))
                self.feed(LeaseNews.RELEASE_WANTED)
        elif (new := taken_over(item, self.name, token)) is not None and new.state is not ItemState.HELD:
            self._write_item(new)
        else:
            self._write_item(new)
            self.feed(LeaseNews.RELEASE_WANTED)

    def _write_item(self, item: Item | None) -> None:
        if item is not None:
            last = self.data.last + 1
            self.hub.append(replace(self.data, item=item, item_revision=last, last=last))
            self.copy = item

    def crash(self) -> None:
        """Die. A push under way may still reach the remote."""
        self.late += [order for order in self.orders if isinstance(order, MoveRef)]
        self.is_up, self.hold, self.watch, self.orders, self.head = False, None, None, [], None

    def restart(self) -> None:
        self.is_up, self.connected_since = True, self.at
        self.boot += 1
        if self.kept is not None and self.kept.host:
            self.hold, orders = resume_hold(self.kept, at=self.at, boottime_s=self.now)
            self.orders = list(orders)


def is_settled(item: Item | None) -> bool:
    return item is not None and (item.state in ENDED or item.state is ItemState.HELD)


def taking(host: FleetHost) -> bool:
    return host.watch is not None and host.watch.phase is WatchPhase.TAKING
