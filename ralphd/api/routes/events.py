"""The route of events: replayed from the store, then live, each exactly once."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Header, Query, Request, Response

from ralphd.api.bodies import EventsQuery
from ralphd.api.context import TheHost, routes, stream_reply
from ralphd.api.schemas import EVENTS
from ralphd.api.streams import StreamReply
from ralphd.core.delivery import StoredEvent
from ralphd.errors import RalphdError, UsageError
from ralphd.notify.hub import Hub, Subscription
from ralphd.process.machine import wait_at_most

if TYPE_CHECKING:
    from ralphd.daemon.fleet.sharing.events import SharedEvents
    from ralphd.store.events import EventStore

    Events: TypeAlias = EventStore | SharedEvents

PING_S = 15.0
POLL_S = 1.0
PAGE = 500
RETRY_MS = 1000
router = routes("/v1", "events")


@router.get("/events", responses={200: EVENTS}, response_class=Response)
async def follow_events(
    request: Request, host: TheHost, query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamReply:  # fmt: skip
    """Server-sent events, each ``{id, type, at, ralph, run_id, data}``.

    Begins after ``Last-Event-ID`` (what a client sends by itself when it comes again), else after ``since``,
    else ``replay`` events back, else with the next one. ``follow=false`` ends after what is there.
    """
    begin = await begin_after(host.events, query, last_event_id)
    feed = Feed(host.events, host.hub, host.stopping, begin)
    return stream_reply(request, feed.live() if query.follow else feed.kept(), "text/event-stream")


async def begin_after(store: "Events", query: EventsQuery, last_event_id: str | None) -> int:
    """Return the id after which the stream begins. Raises UsageError for one that we never sent."""
    if last_event_id is not None:
        if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 18:
            mend = "send the id of the last event that was received"
            raise UsageError(f"not an event's id: {last_event_id[:80]!r}", mend=mend)
        return int(last_event_id)
    if query.since is not None:
        return query.since
    return await store.before(query.replay or 0)


class Feed:
    """The events after one id, for one listener.

    It subscribes before it reads the store, so that nothing is lost in between; ids drop what comes twice.
    Where ids are missing between two live events, it reads them from the store.
    """

    def __init__(self, store: "Events", hub: Hub, stopping: asyncio.Event, after: int) -> None:
        self._store, self._hub = store, hub
        self._stopping, self._last = stopping, after

    async def kept(self) -> AsyncGenerator[bytes, None]:
        """Yield the stored events."""
        while page := await self._store.since(self._last, PAGE):
            yield self._encoded(page)

    async def live(self) -> AsyncGenerator[bytes, None]:
        """Yield the stored events, then live ones, until the daemon stops or this listener falls behind."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        async with self._hub.subscribe() as events:
            for pieces in (self.kept(), self._coming(events)):
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        yield piece

    async def polled(self) -> AsyncGenerator[bytes, None]:
        """Yield events of a store that announces none, until it does not answer or the daemon stops."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        while not self._stopping.is_set():
            try:
                async with contextlib.aclosing(self.kept()) as pieces:
                    async for piece in pieces:
                        yield piece
            except RalphdError:
                return
            yield b": ping\n\n"
            await wait_at_most(POLL_S, self._stopping)

    async def _coming(self, events: Subscription) -> AsyncGenerator[bytes, None]:
        # The read is a task that outlives a ping: a timeout around it would cancel it every 15 s.
        stopping = asyncio.ensure_future(self._stopping.wait())
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait({coming, stopping}, timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    if (event := coming.result()) is None:
                        return
                    coming = asyncio.ensure_future(anext(events, None))
                    if event.id > self._last + 1:
                        async with contextlib.aclosing(self.kept()) as kept:
                            async for piece in kept:
                                yield piece
                    if event.id > self._last:
                        yield self._encoded([event])
                elif stopping.done():
                    return
                else:
                    yield b": ping\n\n"
        finally:
            coming.cancel()
            stopping.cancel()

    def _encoded(self, events: list[StoredEvent]) -> bytes:
        if events:
            self._last = events[-1].id
        return b"".join(map(sse, events))


def sse(event: StoredEvent) -> bytes:
    """Return one server-sent event; JSON holds no line break, so its data is one line."""
    data = json.dumps(event.as_object(), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n".encode()
