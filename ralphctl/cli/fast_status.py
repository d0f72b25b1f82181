"""``ralphctl status`` without click, whose import alone takes longer.

Command lines that ``_parse`` does not know are left to click, which calls ``answer`` with what it understood.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from ralphctl.client import discovery
from ralphctl.format.humanize import count, wrapped
from ralphctl.format.output import clean, columns, has_colour, message, slow_notice
from ralphctl.offline import state as offline
from ralphd import __version__, overview, wire
from ralphd.errors import DaemonNotRunning, RalphdError, UnknownRalph

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any

    View = dict[str, Any]

NAMES = ("status", "ps", "ls", "list")
NO_DAEMON_HERE = "no daemon here; last known state:"
NO_DAEMON = "no daemon; last known state:"


class StatusQuery:
    """What a ``status`` on the command line asks for. No dataclass: it would cost start-up time."""

    name: str | None = None
    socket: str | None = None
    form: str | None = None
    as_json = every = resources = running = quiet = short = False


_FLAGS = {
    "--json": "as_json", "--all": "every", "-a": "every", "--resources": "resources", "--running": "running",
    "-q": "quiet", "--quiet": "quiet", "--short": "short",
}  # fmt: skip


def run(arguments: Sequence[str]) -> int | None:
    """Answer ``status`` and return its exit code; None if the command line is for click."""
    query = _parse(arguments)
    return None if query is None else answer(query)


def _parse(arguments: Sequence[str]) -> StatusQuery | None:
    words = iter(arguments)
    query, command, directory = StatusQuery(), None, None
    for word in words:
        if word == "--json" or (command and word in _FLAGS):
            setattr(query, _FLAGS[word], True)
        elif word in ("-C", "--socket") or (command and word == "--format"):
            value = next(words, None)
            if value is None or (word == "-C" and directory is not None):
                return None
            if word == "-C":
                directory = value
            else:
                setattr(query, "socket" if word == "--socket" else "form", value)
        elif command is None and word in NAMES:
            command = word
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
    name = discovery.check_name(query.name, in_fleet=True) if query.name is not None else None
    directory, head = discovery.here(), ""
    try:
        reply, mine = _asked(query, name, directory)
    except (DaemonNotRunning, UnknownRalph) as fault:
        if name and "/" in name:
            raise  # what is known of another machine is not in files here
        known, head = _last_known(query, name, directory, fault)
        reply, mine = {"version": __version__, "daemon": None, "ralphs": known}, None
        if not known:
            if not query.short:
                raise
            return fault.exit_code  # a prompt shows no errors
    views = reply["ralphs"] if mine is None else [mine]
    code = wire.status_exit_code([view["state"] for view in views])
    if query.running:
        views, mine = [view for view in views if overview.is_at_work(view)], None
    if query.as_json:
        print(json.dumps({**reply, "ralphs": views}, ensure_ascii=False))
    elif query.short or query.quiet or query.form is not None:
        _print_lines(query, views)
    else:
        problems = (reply.get("daemon") or {}).get("problems", ())
        for line in [head] if head else [f"ralphd is degraded: {clean(each)}" for each in problems]:
            message("\n".join(wrapped(line, columns(sys.stdout) or len(line))))
        print(_page(query, views if mine is None else reply["ralphs"], mine, is_offline=bool(head)))
    return code


def _asked(query: StatusQuery, name: str | None, directory: str) -> tuple[View, View | None]:
    """Return the daemon's reply, and the view of the ralph in ``directory``.

    Raise DaemonNotRunning, or UnknownRalph.
    """
    view = json.loads(_request(query, wire.ralph_path(name), directory)) if name else None
    reply = json.loads(_request(query, "/status", directory))
    if view is not None:
        return {**reply, "ralphs": [view]}, None
    mine = None if query.every else discovery.of_directory(reply["ralphs"], directory)
    if not query.every and mine is None and discovery.left_by_build(directory) is not None:
        raise UnknownRalph("no daemon supervises this directory")
    return reply, mine


def _last_known(
    query: StatusQuery, name: str | None, directory: str, fault: RalphdError
) -> tuple[list[View], str]:
    """Return what the files hold of the ralphs that no daemon knows, and the note about that."""
    is_away = isinstance(fault, DaemonNotRunning)
    own = discovery.last_known_view(directory) if is_away else discovery.left_by_build(directory)
    if own is not None and name in (None, own["name"]) and not query.every:
        views = [own]
    else:
        known = discovery.known_views(builds_only=not is_away)
        views = [view for view in known if name in (None, view["name"])]
    queues = offline.landing_queues(wire.state_directory(os.environ)) if is_away else []
    is_build = discovery.is_without_daemon
    views = [view if is_build(view) else offline.landing_view(view, queues) for view in views]
    if query.as_json:
        views = [{**view, "checkpoint": offline.checkpoint(view["directory"])} for view in views]
    return views, NO_DAEMON if is_away else NO_DAEMON_HERE


def _request(query: StatusQuery, target: str, directory: str) -> bytes:
    from ralphctl.client import transport  # not for --help

    sockets = discovery.candidates(query.socket, os.environ, directory)
    on_slow = None if query.short else slow_notice("ralphd to answer", transport.ANSWER_S)
    return transport.get(sockets, target + ("?resources=1" if query.resources else ""), on_slow=on_slow)


def _print_lines(query: StatusQuery, views: Sequence[View]) -> None:
    from ralphctl.format import table_text

    now, form = time.time(), "{name}" if query.quiet else query.form
    if lines := table_text.short(views, now) if form is None else table_text.formatted(views, form, now):
        print(lines)


def _page(query: StatusQuery, views: Sequence[View], mine: View | None, *, is_offline: bool) -> str:
    """Return the ralph of the directory in full, else a single one in full, else a table."""
    now, colour, width = time.time(), has_colour(sys.stdout), columns(sys.stdout)
    if not views:
        return "no ralph is running" if query.running else "no ralph yet\n  next: ralphctl start DIR"
    if mine is None and (len(views) > 1 or query.running):
        from ralphctl.format import table_text

        steps = {id(view): [_offline_step(view)] for view in views} if is_offline else None
        return table_text.table(views, now, every=query.every, colour=colour, columns=width, steps=steps)
    from ralphctl.format import checkpoint_text, status_text

    view = mine or views[0]
    is_here = "/" not in view["name"]  # else its directory is on another machine
    directory, reported = str((is_here and view.get("directory")) or "/"), view.get("checkpoint")
    checkpoint = checkpoint_text.fuller(reported, offline.checkpoint(directory))
    fault = "" if isinstance(reported, dict) else offline.checkpoint_fault(directory)
    step = _offline_step(view) if is_offline else None
    text = status_text.ralph(
        view, now, checkpoint=checkpoint, checkpoint_fault=fault, colour=colour, step=step, columns=width
    )
    others = [each for each in views if each is not view]
    if not others:
        return text
    waiting = sum(map(overview.needs_you, others))
    some = f" ({waiting} waiting for you)" if waiting else ""
    landing = clean(overview.landing_line(overview.rows(others)))
    return f"{text}\n\nand {count(len(others), 'other')}{some}: ralphctl status --all\n{landing}".rstrip()


def _offline_step(view: View) -> tuple[str, str]:
    """Return what to do first about a ralph that no daemon supervises."""
    if discovery.is_without_daemon(view):
        from ralphctl.format import state_text

        return state_text.build_step(view, os.path.realpath(discovery.here()))
    return "start the daemon", "ralphctl regent start"
