"""Streams that outlive the daemon: logs by their cursor, events by their id, taken up where they broke off.

The only place of ``ralphctl`` that imports httpx, and only when something is followed (P3).
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from ralphctl import link, problem
from ralphctl.client import Client
from ralphctl.lines import batches_of, events_of
from ralphctl.tell import message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, ShuttingDown

_PAUSE_S = 0.2
_CONNECT_LIMIT_S = 10.0
_SILENCE_LIMIT_S = 60.0  # of the events' stream, which is never silent for longer than 15 s
_BEGINNING = ("tail", "since")


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask for, now that so much has been received."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    silence_s: float | None = None


def _tell_away() -> None:
    message("ralphd is away; going on when it is back (Ctrl-C to leave)")


def log(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _tell_away
) -> Iterator[dict[str, Any]]:
    """Records and gaps of a ralph's log, for ever. Raises UnknownRalph when it is forgotten.

    ``on_away`` is called once each time that the daemon is away; it may raise, where there is no use waiting.
    """
    return itertools.chain.from_iterable(log_batches(client, name, query, on_away=on_away))


def log_batches(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _tell_away
) -> Iterator[list[dict[str, Any]]]:
    """The same, together what came together: who writes it at once has less to do."""
    cursor: str | None = None

    def request() -> Request:
        words = {**query, "follow": "true", "format": "json"}
        if cursor is not None:
            words = {key: word for key, word in words.items() if key not in _BEGINNING} | {"cursor": cursor}
        return Request(f"/ralphs/{name}/logs", words, {})

    for lines in _following(client, request, on_away):
        if lines:
            records: list[dict[str, Any]] = json.loads(b"[%s]" % b",".join(lines))
            cursor = records[-1]["cursor"]
            yield records


def events(
    client: Client, after: int, *, on_away: Callable[[], None] = _tell_away
) -> Iterator[dict[str, Any]]:
    """Events after the one with the id ``after``, for ever; ``on_away`` as for the log."""
    last = after

    def request() -> Request:
        return Request("/events", {}, {"Last-Event-ID": str(last)}, _SILENCE_LIMIT_S)

    for event in events_of(itertools.chain.from_iterable(_following(client, request, on_away))):
        last = event["id"]
        yield event


def _following(
    client: Client, request: Callable[[], Request], on_away: Callable[[], None]
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


def _batches(client: Client, request: Request) -> Iterator[list[bytes]]:
    probe, path = link.reach(client.paths, timeout_s=_CONNECT_LIMIT_S)
    probe.close()
    address, held = link.short_address(path)
    limit = httpx.Timeout(_CONNECT_LIMIT_S, read=request.silence_s)
    try:
        with (
            httpx.Client(transport=httpx.HTTPTransport(uds=address), trust_env=False, timeout=limit) as http,
            http.stream(
                "GET", f"http://ralphd{wire.API}{request.path}", params=request.query, headers=request.headers
            ) as response,
        ):
            if response.status_code >= 400:
                problem.check(response.status_code, response.read())
            yield from batches_of(response.iter_raw())
    finally:
        if held is not None:
            os.close(held)
