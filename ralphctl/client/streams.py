"""Follow a log by its cursor or the events by their id, over any restart of the daemon.

The only module of ``ralphctl`` that imports httpx, and only when something is followed.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx

from ralphctl.client import transport
from ralphctl.client.client import Client, batches_of, events_of
from ralphctl.client.waiting import is_settled, last_settled
from ralphctl.format.output import message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError, ShuttingDown, UnknownRalph
from ralphd.unix_http import short_address

_PAUSE_S = 0.2
_CONNECT_LIMIT_S = 10.0
_SILENCE_LIMIT_S = 60.0  # of the events' stream, which is never silent for longer than 15 s
_BEGINNING = ("tail", "since")
_MOST_BATCHES = 16
_SETTLED_POLL_S = 0.5
_News: TypeAlias = tuple[str, list[dict[str, Any]] | RalphdError | None]
"""A ralph's name and new records of its log, why there are none, or None: nothing of it runs any more."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The next request of a stream, given what has been received."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    silence_s: float | None = None


def _report_away() -> None:
    message("ralphd does not answer; the log continues when it does (Ctrl-C to leave)")


def log_batches(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _report_away
) -> Iterator[list[dict[str, Any]]]:
    """Yield the records and gaps of a ralph's log without end, in batches, as they arrive.

    ``on_away`` is called once for each absence of the daemon; it may raise to give up. Raise UnknownRalph
    when the ralph is forgotten.
    """
    cursor: str | None = None

    def request() -> StreamRequest:
        words = {**_after(query, cursor), "follow": "true", "format": "json"}
        return StreamRequest(f"/ralphs/{name}/logs", words, {})

    for lines in _following(client, request, on_away):
        if lines:
            records: list[dict[str, Any]] = json.loads(b"[%s]" % b",".join(lines))
            cursor = records[-1]["cursor"]
            yield records


def _after(query: Mapping[str, str], cursor: str | None) -> Mapping[str, str]:
    if cursor is None:
        return query
    return {key: word for key, word in query.items() if key not in _BEGINNING} | {"cursor": cursor}


def logs_until_settled(
    client: Client, queries: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of a ralph and new records of its log, until nothing of any of the ralphs runs.

    A ralph that resumes by itself is followed further. Raise what the daemon answers, e.g. UnknownRalph.
    """
    news: queue.Queue[_News] = queue.Queue(_MOST_BATCHES)
    first, cursors, left = next(iter(queries)), dict[str, str](), set(queries)
    for name, query in queries.items():
        on_away = _report_away if name == first else _ignore
        for work, words in ((_follow_into, (query, on_away)), (_settled_into, ())):
            threading.Thread(target=work, args=(news, client, name, *words), daemon=True).start()
    while left:
        name, batch = news.get()
        if isinstance(batch, RalphdError):
            raise batch
        if name in left and batch is None:
            left.discard(name)
            with suppress(DaemonBusy, DaemonNotRunning, ShuttingDown):
                batch = list(client.log(name, _after(queries[name], cursors.get(name))))
        elif name not in left:
            continue
        if batch:
            cursors[name] = batch[-1]["cursor"]
            yield name, batch


def _follow_into(
    news: queue.Queue[_News], client: Client, name: str, query: Mapping[str, str], on_away: Callable[[], None]
) -> None:
    try:
        for batch in log_batches(client, name, query, on_away=on_away):
            news.put((name, batch))
    except RalphdError as fault:
        news.put((name, fault))


def _settled_into(news: queue.Queue[_News], client: Client, name: str) -> None:
    client, directory = client.without_notices(), ""
    while True:
        view: Mapping[str, Any] | None = None
        try:
            view = client.ralph(name).value
            directory = str(view["directory"])
        except DaemonNotRunning:  # that of a build ends with its ralph
            view = last_settled(directory, name) if directory else None
        except UnknownRalph:
            return
        except RalphdError:
            pass
        if view is not None and is_settled(view) and not view.get("wait"):
            news.put((name, None))
            return
        time.sleep(_SETTLED_POLL_S)


def _ignore() -> None:
    pass


def events(
    client: Client, after: int, *, on_away: Callable[[], None] = _report_away
) -> Iterator[dict[str, Any]]:
    """Yield events after the one with the id ``after`` without end; ``on_away`` as in ``log``."""
    last = after

    def request() -> StreamRequest:
        return StreamRequest("/events", {}, {"Last-Event-ID": str(last)}, _SILENCE_LIMIT_S)

    for event in events_of(itertools.chain.from_iterable(_following(client, request, on_away))):
        last = event["id"]
        yield event


def _following(
    client: Client, request: Callable[[], StreamRequest], on_away: Callable[[], None]
) -> Iterator[list[bytes]]:
    away = False
    while True:
        try:
            for lines in _batches(client, request()):
                away = False
                yield lines
        except (DaemonBusy, DaemonNotRunning, ShuttingDown, httpx.TransportError):
            if not away:
                on_away()
            away = True
        time.sleep(_PAUSE_S)


def _batches(client: Client, request: StreamRequest) -> Iterator[list[bytes]]:
    connection = transport.connect(client.paths, timeout_s=_CONNECT_LIMIT_S)
    connection.close()  # it showed which of the sockets answers, and that its owner may be trusted
    limit = httpx.Timeout(_CONNECT_LIMIT_S, read=request.silence_s)
    with (
        short_address(connection.path) as address,
        httpx.Client(transport=httpx.HTTPTransport(uds=address), trust_env=False, timeout=limit) as http,
        http.stream(
            "GET", f"http://ralphd{wire.API}{request.path}", params=request.query, headers=request.headers
        ) as response,
    ):
        if response.status_code >= 400:
            raise transport.error_of(response.status_code, response.read())
        yield from batches_of(response.iter_raw())
