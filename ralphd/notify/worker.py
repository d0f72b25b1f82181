"""Sends what waits in the outbox, as Standard Webhooks. Nothing else of the daemon ever waits for it."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from ralphd import diagnostics
from ralphd.core.delivery import (
    Answer,
    Delivered,
    Delivery,
    Destination,
    Disable,
    GiveUp,
    Retry,
    Unreached,
    sequel,
)
from ralphd.core.time import Moment
from ralphd.notify.client import WebhookClient

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0
"""The longest sleep: moments are the wall clock's, which jumps when it is set, and after a suspend."""
AT_ONCE = 1000
"""How many heads are looked at: more than there are, so that a dead destination hides no other one."""


class DeliveryQueue(Protocol):
    """What the sender needs of the store."""

    async def due(self, now: Moment, limit: int = ...) -> list[Delivery]:
        """Deliveries to be made now, of each destination and ralph the oldest only."""

    async def next_due_at(self) -> Moment | None:
        """When the next one is due."""

    async def delivered(self, delivery_id: int) -> None:
        """It arrived."""

    async def failed(self, delivery_id: int, why: str, next_at: Moment | None) -> None:
        """It did not; None: given up."""


class DestinationRegistry(Protocol):
    """What the sender needs to know of destinations."""

    def destinations(self) -> Mapping[str, Destination]:
        """Those that are configured now, by their id."""

    def why_gone(self, destination_id: str) -> str | None:
        """Why a destination wants nothing more, if it said so."""

    async def note_gone(self, destination_id: str, why: str) -> None:
        """It said so now; to be known to later daemons too, before this returns."""


class DeliveryWorker:
    """Sends due deliveries: one after another to each destination, to several destinations at once.

    At least once: a message that was sent, but not marked before the daemon died, is sent again under the
    same ``webhook-id``. A destination that answers 410 gets nothing more until a person has it tried again.
    """

    def __init__(
        self,
        outbox: DeliveryQueue,
        known: Callable[[], DestinationRegistry],
        courier: WebhookClient,
        *,
        clock: Callable[[], Moment] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``known`` is asked for when something is to be sent: it is made after the sender."""
        self._outbox = outbox
        self._known = known
        self._courier = courier
        self._clock = clock
        self._jitter = jitter
        self._news = asyncio.Event()
        self._busy: set[str] = set()

    def nudge(self) -> None:
        """Say that there may be something to send."""
        self._news.set()

    async def run(self) -> None:
        """Send until cancelled; what is on its way then is sent again by the next daemon."""
        async with asyncio.TaskGroup() as senders:
            while True:
                self._news.clear()
                due = await self._outbox.due(self._clock(), AT_ONCE)
                for destination, deliveries in _by_destination(due):
                    if destination not in self._busy:
                        self._busy.add(destination)
                        senders.create_task(self._send_all(destination, deliveries))
                await self._rest()

    async def _rest(self) -> None:
        next_at = await self._outbox.next_due_at()
        rest_s = LOOK_AGAIN_S if next_at is None else min(LOOK_AGAIN_S, next_at - self._clock())
        if rest_s <= 0 and self._busy:
            rest_s = LOOK_AGAIN_S  # it is due and on its way: whoever sends it tells us when it is done
        try:
            async with asyncio.timeout(max(rest_s, 0.0)):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _send_all(self, destination: str, deliveries: list[Delivery]) -> None:
        try:
            for delivery in deliveries:
                await self._send(self._known().destinations().get(destination), delivery)
                self._news.set()
        except Exception:  # a bug must end neither the other sending nor the daemon
            logger.exception("sending webhooks to one destination failed; it is tried again")
            await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            self._busy.discard(destination)
            self._news.set()

    async def _send(self, destination: Destination | None, delivery: Delivery) -> None:
        if why := self._known().why_gone(delivery.destination):
            await self._outbox.failed(delivery.id, why, None)
            return
        answer = await self._ask(destination, delivery)
        where = destination.label if destination else "a destination that is not configured"
        told = {"event_type": delivery.event.type, "ralph": delivery.event.ralph, "where": where}
        match sequel(answer, delivery, now=self._clock(), jitter=self._jitter()):
            case Delivered():
                diagnostics.reach("webhook.arrived")
                await self._outbox.delivered(delivery.id)
                logger.info("webhook delivered: %s to %s", delivery.event.type, where, extra=told)
            case Retry(at=at, why=why):
                await self._outbox.failed(delivery.id, why, at)
                logger.warning("webhook not delivered to %s: %s; sent again later", where, why, extra=told)
            case GiveUp(why=why):
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook given up, to %s: %s", where, why, extra=told)
            case Disable(why=why):
                await self._known().note_gone(delivery.destination, why)
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook destination gone: %s %s", where, why, extra=told)

    async def _ask(self, destination: Destination | None, delivery: Delivery) -> Answer:
        if destination is None:
            return Unreached("its destination is not in the configuration (any more)")
        return await self._courier.ask(destination, delivery.event, delivery.message_id)


def _by_destination(deliveries: list[Delivery]) -> list[tuple[str, list[Delivery]]]:
    of_destination = attrgetter("destination")
    groups = groupby(sorted(deliveries, key=of_destination), of_destination)
    return [(destination, list(group)) for destination, group in groups]
