"""``ralphctl status``, answered before click is imported: 25 ms instead of 80.

Words that this file does not know are left to click, which ends here again with what it understood.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ralphctl import full, link, problem
from ralphctl.offline import state as offline
from ralphctl.tell import columns, has_colour, message
from ralphctl.words import count
from ralphd import wire
from ralphd.errors import BadName, DaemonNotRunning, DirectoryUnusable, UnknownRalph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Asked:
    """What a ``status`` on the command line asks for."""

    __slots__ = ("as_json", "every", "name", "resources", "socket")

    def __init__(
        self,
        *,
        name: str | None = None,
        socket: str | None = None,
        as_json: bool = False,
        every: bool = False,
        resources: bool = False,
    ) -> None:
        self.name = name
        self.socket = socket
        self.as_json = as_json
        self.every = every
        self.resources = resources


def status(arguments: Sequence[str]) -> int | None:
    """Answer ``status`` and give its exit code; None when the words are for click."""
    asked = _parse(arguments)
    return None if asked is None else answer(asked)


def _parse(arguments: Sequence[str]) -> Asked | None:
    words = iter(arguments)
    asked, command, directory = Asked(), None, None
    for word in words:
        if word == "--json":
            asked.as_json = True
        elif word in ("-C", "--socket"):
            value = next(words, None)
            if value is None or (word == "-C" and directory is not None):
                return None
            if word == "-C":
                directory = value
            else:
                asked.socket = value
        elif command is None and word in ("status", "ps"):
            command = word
        elif command and word in ("--all", "-a"):
            asked.every = True
        elif command and word == "--resources":
            asked.resources = True
        elif command and not word.startswith("-") and asked.name is None:
            asked.name = word
        else:
            return None
    if command is None:
        return None
    if directory is not None:
        change_directory(directory)
    return asked


def change_directory(directory: str) -> None:
    """``-C DIR``: be there. Raises DirectoryUnusable."""
    try:
        os.chdir(directory)
    except OSError as fault:
        raise DirectoryUnusable(f"-C {directory}: cannot go there", why=fault.strerror or "") from fault


def here() -> str:
    """The directory we are in. Raises DirectoryUnusable when it has been deleted."""
    try:
        return os.getcwd()
    except OSError as fault:
        raise DirectoryUnusable(
            "the directory you are in is gone", mend="cd  to one that is there"
        ) from fault


def check_name(name: str) -> str:
    """``name`` when it is a ralph's name. Raises BadName."""
    if wire.is_name(name):
        return name
    raise BadName(
        f"{name!r} is no ralph's name",
        why=f"small letters, digits, '.', '_', '-'; a letter or digit first; at most {wire.MAX_NAME_CHARS}",
        mend="ralphctl status --all",
    )


def answer(asked: Asked) -> int:
    """Print what was asked for, from the daemon or from what is last known; gives the exit code."""
    name = check_name(asked.name) if asked.name is not None else None
    directory = here()
    target = f"{wire.API}/ralphs/{name}" if name else f"{wire.API}/status"
    target += "?resources=1" if asked.resources else ""
    try:
        code, body = link.get(link.candidates(asked.socket, os.environ, directory), target, slow=_tell_slow)
    except DaemonNotRunning as away:
        return _last_known(asked, name, directory, away)
    try:
        problem.check(code, body)
    except UnknownRalph:
        if name and (own := left_here(directory)) is not None and own["name"] == name:
            _tell_last_known(asked, own, "no daemon works here; last known:", alone=True)
            return wire.status_exit_code([own["state"]])
        raise
    held = json.loads(body)
    views = [held] if name else held["ralphs"]
    mine = None if asked.every or name else of_directory(views, directory)
    if mine is None and not (asked.every or name) and (own := left_here(directory)) is not None:
        _tell_last_known(asked, own, "no daemon works here; last known:", alone=False)
        return wire.status_exit_code([own["state"]])
    print(body.decode() if asked.as_json else _page(views, mine))
    return wire.status_exit_code([view["state"] for view in ([mine] if mine else views)])


def _tell_slow() -> None:
    if sys.stderr.isatty():
        message(f"waiting for ralphd to answer; {link.ANSWER_LIMIT_S:g} s at most")


