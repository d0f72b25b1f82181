"""The fleet as this machine sees it: the last known values of each bucket, also without the hub."""

import time
from collections.abc import Callable, Set
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from ralphd.core.fleet import views
from ralphd.core.fleet.checked import Rejected, read_value
from ralphd.core.fleet.model import AccountLimit, HostName, HostRecord, Item, ItemId, Lease, LeaseForm, Want
from ralphd.core.fleet.names import account_key, repo_id
from ralphd.core.fleet.quota import TOLERATED_S
from ralphd.core.text import first_names
from ralphd.core.time import Moment, in_minutes, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import NotFound
from ralphd.fleet.fabric import Bucket, Entry

MOST_VALUES: Final = 20_000
"""Of one bucket. A hub that sends more is not believed."""
_CLOCK_S: Final = 12 * 3600.0
"""A moment longer ago is shown with its day."""
_SHAPES: Final[dict[Bucket, type[Any]]] = {
    Bucket.HOSTS: HostRecord, Bucket.ITEMS: Item, Bucket.LEASES: Lease,
    Bucket.QUOTA: AccountLimit, Bucket.WANTS: Want,
}  # fmt: skip


@dataclass(slots=True)
class Known:
    """A value, its revision, and when this machine saw it first, by its monotonic clock."""

    value: Any
    revision: int
    seen_at: float
    stored_at: Moment = 0.0
    """By the hub's clock."""


@dataclass(slots=True)
class Picture:
    """What the hub has told this machine. ``as_of`` is the time of the last news."""

    clock: Callable[[], Moment]
    monotonic: Callable[[], float] = time.monotonic
    as_of: Moment | None = None
    too_new: set[str] = field(default_factory=set)
    """Keys of values that a newer version has written."""
    _known: dict[Bucket, dict[str, Known]] = field(default_factory=lambda: {each: {} for each in Bucket})

    def take(self, bucket: Bucket, entry: Entry) -> Any:
        """Note a change and return its value; None where it cannot be used, and the one before is dropped."""
        self.as_of = self.clock()
        values, value = self._known[bucket], read_value(_SHAPES[bucket], entry.value)
        self.too_new.discard(entry.key)
        if isinstance(value, Rejected) or not _is_at(entry.key, value):
            values.pop(entry.key, None)
            if isinstance(value, Rejected) and value.is_newer:
                self.too_new.add(entry.key)
            return None
        if entry.key not in values and len(values) >= MOST_VALUES:
            return None
        seen_at = self._seen_at(entry.key in values, value)
        values[entry.key] = Known(value, entry.revision, seen_at, entry.stored_at)
        return value

    def remember(self, item: Item, revision: int = 0) -> None:
        """Note an item as this machine knows it, whatever the hub shows."""
        self._known[Bucket.ITEMS][item.id] = Known(item, revision, self.monotonic())

    def _seen_at(self, is_change: bool, value: Any) -> float:
        """Return now; for what was there before this machine connected, its age by its writer's clock."""
        age_s = 0.0 if is_change or not isinstance(value, HostRecord) else self.clock() - value.at
        return self.monotonic() - max(age_s, 0.0)

    def known(self, bucket: Bucket, key: str) -> Known | None:
        """Return what is known of a key."""
        return self._known[bucket].get(key)

    @property
    def items(self) -> list[Item]:
        """The items."""
        return [each.value for each in self._known[Bucket.ITEMS].values()]

    @property
    def hosts(self) -> list[HostRecord]:
        """The hosts."""
        return [each.value for each in self._known[Bucket.HOSTS].values()]

    @property
    def limits(self) -> dict[str, AccountLimit]:
        """The limits of accounts, by key."""
        return {key: each.value for key, each in self._known[Bucket.QUOTA].items()}

    def offsets_s(self) -> dict[HostName, float]:
        """Return by how much each host's clock was ahead of the hub's when it last described itself."""
        known = self._known[Bucket.HOSTS].items()
        every = {HostName(key): each.value.at - each.stored_at for key, each in known if each.stored_at}
        return {name: each_s if abs(each_s) > TOLERATED_S else 0.0 for name, each_s in every.items()}

    def ages(self) -> dict[HostName, float]:
        """Return for how many seconds each host has shown nothing new."""
        now = self.monotonic()
        return {HostName(key): now - each.seen_at for key, each in self._known[Bucket.HOSTS].items()}

    def heard(self) -> list[HostRecord]:
        """Return the hosts that are heard of now."""
        ages = self.ages()
        return [each for each in self.hosts if not views.is_silent(each.name, ages)]

    def last_known(self, host: str) -> list[str]:
        """Return since when a host is silent, and what was on it; nothing for a host that is not known."""
        if (known := self.known(Bucket.HOSTS, host)) is None:
            return []
        age_s = self.monotonic() - known.seen_at
        since = datetime.fromtimestamp(self.clock() - age_s)
        when = f"{since:%H:%M}" if age_s < _CLOCK_S else f"{since:%a %d %b %H:%M}"
        items = [f"{each.id} ({each.state})" for each in self.items if each.holder == host]
        ralphs = first_names(known.value.ralphs) or "none"
        lines = [f"{host} is silent since {when} ({in_minutes(age_s)})", f"its ralphs then: {ralphs}"]
        return lines + [f"it still has {first_names(items)}"] * bool(items)

    def item(self, item_id: str) -> Item:
        """Return an item. Raises NotFound."""
        if (known := self.known(Bucket.ITEMS, item_id)) is None:
            if item_id in self.too_new:
                raise NotFound(f"{item_id} is of a newer version", mend="upgrade ralphd on this machine")
            raise NotFound(f"no item {item_id} in this fleet", mend="ralphctl fleet items; or HOST/NAME")
        item: Item = known.value
        return item

    def forget(self, bucket: Bucket, key: str) -> None:
        """Drop a value that the hub does not keep any more."""
        self._known[bucket].pop(key, None)

    def form_of(self, url: str) -> LeaseForm:
        """Return in which form a remote takes leases, as its items say."""
        return next((each.form for each in self.items if repo_id(each.repo) == repo_id(url)), LeaseForm.BLOB)

    def view(self) -> dict[str, Any]:
        """Return hosts, items and limits as the API shows them."""
        shown = views.fleet_view(self.hosts, self.items, self.limits, self.ages(), self.clock())
        return shown | {"as_of": None if self.as_of is None else rfc3339(self.as_of)}

    def explained(self, item_id: str) -> dict[str, Any]:
        """Return why nobody takes an item. Raises NotFound."""
        return views.explain(self.item(item_id), self.hosts, self.limits, self.ages(), self.clock())

    def missing(self, bucket: Bucket, keys: Set[str]) -> dict[str, Any]:
        """Return what is known here and not among ``keys``: a hub that lost its store gets it again."""
        return {key: each.value for key, each in self._known[bucket].items() if key not in keys}


def _is_at(key: str, value: Any) -> bool:
    """Whether a value names the key under which it was: a host must not describe another one."""
    match value:
        case HostRecord(name=name):
            return name == key
        case Item(id=item_id):
            return item_id == ItemId(key)
        case AccountLimit(agent=agent, account=account):
            return account_key(agent, account) == key
        case _:
            return True
