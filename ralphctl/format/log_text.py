"""Prints records of a log: parts joined, times in front, the Regent's lines in orange."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from ralphctl.format.explanation import localised
from ralphctl.format.output import ORANGE, neutralise, paint

REGENT = "🛡️  Regent: "


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


@dataclass(slots=True)
class LogPrinter:
    """Prints records in their order.

    ``safe`` neutralises control sequences, for a terminal. A line that another stream breaks into is ended
    first, so that two streams never share one. What ``encoding`` lacks is printed as ``?``.
    """

    out: Sink
    safe: bool = False
    timestamps: bool = False
    colour: bool = False
    encoding: str = "utf-8"
    _unended: str | None = field(default=None, init=False)

    def put(self, record: dict[str, Any]) -> None:
        """Print one record or gap."""
        stream = record.get("stream")
        if self._unended not in (None, stream):
            self.end()
        if "gap" in record:
            self._line(f"[ralphd] gap in the log: {record['gap']}")
        elif stream == "regent":
            self._line(self._regent(record))
        else:
            self._text(record)

    @property
    def is_at_line_start(self) -> bool:
        """True if the last line that was printed has ended."""
        return self._unended is None

    def end(self) -> None:
        """End an unfinished line."""
        if self._unended is not None:
            self._write("\n")
        self._unended = None

    def _text(self, record: dict[str, Any]) -> None:
        begins = self._unended is None
        text = neutralise(record["text"]) if self.safe else record["text"]
        partial = bool(record.get("partial"))
        self._write((self._stamp(record) if begins else "") + text + ("" if partial else "\n"))
        self._unended = record["stream"] if partial else None

    def _regent(self, record: dict[str, Any]) -> str:
        at = _local(record["at"])
        clock = at.strftime("%H:%M:%S")
        text = localised(record["text"], at.timestamp())
        text = neutralise(text) if self.safe else text
        return self._stamp(record) + paint(f"[{clock}]  {REGENT}{text}", ORANGE, on=self.colour)

    def _stamp(self, record: dict[str, Any]) -> str:
        return _local(record["at"]).isoformat(timespec="milliseconds") + " " if self.timestamps else ""

    def _line(self, text: str) -> None:
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        self.out.write(text.encode(self.encoding, "replace"))


def _local(at: str) -> datetime:
    return datetime.fromisoformat(at).astimezone()


def since(text: str, *, now: float | None = None) -> str | None:
    """Return RFC 3339 for ``10m``, ``2h``, ``@epoch``, ``07:00`` or ``2026-11-21 20:00``; None otherwise.

    A time without a zone is local; a time without a day is today's.
    """
    now = time.time() if now is None else now
    try:
        if text[:1] == "@":
            moment = float(text[1:])
        elif size_s := _SIZES.get(text[-1:]):
            moment = now - float(text[:-1]) * size_s
        else:
            day = f"{datetime.fromtimestamp(now):%Y-%m-%d} " if len(text) <= 8 and ":" in text else ""
            moment = datetime.fromisoformat(day + text).timestamp()
        return datetime.fromtimestamp(moment).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        return None


_SIZES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
