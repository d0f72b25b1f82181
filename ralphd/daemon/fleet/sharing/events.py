"""This machine's events on their way to the hub, and those of all machines, read back from there.

A cursor of its own moves only after the hub has stored an event: each arrives at least once, and in order,
whatever the hub or this daemon did meanwhile. Within two hours the hub recognizes what comes twice.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from ralphd.core.delivery import StoredEvent
from ralphd.core.text import one_line
from ralphd.core.time import parse_rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError
from ralphd.fleet.entries import as_bytes
from ralphd.fleet.fabric import EventEntry, Fabric, HubUnreachable
from ralphd.store import files
from ralphd.store.events import EventStore
from ralphd.wire import EVENT_TYPES, is_name

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
_AT_ONCE: Final = 100
_PAGE: Final = 500
_REPORT_AFTER: Final = 10
"""Failures in a row, while the hub is connected, until a person is told."""


@dataclass(slots=True)
class EventSender:
    """Gives the hub what ``events`` gets from now on. ``file`` keeps the cursor, and the name of the store.

    The name tells events apart whose ids are the same, because the state directory was removed.
    """

    fabric: Fabric
    events: EventStore
    file: Path
    is_allowed: Callable[[], bool]
    trouble: Callable[[str, str | None], None]
    _store: str = ""
    _sent: int = 0
    _written: int = -1
    _failures: int = 0

    async def run(self) -> None:
        """Send until cancelled."""
        await self._load()
        while True:
            try:
                await self._send()
                self._failures = 0
            except HubUnreachable as fault:
                self._failures += self.fabric.is_connected
                if self._failures >= _REPORT_AFTER:
                    self.trouble("fleet events", f"the hub takes no events: {one_line(str(fault), 200)}")
            else:
                self.trouble("fleet events", None)
            await self._write()
            await asyncio.sleep(POLL_S)

    async def _load(self) -> None:
        try:
            stored = await asyncio.to_thread(files.read_json, self.file) or {}
            self._store, self._sent = str(stored.get("store") or ""), int(stored.get("sent") or 0)
        except (files.Broken, TypeError, ValueError) as fault:
            logger.warning("%s cannot be used: %s", self.file, fault)
        latest = await self.events.latest_id()
        if not self._store or self._sent > latest:
            self._store, self._sent = token_hex(8), latest

    async def _send(self) -> None:
        if not self.is_allowed():
            self._sent = await self.events.latest_id()
        if not self.fabric.is_connected:
            return
        while self._sent < await self.events.latest_id():
            if not (page := await self.events.since(self._sent, _AT_ONCE)):
                return
            for event in page:
                await self.fabric.publish_events([self._addressed(event)])
                self._sent = event.id
            await self._write()

    def _addressed(self, event: StoredEvent) -> tuple[str, str, Mapping[str, Any]]:
        body = event.as_object()
        try:
            as_bytes(body)
        except ValueError:
            body["data"] = {"message": "too long to be shown here"}
        return f"{self._store}.{event.id}", f"{event.ralph or 'ralphd'}.{event.type}", body

    async def _write(self) -> None:
        if self._written != self._sent:
            text = files.as_json({"v": 1, "store": self._store, "sent": self._sent})
            await asyncio.to_thread(files.write_whole, self.file, text)
            self._written = self._sent


@dataclass(frozen=True, slots=True)
class SharedEvent(StoredEvent):
    """An event of a machine. ``id`` is its number in the fleet."""

    host: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class SharedEvents:
    """The events of all machines. Where the hub is silent each call raises the RalphdError of ``fault``."""

    fabric: Fabric
    fault: Callable[[HubUnreachable], RalphdError]

    async def since(self, id: int, limit: int = _PAGE) -> list[StoredEvent]:
        """Return the first events after ``id``, oldest first; of a hub that lost its store, all."""
        while True:
            entries, left = await self._read(id, limit + 1)
            if not entries and id:
                id = 0
                continue
            events: list[StoredEvent] = [
                shared for each in entries if each.number > id and (shared := _shared(each))
            ]
            if events or not left:
                return events
            id = entries[-1].number

    async def latest_id(self) -> int:
        """Return the number of the last event."""
        return await self.before(0)

    async def before(self, count: int) -> int:
        """Return the number after which the last ``count`` events come."""
        entries, left = await self._read(1, 1)
        return max(entries[0].number + left - count, 0) if entries else 0

    async def _read(self, first: int, most: int) -> tuple[list[EventEntry], int]:
        try:
            return await self.fabric.read_events(first, most)
        except HubUnreachable as fault:
            raise self.fault(fault) from fault


def _shared(entry: EventEntry) -> SharedEvent | None:
    """Return the event as another machine has stored it; None where it is none that this version knows."""
    body = entry.body
    at, ralph, run_id, data = (body.get(key) for key in ("at", "ralph", "run_id", "data"))
    if body.get("type") not in EVENT_TYPES or not isinstance(at, str) or not isinstance(data, Mapping):
        return None
    if not (ralph is None or (isinstance(ralph, str) and is_name(ralph))):
        return None
    try:
        parse_rfc3339(at)
    except ValueError:
        return None
    run = None if run_id is None else one_line(str(run_id), 100)
    return SharedEvent(entry.number, body["type"], at, ralph, run, data, host=one_line(entry.host, 100))
