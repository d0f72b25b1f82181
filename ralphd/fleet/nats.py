"""The engine of a fleet over NATS JetStream, and what nats-py needs around it (docs/decisions/0040).

Each connection is a client of its own: that of nats-py, when it reconnects by itself, sends later what it
kept, leaks sockets that the hub refuses, and gives up for good where the hub refuses its key for a moment. A
call that is on its way when the connection breaks ends at once, as unknown. Import this module at first use.
"""

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from ralphd.core.text import one_line
from ralphd.dataclass import dataclass
from ralphd.diagnostics import LogLimit, reach
from ralphd.fleet import fabric
from ralphd.fleet.buckets import EVENTS, make_buckets, stream_of
from ralphd.fleet.entries import (
    LatestEntries,
    as_bytes,
    escaped_key,
    escaped_token,
    from_bytes,
    unescaped_key,
)
from ralphd.fleet.fabric import MOST_BODY_BYTES, REQUEST_S, Bucket, Entry, HubUnreachable, JsonObject
from ralphd.fleet.feed import BucketFeed

PING_S: Final = 10
UNANSWERED_PINGS: Final = 2
JITTER_S: Final = 1.0
"""New watchers after a reconnect begin within this time, so that a thousand hosts do not come at once."""
MOST_ANSWERS: Final = 32
_CLOSE_S: Final = 2.0
_LONGEST_REST_S: Final = 10.0
_FAILED: Final = {"Ralph-Failed": "1"}

