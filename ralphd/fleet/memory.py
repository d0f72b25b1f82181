"""An engine in memory for tests of what is above it, with a knob for each fault that a hub has."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from ralphd.fleet.entries import MOST_BODY_BYTES, LatestEntries, as_bytes, escaped_key, from_bytes
from ralphd.fleet.fabric import (
    REQUEST_S,
    Bucket,
    Entry,
    HubUnreachable,
    JsonObject,
    NoSuchHost,
    Serve,
    WrongRevision,
)

_REMEMBERED: Final = 1000
_Stored = tuple[bytes, int]


class MemoryHub:
    """What all hosts share. Revisions count per bucket, and begin again after ``wipe``, as in NATS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.delay_s = 0.0
        """Each call waits for this time before it is applied."""
        self.answers_to_lose = 0
        """So many of the next changes are applied, and raise HubUnreachable."""
        self.events: list[tuple[str, JsonObject]] = []
        """Subjects with the host, and bodies, as they were stored."""
        self._event_ids: set[str] = set()
        self._values: dict[Bucket, dict[str, _Stored]] = {bucket: {} for bucket in Bucket}
        self._revisions = dict.fromkeys(Bucket, 0)
        self._undo: deque[tuple[Bucket, str, _Stored | None]] = deque(maxlen=_REMEMBERED)
        self._cut: set[str] = set()
        self._fabrics: list[MemoryFabric] = []

    def cut(self, *hosts: str) -> None:
        """Separate hosts from the hub until ``heal``."""
        self._cut.update(hosts)
        for fabric in self._fabrics:
            if fabric.host in hosts:
                fabric.lose_connection()

    def heal(self, *hosts: str) -> None:
        """Let hosts reconnect, all of them when none is named; their watchers get all keys again."""
        self._cut.difference_update(hosts or tuple(self._cut))
        for fabric in self._fabrics:
            fabric.reconnect()

    def restart(self) -> None:
        """Break all connections for a moment."""
        for fabric in self._fabrics:
            fabric.lose_connection()
            fabric.reconnect()

    def lose_writes(self, count: int) -> None:
        """Restart without the last acknowledged changes, as after a loss of power."""
        for _ in range(min(count, len(self._undo))):
            bucket, key, before = self._undo.pop()
            self._revisions[bucket] -= 1
            if before is None:
                del self._values[bucket][key]
            else:
                self._values[bucket][key] = before
        self.restart()

    def wipe(self) -> None:
        """Restart with an empty store."""
        for bucket in Bucket:
            self._values[bucket].clear()
            self._revisions[bucket] = 0
        self._undo.clear()
        self._event_ids.clear()
        self.events.clear()
        self.restart()

    def reaches(self, host: str) -> bool:
        """Whether a host is not cut off."""
        return host not in self._cut

    def attach(self, fabric: "MemoryFabric") -> None:
        """Add a host's connection."""
        self._fabrics.append(fabric)

    def detach(self, fabric: "MemoryFabric") -> None:
        """Remove it."""
        if fabric in self._fabrics:
            self._fabrics.remove(fabric)

    def entry(self, bucket: Bucket, key: str) -> Entry | None:
        """Return a key's value."""
        stored = self._values[bucket].get(key)
        return Entry(key, from_bytes(stored[0]), stored[1]) if stored else None

    def all(self, bucket: Bucket) -> list[Entry]:
        """Return the entries of a bucket."""
        return [
            Entry(key, from_bytes(data), revision) for key, (data, revision) in self._values[bucket].items()
        ]

    def write(self, bucket: Bucket, key: str, data: bytes, *, revision: int | None) -> int:
        """Apply a change to exactly that revision; 0: to a key that was never set; None: to any."""
        before = self._values[bucket].get(key)
        if revision is not None and revision != (before[1] if before else 0):
            raise WrongRevision(f"{key}: the revision is not {revision}")
        self._undo.append((bucket, key, before))
        self._revisions[bucket] += 1
        self._values[bucket][key] = data, self._revisions[bucket]
        for fabric in self._fabrics:
            fabric.on_change(bucket, Entry(key, from_bytes(data), self._revisions[bucket]))
        return self._revisions[bucket]

    def store_event(self, id: str, subject: str, body: JsonObject) -> None:
        """Append an event whose id is new."""
        if id not in self._event_ids:
            self._event_ids.add(id)
            self.events.append((subject, body))

    def server_of(self, host: str) -> Serve:
        """Return what answers the requests to a host. Raises NoSuchHost."""
        for fabric in self._fabrics:
            if fabric.host == host and fabric.is_connected and fabric.answer is not None:
                return fabric.answer
        raise NoSuchHost(host)


