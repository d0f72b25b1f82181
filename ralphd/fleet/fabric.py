"""What a fleet needs of its engine, in a dozen calls (docs/decisions/0040): nothing above this knows NATS.

Values are JSON objects under keys in buckets. A bucket is changed by compare-and-swap on revisions only.
What cannot be reached raises HubUnreachable: the change may have been applied, so read back.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, Protocol

from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

JsonObject = Mapping[str, Any]
REQUEST_S: Final = 5.0
MOST_BODY_BYTES: Final = 512 << 10
"""Of a request to another host, and of its answer."""


class Bucket(StrEnum):
    """The buckets of a fleet. Keys are best made of letters, digits and ``-_/.``: the rest is escaped."""

    HOSTS = "hosts"
    ITEMS = "items"
    LEASES = "leases"
    QUOTA = "quota"
    WANTS = "wants"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, and its revision in the bucket. ``value`` is {} where it is no JSON object.

    ``stored_at`` is by the hub's clock; 0 where that is not known.
    """

    key: str
    value: JsonObject
    revision: int
    stored_at: Moment = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class EventEntry:
    """An event of a host, and its number in the stream of all hosts. ``body`` is {} where it is no object."""

    number: int
    host: str
    body: JsonObject


class WrongRevision(Exception):
    """Somebody else changed the key first; nothing was changed."""


class HubUnreachable(Exception):
    """The engine did not answer in time. A change may have been applied: read back."""


class NoSuchHost(Exception):
    """Nobody serves requests for that host now."""


Serve = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Answers a request: the route (``status``, ``stop/NAME`` …) and its body."""


class Fabric(Protocol):
    """The engine of a fleet, as one host uses it. Every call has a time limit (REQUEST_S unless stated)."""

    @property
    def is_connected(self) -> bool:
        """Whether it is connected now."""

    @property
    def connected_since(self) -> float | None:
        """The monotonic time since when the connection holds without a break; None without one."""

    async def connect(self) -> None:
        """Connect, and keep reconnecting until closed. Raises HubUnreachable if the first try fails."""

    async def close(self) -> None:
        """Disconnect; nothing more is sent."""

    async def get(self, bucket: Bucket, key: str) -> Entry | None:
        """Return the present value of a key from the leader; None if it was never set."""

    async def put(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        """Set a key that only this host writes (its own record). Return the revision."""

    async def create(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        """Set a key that was never set. Return the revision. Raises WrongRevision."""

    async def update(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int) -> int:
        """Replace the value of exactly that revision. Return the new one. Raises WrongRevision."""

    async def delete(self, bucket: Bucket, key: str, *, revision: int) -> None:
        """Remove the value of exactly that revision, without news to watchers. Raises WrongRevision."""

    async def entries(self, bucket: Bucket) -> list[Entry]:
        """Return all keys of a bucket with their values."""

    def watch(self, bucket: Bucket) -> AsyncGenerator[Entry, None]:
        """Yield every key now, then each change; after a reconnect all keys again. Ends with ``close``.

        A slow reader gets the latest value of a key, without those before it.
        """

    async def publish_events(self, events: Sequence[tuple[str, str, JsonObject]]) -> None:
        """Append events (id, subject below this host, body), in order; return when all are stored.

        An id that the stream has already from this host is stored once. The limit of time is for each event.
        """

    async def read_events(self, first: int, most: int) -> tuple[list[EventEntry], int]:
        """Return at most ``most`` events from number ``first`` on, oldest first, and how many come after.

        Fewer are no sign of the end: an answer has a bound in bytes as well.
        """

    async def serve(self, answer: Serve) -> None:
        """Answer requests to this host from now on."""

    async def request(
        self, host: str, route: str, body: JsonObject, *, limit_s: float = REQUEST_S
    ) -> JsonObject:
        """Ask another host. Raises NoSuchHost where nobody serves it.

        Raises HubUnreachable without an answer in time: the host may have acted.
        """
