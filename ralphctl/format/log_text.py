"""Print records of a log: parts joined, times in front, the Regent's lines in orange."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, BinaryIO, TypeAlias

from ralphctl.format.explanation import localised
from ralphctl.format.output import ORANGE, neutralise, paint
from ralphd.dataclass import dataclass

REGENT = "🛡️  Regent: "
RALPH = "Ralph: "


Source: TypeAlias = tuple[str | None, str | None]
Find: TypeAlias = Callable[[Mapping[str, str], str], str | None]


@dataclass(slots=True)
class LogPrinter:
    """Prints records in their order.

    ``safe`` neutralises control sequences, for a terminal. A line that another stream breaks into is ended
    first, so that two streams never share one. What ``encoding`` lacks is printed as ``?``.
    """

    out: BinaryIO
    safe: bool = False
    timestamps: bool = False
    colour: bool = False
    encoding: str = "utf-8"
    _unended: Source | None = field(default=None, init=False)

    def put(self, record: dict[str, Any]) -> None:
        """Print one record or gap. A record with the name of a ralph is printed behind that name."""
        source = record.get("ralph"), record.get("stream")
        if self._unended not in (None, source):
            self.end()
        name = f"{record['ralph']} | " if "ralph" in record else ""
        if "gap" in record:
            self._write(f"{name}[ralphd] gap in the log: {record['gap']}\n")
        elif source[1] == "regent":
            self._write(f"{name}{self._regent(record)}\n")
        else:
            *lines, last = record["text"].split("\n")  # an agent's event may have several
            for line in lines:
                self._text(name, {**record, "text": line, "partial": False}, source)
            self._text(name, {**record, "text": last}, source)

    @property
    def is_at_line_start(self) -> bool:
        """True if the last line that was printed has ended."""
        return self._unended is None

    def end(self) -> None:
        """End an unfinished line."""
        if self._unended is not None:
            self._write("\n")
        self._unended = None

    def _text(self, name: str, record: dict[str, Any], source: Source) -> None:
        begins = self._unended is None
        text = neutralise(record["text"]) if self.safe else record["text"]
        if begins and text.startswith(RALPH):  # the built-in loop's own line has no time in it
            at = _local(record["at"])
            text = f"[{at:%H:%M:%S}]  {localised(text, at.timestamp())}"
        partial = bool(record.get("partial"))
        self._write((name + self._stamp(record) if begins else "") + text + ("" if partial else "\n"))
        self._unended = source if partial else None

    def _regent(self, record: dict[str, Any]) -> str:
        at = _local(record["at"])
        text = localised(record["text"], at.timestamp())
        text = neutralise(text) if self.safe else text
        return self._stamp(record) + paint(f"[{at:%H:%M:%S}]  {REGENT}{text}", ORANGE, on=self.colour)

    def _stamp(self, record: dict[str, Any]) -> str:
        return _local(record["at"]).isoformat(timespec="milliseconds") + " " if self.timestamps else ""

    def _write(self, text: str) -> None:
        self.out.write(text.encode(self.encoding, "replace"))


def _local(at: str) -> datetime:
    # A run may write any time into its log; the first and the last day are not in every zone.
    return datetime.fromisoformat(min(max(at, "0001-01-02T00:00Z"), "9999-12-30T00:00Z")).astimezone()


def since(text: str, *, now: float | None = None, is_past: bool = True) -> float | None:
    """Return the moment of ``10m``, ``2h``, ``@epoch``, ``07:00`` or ``2026-11-21 20:00``; None otherwise.

    A time without a zone is local. One without a day is today's, or yesterday's if it ``is_past`` for sure.
    """
    now = time.time() if now is None else now
    try:
        if text[:1] == "@":
            moment = float(text[1:])
        elif size_s := _SIZES.get(text[-1:]):
            moment = now - float(text[:-1]) * size_s
        else:
            text = f"0{text}" if text[1:2] == ":" else text
            day = f"{datetime.fromtimestamp(now):%Y-%m-%d} " if len(text) <= 8 and ":" in text else ""
            at = datetime.fromisoformat(day + text)
            is_yesterday = bool(day) and is_past and at.timestamp() > now
            moment = (at - timedelta(days=is_yesterday)).timestamp()
        datetime.fromtimestamp(moment).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
    return moment


_SIZES = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def iteration_spans(
    newest_first: Sequence[Mapping[str, Any]], iteration: str | None, task: str | None, find: Find
) -> list[dict[str, str]]:
    """Return where the log of some iterations lies, the oldest first, in the words of a query.

    ``iteration`` is ``N``, of several with this number the newest, or ``RUN:N``. ``task`` is an id or a
    title, in any case. ``find`` returns when a part of the log, given as a query, has the first line that
    begins with a text: an iteration lasts from the loop's line about it to the line about the next one.
    Without such a line it begins with its first attempt, else at the end of the iteration before.
    """
    run, _, number = (iteration or "").rpartition(":")
    spans: list[dict[str, str]] = []
    for at, entry in enumerate(newest_first):
        runs = entry["run_id"], entry["run_id"][1:].partition("-")[0].lstrip("0"), ""
        if iteration is not None and (str(entry["iteration"]) != number or run not in runs):
            continue
        about = entry.get("task") or {}
        names = [str(about.get(key) or "").casefold() for key in ("id", "title")]
        if task is not None and task.casefold() not in names:
            continue
        begin = _marked(newest_first, at, find)
        end = _marked(newest_first, at - 1, find) or (entry["at"] if at else None)
        start = {"since": begin} if begin else {"cursor": f"{entry['run_id']}:1:0:0"}
        spans.insert(0, {"tail": "all", **start} | ({"until": end} if end else {}))
        if iteration is not None:
            break
    return spans


def _marked(newest_first: Sequence[Mapping[str, Any]], at: int, find: Find) -> str | None:
    """Return when an iteration began, by the loop's line about it; -1 is the one that runs now, if any."""
    began = _began(newest_first, at) if at >= 0 else None
    earlier = next(iter(newest_first[at + 1 : at + 2]), {})
    number = newest_first[at]["iteration"] if at >= 0 else (earlier["iteration"] or 0) + 1
    if earlier.get("at"):
        start = {"since": earlier["at"]}
    elif began:
        start = {"cursor": f"{newest_first[at]['run_id']}:1:0:0"}
    else:
        return None
    line_at = find(start | ({"until": began} if began else {}), f"{RALPH}iteration {number}: ")
    # The log compares microseconds: one earlier excludes the line from the iteration before.
    return (datetime.fromisoformat(line_at) - timedelta(microseconds=1)).isoformat() if line_at else began


def _began(newest_first: Sequence[Mapping[str, Any]], at: int) -> str | None:
    """Return when an iteration began: with its first attempt, else after the end of the iteration before.

    None if that is not known: it is the first one of its run.
    """
    entry, earlier = newest_first[at], newest_first[at + 1 : at + 2]
    first: Mapping[str, Any] = next(iter(entry["attempts"]), {})
    if isinstance(first.get("duration_s"), int | float):
        return (datetime.fromisoformat(first["at"]) - timedelta(seconds=first["duration_s"])).isoformat()
    if earlier and earlier[0]["at"] and (first or earlier[0]["run_id"] == entry["run_id"]):
        return (datetime.fromisoformat(earlier[0]["at"]) + STAMPED_LATE).isoformat()
    return None


STAMPED_LATE = timedelta(milliseconds=3)
"""How long after an iteration ended its last line can get its time."""
