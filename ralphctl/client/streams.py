"""Follow a log by its cursor or the events by their id, over any restart of the daemon.

The only module of ``ralphctl`` that imports httpx, and only when something is followed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from ralphctl.client import transport
from ralphctl.client.client import Client, batches_of, events_of
from ralphctl.format.output import message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, ShuttingDown
from ralphd.unix_http import short_address

_PAUSE_S = 0.2
_CONNECT_LIMIT_S = 10.0
_SILENCE_LIMIT_S = 60.0  # of the events' stream, which is never silent for longer than 15 s
_BEGINNING = ("tail", "since")


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The next request of a stream, given what has been received."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    silence_s: float | None = None


def _report_away() -> None:
    message("ralphd is away; going on when it is back (Ctrl-C to leave)")


def log(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _report_away
) -> Iterator[dict[str, Any]]:
    """Yield the records and gaps of a ralph's log without end. Raise UnknownRalph when it is forgotten.

    ``on_away`` is called once for each absence of the daemon; it may raise to give up.
    """
    return itertools.chain.from_iterable(log_batches(client, name, query, on_away=on_away))


def log_batches(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _report_away
) -> Iterator[list[dict[str, Any]]]:
    """Yield the same in batches, as they arrive: writing a batch at once is cheaper."""
    cursor: str | None = None

    def request() -> StreamRequest:
        words = {**query, "follow": "true", "format": "json"}
        if cursor is not None:
            words = {key: word for key, word in words.items() if key not in _BEGINNING} | {"cursor": cursor}
        return StreamRequest(f"/ralphs/{name}/logs", words, {})

    for lines in _following(client, request, on_away):
        if lines:
            records: list[dict[str, Any]] = json.loads(b"[%s]" % b",".join(lines))
            cursor = records[-1]["cursor"]
            yield records


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
