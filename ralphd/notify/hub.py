"""Live events for all listeners. A slow listener is disconnected; nobody waits for it."""

import asyncio
from collections import deque

from ralphd.core.delivery import StoredEvent

BOUND = 1000


class Hub:
    """Pass each published event to every open subscription. Used from one event loop."""

    def __init__(self, *, bound: int = BOUND) -> None:
        self._bound = bound
        self._open: set[Subscription] = set()

    def publish(self, event: StoredEvent) -> None:
        """Offer an event to all; never blocks."""
        for subscription in tuple(self._open):
            subscription._offer(event)

    def subscribe(self) -> "Subscription":
        """Return the events that are published inside ``async with``; read them by ``async for``."""
        return Subscription(self._open, self._bound)

    def close(self) -> None:
        """End every subscription, after the events that it already has."""
        for subscription in tuple(self._open):
            subscription._end()


class Subscription:
    """The events since it was entered, oldest first.

    It ends when the hub closes, or when more than the bound are unread. The unread ones are still returned,
    so that a listener resumes after the last event that it saw. A cancelled read loses nothing.
    """

    def __init__(self, registry: "set[Subscription]", bound: int) -> None:
        self._registry, self._bound = registry, bound
        self._waiting: deque[StoredEvent] = deque()
        self._news = asyncio.Event()
        self._ended = False

    async def __aenter__(self) -> "Subscription":
        self._registry.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> StoredEvent:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    def _offer(self, event: StoredEvent) -> None:
        if len(self._waiting) >= self._bound:
            self._end()
            return
        self._waiting.append(event)
        self._news.set()

    def _end(self) -> None:
        self._registry.discard(self)
        self._ended = True
        self._news.set()