logger = logging.getLogger(__name__)
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in record.msg)
"""It warns at the end of each TLS connection, which is nats-py's way to end one."""
_limited_log = LogLimit(logger)


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Where the hub is, and who this host is. ``seed_file``: its nkey.

    With ``tls``, or with ``ca_file`` (then only this authority counts), the handshake comes before anything
    else, so that nobody in between can claim that the hub has no TLS: its ``handshake_first`` must be on.
    """

    servers: tuple[str, ...]
    host: str
    seed_file: Path | None = None
    ca_file: Path | None = None
    tls: ssl.SSLContext | None = None
    replicas: int = 0
    """The hub's own host makes what is missing, with so many copies, after each connection: the store may
    have been wiped. 0: it is not that host."""

    @property
    def inbox_prefix(self) -> str:
        """What this host alone may subscribe to."""
        return f"_INBOX_{escaped_token(self.host)}"

    def options(self) -> dict[str, Any]:
        """Return the options of ``Client.connect``. Raises OSError for files that cannot be read."""
        tls = self.tls or (ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None)
        return {
            "servers": list(self.servers), "name": f"ralphd {self.host}",
            "nkeys_seed": str(self.seed_file) if self.seed_file else None, "inbox_prefix": self.inbox_prefix,
            "tls": tls, "tls_handshake_first": tls is not None, "connect_timeout": 3,
            "allow_reconnect": False, "ping_interval": PING_S, "max_outstanding_pings": UNANSWERED_PINGS,
        }  # fmt: skip


class NatsFabric:
    """One host's connection to the hub."""

    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._since: float | None = None
        self._online = asyncio.Event()
        self._closed = False
        self._reopening: asyncio.Task[None] | None = None
        self._answer: fabric.Serve | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeds: dict[BucketFeed, asyncio.Task[None]] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._calls: dict[asyncio.Timeout, str] = {}
        self._problems = 0
        self.problem = ""
        """The last thing that went wrong, as nats-py or the server reported it."""

    @property
    def is_connected(self) -> bool:
        return self._since is not None and self._client is not None and self._client.is_connected

    @property
    def connected_since(self) -> float | None:
        return self._since if self.is_connected else None

    async def connect(self) -> None:
        if self._closed or (self._reopening is not None and not self._reopening.done()):
            raise HubUnreachable(self.problem or "the connection is closed")
        if self._client is None:
            await self._open()
            self._spawn(self._watch_over(), self._tasks)

    async def _open(self) -> None:
        client, opener, is_open, left = Client(), asyncio.current_task(), False, len(self._settings.servers)

        async def on_error(error: Exception) -> None:
            nonlocal left
            left -= 1
            self._on_problem(error)
            if left <= 0 and not is_open and asyncio.current_task() is opener:  # not its reader
                raise HubUnreachable(self.problem)  # else nats-py would try until the time is up

        try:
            async with asyncio.timeout(REQUEST_S):
                await client.connect(error_cb=on_error, closed_cb=self._lost, **self._settings.options())
            js = client.jetstream(timeout=REQUEST_S)
            if self._settings.replicas:
                await make_buckets(js, replicas=self._settings.replicas)
            is_open = True
        except Exception as error:  # nkeys and ssl have errors of their own
            self.problem = _words(error)
            raise HubUnreachable(self.problem) from error
        finally:
            if not is_open:
                await _closed(client)
        self._client, self._js = client, js
        self._since = time.monotonic()
        self._online.set()
        try:
            await self._listen()
        except HubUnreachable:
            await _closed(client)
            raise

    async def close(self) -> None:
        self._closed = True
        self._end_feeds()
        tasks = self._tasks | self._answers
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await _closed(self._client)

    async def _lost(self) -> None:
        """End what used the connection, and begin again."""
        if self._client is None or self._client.is_connected:
            return  # what was closed is a try that failed, or an older connection
        self._client = self._since = None
        self._online.clear()
        self._end_feeds()
        for call in self._calls:
            _cut_short(call)
        if not self._closed and (self._reopening is None or self._reopening.done()):
            self._reopening = self._spawn(self._reopen(), self._tasks)

    def _end_feeds(self) -> None:
        for feed, task in self._feeds.items():
            feed.stop()  # the wait_for of Python 3.11, in nats-py, loses a cancellation that meets an answer
            task.cancel()

    async def _watch_over(self) -> None:
        """Leave a client that cannot close, because its peer takes no more bytes."""
        while True:
            await asyncio.sleep(PING_S)
            await self._lost()

    async def _reopen(self) -> None:
        rest_s = JITTER_S / 2
        while self._client is None:
            await asyncio.sleep(random.uniform(0, rest_s))  # noqa: S311
            rest_s = min(2 * rest_s, _LONGEST_REST_S)
            try:
                await self._open()
            except HubUnreachable as error:
                _limited_log.warn(f"hub: {error}")

    def _on_problem(self, error: Exception) -> None:
        self.problem, self._problems = _words(error), self._problems + 1
        _limited_log.warn(f"hub: {self.problem}")
        if "permissions violation" in self.problem.lower():  # else it would show as a time-out
            for call, subject in self._calls.items():
                if any(f'"{subject}{end}'.lower() in self.problem.lower() for end in '".'):
                    _cut_short(call)

    # Calls.

    @asynccontextmanager
    async def _call(
        self, subject: str, limit_s: float = REQUEST_S
    ) -> AsyncIterator[tuple[Client, JetStreamContext]]:
        """Bound what is done with the client, and give its errors our names."""
        if not self.is_connected or self._client is None or self._js is None:
            raise HubUnreachable(self.problem or "not connected to the hub")
        before, task = self._problems, asyncio.current_task()
        cancelling = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(limit_s) as limit:
                self._calls[limit] = subject
                try:
                    yield self._client, self._js
                finally:
                    del self._calls[limit]
        except KeyWrongLastSequenceError as error:
            raise fabric.WrongRevision(str(error)) from error
        except (NatsError, OSError, TimeoutError, json.JSONDecodeError) as error:
            is_explained = isinstance(error, TimeoutError) and self._problems != before
            raise HubUnreachable(f"{subject}: {self.problem if is_explained else _words(error)}") from error
        reach(f"fleet.{subject}")
        if task is not None and task.cancelling() > cancelling:  # lost in nats-py, see _end_feeds
            raise asyncio.CancelledError

    async def get(self, bucket: Bucket, key: str) -> Entry | None:
        escaped = escaped_key(key)
        async with self._call(f"$JS.API.STREAM.MSG.GET.{stream_of(bucket)}") as (_, js):
            try:
                entry = await _key_value(js, bucket).get(escaped)
            except KeyNotFoundError:
                return None
        return Entry(key, from_bytes(entry.value or b""), entry.revision or 0)

    async def put(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=None)

    async def create(self, bucket: Bucket, key: str, value: JsonObject) -> int:
        return await self._write(bucket, key, value, revision=0)

    async def update(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int) -> int:
        if revision < 1:
            raise fabric.WrongRevision(f"{key}: there is no revision {revision}")
        return await self._write(bucket, key, value, revision=revision)

    async def _write(self, bucket: Bucket, key: str, value: JsonObject, *, revision: int | None) -> int:
        escaped, data = escaped_key(key), as_bytes(value)
        async with self._call(f"$KV.{bucket}.{escaped}") as (_, js):
            store = _key_value(js, bucket)
            if revision is None:
                return await store.put(escaped, data)
            if revision == 0:
                return await store.create(escaped, data)
            return await store.update(escaped, data, last=revision)

    async def delete(self, bucket: Bucket, key: str, *, revision: int) -> None:
        escaped = escaped_key(key)
        async with self._call(f"$KV.{bucket}.{escaped}") as (_, js):
            try:
                await _key_value(js, bucket).delete(escaped, last=revision)
            except BadRequestError as error:
                raise fabric.WrongRevision(str(error)) from error

    async def entries(self, bucket: Bucket) -> list[Entry]:
        found: dict[str, Entry] = {}

        def take(entry: Entry) -> None:
            found[entry.key] = entry

        async with (
            self._call(f"$JS.API.CONSUMER.CREATE.{stream_of(bucket)}") as (client, js),
            BucketFeed(client, js, bucket, take) as feed,
        ):
            await feed.complete()
        return list(found.values())

    async def watch(self, bucket: Bucket) -> AsyncGenerator[Entry, None]:
        if self._closed:
            return
        latest = LatestEntries()
        follower = self._spawn(self._follow(bucket, latest), self._tasks)
        try:
            while (entry := await latest.get()) is not None:
                yield entry
        finally:
            follower.cancel()

    async def _follow(self, bucket: Bucket, latest: LatestEntries) -> None:
        """Keep a feed for ``latest``: a new one for each connection, and where the old one is in doubt."""
        rest_s = JITTER_S
        try:
            while True:
                await self._online.wait()
                since = self._since
                if self._client is not None and self._js is not None:
                    await self._run(BucketFeed(self._client, self._js, bucket, latest.put), bucket)
                rest_s = JITTER_S if self._since != since else min(2 * rest_s, _LONGEST_REST_S)
                await asyncio.sleep(random.uniform(0, rest_s))  # noqa: S311
        finally:
            latest.end()

    async def _run(self, feed: BucketFeed, bucket: Bucket) -> None:
        """Read a feed in a task of its own, which the loss of the connection ends."""
        self._feeds[feed] = task = self._spawn(self._read(feed, bucket), self._tasks)
        try:
            await asyncio.wait({task})
        finally:
            feed.stop()
            task.cancel()
            del self._feeds[feed]

    async def _read(self, feed: BucketFeed, bucket: Bucket) -> None:
        try:
            async with feed:
                await feed.broken()
        except NotFoundError:
            self._on_problem(HubUnreachable(f"the hub has no bucket {bucket}"))
        except (NatsError, OSError, TimeoutError, json.JSONDecodeError) as error:
            self._on_problem(error)

    async def publish_events(self, events: Sequence[tuple[str, str, JsonObject]]) -> None:
        host = escaped_token(self._settings.host)
        for id, subject, body in events:  # one by one: were the first refused, a second would be out of order
            to, data = f"ralph.ev.{host}.{escaped_key(subject)}", as_bytes(body)
            async with self._call(to) as (_, js):
                headers = {"Nats-Msg-Id": f"{host}:{escaped_key(id)}"}
                await js.publish(to, data, stream=EVENTS, headers=headers)

    async def read_events(self, first: int, most: int) -> tuple[list[fabric.EventEntry], int]:
        to, found, left = f"$JS.API.DIRECT.GET.{EVENTS}", list[fabric.EventEntry](), 0
        asked = {
            "seq": max(first, 1), "next_by_subj": "ralph.ev.>", "batch": most, "max_bytes": MOST_BODY_BYTES,
        }  # fmt: skip
        async with self._call(to) as (client, _):
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox, pending_bytes_limit=4 * MOST_BODY_BYTES)
            try:
                await client.publish(to, as_bytes(asked), reply=inbox)
                # A host can store headers of its own; the server's come after them.
                while "Nats-Sequence" in (
                    headers := (message := await answers.next_msg(REQUEST_S)).headers or {}
                ):
                    host = headers["Nats-Subject"].split(".")[2]
                    number, left = int(headers["Nats-Sequence"]), int(headers["Nats-Num-Pending"])
                    found.append(fabric.EventEntry(number, unescaped_key(host), from_bytes(message.data)))
            finally:
                await answers.unsubscribe()
        if (status := headers.get("Status", "")) not in ("204", "404"):
            raise HubUnreachable(one_line(f"{to}: {status} {headers.get('Description', '')}", 300))
        return found, left

    # Requests between hosts.

    async def serve(self, answer: fabric.Serve) -> None:
        is_first, self._answer = self._answer is None, answer
        if is_first and self.is_connected:
            await self._listen()

    async def _listen(self) -> None:
        if self._answer is None or self._client is None:
            return
        subject = f"ralph.ctl.{escaped_token(self._settings.host)}.>"
        async with self._call(subject) as (client, _):
            await client.subscribe(
                subject, cb=self._on_request, pending_msgs_limit=1024, pending_bytes_limit=16 << 20
            )
            await client.flush()  # its PING overtakes what is in nats-py's buffer; the second one does not
            await client.flush()

    async def _on_request(self, message: Msg) -> None:
        if len(self._answers) < MOST_ANSWERS:
            self._spawn(self._reply(message), self._answers)
        else:
            await self._send(message, b"", failed=True)

    async def _reply(self, message: Msg) -> None:
        assert self._answer is not None
        # The hub checks the subject, so the subject is the request: a body can claim anything, and a consumer
        # can deliver any value to where we listen.
        _, is_request, route = message.subject.partition(f"ralph.ctl.{escaped_token(self._settings.host)}.")
        body = from_bytes(message.data, MOST_BODY_BYTES).get("body")
        data = b""
        try:
            if is_request and isinstance(body, dict):
                async with asyncio.timeout(REQUEST_S):
                    data = as_bytes(await self._answer(unescaped_key(route), body), MOST_BODY_BYTES)
        except Exception:
            logger.exception("hub: a request of another host failed")
        await self._send(message, data, failed=not data)

    async def _send(self, message: Msg, data: bytes, *, failed: bool) -> None:
        if message.reply and self._client is not None:
            try:
                await self._client.publish(message.reply, data, headers=_FAILED if failed else None)
            except (NatsError, OSError) as error:
                self._on_problem(error)

    async def request(
        self, host: str, route: str, body: JsonObject, *, limit_s: float = REQUEST_S
    ) -> JsonObject:
        to = f"ralph.ctl.{escaped_token(host)}.{escaped_token(route)}"
        data = as_bytes({"body": body}, MOST_BODY_BYTES)
        async with self._call(to, limit_s) as (client, _):
            try:
                reply = await client.request(to, data, timeout=limit_s)
            except NoRespondersError as error:
                raise fabric.NoSuchHost(host) from error
        if reply.headers and "Ralph-Failed" in reply.headers:
            raise HubUnreachable(f"{host} could not answer {route}")
        return from_bytes(reply.data, MOST_BODY_BYTES)

    def _spawn(self, work: Coroutine[Any, Any, None], owner: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            owner.discard(task)
            if not task.cancelled() and (error := task.exception()):
                logger.error("hub: a task failed", exc_info=error)

        task = asyncio.create_task(work)
        owner.add(task)
        task.add_done_callback(ended)
        return task


def _key_value(js: JetStreamContext, bucket: Bucket) -> KeyValue:
    """Return the bucket without asking for its settings; ``direct=False``: the leader answers."""
    return KeyValue(name=bucket, stream=stream_of(bucket), pre=f"$KV.{bucket}.", js=js, direct=False)


async def _closed(client: Client) -> None:
    """Close what may hang on a peer that is silent."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await client.close()
    except (NatsError, OSError, TimeoutError, AssertionError) as error:
        _limited_log.warn(f"hub: {_words(error)}")


def _cut_short(call: asyncio.Timeout) -> None:
    if not call.expired():
        call.reschedule(0.0)


def _words(error: BaseException) -> str:
    words = one_line(str(error) or type(error).__name__, 300).removeprefix("nats: ")
    return "the hub does not know this key" if "authorization violation" in words.lower() else words