class MemoryFabric:
    """One host's connection to a MemoryHub."""

    def __init__(self, hub: MemoryHub, host: str) -> None:
        self.host = host
        self.answer: Serve | None = None
        self._hub = hub
        self._since: float | None = None
        self._watchers: list[tuple[Bucket, LatestEntries]] = []
        self._closed = False

    @property
    def is_connected(self) -> bool:
        return self._since is not None

    @property
    def connected_since(self) -> float | None:
        return self._since

    async def connect(self) -> None:
        if self._closed or not self._hub.reaches(self.host):
            raise HubUnreachable("the hub is cut off")
        self._hub.attach(self)
        self.reconnect()

    async def close(self) -> None:
        self._closed = True
        self.lose_connection()
        self._hub.detach(self)
        for _, latest in self._watchers:
            latest.end()

    def lose_connection(self) -> None:
        """Be cut off from now on."""
        self._since = None

    def reconnect(self) -> None:
        """Connect again if the hub can be reached; give all keys to the watchers."""
        if self._since is None and self._hub.reaches(self.host):
            self._since = self._hub.clock()
            for bucket, latest in self._watchers:
                _give(latest, self._hub.all(bucket))

    def on_change(self, bucket: Bucket, entry: Entry) -> None:
        """Take a change from the hub."""
        for watched, latest in self._watchers:
            if watched is bucket and self.is_connected:
                latest.put(entry)

    async def _reach(self) -> None:
        if self._hub.delay_s:
            await asyncio.sleep(self._hub.delay_s)
        if not self.is_connected:
            raise HubUnreachable("not connected to the hub")

    async def get(self, bucket: Bucket, key: str) -> Entry | None:
        await self._reach()
        return self._hub.entry(bucket, key)

    async def put(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=None)

    async def create(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=0)

    async def update(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int) -> int:
        return await self._write(bucket, key, value, revision=revision or -1)

    async def _write(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int | None) -> int:
        escaped_key(key)
        data = as_bytes(value)
        await self._reach()
        written = self._hub.write(bucket, key, data, revision=revision)
        self._answered()
        return written

    def _answered(self) -> None:
        if self._hub.answers_to_lose:
            self._hub.answers_to_lose -= 1
            raise HubUnreachable("no answer")

    async def entries(self, bucket: Bucket) -> list[Entry]:
        await self._reach()
        return self._hub.all(bucket)

    async def watch(self, bucket: Bucket) -> AsyncGenerator[Entry, None]:
        watcher = bucket, LatestEntries()
        self._watchers.append(watcher)
        if self.is_connected:
            _give(watcher[1], self._hub.all(bucket))
        if self._closed:
            watcher[1].end()
        try:
            while (entry := await watcher[1].get()) is not None:
                yield entry
        finally:
            self._watchers.remove(watcher)

    async def publish_events(self, events: Sequence[tuple[str, str, JsonObject]]) -> None:
        for id, subject, body in events:
            data = as_bytes(body)
            await self._reach()
            self._hub.store_event(f"{self.host}:{id}", f"{self.host}.{subject}", from_bytes(data))
            self._answered()

    async def serve(self, answer: Serve) -> None:
        self.answer = answer

    async def request(
        self, host: str, route: str, body: JsonObject, *, limit_s: float = REQUEST_S
    ) -> JsonObject:
        data = as_bytes(body, MOST_BODY_BYTES)
        await self._reach()
        answer = self._hub.server_of(host)
        try:
            async with asyncio.timeout(limit_s):
                reply = await answer(route, from_bytes(data, MOST_BODY_BYTES))
        except Exception as error:
            raise HubUnreachable(f"{host} could not answer {route}") from error
        return from_bytes(as_bytes(reply, MOST_BODY_BYTES), MOST_BODY_BYTES)


def _give(latest: LatestEntries, entries: list[Entry]) -> None:
    for entry in entries:
        latest.put(entry)
