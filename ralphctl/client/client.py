"""The daemon as Python sees it: one method per route, a reply or the error that the daemon names.

Streams that outlive the daemon are in ``streams``.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ralphctl.client import discovery, transport
from ralphctl.format.output import slow_notice
from ralphctl.offline.state import none_works_in
from ralphd import wire
from ralphd.dataclass import dataclass
from ralphd.errors import HubSilent, NoFleet, NotFound, UnknownRalph, UsageError
from ralphd.unix_http import HttpReply, UnixConnection

EVENTS, FLEET_EVENTS = "/events", "/fleet/events"
# A start waits for its command to be executed, which the daemon bounds at 10 s.
_CHANGE_LIMIT_S = 60.0
# A start in a worktree waits for `[ralph] setup`, which has the time limit of the tests.
_SETUP_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a reply, as it came."""

    body: bytes

    @property
    def value(self) -> Any:
        """The reply as JSON; None without a body."""
        return json.loads(self.body) if self.body else None


class Client:
    """Requests to the daemon behind the first socket that answers.

    Every method raises DaemonNotRunning or DaemonBusy when it cannot be reached, and the RalphdError that
    the daemon's problem document names when it refuses.
    """

    def __init__(
        self, find: Callable[[], Sequence[str]], *, reports_waits: bool = False, sticks: bool = False
    ) -> None:
        """``find`` returns where the socket may be; ``reports_waits`` prints a notice about a slow reply.

        ``sticks``: keep to the daemon that answered first. When that of ``ralphctl build`` has ended, the
        next daemon, which may know another ralph of the same name, must not be asked in its place.
        """
        self._find, self._reports_waits = find, reports_waits
        self._sticks, self._path = sticks, ""
        self._headers: Mapping[str, str] = {}

    def on_behalf(self, device: str) -> "Client":
        """Return a client whose requests are recorded as those of a device of the page."""
        client = Client(self._find, sticks=self._sticks)
        client._headers = {wire.DEVICE_HEADER: quote(device)}
        return client

    def without_notices(self) -> "Client":
        """Return a client of the same daemon for callers that show by themselves that they wait."""
        path = self._path
        return Client(lambda: [path], sticks=True) if path else Client(self._find, sticks=self._sticks)

    @property
    def paths(self) -> Sequence[str]:
        """Where the socket may be, best first, looked up at each access until the client sticks to one."""
        return [self._path] if self._path else self._find()

    def status(self) -> Reply:
        """Return the daemon and all its ralphs."""
        return self._get("/status")

    def ralph(self, name: str) -> Reply:
        """Return one ralph's view."""
        return self._get(wire.ralph_path(name))

    def views(self) -> list[dict[str, Any]]:
        """Return the views of all ralphs."""
        return list(self.status().value["ralphs"])

    def name_here(self, directory: str) -> str:
        """Return the ralph of ``directory`` or the nearest one above it, else the only one.

        Where ``ralphctl build`` worked, another directory's ralph is never meant. Raise UnknownRalph.
        """
        views = self.views()
        view = discovery.of_directory(views, directory)
        if view is None and (left := discovery.left_by_build(directory)) is not None:
            what = f"no daemon works in {left['directory']}: its ralph was that of ralphctl build"
            why = "the ralphs that a daemon works for have to be named here"
            raise UnknownRalph(what, why=why, mend="ralphctl build, or ralphctl status --all")
        view = views[0] if view is None and len(views) == 1 else view
        if view is None:
            raise none_works_in(directory, (str(each["name"]) for each in views))
        return str(view["name"])

    def register(self, registration: Mapping[str, object]) -> Reply:
        """Register a ralph and start it."""
        return self._call("POST", "/ralphs", registration)

    def ask(self, name: str, action: str, words: Mapping[str, object] | None = None) -> Reply:
        """Request ``start, stop, restart, pause, resume, skip-wait, reload, undo`` or ``ack``; or add to
        ``tasks`` or ``notes``.
        """
        if "/" in name:
            return self._ask_elsewhere(name, action, words)
        limit_s = _SETUP_LIMIT_S if action == "start" else _CHANGE_LIMIT_S
        return self._call("POST", f"/ralphs/{name}/{action}", words or {}, limit_s=limit_s)

    def _ask_elsewhere(self, target: str, action: str, words: Mapping[str, object] | None) -> Reply:
        """Request it of a ralph ``HOST/NAME``. Raise HubSilent where the request waits for the machine."""
        host, _, name = target.partition("/")
        if words:
            what = f"--{next(iter(words))} does not reach another machine"
            raise UsageError(what, mend=f"type it on {host}")
        reply = self.order(host, action, name).value
        if not reply["done"]:
            raise HubSilent(absent_words(target, action), mend="ralphctl fleet status")
        return Reply(json.dumps(reply["ralph"]).encode())

    def remove_task(self, name: str, id: str) -> Reply:
        """Remove an added task of a ralph by its number or text, or a pending note by its number."""
        return self._call("DELETE", f"/ralphs/{name}/tasks/{quote(id)}", None)

    def report(self, name: str, report: Mapping[str, object], *, limit_s: float) -> Reply:
        """Deliver a report of a ralph's run; its reply comes within ``limit_s`` seconds."""
        return self._call("POST", f"/ralphs/{name}/reports", report, limit_s=limit_s)

    def start_in_worktrees(self, words: Mapping[str, object]) -> Reply:
        """Start ralphs in new worktrees; the reply comes when their setup has ended."""
        return self._call("POST", "/trees", words, limit_s=_SETUP_LIMIT_S)

    def trees(self) -> Reply:
        """Return every worktree."""
        return self._get("/trees")

    def remove_tree(self, name: str, *, keep: bool) -> Reply:
        """Remove a worktree; ``keep``: save what is in it first."""
        return self._call("DELETE", f"/trees/{name}" + ("?keep=1" if keep else ""), None)

    def explain(self, name: str) -> Reply:
        """Return why the Regent last acted on a ralph."""
        return self._get(f"{wire.ralph_path(name)}/explain")

    def iterations(self, name: str, limit: int) -> Reply:
        """Return a ralph's iterations, newest first."""
        return self._get(f"/ralphs/{name}/iterations?limit={limit}")

    def verdicts(self, name: str, limit: int) -> Reply:
        """Return the verdicts on a ralph's iterations, newest first."""
        return self._get(f"/ralphs/{name}/verdicts?limit={limit}")

    def forget(self, name: str) -> Reply:
        """Forget a ralph that does not run."""
        return self._call("DELETE", f"/ralphs/{name}", None)

    def landing(self) -> Reply:
        """Return the landing queues."""
        return self._get("/landing")

    def land(self, name: str, branch: str | None, *, is_for_pr: bool = False) -> Reply:
        """Queue the branch of a ralph, or another one, to land, or only to be pushed for a pull request."""
        return self._call("POST", "/landing", {"ralph": name, "branch": branch, "pr": is_for_pr})

    def undo_landing(self, name: str, number: int | None) -> Reply:
        """Queue the revert of a landing in the repository of a ralph."""
        return self._call("POST", "/landing/undo", {"ralph": name, "number": number})

    def fleet(self) -> Reply:
        """Return the fleet as the daemon sees it."""
        return self._get("/fleet")

    def elsewhere(self) -> dict[str, Any]:
        """Return the views of the ralphs of other machines, and ``host``: this one, empty without a fleet."""
        try:
            return dict(self._get("/fleet/ralphs").value)
        except (NoFleet, NotFound, UnknownRalph):  # the latter two: an older daemon has no such route
            return {"host": "", "ralphs": []}

    def submit(self, item: Mapping[str, object]) -> Reply:
        """Add an item to the fleet."""
        return self._call("POST", "/fleet/items", item)

    def explain_item(self, item: str) -> Reply:
        """Return why no machine takes an item."""
        return self._get(f"/fleet/items/{quote(item, safe='')}/explain")

    def act_on_item(self, item: str, verb: str) -> Reply:
        """Carry out a verb on an item."""
        return self._call("POST", f"/fleet/items/{quote(item, safe='')}/{verb}", {})

    def order(self, machine: str, verb: str, name: str = "") -> Reply:
        """Request something of a machine of the fleet, or of a ralph there."""
        what = f"ralphs/{machine}/{name}" if name else f"hosts/{machine}"
        return self._call("POST", f"/fleet/{what}/{verb}", {})

    def quota(self) -> Reply:
        """Return the accounts of the agents: limits, windows, who waits."""
        return self._get("/quota")

    def webhooks(self) -> Reply:
        """Return every webhook, wherever it is configured."""
        return self._get("/webhooks")

    def add_webhook(self, words: Mapping[str, object]) -> Reply:
        """Add a webhook, or replace an added one."""
        return self._call("POST", "/webhooks", words)

    def remove_webhook(self, id: str) -> Reply:
        """Remove a webhook that was added."""
        return self._call("DELETE", f"/webhooks/{id}", None)

    def test_webhook(self, id: str) -> Reply:
        """Send a test to a webhook and return its response."""
        return self._call("POST", f"/webhooks/{id}/test", {})

    def deliveries(self, id: str | None, limit: int) -> Reply:
        """Return the last deliveries to a webhook, or to all, newest first."""
        return self._get((f"/webhooks/{id}" if id else "") + f"/deliveries?limit={limit}")

    def replay(self, delivery: int) -> Reply:
        """Send the message of a delivery again."""
        return self._call("POST", f"/deliveries/{delivery}/replay", {})

    def reload(self) -> Reply:
        """Have the daemon read the user's own configuration again."""
        return self._call("POST", "/reload", {})

    def shutdown(self, runs: str) -> Reply:
        """End the daemon; ``runs`` says what becomes of them: ``finish``, ``now`` (killed) or ``leave``."""
        return self._call("POST", "/shutdown", {"runs": runs})

    def log(self, name: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the records of a log."""
        parts = self._parts(f"{wire.ralph_path(name)}/logs?{urlencode({**query, 'format': 'json'})}")
        return map(json.loads, lines_of(parts))

    def log_text(self, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the bytes of a log as they were printed, in parts of any size."""
        return self._parts(f"{wire.ralph_path(name)}/logs?{urlencode({**query, 'format': 'text'})}")

    def past_events(self, number: int, path: str = EVENTS) -> Iterator[dict[str, Any]]:
        """Yield the last ``number`` events, of this machine or (``FLEET_EVENTS``) of all."""
        return events_of(lines_of(self._parts(f"{path}?replay={number}&follow=false")))

    def last_event(self, path: str = EVENTS) -> int:
        """Return the id of the latest event; 0 if there is none."""
        return max((int(event["id"]) for event in self.past_events(1, path)), default=0)

    def events_after(self, id: int, path: str = EVENTS) -> Iterator[dict[str, Any]]:
        """Yield the events that are kept after the one with this id."""
        return events_of(lines_of(self._parts(f"{path}?since={id}&follow=false")))

    def _get(self, path: str) -> Reply:
        return self._call("GET", path, None, limit_s=transport.ANSWER_S)

    def _call(
        self, method: str, path: str, words: Mapping[str, object] | None, *, limit_s: float = _CHANGE_LIMIT_S
    ) -> Reply:
        given = None if words is None else json.dumps(words)
        on_slow = slow_notice("ralphd to answer", limit_s) if self._reports_waits else None
        connection = self._connect(limit_s)
        with transport.exchange(
            connection, method, path, given, headers=self._headers, on_slow=on_slow
        ) as response:
            return Reply(response.read())

    def _connect(self, limit_s: float) -> UnixConnection:
        connection = transport.connect(self.paths, timeout_s=limit_s)
        if self._sticks:
            self._path = connection.path
        return connection

    def _parts(self, path: str) -> Iterator[bytes]:
        with transport.exchange(self._connect(_CHANGE_LIMIT_S), "GET", path) as response:
            yield from parts_of(response)


def absent_words(target: str, verb: str) -> str:
    """Return what becomes of a request to a ralph ``HOST/NAME`` whose machine is absent."""
    host, _, name = target.partition("/")
    return f"{host} is absent: {name} gets `{verb}` if {host} is back within a day, or when it is taken over"


def parts_of(response: HttpReply) -> Iterator[bytes]:
    """Yield the body of a reply, as it comes."""
    return iter(lambda: response.read1(1 << 16), b"")


def lines_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream. Only a newline ends a line; an unfinished last one is dropped."""
    return itertools.chain.from_iterable(batches_of(parts))


def batches_of(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines that each part completes, at times none."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield lines


def events_of(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the server-sent events of a stream: each is one JSON object on one ``data:`` line."""
    return (json.loads(line[5:]) for line in lines if line.startswith(b"data:"))
