"""``ralphctl status`` without click, whose import alone takes longer.

Command lines that ``_parse`` does not know are left to click, which calls ``answer`` with what it understood.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from ralphctl.client import discovery
from ralphctl.format import checkpoint_text, status_text
from ralphctl.format.humanize import count
from ralphctl.format.output import columns, has_colour, message, slow_notice
from ralphctl.offline import state as offline
from ralphd import wire
from ralphd.errors import DaemonNotRunning, UnknownRalph

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any


NO_DAEMON_HERE = "no daemon works here; last known:"


class StatusQuery:
    """What a ``status`` on the command line asks for. No dataclass: it would cost start-up time."""

    name: str | None = None
    socket: str | None = None
    as_json = every = resources = False


def run(arguments: Sequence[str]) -> int | None:
    """Answer ``status`` and return its exit code; None if the command line is for click."""
    query = _parse(arguments)
    return None if query is None else answer(query)


def _parse(arguments: Sequence[str]) -> StatusQuery | None:
    words = iter(arguments)
    query, command, directory = StatusQuery(), None, None
    for word in words:
        if word == "--json":
            query.as_json = True
        elif word in ("-C", "--socket"):
            value = next(words, None)
            if value is None or (word == "-C" and directory is not None):
                return None
            if word == "-C":
                directory = value
            else:
                query.socket = value
        elif command is None and word in ("status", "ps"):
            command = word
        elif command and word in ("--all", "-a"):
            query.every = True
        elif command and word == "--resources":
            query.resources = True
        elif command and not word.startswith("-") and query.name is None:
            query.name = word
        else:
            return None
    if command is None:
        return None
    if directory is not None:
        discovery.change_directory(directory)
    return query


def answer(query: StatusQuery) -> int:
    """Print the status, from the daemon or as last known, and return the exit code."""
    # http.client is half of the start-up time, and --help needs none. It imports ssl for HTTPS, and does
    # without where it is missing: for a process that only prints a status, over a Unix socket, it is.
    is_loaded = sys.modules.setdefault("ssl", None) is not None  # type: ignore[arg-type]  # None: no import
    from ralphctl.client import transport

    if not is_loaded:
        del sys.modules["ssl"]
    name = discovery.check_name(query.name) if query.name is not None else None
    directory = discovery.here()
    target = f"/ralphs/{name}" if name else "/status"
    try:
        body = transport.request(
            discovery.candidates(query.socket, os.environ, directory),
            "GET",
            target + ("?resources=1" if query.resources else ""),
            on_slow=slow_notice("ralphd to answer", transport.ANSWER_LIMIT_S),
        )
    except DaemonNotRunning:
        own = discovery.last_known_view(directory)
        if own is None or name not in (None, own["name"]):
            raise
        return _print_last_known(query, own, "no daemon; last known:")
    except UnknownRalph:
        if name and (own := discovery.left_by_build(directory)) is not None and own["name"] == name:
            return _print_last_known(query, own, NO_DAEMON_HERE)
        raise
    reply = json.loads(body)
    views = [reply] if name else reply["ralphs"]
    mine = None
    if not (query.every or name):
        mine = discovery.of_directory(views, directory)
        if mine is None and (own := discovery.left_by_build(directory)) is not None:
            return _print_last_known(query, own, NO_DAEMON_HERE)
    print(body.decode() if query.as_json else _page(views, mine))
    return wire.status_exit_code([view["state"] for view in ([mine] if mine else views)])


def _page(views: Sequence[dict[str, Any]], mine: dict[str, Any] | None) -> str:
    """Return ``mine`` in full inside its directory, else a single ralph in full, else a table."""
    now, colour = time.time(), has_colour(sys.stdout)
    if not views:
        return "no ralph yet\n  next: ralphctl start DIR -- COMMAND"
    if mine is None and len(views) > 1:
        return status_text.table(views, now, colour=colour, columns=columns(sys.stdout))
    view = mine or views[0]
    directory = str(view.get("directory") or "/")
    known = view.get("checkpoint")
    checkpoint: Mapping[str, Any] | None = offline.checkpoint(directory)
    fault = "" if isinstance(known, dict) else offline.checkpoint_fault(directory)
    if isinstance(known, dict):
        checkpoint = checkpoint_text.fuller(known, checkpoint)
    text = status_text.ralph(
        view, now, checkpoint=checkpoint, checkpoint_fault=fault, colour=colour, columns=columns(sys.stdout)
    )
    states = [each.get("state") for each in views if each is not view]
    if not states:
        return text
    some = ", ".join(f"{states.count(state)} {state}" for state in ("failed", "paused") if state in states)
    others = count(len(states), "other ralph") + (f" ({some})" if some else "")
    return f"{text}\n\nand {others}: ralphctl status --all"


def _print_last_known(query: StatusQuery, view: dict[str, Any], head: str) -> int:
    checkpoint = offline.checkpoint(view["directory"])
    message(head)
    if query.as_json:
        view = {**view, "checkpoint": checkpoint}
        alone = query.name is not None
        print(json.dumps(view if alone else {"daemon": None, "last_known": True, "ralphs": [view]}))
        return wire.status_exit_code([view["state"]])
    step = ("start the daemon", "ralphctl regent start")
    if discovery.is_without_daemon(view):
        step = ("go on" if view["state"] == "paused" else "start again", "ralphctl build")
    now, colour, width = time.time(), has_colour(sys.stdout), columns(sys.stdout)
    fault = offline.checkpoint_fault(view["directory"])
    text = status_text.ralph(
        view, now, checkpoint=checkpoint, checkpoint_fault=fault, colour=colour, step=step, columns=width
    )
    print(text)
    return wire.status_exit_code([view["state"]])
