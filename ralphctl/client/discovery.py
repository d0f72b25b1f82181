"""Find the daemon's socket and the ralph that a command means, from the directory it was typed in.

A ``.ralph/lock`` names the daemon that supervises its directory, for people: agents can write it, so nothing
is sent to the socket that it names. A ``ralphctl build`` is found in the state directory. Loaded early.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from ralphctl.offline import state as offline
from ralphd import wire
from ralphd.errors import BadName, DirectoryUnusable
from ralphd.plain_files import open_plain

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any


_LOCK_BYTES = 16384


def candidates(given: str | None, environ: Mapping[str, str], directory: str) -> list[str]:
    """Return where the socket may be, best first; ``given`` by ``--socket`` it is the only one."""
    if given:
        return [os.path.abspath(given)]
    return list(dict.fromkeys(wire.socket_candidates(environ, build_socket(environ, directory))))


def build_socket(environ: Mapping[str, str], directory: str) -> str | None:
    """Return the socket of the ``ralphctl build`` that runs here or in the nearest directory above it."""
    homes = offline.build_directories(environ)
    for above in offline.upward(directory) if homes else ():
        for home in homes:
            if home.endswith(offline.build_digest(above)) and offline.is_held(os.path.join(home, "lock")):
                return os.path.join(home, "ralphd.sock")
        if lock_owner(above):  # another daemon works here: a build further up does not know this directory
            return None
    return None


def lock_owner(directory: str) -> str | None:
    """Return the socket that the live ``.ralph/lock`` of this very directory names."""
    try:
        with open_plain(os.path.join(directory, ".ralph", "lock")) as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or not offline.is_flocked(about.st_ino):
                return None
            content = json.loads(file.read(_LOCK_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    socket = content.get("socket") if isinstance(content, dict) else None
    return socket if isinstance(socket, str) and os.path.isabs(socket) else None


def here() -> str:
    """Return the current directory. Raise DirectoryUnusable if it has been deleted."""
    try:
        return os.getcwd()
    except OSError as fault:
        what = "the current directory no longer exists"
        raise DirectoryUnusable(what, mend="cd  to one that exists") from fault


def change_directory(directory: str) -> None:
    """Carry out ``-C DIR``. Raise DirectoryUnusable."""
    try:
        os.chdir(directory)
    except OSError as fault:
        raise DirectoryUnusable(f"-C {directory}: cannot change to it", why=fault.strerror or "") from fault


def check_name(name: str, *, in_fleet: bool = False) -> str:
    """Return ``name`` if it is valid as a ralph's name; ``in_fleet``: or as ``HOST/NAME``. Raise BadName."""
    host, slash, last = name.rpartition("/")
    if wire.is_name(last) and (not slash or (in_fleet and wire.is_name(host))):
        return name
    why = f"allowed: a-z 0-9 . _ -, a letter or digit first, at most {wire.MAX_NAME_CHARS} characters"
    raise BadName(f"{name!r} is not the name of a ralph", why=why, mend="ralphctl status --all")


def of_directory(views: Sequence[dict[str, Any]], directory: str) -> dict[str, Any] | None:
    """Return the view of the ralph that works in ``directory`` or the nearest directory above it."""
    by_identity = {_identity(view["directory"]): view for view in views if view.get("directory")}
    by_identity.pop(None, None)
    identities = map(_identity, offline.upward(directory))
    return next((by_identity[own] for own in identities if own in by_identity), None)


def _identity(path: str) -> tuple[int, int] | None:
    """Return what is the same for every path to a directory: one call, where realpath takes one per part."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def last_known_view(directory: str) -> dict[str, Any] | None:
    """Return the nearest view in the files here or above, as far as it holds without a daemon."""
    if (view := offline.nearest_view(directory)) is None:
        return None
    return offline.without_daemon(view, ended_with_it=offline.build_home(view, os.environ) is not None)


def known_views(*, builds_only: bool = False) -> list[dict[str, Any]]:
    """Return all ralphs in the user's state directory, builds included, as far as known without a daemon."""
    views: dict[str, dict[str, Any]] = {}
    stored = [each for each in offline.stored_views(os.environ) if each[0] or not builds_only]
    for is_build, view in sorted(stored, key=lambda each: each[1].get("started_at") or ""):
        where = view["directory"]  # of several, the last one that worked there
        is_watched = lock_owner(where) is not None
        views[where] = view if is_watched else offline.without_daemon(view, ended_with_it=is_build)
    return list(views.values())


def left_by_build(directory: str) -> dict[str, Any] | None:
    """Return what ``ralphctl build`` or a loop started by hand left here or above, unknown to any daemon."""
    view = last_known_view(directory)
    return view if view is not None and is_without_daemon(view) else None


def is_without_daemon(view: dict[str, Any]) -> bool:
    """Return whether a last known view is that of a ralph that no daemon works for."""
    only_checkpoint = "run_id" not in view and "ralph_pid" not in view
    return only_checkpoint or offline.build_home(view, os.environ) is not None
