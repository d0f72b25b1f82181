"""What all Regents of a daemon share: the clock, the news, what is wrong at the moment."""

import asyncio
import logging
import select
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralphd.core.delivery import Destination, wanted
from ralphd.core.model import Moment, RunId
from ralphd.notify.hub import Hub
from ralphd.process.clock import Clock
from ralphd.store.events import EventStore
from ralphd.systemd import Systemd

logger = logging.getLogger(__name__)


class News:
    """Tells the event stream: stored first, with what is to be delivered, then given to listeners.

    ``always`` are the webhooks of the user's own file, ``added`` those that were added over the API, beside
    those that a ralph is pinned to; ``told`` counts the events by type since the daemon's start.
    """

    def __init__(
        self, events: EventStore, hub: Hub, clock: Clock, nudge: Callable[[], None] = lambda: None
    ) -> None:
        self._events = events
        self._hub = hub
        self._clock = clock
        self._nudge = nudge
        self.always: tuple[Destination, ...] = ()
        self.added: tuple[Destination, ...] = ()
        self.told: Counter[str] = Counter()

    async def tell(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        ralph: str | None = None,
        run_id: RunId | None = None,
        at: Moment | None = None,
        key: str | None = None,
        destinations: Sequence[Destination] = (),
    ) -> bool:
        """Store and publish one event. False, and nothing happens, when ``key`` was told before."""
        moment = self._clock.now() if at is None else at
        deliver_to = wanted((*self.added, *self.always, *destinations), kind)
        event = await self._events.append(
            kind, moment, ralph, run_id, dict(data), key=key, deliver_to=deliver_to
        )
        if event is None:
            return False
        self.told[kind] += 1
        self._hub.publish(event)
        if deliver_to:
            self._nudge()
        return True


@dataclass(slots=True)
class Services:
    """What a Regent needs beside its ralph. ``umask`` is the one that runs make their files under.

    ``tied`` is the pipe at whose end of file daemon and runs end (P5); None for a daemon of its own.
    """

    state_directory: Path
    socket_path: Path
    umask: int
    clock: Clock
    news: News
    refusals: Callable[[], Mapping[str, str]] = dict
    tied: int | None = None
    systemd: Systemd = field(default_factory=Systemd)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _troubles: dict[str, str] = field(default_factory=dict)
    _untold: list[str] = field(default_factory=list)

    def is_cut_off(self) -> bool:
        """Whether the daemon is tied to somebody who is gone: then every run ends by itself (P5)."""
        if self.tied is None:
            return False
        poll = select.poll()
        poll.register(self.tied, select.POLLIN)  # nothing is ever written: what comes is the end of file
        return bool(poll.poll(0))

    def problems(self) -> list[str]:
        """What is wrong now, in words; ``refusals`` are the webhooks that want nothing more."""
        return [f"{topic}: {what}" for topic, what in self._troubles.items()] + list(self.refusals().values())

    def trouble(self, topic: str, what: str | None) -> None:
        """Note what is wrong with ``topic``, or with None that it is well again (F3)."""
        if what is None:
            if self._troubles.pop(topic, None) is not None:
                logger.info("well again: %s", topic)
        elif topic not in self._troubles:
            logger.warning("degraded: %s: %s", topic, what)
            self._troubles[topic] = what
            self._untold.append(f"{topic}: {what}")

    def forget(self, ralph: str) -> None:
        """No trouble of a ralph outlasts it."""
        for topic in [topic for topic in self._troubles if topic.endswith(f" {ralph}")]:
            self.trouble(topic, None)

    async def tell_troubles(self) -> None:
        """Tell the event stream of each trouble that has come up since the last time."""
        untold, self._untold = self._untold, []
        for what in untold:
            await self.news.tell("daemon.degraded", {"message": what})
