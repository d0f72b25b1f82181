"""The daemon as Python sees it: one method a call, an answer or the error that the daemon names.

Short calls go over ``http.client``; what streams for long is in ``streams.py``.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from ralphctl import fast, link, patience, problem
from ralphd import wire
from ralphd.errors import DaemonBusy, UnknownRalph

T = TypeVar("T")

# A start waits for its command to be executed, which the daemon bounds at 10 s.
_CHANGE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What the daemon answered, as it came."""

    body: bytes

    @property
    def value(self) -> Any:
        """The reply as JSON; None when it has no body."""
        return json.loads(self.body) if self.body else None


class _Connection(http.client.HTTPConnection):
    def __init__(self, paths: Sequence[str], limit_s: float, reached: Callable[[str], None]) -> None:
        super().__init__("ralphd", timeout=limit_s)
        self.limit_s = limit_s
        self._paths, self._reached = paths, reached

    def connect(self) -> None:
        reached, path = link.reach(self._paths, timeout_s=self.limit_s)
        self.sock = socket.socket(fileno=reached.detach())
        self.sock.settimeout(self.limit_s)
        self._reached(path)


class Client:
    """Calls to the daemon behind the first socket that answers; one that ``keeps`` to it then asks no other.

    Every method raises DaemonNotRunning or DaemonBusy when it cannot be reached, and the RalphdError that
    the daemon's problem document names when it refuses.
    """

    def __init__(
        self, find: Callable[[], Sequence[str]], *, tells_waits: bool = False, keeps: bool = False
    ) -> None:
        """``find`` gives where the socket may be; ``tells_waits`` to who sits at the terminal.

        ``keeps``: when that of ``ralphctl build`` has ended, the daemon beside it, which may know another
        ralph of the same name, is not asked in its place.
        """
        self._find = find
        self._tells_waits = tells_waits
        self._keeps, self._kept = keeps, ""

    def untelling(self) -> Client:
        """The same, for who shows by means of its own that it waits."""
        kept = self._kept
        return Client(lambda: [kept], keeps=True) if kept else Client(self._find, keeps=self._keeps)

    @property
    def paths(self) -> Sequence[str]:
        """Where the socket may be, best first, looked for anew each time; where it is, once that is kept."""
        return [self._kept] if self._kept else self._find()

    def _reached(self, path: str) -> None:
        if self._keeps:
            self._kept = path

    def status(self, *, resources: bool = False) -> Reply:
        """The daemon and all its ralphs."""
        return self._get("/status" + ("?resources=1" if resources else ""))

    def ralph(self, name: str) -> Reply:
        """One ralph's view."""
        return self._get(f"/ralphs/{name}")

    def views(self) -> list[dict[str, Any]]:
        """The views of all ralphs."""
        views: list[dict[str, Any]] = self.status().value["ralphs"]
        return views

    def name_here(self, directory: str) -> str:
        """The ralph of ``directory`` or the nearest one above it, else the only one. Raises UnknownRalph.

        Where ``ralphctl build`` worked, another directory's ralph is never meant.
        """
        views = self.views()
        view = fast.of_directory(views, directory)
        if view is None and (left := fast.left_here(directory)) is not None:
            raise UnknownRalph(
                f"no daemon works in {left['directory']}: its ralph was that of ralphctl build",
                why="the ralphs that a daemon works for have to be named here",
                mend="ralphctl build, or ralphctl status --all",
            )
        if view is None and len(views) == 1:
            view = views[0]
        if view is None:
            raise UnknownRalph(
                f"no ralph works in {directory}",
                why="give its name, or go to its directory",
                mend="ralphctl status --all",
            )
        return str(view["name"])

    def register(self, registration: Mapping[str, object]) -> Reply:
        """Register a ralph and start it."""
        return self._call("POST", "/ralphs", registration)

    def ask(self, name: str, action: str, words: Mapping[str, object] | None = None) -> Reply:
        """``start, stop, restart, pause, resume, skip-wait, reload, undo, ack``."""
        return self._call("POST", f"/ralphs/{name}/{action}", words or {})

    def report(self, name: str, report: Mapping[str, object], *, limit_s: float) -> Reply:
        """Tell a ralph's Regent what its run reports; answered within ``limit_s`` seconds."""
        return self._call("POST", f"/ralphs/{name}/reports", report, limit_s=limit_s)

    def explain(self, name: str) -> Reply:
        """Why the last thing was done to a ralph."""
        return self._get(f"/ralphs/{name}/explain")

    def verdicts(self, name: str, limit: int) -> Reply:
        """What was said of the commits of a ralph's iterations, newest first."""
        return self._get(f"/ralphs/{name}/verdicts?limit={limit}")

    def forget(self, name: str) -> Reply:
        """Forget a ralph that does not run."""
        return self._call("DELETE", f"/ralphs/{name}", None)

    def webhooks(self) -> Reply:
        """Every webhook, wherever it comes from."""
        return self._get("/webhooks")

    def add_webhook(self, words: Mapping[str, object]) -> Reply:
        """Add a webhook, or replace one that was added."""
        return self._call("POST", "/webhooks", words)

    def remove_webhook(self, id: str) -> Reply:
        """Remove a webhook that was added."""
        return self._call("DELETE", f"/webhooks/{id}", None)

    def test_webhook(self, id: str) -> Reply:
        """Send a test to a webhook, and hear what came back."""
        return self._call("POST", f"/webhooks/{id}/test", {})

    def deliveries(self, id: str | None, limit: int) -> Reply:
        """The last deliveries to a webhook, or to all, newest first."""
        return self._get((f"/webhooks/{id}" if id else "") + f"/deliveries?limit={limit}")

    def replay(self, delivery: int) -> Reply:
        """Send the message of a delivery again."""
        return self._call("POST", f"/deliveries/{delivery}/replay", {})

    def reload(self) -> Reply:
        """Have the daemon read the user's own configuration again."""
        return self._call("POST", "/reload", {})

    def shutdown(self, runs: str) -> Reply:
        """End the daemon; ``runs`` are to ``finish``, are killed ``now``, or are left for the next daemon."""
        return self._call("POST", "/shutdown", {"runs": runs})

    def log(self, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """What is in the log, in parts of any size."""
        return self._parts(f"/ralphs/{name}/logs?{urlencode(query)}")

    def past_events(self, number: int) -> Iterator[bytes]:
        """The last ``number`` events, as server-sent events, in parts of any size."""
        return self._parts(f"/events?replay={number}&follow=false")

    def _get(self, path: str) -> Reply:
        slow = patience.slow("ralphd to answer", link.ANSWER_LIMIT_S) if self._tells_waits else None
        status, body = link.get(self.paths, wire.API + path, slow=slow, reached=self._reached)
        problem.check(status, body)
        return Reply(body)

    def _call(
        self,
        method: str,
        path: str,
        words: Mapping[str, object] | None,
        *,
        limit_s: float = _CHANGE_LIMIT_S,
    ) -> Reply:
        connection = _Connection(self.paths, limit_s, self._reached)
        body = None if words is None else json.dumps(words)
        try:
            with patience.telling("ralphd to answer", limit_s) if self._tells_waits else nullcontext():
                response = _exchange(connection, method, path, body)
                held = _or_went_away(response.read, limit_s)
        finally:
            connection.close()
        problem.check(response.status, held)
        return Reply(held)

    def _parts(self, path: str) -> Iterator[bytes]:
        connection = _Connection(self.paths, _CHANGE_LIMIT_S, self._reached)
        try:
            response = _exchange(connection, "GET", path, None)
            if response.status >= 400:
                problem.check(response.status, _or_went_away(response.read))
            while part := _or_went_away(lambda: response.read1(1 << 16)):
                yield part
        finally:
            connection.close()


def _exchange(connection: _Connection, method: str, path: str, body: str | None) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json"} if body is not None else {}

    def send() -> http.client.HTTPResponse:
        connection.request(method, wire.API + path, body, headers)
        return connection.getresponse()

    return _or_went_away(send, connection.limit_s)


def _or_went_away(act: Callable[[], T], limit_s: float = _CHANGE_LIMIT_S) -> T:
    try:
        return act()
    except TimeoutError as fault:
        raise DaemonBusy(
            f"ralphd did not answer within {limit_s:g} s", mend="ralphctl regent logs"
        ) from fault
    except (http.client.HTTPException, OSError) as fault:
        raise link.went_away(str(fault) or type(fault).__name__) from fault
