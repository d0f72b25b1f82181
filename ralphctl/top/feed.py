"""Keep the model of ``top`` up to date: the daemon's events over one connection, and the log of one ralph.

An event has the ralph that it names read again; nothing is polled. What has no event (the windows of a quota,
what is seen in the output of a loop that reports nothing) is read again once a minute. While the daemon is
away, its state is asked for every second. Threads read; the owner of the screen is woken and draws.
"""

from __future__ import annotations

import io
import itertools
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from ralphctl.client import streams, transport
from ralphctl.client.client import FLEET_EVENTS, Client, batches_of, events_of, lines_of, parts_of
from ralphctl.format.log_text import LogPrinter
from ralphctl.format.output import clean
from ralphctl.top.model import TopModel
from ralphctl.top.page import LOG_LINES
from ralphd import wire
from ralphd.errors import DaemonNotRunning, RalphdError, UnknownRalph

_BATCH_S, _GAP_S, _AWAY_S, _ELSEWHERE_S, _AGAIN_S = 0.2, 0.5, 1.0, 5.0, 60.0
_SILENCE_S = 60.0
AWAY = "ralphd is away: waiting for it"
_SLOW_S = 4.0
"""The quota and the histories are read at most once in this time."""
_MOST_SINGLE = 5
"""Of more changed ralphs, or a tenth of all, the whole state is read instead."""
_OTHERS = "/"
"""Stands for the ralphs of all other machines among the names of ralphs to read."""


