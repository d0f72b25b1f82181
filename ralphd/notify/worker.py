"""Deliver the outbox as Standard Webhooks. No other part of the daemon waits for it."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from ralphd import diagnostics
from ralphd.core import delivery as outgoing
from ralphd.core.delivery import Delivered, Delivery, Destination, Disable, GiveUp, Retry, Unreached, sequel
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.notify.client import WebhookClient

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0
"""The longest sleep: due times follow the wall clock, which jumps when it is set and after a suspend."""
AT_ONCE = 1000
"""How many due deliveries are read: enough that a dead destination hides no other one."""


class DeliveryQueue(Protocol):
    """The part of the store that the worker uses."""

    async def due(self, now: Moment, limit: int = ...) -> list[Delivery]:
        """Return the deliveries to be made now, of each destination and ralph the oldest only."""

    async def next_due_at(self) -> Moment | None:
        """Return when the next one is due."""

    async def delivered(self, delivery_id: int) -> None:
        """Mark a delivery as arrived."""

    async def failed(self, delivery_id: int, why: str, next_at: Moment | None) -> None:
        """Mark it as failed; ``next_at`` None: given up."""


class DestinationRegistry(Protocol):
    """The destinations as the worker sees them."""

    def destinations(self) -> Mapping[str, Destination]:
        """Return the configured destinations by id."""

    def why_gone(self, destination_id: str) -> str | None:
        """Return why a destination is disabled (410), or None."""

    async def note_gone(self, destination_id: str, why: str) -> None:
        """Disable a destination, also for later daemons, before this returns."""


@dataclass(eq=False)
class DeliveryWorker:
    """Sends due deliveries: one after another to each destination, to several destinations at once.

    At least once: a message that was sent, but not marked before the daemon died, is sent again under the
    same ``webhook-id``. A destination that answers 410 gets nothing more until a person has it tried again.
    """

    _outbox: DeliveryQueue
    _known: Callable[[], DestinationRegistry]
    """Called for each message: the registry is made after the worker."""
    _courier: WebhookClient
    _clock: Callable[[], Moment] = time.time

    def __post_init__(self) -> None:
        self._news = asyncio.Event()
        self._busy: set[str] = set()

    def nudge(self) -> None:
        """Wake the worker: there may be something to send."""
        self._news.set()

    async def run(self) -> None:
        """Send until cancelled; the next daemon sends again what was under way."""
        async with asyncio.TaskGroup() as senders:
            while True:
                self._news.clear()
                due = await self._outbox.due(self._clock(), AT_ONCE)
                by_destination = attrgetter("destination")
                for destination, deliveries in groupby(sorted(due, key=by_destination), by_destination):
                    if destination not in self._busy:
                        self._busy.add(destination)
                        senders.create_task(self._send_all(destination, [*deliveries]))
                await self._rest()

    async def _rest(self) -> None:
        next_at = await self._outbox.next_due_at()
        rest_s = LOOK_AGAIN_S if next_at is None else min(LOOK_AGAIN_S, next_at - self._clock())
        if rest_s <= 0 and self._busy:
            rest_s = LOOK_AGAIN_S  # it is due and under way: its sender wakes us at its end
        with suppress(TimeoutError):
            async with asyncio.timeout(max(rest_s, 0.0)):
                await self._news.wait()

    async def _send_all(self, destination: str, deliveries: list[Delivery]) -> None:
        try:
            for delivery in deliveries:
                await self._send(self._known().destinations().get(destination), delivery)
                self._news.set()
        except Exception:  # a bug must end neither the other sending nor the daemon
            logger.exception("sending webhooks to one destination failed; will retry")
            await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            self._busy.discard(destination)
            self._news.set()

    async def _send(self, destination: Destination | None, delivery: Delivery) -> None:
        if why := self._known().why_gone(delivery.destination):
            await self._outbox.failed(delivery.id, why, None)
            return
        answer: outgoing.Answer = Unreached("the webhook is no longer configured")
        where = "a webhook that is no longer configured"
        if destination:
            answer = await self._courier.ask(destination, delivery.event, delivery.message_id)
            where = f"{destination.name or destination.id} ({destination.label})"
        extra = {"event_type": delivery.event.type, "ralph": delivery.event.ralph, "where": where}
        match sequel(answer, delivery, now=self._clock(), jitter=random.random()):  # noqa: S311
            case Delivered():
                diagnostics.reach("webhook.arrived")
                await self._outbox.delivered(delivery.id)
                logger.info("webhook delivered: %s to %s", delivery.event.type, where, extra=extra)
            case Retry(at=at, why=why):
                await self._outbox.failed(delivery.id, why, at)
                logger.warning("webhook not delivered to %s: %s; will retry", where, why, extra=extra)
            case GiveUp(why=why):
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook to %s given up: %s", where, why, extra=extra)
            case Disable(why=why):
                await self._known().note_gone(delivery.destination, why)
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook disabled: %s %s", where, why, extra=extra)
