"""One consumer of a bucket, and every sign that it may have missed something.

The watchers of nats-py are deaf for 16 s after a restart of the server, and continue behind the end of a
store that was wiped. This one is thrown away at the first doubt: a gap in the sequence, no heartbeat, a lost
connection. Its successor begins with all keys. This module imports nats: import it at first use.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from ralphd.fleet.buckets import stream_of
from ralphd.fleet.entries import from_bytes, unescaped_key
from ralphd.fleet.fabric import Bucket, Entry
from ralphd.process.machine import wait_at_most

HEARTBEAT_S: Final = 10.0
SILENCE_S: Final = 2.5 * HEARTBEAT_S
ORPHAN_S: Final = 30.0
"""The server drops a consumer whose host is gone after this time."""
_MOST_PENDING: Final = 1 << 16
_MOST_PENDING_BYTES: Final = 64 << 20


class BucketFeed:
    """The entries of a bucket, given to ``take`` as they arrive, within ``async with``."""

    def __init__(self, client: Client, js: JetStreamContext, bucket: Bucket, take: Callable[[Entry], None]):
        self._client, self._js, self._bucket, self._take = client, js, bucket, take
        self._stream = stream_of(bucket)
        self._subscription: Subscription | None = None
        self._consumer = secrets.token_hex(8)
        self._last = 0
        self._heard_at = 0.0
        self._broken = asyncio.Event()
        self._complete = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Raises nats.errors.Error; NotFoundError for a bucket that was never made."""
        inbox = self._client.new_inbox()
        try:
            self._subscription = await self._client.subscribe(
                inbox, cb=self._on_message, pending_msgs_limit=_MOST_PENDING,
                pending_bytes_limit=_MOST_PENDING_BYTES,
            )  # fmt: skip
            info = await self._js.add_consumer(self._stream, _consumer(self._consumer, inbox, self._bucket))
        except BaseException:
            await self._discard()
            raise
        self._heard_at = asyncio.get_running_loop().time()
        if not (info.num_pending or (info.delivered and info.delivered.consumer_seq)):
            self._complete.set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._discard()

    async def complete(self) -> None:
        """Wait until every key that the bucket had at the beginning was given."""
        await self._complete.wait()

    async def broken(self) -> None:
        """Wait until something may have been missed."""
        loop = asyncio.get_running_loop()
        while not self._broken.is_set() and loop.time() - self._heard_at < SILENCE_S:
            await wait_at_most(HEARTBEAT_S / 2, self._broken)

    def stop(self) -> None:
        """Let ``broken`` return, now or when it is called."""
        self._broken.set()

    async def _discard(self) -> None:
        with suppress(NatsError, OSError):
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            # Nobody waits for the answer: ORPHAN_S is the fallback.
            await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}")

    async def _on_message(self, message: Msg) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        headers = message.headers or {}
        if "Status" in headers:
            await self._on_control(message, headers)
            return
        meta = message.metadata
        if meta.sequence.consumer != self._last + 1:
            self._broken.set()
            return
        self._last += 1
        if "KV-Operation" not in headers and "Nats-Marker-Reason" not in headers:  # a person deleted the key
            self._take(self._entry(message, meta.sequence.stream))
        if not meta.num_pending:
            self._complete.set()

    def _entry(self, message: Msg, revision: int) -> Entry:
        key = unescaped_key(message.subject.removeprefix(f"$KV.{self._bucket}."))
        return Entry(key, from_bytes(message.data), revision, message.metadata.timestamp.timestamp())

    async def _on_control(self, message: Msg, headers: dict[str, str]) -> None:
        """Answer flow control, which means: all before it is handled. Compare the count of a heartbeat."""
        last = str(self._last)
        if headers["Status"] != "100" or headers.get("Nats-Last-Consumer", last) != last:
            self._broken.set()
        if reply := message.reply or headers.get("Nats-Consumer-Stalled"):
            await self._client.publish(reply)


def _consumer(name: str, inbox: str, bucket: Bucket) -> ConsumerConfig:
    return ConsumerConfig(
        name=name, deliver_subject=inbox,
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=f"$KV.{bucket}.>",
        ack_policy=AckPolicy.NONE, max_deliver=1, flow_control=True,
        idle_heartbeat=HEARTBEAT_S, inactive_threshold=ORPHAN_S, mem_storage=True, num_replicas=1,
    )  # fmt: skip