class LogTail:
    """The last lines of one ralph's log, followed until ``close``."""

    def __init__(self, client: Client, name: str, on_news: Callable[[], None], *, colour: bool) -> None:
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.output_at = ""
        self._client, self._name, self._on_news = client, name, on_news
        self._out, self._rest, self._cursor = io.BytesIO(), "", ""
        self._printer = LogPrinter(self._out, safe=True, colour=colour)
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    def start(self) -> None:
        """Read in a thread of its own."""
        threading.Thread(target=self._follow, daemon=True).start()

    def close(self) -> None:
        """End the thread and its connection."""
        self._closed.set()
        if (reading := self._socket) is not None:
            with suppress(OSError):
                reading.shutdown(socket.SHUT_RDWR)

    def _follow(self) -> None:
        while not self._closed.is_set():
            with self.refusals():  # again, from the cursor
                connection = transport.connect(self._client.paths, timeout_s=_SILENCE_S)
                self._socket = connection.sock
                begin = {"cursor": self._cursor} if self._cursor else {"tail": str(LOG_LINES)}
                query = urlencode({"format": "json", "events": "text", "follow": "true", **begin})
                target = f"{wire.ralph_path(self._name)}/logs?{query}"
                with transport.exchange(connection, "GET", target) as response:
                    for lines in batches_of(parts_of(response)):
                        if self._closed.is_set():
                            return
                        self.put(map(json.loads, lines))
                        self._closed.wait(_BATCH_S)  # what comes meanwhile is read at once
            self._closed.wait(_ELSEWHERE_S if "/" in self._name else _AWAY_S)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Show why the log of a ralph of another machine cannot be read, instead of raising it."""
        try:
            yield
        except RalphdError as fault:
            if "/" in self._name and (why := clean(fault.what)) not in self.lines:
                self.lines.append(why)
                self._on_news()

    def put(self, records: Iterable[dict[str, Any]]) -> None:
        """Add records, as the daemon sends them."""
        for record in records:
            self._cursor = record["cursor"]
            self._printer.put(record)
            if record.get("stream") in ("stdout", "stderr"):
                self.output_at = record["at"]
        *ended, self._rest = (self._rest + self._out.getvalue().decode()).split("\n")
        self._rest = self._rest[-1000:]
        self._out.seek(0)
        self._out.truncate()
        self.lines.extend(line for line in ended if line.strip())
        self._on_news()


class TopFeed:
    """The model, kept up to date. ``is_stale`` is set when there is something new to draw."""

    def __init__(self, client: Client, model: TopModel, last_event: int, *, colour: bool) -> None:
        self.model, self.trouble, self.is_stale = model, "", True
        self.client, self._last_event, self._colour = client, last_event, colour
        self._changed: set[str | None] = set()
        self._behind: set[str] = set()
        self._slow_at = 0.0
        self._lock, self._wake, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self.selected, self.log = "", LogTail(client, "", self.stale, colour=colour)

    def start(self) -> None:
        """Begin to follow the daemon, and read the nights."""
        self.read_soon(_OTHERS)
        for work in (self._follow_events, self._follow_fleet, self._read_always):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """Read nothing more."""
        self._closed.set()
        self._wake.set()
        self.log.close()

    def select(self, name: str) -> None:
        """Follow the log of another ralph."""
        if name != self.selected:
            self.log.close()
            self.selected = name
            self.log = LogTail(self.client, name, self.stale, colour=self._colour)
            if name:
                self.log.start()
            self.stale()

    def stale(self) -> None:
        """Have the picture drawn again."""
        self.is_stale = True

    def read_soon(self, name: str | None) -> None:
        """Have a ralph read again, or with None everything."""
        with self._lock:
            self._changed.add(name)
        self._wake.set()

    def _follow_events(self) -> None:
        while not self._closed.wait(_GAP_S):
            with suppress(RalphdError):  # of ``_away``, at the end; or it refuses, then again
                for event in streams.events(self.client, self._last_event, on_away=self._away):
                    self._last_event = event["id"]
                    self.read_soon(event.get("ralph"))

    def _follow_fleet(self) -> None:
        """Follow what happens on other machines. What happened while it could not be followed is read."""
        while not self._closed.wait(_AWAY_S):
            with suppress(RalphdError):  # the hub is silent, or this machine may not see into others
                if not self.model.host:
                    continue
                connection = transport.connect(self.client.paths, timeout_s=_SILENCE_S)
                with transport.exchange(connection, "GET", FLEET_EVENTS) as response:
                    self.read_soon(_OTHERS)
                    parts = itertools.takewhile(lambda _: not self._closed.is_set(), parts_of(response))
                    for event in events_of(lines_of(parts)):
                        if event["host"] != self.model.host:
                            self.read_soon(f"{event['host']}/{event.get('ralph') or ''}")
                self.read_soon(_OTHERS)

    def _away(self) -> None:
        if self._closed.is_set():
            raise UnknownRalph("closed")
        self.trouble = AWAY
        self.stale()
        self._wake.set()

    def _read_always(self) -> None:
        while not self._closed.is_set():
            is_woken = self._wake.wait(_AWAY_S if self.trouble else _SLOW_S if self._behind else _AGAIN_S)
            self._wake.clear()
            with self._lock:
                names, self._changed = self._changed, set()
            try:
                self._read(names if (is_woken or self._behind) and not self.trouble else {None})
                self.trouble = ""
            except RalphdError as fault:
                self.trouble = AWAY if isinstance(fault, DaemonNotRunning) else clean(fault.what)
            self.stale()
            self._closed.wait(_AWAY_S if self.trouble else _GAP_S)

    def _read(self, names: set[str | None]) -> None:
        changed = {name for name in names if name is not None}
        every = None in names or len(names) > max(_MOST_SINGLE, len(self.model.views) // 10)
        others = every or any(name.endswith("/") for name in changed)
        for name in () if every else changed:
            try:
                if not name.endswith("/"):
                    self.model.read_ralph(self.client, name)
            except UnknownRalph:  # it was removed
                every = others = True
            except RalphdError:
                if "/" not in name:
                    raise
                others = True
        if every:
            self.model.read_state(self.client)
        if others:
            self.model.read_elsewhere(self.client)
        self._behind |= {*changed, self.selected} if every else changed
        if time.monotonic() >= self._slow_at:
            self._slow_at = time.monotonic() + _SLOW_S
            self.model.read_accounts(self.client)
            new = self.model.views.keys() - self.model.nights.keys()
            behind, self._behind = self._behind, set()
            self.model.read_nights(behind | new, time.time())


def last_lines(client: Client, name: str, *, colour: bool) -> list[str]:
    """Return the last lines of a ralph's log, or why there are none."""
    tail = LogTail(client, name, lambda: None, colour=colour)
    with tail.refusals():
        tail.put(client.log(name, {"tail": str(LOG_LINES), "events": "text"}))
    return list(tail.lines)
