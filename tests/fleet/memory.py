"""An engine in memory for tests of what is above it, with a knob for each fault that a hub has."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from ralphd.fleet.entries import (
    LatestEntries,
    as_bytes,
    escaped_key,
    from_bytes,
    unescaped_key,
)
from ralphd.fleet.fabric import (
    MOST_BODY_BYTES,
    REQUEST_S,
    Bucket,
    Entry,
    EventEntry,
    HubUnreachable,
    JsonObject,
    NoSuchHost,
    Serve,
    WrongRevision,
)

_REMEMBERED: Final = 1000


class MemoryHub:
    """What all hosts share. Revisions count per bucket, and begin again after ``wipe``, as in NATS."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.clock, self.wall = clock, wall
        self.delay_s = 0.0
        """Each call waits for this time before it is applied."""
        self.answers_to_lose = 0
        """So many of the next changes are applied, and raise HubUnreachable."""
        self.events: list[tuple[str, JsonObject]] = []
        """Subjects with the host, and bodies, as they were stored."""
        self.event_ids: set[str] = set()
        self.values: dict[Bucket, dict[str, Entry]] = {bucket: {} for bucket in Bucket}
        self.cut_off: set[str] = set()
        self.fabrics: list[MemoryFabric] = []
        self._revisions = dict.fromkeys(Bucket, 0)
        self._undo: deque[tuple[Bucket, str, Entry | None]] = deque(maxlen=_REMEMBERED)

    def cut(self, *hosts: str) -> None:
        """Separate hosts from the hub until ``heal``."""
        self.cut_off.update(hosts)
        for fabric in self.fabrics:
            if fabric.host in hosts:
                fabric.lose_connection()

    def heal(self, *hosts: str) -> None:
        """Let hosts reconnect, all of them when none is named; their watchers get all keys again."""
        self.cut_off.difference_update(hosts or tuple(self.cut_off))
        for fabric in self.fabrics:
            fabric.reconnect()

    def restart(self) -> None:
        """Break all connections for a moment."""
        for fabric in self.fabrics:
            fabric.lose_connection()
            fabric.reconnect()

    def lose_writes(self, count: int) -> None:
        """Restart without the last acknowledged changes, as after a loss of power."""
        for _ in range(min(count, len(self._undo))):
            bucket, key, before = self._undo.pop()
            self._revisions[bucket] -= 1
            del self.values[bucket][key]
            if before is not None:
                self.values[bucket][key] = before
        self.restart()

    def wipe(self) -> None:
        """Restart with an empty store."""
        for bucket in Bucket:
            self.values[bucket].clear()
            self._revisions[bucket] = 0
        for store in (self._undo, self.event_ids, self.events):
            store.clear()
        self.restart()

    def write(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int | None) -> int:
        """Apply a change to exactly that revision; 0: to a key that was never set; None: to any."""
        before = self.values[bucket].get(key)
        if revision is not None and revision != (before.revision if before else 0):
            raise WrongRevision(f"{key}: the revision is not {revision}")
        self._undo.append((bucket, key, before))
        self._revisions[bucket] += 1
        self.values[bucket][key] = entry = Entry(key, value, self._revisions[bucket], self.wall())
        for fabric in self.fabrics:
            fabric.on_change(bucket, entry)
        return entry.revision

    def delete(self, bucket: Bucket, key: str, *, revision: int) -> None:
        """Remove a value of exactly that revision."""
        if (present := self.values[bucket].get(key)) is None or present.revision != revision:
            raise WrongRevision(f"{key}: the revision is not {revision}")
        del self.values[bucket][key]


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
        if self._closed or self.host in self._hub.cut_off:
            raise HubUnreachable("the hub is cut off")
        self._hub.fabrics.append(self)
        self.reconnect()

    async def close(self) -> None:
        self._closed = True
        self.lose_connection()
        self._hub.fabrics = [each for each in self._hub.fabrics if each is not self]
        for _, latest in self._watchers:
            latest.end()

    def lose_connection(self) -> None:
        """Be cut off from now on."""
        self._since = None

    def reconnect(self) -> None:
        """Connect again if the hub can be reached; give all keys to the watchers."""
        if self._since is None and self.host not in self._hub.cut_off:
            self._since = self._hub.clock()
            for bucket, _ in self._watchers:
                for entry in self._hub.values[bucket].values():
                    self.on_change(bucket, entry)

    def on_change(self, bucket: Bucket, entry: Entry) -> None:
        """Take a change from the hub."""
        for watched, latest in self._watchers:
            if watched is bucket and self.is_connected:
                latest.put(entry)

    async def _reach(self) -> None:
        if self._hub.delay_s:
            await asyncio.sleep(self._hub.delay_s)
        if not self.is_connected:
            raise HubUnreachable("not connected to a hub")

    async def get(self, bucket: Bucket, key: str) -> Entry | None:
        await self._reach()
        return self._hub.values[bucket].get(key)

    async def put(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=None)

    async def create(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=0)

    async def update(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int) -> int:
        return await self._write(bucket, key, value, revision=revision or -1)

    async def _write(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int | None) -> int:
        key, value = unescaped_key(escaped_key(key)), from_bytes(as_bytes(value))
        await self._reach()
        written = self._hub.write(bucket, key, value, revision=revision)
        self._answered()
        return written

    def _answered(self) -> None:
        if self._hub.answers_to_lose:
            self._hub.answers_to_lose -= 1
            raise HubUnreachable("no answer")

    async def delete(self, bucket: Bucket, key: str, *, revision: int) -> None:
        await self._reach()
        self._hub.delete(bucket, key, revision=revision)
        self._answered()

    async def entries(self, bucket: Bucket) -> list[Entry]:
        await self._reach()
        return list(self._hub.values[bucket].values())

    async def watch(self, bucket: Bucket) -> AsyncGenerator[Entry, None]:
        watcher = bucket, latest = bucket, LatestEntries()
        self._watchers.append(watcher)
        for entry in self._hub.values[bucket].values() if self.is_connected else ():
            latest.put(entry)
        if self._closed:
            latest.end()
        try:
            while (change := await latest.get()) is not None:
                yield change
        finally:
            self._watchers.remove(watcher)

    async def publish_events(self, events: Sequence[tuple[str, str, JsonObject]]) -> None:
        for id, subject, body in events:
            data, own_id = as_bytes(body), f"{self.host}:{id}"
            await self._reach()
            if own_id not in self._hub.event_ids:
                self._hub.event_ids.add(own_id)
                self._hub.events.append((f"{self.host}.{subject}", from_bytes(data)))
            self._answered()

    async def read_events(self, first: int, most: int) -> tuple[list[EventEntry], int]:
        await self._reach()
        begin = max(first, 1) - 1
        stored = enumerate(self._hub.events[begin : begin + most], begin + 1)
        found = [EventEntry(number, subject.partition(".")[0], body) for number, (subject, body) in stored]
        return found, max(len(self._hub.events) - begin - len(found), 0)

    async def serve(self, answer: Serve) -> None:
        self.answer = answer

    async def request(
        self, host: str, route: str, body: JsonObject, *, limit_s: float = REQUEST_S
    ) -> JsonObject:
        sent = from_bytes(as_bytes(body, MOST_BODY_BYTES), MOST_BODY_BYTES)
        await self._reach()
        servers = (each.answer for each in self._hub.fabrics if each.host == host and each.is_connected)
        answer = next(filter(None, servers), None)
        if answer is None:
            raise NoSuchHost(host)
        try:
            async with asyncio.timeout(limit_s):
                reply = await answer(route, sent)
        except Exception as error:
            raise HubUnreachable(f"{host} could not answer {route}") from error
        return from_bytes(as_bytes(reply, MOST_BODY_BYTES), MOST_BODY_BYTES)
