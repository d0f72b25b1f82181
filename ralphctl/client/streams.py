"""Follow a log by its cursor or the events by their id, over any restart of the daemon."""

import itertools
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlencode

from ralphctl.client import transport
from ralphctl.client.client import EVENTS, Client, batches_of, events_of, parts_of
from ralphctl.format.output import message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, HubSilent, RalphdError, ShuttingDown

_PAUSE_S = 0.2
_CONNECT_LIMIT_S = 10.0
_SILENCE_LIMIT_S = 60.0  # of the events' stream, which is never silent for longer than 15 s
_BEGINNING = ("tail", "since")
_MOST_BATCHES = 16


StreamRequest: TypeAlias = tuple[str, Mapping[str, str], Mapping[str, str], float | None]
"""The next request of a stream: path, query, headers, and how long the stream may be silent."""


def _report_away() -> None:
    message("ralphd does not answer; the log continues when it does (Ctrl-C to leave)")


def several_logs(
    client: Client, names: Iterable[str], query: Mapping[str, str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield names of ralphs and batches of their logs, as they arrive, until nothing of any of them runs."""
    news: queue.Queue[tuple[str, list[dict[str, Any]] | RalphdError]] = queue.Queue(_MOST_BATCHES)

    def follow(name: str) -> None:
        try:
            for batch in log_batches(client, name, {**query, "ends": "true"}):
                news.put((name, batch))
            news.put((name, []))
        except RalphdError as fault:
            news.put((name, fault))

    left = set(names)
    for name in left:
        threading.Thread(target=follow, args=(name,), daemon=True).start()
    while left:
        name, batch = news.get()
        if isinstance(batch, RalphdError):
            raise batch
        if not batch:
            left.discard(name)
        yield name, batch


def log_batches(
    client: Client, name: str, query: Mapping[str, str], *, on_away: Callable[[], None] = _report_away
) -> Iterator[list[dict[str, Any]]]:
    """Yield the records and gaps of a ralph's log in batches, as they arrive. Raise UnknownRalph.

    With ``ends`` in the query until nothing of the ralph runs any more, else without end. ``on_away`` is
    called once for each absence of the daemon; it may raise to give up.
    """
    cursor: str | None = None

    def request() -> StreamRequest:
        words = {**query, "follow": "true", "format": "json"}
        if cursor is not None:
            words = {key: word for key, word in words.items() if key not in _BEGINNING} | {"cursor": cursor}
        return f"{wire.ralph_path(name)}/logs", words, {}, None

    def is_over() -> bool:
        return "ends" in query and client.ralph(name).value["state"] in wire.SETTLED_STATES

    for lines in _following(client, request, on_away, is_over):
        if lines:
            records: list[dict[str, Any]] = json.loads(b"[%s]" % b",".join(lines))
            cursor = records[-1]["cursor"]
            yield records


def events(
    client: Client, after: int, *, path: str = EVENTS, on_away: Callable[[], None] = _report_away
) -> Iterator[dict[str, Any]]:
    """Yield events after the one with the id ``after`` without end; ``on_away`` as in ``log``.

    The ids of ``FLEET_EVENTS`` begin again in a hub that lost its store.
    """
    last = after

    def request() -> StreamRequest:
        return path, {}, {"Last-Event-ID": str(last)}, _SILENCE_LIMIT_S

    for event in events_of(itertools.chain.from_iterable(_following(client, request, on_away))):
        last = event["id"]
        yield event


def _following(
    client: Client, request: Callable[[], StreamRequest], on_away: Callable[[], None],
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[list[bytes]]:  # fmt: skip
    away = False
    while True:
        try:
            for lines in _batches(client, request()):
                away = False
                yield lines
            if is_over():
                return
        except (DaemonBusy, DaemonNotRunning, HubSilent, ShuttingDown) as fault:
            if not away and isinstance(fault, HubSilent):
                message(f"{fault.what}; this continues when it is back (Ctrl-C to leave)")
            elif not away:
                on_away()
            away = True
        time.sleep(_PAUSE_S)


def _batches(client: Client, request: StreamRequest) -> Iterator[list[bytes]]:
    path, query, headers, silence_s = request
    connection = transport.connect(client.paths, timeout_s=_CONNECT_LIMIT_S)
    connection.sock.settimeout(silence_s)
    with transport.exchange(connection, "GET", f"{path}?{urlencode(query)}", headers=headers) as response:
        yield from batches_of(parts_of(response))
