"""The log of a ralph on another machine, pulled by its cursor in portions: the reader sets the pace.

A log never goes through the hub's store. The other machine answers one request at a time, and keeps nothing
between them; lines are sent as they are stored, and made readable where they are read.
"""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ralphd.core.fleet.checked import Rejected, read_value, write_value
from ralphd.core.text import one_line
from ralphd.core.time import parse_rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import HubSilent, RalphdError, UsageError
from ralphd.fleet.fabric import JsonObject
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Cursor, Gap, Item, LogQuery, LogRecord

PORTION_BYTES: Final = 30 << 10
"""Of lines; with base64, and one line more, below 64 KiB."""
SCAN_S: Final = 2.0
POLL_S: Final = 0.5
_LATE_S: Final = 1.0
_REASON_CHARS: Final = 300

Ask = Callable[[JsonObject], Awaitable[JsonObject]]


def portion_of(log: RalphLog, body: JsonObject) -> dict[str, Any]:
    """Answer a request for a portion of a log. Blocks. Raises UsageError for one that no reader sends."""
    words = body.get("query")
    query = read_value(LogQuery, {**words, "v": 1}) if isinstance(words, Mapping) else Rejected("no query")
    if isinstance(query, Rejected):
        raise UsageError("this log cannot be read so", why=query.why)
    if query.cursor is not None:
        query = replace(query, cursor=Cursor.parse(str(query.cursor)))  # its run is the name of a directory
    limit = None
    if not body.get("follows"):
        limit = Cursor.parse(str(body["limit"])) if body.get("limit") else log.end()
    if limit is None and not body.get("follows"):
        items, cursor, is_more = list[Item](), None, False
    else:
        items, cursor, is_more = log.portion(query, limit=limit, most_bytes=PORTION_BYTES, limit_s=SCAN_S)
    return {
        "items": [_packed(each) for each in items],
        "cursor": cursor and str(cursor),
        "limit": limit and str(limit),
        "more": is_more,
    }


def _packed(item: Item) -> list[Any]:
    if isinstance(item, Gap):
        return [item.reason, str(item.cursor)]
    assert isinstance(item, LogRecord), "only a query for text gives whole blocks"
    return [item.at, item.stream, base64.b64encode(item.text).decode(), item.partial, str(item.cursor)]


def _unpacked(value: object) -> Item:
    """Return a line that another machine sent. Raises ValueError, TypeError, UsageError."""
    match value:
        case [str(reason), str(cursor)]:
            return Gap(Cursor.parse(cursor), one_line(reason, _REASON_CHARS))
        case [str(at), ("stdout" | "stderr" | "regent") as stream, str(text), bool(partial), str(cursor)]:
            parse_rfc3339(at)
            return LogRecord(at, stream, base64.b64decode(text, validate=True), partial, Cursor.parse(cursor))
    raise ValueError("a line of a log has another form")


@dataclass(frozen=True, slots=True)
class _Portion:
    items: Sequence[Item]
    cursor: Cursor | None
    limit: str | None
    is_more: bool
    has_ended: bool


@dataclass(slots=True)
class RemoteLog:
    """Reads as ``RalphLog`` does, for as long as the machine answers ``ask``."""

    host: str
    ask: Ask
    loop: asyncio.AbstractEventLoop
    has_ended: bool = False
    """Whether nothing of the ralph ran any more when it was last asked."""

    async def check(self) -> None:
        """Ask for nothing. Raises RalphdError where the log cannot be read."""
        await self._portion(LogQuery(tail=0))

    def read(self, query: LogQuery) -> Generator[Item, None, None]:
        """Yield what is selected and there now. Blocks: for a thread, not for the loop."""
        more: dict[str, Any] = {}
        is_more = True
        while is_more:
            try:
                portion = asyncio.run_coroutine_threadsafe(self._portion(query, **more), self.loop).result()
            except RalphdError as fault:
                if query.cursor is None:
                    raise
                yield Gap(query.cursor, f"the rest is missing: {one_line(str(fault), _REASON_CHARS)}")
                return
            yield from portion.items
            query, more, is_more = _after(query, portion), {"limit": portion.limit}, portion.is_more

    async def follow(
        self, query: LogQuery, *, stopping: asyncio.Event, ended: Callable[[], bool]
    ) -> AsyncGenerator[list[Item], None]:
        """Yield what is selected, and what comes, until ``ended`` or the machine does not answer."""
        while not stopping.is_set():
            try:
                portion = await self._portion(query, follows=True)
            except RalphdError:
                return  # the client comes again with its cursor, and is told why
            self.has_ended = portion.has_ended
            if portion.items:
                yield [*portion.items]
            query = _after(query, portion)
            if portion.is_more:
                continue
            if ended() or (query.until is not None and time.time() > query.until + _LATE_S):
                return
            await asyncio.sleep(POLL_S)

    async def _portion(self, query: LogQuery, **more: Any) -> _Portion:
        plain = replace(query, as_text=False, only_events=False)
        reply = await self.ask({"query": write_value(plain), **more})
        try:
            cursor, limit = reply["cursor"], reply["limit"]
            return _Portion(
                [_unpacked(each) for each in reply["items"]],
                Cursor.parse(cursor) if cursor else None,
                str(Cursor.parse(limit)) if limit else None,
                bool(reply["more"]),
                bool(reply["ended"]),
            )
        except (KeyError, TypeError, ValueError, UsageError) as fault:
            why = one_line(str(fault), _REASON_CHARS)
            raise HubSilent(f"{self.host} answers what this version cannot read", why=why) from fault


def _after(query: LogQuery, portion: _Portion) -> LogQuery:
    return query if portion.cursor is None else replace(query, cursor=portion.cursor, tail=None)
