"""Logs for tests, written as the shim writes them, and read as a client would."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from ralphd.core.supervision.model import RunId
from ralphd.process.log import records
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Cursor, Gap, Item, LogQuery, LogRecord, LogText
from tests.helpers import eventually

START = 1_790_000_000.0


def stamp(number: int) -> str:
    """A time, later for a larger number (in ms)."""
    return f"2026-11-21T20:{number // 60000 % 60:02d}:{number // 1000 % 60:02d}.{number % 1000:03d}000000Z"


def line(text: bytes, *, at: int = 0, stream: str = "stdout", flag: str = "F") -> bytes:
    """One line of a segment."""
    return f"{stamp(at)} {stream} {flag} ".encode() + text + b"\n"


def run_directory(runs: Path, number: int) -> Path:
    """A new run's directory."""
    path = runs / f"r{number:06d}-{number:08x}"
    path.mkdir(parents=True)
    return path


def write(run: Path, segment: int, data: bytes) -> None:
    """Append to a segment."""
    with (run / f"log.{segment:06d}").open("ab") as file:
        file.write(data)


def write_regent(run: Path, data: bytes) -> None:
    """Append to the Regent's lines."""
    with (run / "regent.log").open("ab") as file:
        file.write(data)


def end_run(run: Path, *, log_bytes: int = 1) -> None:
    """Leave an exit record."""
    (run / "exit.json").write_text(f'{{"version": 1, "run_id": "{run.name}", "log_bytes": {log_bytes}}}')


def run_id(run: Path) -> RunId:
    """The id of the run of a directory."""
    return RunId(run.name)


def texts(items: Sequence[Item]) -> list[bytes]:
    """The texts of the records among them."""
    return [item.text for item in items if isinstance(item, LogRecord)]


def gaps(items: Sequence[Item]) -> list[str]:
    """The reasons of the gaps among them."""
    return [item.reason for item in items if isinstance(item, Gap)]


def plain(items: list[LogRecord | Gap]) -> list[tuple[str, bytes]]:
    """Everything but the cursors."""
    return [
        (each.stream, each.text) if isinstance(each, LogRecord) else ("", each.reason.encode())
        for each in items
    ]


def shown(items: Sequence[LogText | LogRecord | Gap]) -> bytes:
    """The bytes that a reader of plain text gets; gaps are left out."""
    out = b""
    for item in items:
        match item:
            case LogText(text):
                out += text
            case LogRecord(text=text, partial=partial):
                out += text if partial else text + b"\n"
    return out


def in_blocks(size: int) -> AbstractContextManager[object]:
    """Read so many bytes at once."""
    return mock.patch.object(records, "BLOCK_BYTES", size)


def read(runs: Path, query: LogQuery | None = None, *, block_bytes: int = 65536) -> list[LogRecord | Gap]:
    """All that is there now."""
    with in_blocks(block_bytes):
        items = list(RalphLog(runs).read(query or LogQuery()))
    return [item for item in items if not isinstance(item, LogText)]


class Follower:
    """A client that follows, and what it has seen."""

    def __init__(self, runs: Path, query: LogQuery | None = None) -> None:
        self.items: list[LogRecord | Gap] = []
        self.stopping = asyncio.Event()
        self._log = RalphLog(runs)
        self._query = query or LogQuery()
        self.task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for batch in self._log.follow(self._query, stopping=self.stopping):
            self.items += (item for item in batch if not isinstance(item, LogText))

    async def sees(self, count: int) -> None:
        """Wait until it has seen so many lines."""
        await eventually(lambda: len(self.texts) >= count, what=f"line {count} seen")

    @property
    def texts(self) -> list[bytes]:
        """The texts seen so far."""
        return texts(self.items)

    async def stop(self) -> list[LogRecord | Gap]:
        """End it; all that it saw."""
        self.stopping.set()
        await asyncio.wait_for(self.task, 5)
        return self.items


def cursor_of(item: LogRecord | Gap) -> Cursor:
    """Where reading goes on after it."""
    return item.cursor