def _page(views: Sequence[dict[str, Any]], mine: dict[str, Any] | None) -> str:
    """What ``status`` prints: ``mine`` in full where we are in its directory, else one in full or a table."""
    now, colour = time.time(), has_colour(sys.stdout)
    if not views:
        return "no ralph yet\n  next: ralphctl start DIR -- COMMAND"
    if mine is None and len(views) > 1:
        from ralphctl import table

        return table.table(views, now, colour=colour, columns=columns(sys.stdout))
    view = mine or views[0]
    directory = str(view.get("directory") or "/")
    told = view.get("checkpoint")
    checkpoint: Mapping[str, Any] | None = offline.checkpoint(directory)
    fault = "" if isinstance(told, dict) else offline.checkpoint_fault(directory)
    if isinstance(told, dict):
        from ralphctl.checkpoint_words import fuller  # most have none

        checkpoint = fuller(told, checkpoint)
    text = full.ralph(
        view, now, checkpoint=checkpoint, checkpoint_fault=fault, colour=colour, columns=columns(sys.stdout)
    )
    return text + _others(len(views) - 1, [v for v in views if v is not view])


def _others(number: int, views: Sequence[dict[str, Any]]) -> str:
    if not number:
        return ""
    states = [view.get("state") for view in views]
    some = [f"{states.count(state)} {state}" for state in ("failed", "paused") if state in states]
    return (
        f"\n\nand {count(number, 'other ralph')}"
        + (f" ({', '.join(some)})" if some else "")
        + (": ralphctl status --all")
    )


def of_directory(views: Sequence[dict[str, Any]], directory: str) -> dict[str, Any] | None:
    """The view of the ralph in whose directory, or below it, we are: the innermost one."""
    by_directory = {os.path.realpath(view["directory"]): view for view in views if view.get("directory")}
    return next((by_directory[above] for above in link.upward(directory) if above in by_directory), None)


def left_here(directory: str) -> dict[str, Any] | None:
    """What ``ralphctl build``, or a loop by hand, has left where we are or above: no daemon knows of it."""
    view = _kept(directory)
    return view if view is not None and _is_without_daemon(view) else None


def _kept(directory: str) -> dict[str, Any] | None:
    """The nearest view that a directory itself tells, as far as it can be so without a daemon."""
    view = next((known for above in link.upward(directory) if (known := offline.last_view(above))), None)
    if view is None:
        return None
    return offline.without_daemon(view, ended_with_it=offline.build_home(view, os.environ) is not None)


def _is_without_daemon(view: dict[str, Any]) -> bool:
    alone = "run_id" not in view and "ralph_pid" not in view  # by its checkpoint
    return alone or offline.build_home(view, os.environ) is not None


def _last_known(asked: Asked, name: str | None, directory: str, away: DaemonNotRunning) -> int:
    view = _kept(directory)
    if view is None or name not in (None, view["name"]):
        raise away
    _tell_last_known(asked, view, "no daemon; last known:", alone=name is not None)
    return wire.status_exit_code([view["state"]])


def _tell_last_known(asked: Asked, view: dict[str, Any], head: str, *, alone: bool) -> None:
    checkpoint = offline.checkpoint(view["directory"])
    again = ("go on" if view["state"] == "paused" else "start again", "ralphctl build")
    step = again if _is_without_daemon(view) else ("start the daemon", "ralphctl regent start")
    message(head)
    if asked.as_json:
        _print_last_known(view, checkpoint, alone=alone)
        return
    now, colour = time.time(), has_colour(sys.stdout)
    fault = offline.checkpoint_fault(view["directory"])
    shown = full.ralph(
        view, now, checkpoint=checkpoint, checkpoint_fault=fault, colour=colour, step=step,
        columns=columns(sys.stdout),
    )  # fmt: skip
    print(shown)


def _print_last_known(view: dict[str, Any], checkpoint: dict[str, Any] | None, *, alone: bool) -> None:
    view = {**view, "checkpoint": checkpoint}
    print(json.dumps(view if alone else {"daemon": None, "last_known": True, "ralphs": [view]}))
