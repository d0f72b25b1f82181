"""Sends what waits in the outbox, as Standard Webhooks. Nothing else of the daemon ever waits for it."""

import asyncio
import logging
import os
import random
import stat
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from ralphd.core.delivery import (
    Answer,
    BadSecret,
    Delivered,
    Delivery,
    Destination,
    Disable,
    GiveUp,
    Retry,
    Unreached,
    body,
    headers,
    secret_key,
    sequel,
)
from ralphd.core.model import Moment

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0
"""The longest sleep: moments are the wall clock's, which jumps when it is set, and after a suspend."""
SEND_LIMIT_S = 10.0
AT_ONCE = 1000
"""How many heads are looked at: more than there are, so that a dead destination hides no other one."""
_SECRET_BYTES = 4096


class Outbox(Protocol):
    """What the sender needs of the store."""

    async def due(self, now: Moment, limit: int = ...) -> list[Delivery]:
        """Deliveries to be made now, of each destination and ralph the oldest only."""

    async def next_due_at(self) -> Moment | None:
        """When the next one is due."""

    async def delivered(self, delivery_id: int) -> None:
        """It arrived."""

    async def failed(self, delivery_id: int, why: str, next_at: Moment | None) -> None:
        """It did not; None: given up."""


class Post(Protocol):
    """``ralphd.notify._http.post``, which is imported at first use."""

    async def __call__(
        self, url: str, *, headers: dict[str, str], payload: bytes, allow_private: bool
    ) -> Answer:
        """Post and say what came back."""


class Sender:
    """Sends due deliveries: one after another to each destination, to several destinations at once.

    At least once: a message that was sent, but not marked before the daemon died, is sent again under the
    same ``webhook-id``. Secrets are read from their file or variable for each message and never kept. A
    destination that answers 410 gets nothing more until the next daemon asks it again.
    """

    def __init__(
        self,
        outbox: Outbox,
        destinations: Callable[[], Mapping[str, Destination]],
        *,
        clock: Callable[[], Moment] = time.time,
        jitter: Callable[[], float] = random.random,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """``destinations`` gives those of the configuration as it is now, by their id."""
        self._outbox = outbox
        self._destinations = destinations
        self._clock = clock
        self._jitter = jitter
        self._environ = environ
        self._news = asyncio.Event()
        self._busy: set[str] = set()
        self._disabled: dict[str, str] = {}

    @property
    def disabled(self) -> Mapping[str, str]:
        """Destinations that want nothing more: id to the words for a person."""
        return dict(self._disabled)

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
                await self._send(self._destinations().get(destination), delivery)
                self._news.set()
        except Exception:  # a bug must end neither the other sending nor the daemon
            logger.exception("sending webhooks to one destination failed; it is tried again")
            await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            self._busy.discard(destination)
            self._news.set()

    async def _send(self, destination: Destination | None, delivery: Delivery) -> None:
        if why := self._disabled.get(delivery.destination):
            await self._outbox.failed(delivery.id, why, None)
            return
        answer = await self._ask(destination, delivery)
        where = destination.label if destination else "a destination that is not configured"
        told = {"event_type": delivery.event.type, "ralph": delivery.event.ralph, "where": where}
        match sequel(answer, delivery, now=self._clock(), jitter=self._jitter()):
            case Delivered():
                await self._outbox.delivered(delivery.id)
                logger.info("webhook delivered: %s to %s", delivery.event.type, where, extra=told)
            case Retry(at=at, why=why):
                await self._outbox.failed(delivery.id, why, at)
                logger.warning("webhook not delivered to %s: %s; sent again later", where, why, extra=told)
            case GiveUp(why=why):
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook given up, to %s: %s", where, why, extra=told)
            case Disable(why=why):
                self._disabled[delivery.destination] = f"{where} {why}: nothing more is sent there"
                await self._outbox.failed(delivery.id, why, None)
                logger.error("webhook destination gone: %s %s", where, why, extra=told)

    async def _ask(self, destination: Destination | None, delivery: Delivery) -> Answer:
        if destination is None:
            return Unreached("its destination is not in the configuration (any more)")
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                return await self._post(destination, delivery)
        except TimeoutError:
            return Unreached(f"no answer within {SEND_LIMIT_S:g} s")
        except Exception as error:  # one message that trips over a bug must not end all sending
            logger.exception("webhook could not be sent to %s", destination.label)
            return Unreached(f"internal error: {type(error).__name__}")

    async def _post(self, destination: Destination, delivery: Delivery) -> Answer:
        # httpx costs the daemon 6 MB and 0.1 s, which is paid by those who use webhooks, and not by the loop.
        post = await asyncio.to_thread(_load_post)
        try:
            key = await asyncio.to_thread(_key, destination, self._environ)
        except (OSError, BadSecret) as error:
            return Unreached(
                f"the secret cannot be used: {error.strerror if isinstance(error, OSError) else error}"
            )
        payload = body(delivery.event, destination.format)
        signed = headers(delivery.message_id, self._clock(), payload, key)
        return await post(
            destination.url, headers=signed, payload=payload, allow_private=destination.allow_private
        )


def _load_post() -> "Post":
    from ralphd.notify._http import post

    return post


def _by_destination(deliveries: list[Delivery]) -> list[tuple[str, list[Delivery]]]:
    of_destination = attrgetter("destination")
    groups = groupby(sorted(deliveries, key=of_destination), of_destination)
    return [(destination, list(group)) for destination, group in groups]


def _key(destination: Destination, environ: Mapping[str, str]) -> bytes | None:
    """The signing key as it is now; None for a destination without a secret. Raises OSError, BadSecret."""
    if destination.secret_file is not None:
        return secret_key(_secret_text(Path(destination.secret_file).expanduser()))
    if destination.secret_env is not None:
        if destination.secret_env not in environ:
            raise BadSecret(f"the environment of ralphd has no {destination.secret_env}")
        return secret_key(environ[destination.secret_env])
    return None


def _secret_text(path: Path) -> str:
    # O_NONBLOCK: a FIFO without a writer must not hold the thread.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadSecret(f"{path} is not a plain file")
        return os.read(fd, _SECRET_BYTES).decode()
    except UnicodeDecodeError as error:
        raise BadSecret(f"{path} is not text") from error
    finally:
        os.close(fd)
