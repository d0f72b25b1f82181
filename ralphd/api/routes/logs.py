"""The route of a ralph's log: text for people, JSON lines for programs."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Query, Request, Response

from ralphd.agents.streams import EventText
from ralphd.api.bodies import LogsQuery, RalphName
from ralphd.api.context import TheHost, routes, stream_reply
from ralphd.api.schemas import LOG
from ralphd.api.streams import StreamReply
from ralphd.core.time import Moment, parse_rfc3339
from ralphd.errors import UsageError
from ralphd.process.log.records import Cursor, Gap, Item, LogQuery, LogRecord, LogText
from ralphd.process.log.rendered import Rendering, rendered, shown

if TYPE_CHECKING:
    from ralphd.daemon.fleet.sharing.logs import RemoteLog
    from ralphd.process.log.log import RalphLog

    Log: TypeAlias = RalphLog | RemoteLog

TAIL = 100
"""Lines shown when the request does not say where to begin."""
BATCH_RECORDS = 1000
PIECE_BYTES = 65536

Batches: TypeAlias = AsyncGenerator[list[Item], None]
router = routes("/v1/ralphs", "ralphs")


@router.get("/{name}/logs", responses={200: LOG}, response_class=Response)
async def read_log(
    request: Request, host: TheHost, name: RalphName, query: Annotated[LogsQuery, Query()]
) -> StreamReply:
    """What a ralph printed, with the Regent's own lines between, over all runs that are kept.

    ``follow`` continues with new lines, from run to run; with ``ends`` until nothing of the ralph runs. Each
    line of ``format=json`` holds the cursor after it; ``cursor`` continues there, and reports a gap where
    lines have been pruned since.

    With ``events=text`` the lines of an agent's JSON event stream are replaced by their text (``verbose``:
    also by edits and the results of tools), and lines without text are left out. ``raw``: as printed.
    """
    return log_reply(request, host.log(name), query, host.stopping, host.ended(name))


def log_reply(
    request: Request, log: "Log", query: LogsQuery, stopping: asyncio.Event, has_ended: Callable[[], bool]
) -> StreamReply:
    """Return a log as text or as JSON lines. Raises UsageError."""
    asked = _asked(query)
    if query.follow:
        ended = has_ended if query.ends else lambda: False
        batches = log.follow(asked, stopping=stopping, ended=ended)
        if asked.whole_events:
            batches = _replaced(batches, Rendering(_events(query).line))
    else:
        items = rendered(log.read, asked, lambda: _events(query).line)
        batches = _in_batches(items if asked.whole_events else log.read(asked))
    if asked.as_text:
        return stream_reply(request, _pieces(batches, PlainText()), "text/plain; charset=utf-8")
    return stream_reply(request, _pieces(batches, as_json), "application/x-ndjson")


def _events(query: LogsQuery) -> EventText:
    return EventText(verbose=query.events == "verbose", grep=query.grep)


async def _replaced(batches: Batches, rendering: Rendering) -> Batches:
    async with contextlib.aclosing(batches):
        async for batch in batches:
            yield await asyncio.to_thread(list, rendering(batch))  # in a thread: JSON takes its time


def as_json(line: Item) -> bytes:
    """Return a record or a gap as one line of JSON, with the cursor after it."""
    return json.dumps(shown(line), ensure_ascii=False).encode() + b"\n"


class PlainText:
    """Records as the bytes that were printed; parts of a line are put together again.

    A part that another stream or run cuts into is ended first.
    """

    def __init__(self) -> None:
        self._unended: tuple[str, str] | None = None

    def __call__(self, item: Item) -> bytes:
        """Return the lines of one item, or a part of one."""
        source = (item.cursor.run_id, item.stream) if isinstance(item, LogRecord) else None
        cut = b"\n" if self._unended not in (None, source) else b""
        self._unended = source if isinstance(item, LogRecord) and item.partial else None
        return cut + _plain(item)


def _plain(item: Item) -> bytes:
    match item:
        case LogText(text=text):
            return text
        case Gap(reason=reason):
            return f"[ralphd] gap in the log: {reason}\n".encode()
        case LogRecord(stream="regent"):
            clock = time.strftime("%H:%M:%S", time.localtime(parse_rfc3339(item.at)))
            return f"[{clock}]  🛡️  Regent: ".encode() + item.text + b"\n"
        case LogRecord(text=text, partial=partial):
            return text if partial else text + b"\n"


def _asked(query: LogsQuery) -> LogQuery:
    tail = query.tail
    if tail is None and query.since is None and query.cursor is None:
        tail = str(TAIL)
    return LogQuery(
        tail=None if tail in (None, "all") else int(tail),
        since=_moment("since", query.since),
        until=_moment("until", query.until),
        stream=query.stream,
        grep=query.grep,
        cursor=None if query.cursor is None else Cursor.parse(query.cursor),
        as_text=query.format == "text",
        whole_events=query.events != "raw",
    )


def _moment(key: str, text: str | None) -> Moment | None:
    try:
        return None if text is None else parse_rfc3339(text)
    except ValueError:
        mend = f"write it as RFC 3339, e.g. {key}=2026-11-21T20:00:00Z"
        raise UsageError(f"{key} is not a moment: {str(text)[:80]!r}", mend=mend) from None


async def _in_batches(items: Iterator[Item]) -> Batches:
    """Read in a thread, batch by batch: a log may be long, and the disk slow."""
    while batch := await asyncio.to_thread(_batch, items):
        yield batch


def _batch(items: Iterator[Item]) -> list[Item]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += 0 if isinstance(item, Gap) else len(item.text)
        if size >= PIECE_BYTES or len(batch) >= BATCH_RECORDS:
            break
    return batch


async def _pieces(batches: Batches, form: Callable[[Item], bytes]) -> AsyncGenerator[bytes, None]:
    """Batches as bytes, some 64 KiB at a time."""
    async with contextlib.aclosing(batches):
        async for batch in batches:
            piece = bytearray()
            for item in batch:
                piece += form(item)
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
            if piece:
                yield bytes(piece)
