"""Read the last state of ralphs from disk: ``.ralph/`` of a working directory, and the state directory.

Agents can write to ``.ralph/``, so every value is checked and left out if it does not fit. Loaded by
``status``: few imports.
"""

# pathlib would cost `status` its start-up time.
# ruff: noqa: PTH118, PTH119, PTH120, PTH123, PTH208
from __future__ import annotations

import os

from ralphd import overview, wire
from ralphd.errors import UnknownRalph
from ralphd.plain_files import MAX_PEEK_BYTES, peek, read_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from ralphd.core.landing.model import LandingQueue


def is_within_run() -> bool:
    """Return whether this process belongs to a run, by its environment or by what the kernel knows (A3)."""
    if os.environ.get("RALPH_RUN_ID"):
        return True
    from ralphd.process import peer_run, tree

    pid = os.getpid()
    return peer_run.run_of(pid, os.geteuid(), tree.start_ticks(pid), lambda _: True) is not None


def is_flocked(inode: int) -> bool:
    """Return whether any process holds a flock on the file with this inode."""
    # Trying the lock would refuse it, for a moment, to the Regent that wants it. Reading does not.
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            return any("FLOCK" in line and f":{inode} " in line for line in locks)
    except OSError:
        return True


def is_held(lock: str | Path) -> bool:
    """Return whether any process holds the lock file ``lock``; False if nothing is there."""
    try:
        return is_flocked(os.lstat(lock).st_ino)
    except OSError:
        return False


def upward(directory: str) -> Iterator[str]:
    """Yield ``directory`` without symlinks, then each directory above it."""
    path, below = os.path.realpath(directory), ""
    while path != below:
        yield path
        path, below = os.path.dirname(path), path


def nearest_view(directory: str) -> dict[str, Any] | None:
    """Return the last known view of the ralph in ``directory``, or in the nearest directory above it."""
    return next((view for above in upward(directory) if (view := last_view(above))), None)


def last_view(directory: str) -> dict[str, Any] | None:
    """Return the last known view of the ralph in ``directory``; None if nothing can be read there.

    A ``regent-state.json`` with only the six keys of the file's first version counts, its state then follows
    from its pid; so does a checkpoint alone, left by a loop that was started by hand.
    """
    saved = peek(os.path.join(directory, ".ralph", "regent-state.json"))
    return _view_of_checkpoint(directory) if saved is None else view_of(saved, directory)


def view_of(saved: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """Convert a ``regent-state.json`` to a view, without values that do not fit."""
    kinds = wire.STATE_KEYS
    view = {key: value for key, value in saved.items() if key in kinds and wire.fits(value, kinds[key])}
    if "pool" in saved:
        view["pool"] = _pool(saved["pool"])
    # It stands in commands that people copy, and a run can write the file.
    view["name"] = name if wire.is_name(name := view.get("name", "")) else os.path.basename(directory) or "/"
    view.setdefault("state", "running" if view.get("ralph_pid") else "idle")
    view["directory"] = directory
    return view


_STRATEGIES = ("rotate", "fallback")


def _pool(saved: object) -> dict[str, Any] | None:
    if not isinstance(saved, dict) or saved.get("strategy") not in _STRATEGIES:
        return None
    agents = saved.get("agents")
    if not isinstance(agents, list) or not agents or not all(map(_is_agent, agents)):
        return None
    fitting = [{key: agent[key] for key in wire.POOL_AGENT_KEYS} for agent in agents]
    return {"strategy": saved["strategy"], "agents": fitting}


def _is_agent(saved: object) -> bool:
    return isinstance(saved, dict) and all(
        key in saved and wire.fits(saved[key], kind) for key, kind in wire.POOL_AGENT_KEYS.items()
    )


_RESTS = ("usage_limit", "rate_limit", "outage", "user_requested")
"""Why a checkpoint is saved at the end of a run that should be resumed."""


def _view_of_checkpoint(directory: str) -> dict[str, Any] | None:
    if (saved := checkpoint(directory)) is None:
        return None
    reason = saved.get("pause_reason")
    rests = isinstance(reason, str) and reason in _RESTS
    state = {"state": "paused" if rests else "stopped", "pause_reason": reason if rests else None}
    notes = ["known from its checkpoint alone; a loop may be running here"]
    return {"name": os.path.basename(directory) or "/", "directory": directory, **state, "notes": notes}


def landing_queues(state_directory: str) -> list[LandingQueue]:
    """Return the landing queues of a state directory that can be read."""
    if not os.path.lexists(os.path.join(state_directory, "landing")):
        return []
    from pathlib import Path

    from ralphd.store.shared.landing import known_queues  # loads pydantic

    return [queue for files in known_queues(Path(state_directory)) if (queue := files.peek())]


def landing_view(view: dict[str, Any], queues: Iterable[LandingQueue]) -> dict[str, Any]:
    """Return ``view`` with where its branch stands in these queues."""
    for queue in queues:
        from ralphd.core.landing.views import landing_of

        shown = landing_of(queue, str(view["name"]), is_active=overview.is_at_work(view))
        view = view | {"landing": shown or view.get("landing")}
    return view


def repository_of(directory: str) -> str | None:
    """Return the git directory that all work trees of the repository around ``directory`` share."""
    from pathlib import Path

    from ralphd.git.repo import Repository

    repository = Repository.find(Path(directory))
    return None if repository is None else str(repository.common)


def without_daemon(view: dict[str, Any], *, ended_with_it: bool = False) -> dict[str, Any]:
    """Return ``view`` as it holds while no daemon answers: nothing starts or continues.

    A run is alive if its pid is, and carries the run's cookie. The next daemon starts what should run, but
    not where the view ``ended_with_it``: a daemon of ``ralphctl build`` has no successor.
    """
    view, state = {**view}, view["state"]
    again = view.get("goal") == "running" and not ended_with_it
    later = "; it restarts as soon as a daemon runs" if again else ""
    wait = {"reason": "no_daemon", "until": None} if again else None
    is_paused = view.get("goal") == "paused" and not ended_with_it
    at_rest = {"state": "paused", "pause_reason": "requested"} if is_paused else {"state": "stopped"}
    has_run = overview.has_a_run(view)
    if has_run and _lives(view.get("ralph_pid"), view.get("run_id")):
        view["notes"] = ["no daemon supervises it now"]
    elif has_run:
        view |= {"state": "waiting_for_retry"} if again else at_rest
        gone = f"it was {state} when its daemon ended; its process is gone, its exit status not read yet"
        returns = f"return with the next {'ralphctl build' if ended_with_it else 'daemon'}"
        aside = [f"uncommitted changes that its tests had set aside {returns}"] if state == "testing" else []
        view |= {"ralph_pid": None, "wait": wait, "notes": [gone + later, *aside]}
    elif state == "waiting_for_retry":
        view.update(state=state if again else "stopped", wait=wait)
        view["notes"] = [f"it was waiting to restart when its daemon ended{later}"]
    elif view.get("wait"):
        view.update(wait=None)
        view["notes"] = [] if ended_with_it else ["it was due to continue automatically, but no daemon runs"]
    return view


def _lives(pid: object, run_id: object) -> bool:
    if not isinstance(pid, int) or pid <= 1:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            if stat.read().rpartition(b")")[2].split()[0] in b"ZX":
                return False
        with open(f"/proc/{pid}/environ", "rb") as environ:
            carried = environ.read().split(b"\0")
    except PermissionError:  # another user's: its cookie cannot be read
        return True
    except OSError:
        return False
    return not isinstance(run_id, str) or f"RALPH_RUN_ID={run_id}".encode() in carried


def build_home(view: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the home kept by a private ralphd of ``ralphctl build``; None if the last run was another's."""
    homes = (_home_in(kept, view) for kept in build_directories(environ))
    return next((home for home in homes if home), None)


def home(view: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the ralph's home, whichever daemon kept it; None if it cannot be found."""
    return build_home(view, environ) or _home_in(wire.state_directory(environ), view)


def _home_in(state_directory: str, view: dict[str, Any]) -> str | None:
    """Return the ralph's home in a state directory, if the run in ``view`` was its last."""
    home = os.path.join(state_directory, "ralphs", str(view["name"]))
    saved = peek(os.path.join(home, "regent-state.json"))
    return home if saved and saved.get("run_id") and saved["run_id"] == view.get("run_id") else None


def task_position(view: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the position of the view's task in the built-in loop's list, from 1, and the number of tasks.

    None if that cannot be known: without a list, for another user's daemon, for a task not in the list.
    """
    task = view.get("task")
    if not isinstance(task, dict) or not (kept := home(dict(view), environ)):
        return None
    file = (peek(os.path.join(kept, "loop.json")) or {}).get("list_file")
    if not isinstance(file, str) or (data := read_bytes(os.path.join(view["directory"], file))) is None:
        return None
    from ralphd.core.plan import parse

    ids = [each.id for each in parse(file, data.decode("utf-8-sig", "replace")).tasks]
    return (ids.index(task["id"]) + 1, len(ids)) if task.get("id") in ids else None


def stored_views(environ: Mapping[str, str]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield each ralph in the state directory: whether a build left it, and its last view."""
    for is_build, state in enumerate((wire.state_directory(environ), *build_directories(environ))):
        for home in _below(os.path.join(state, "ralphs")):
            definition = peek(os.path.join(home, "ralph.json")) or {}
            if isinstance(directory := definition.get("directory"), str):
                saved = peek(os.path.join(home, "regent-state.json")) or {}
                view = view_of(saved, directory) | {"name": os.path.basename(home)}
                kept = {key: definition[key] for key in ("command", "goal") if key in definition}
                yield is_build > 0, view | kept


def none_works_in(directory: str, names: Iterable[str]) -> UnknownRalph:
    """Return the error of a command that needs one ralph, typed where none works; ``names`` are known."""
    known = ", ".join(sorted({*names})[:12])
    why = "give its name, or go to its directory" + (f"\nknown: {known}" if known else "")
    return UnknownRalph(f"no ralph works in {directory}", why=why, mend="ralphctl status --all")


def _below(directory: str) -> list[str]:
    """Return the paths of all that is in ``directory``, by name."""
    try:
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    except OSError:
        return []


def registered_views(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return name, directory, command and state of each registered ralph.

    A ralph whose goal is to run counts as starting: the next daemon starts it.
    """
    views = []
    for is_build, view in stored_views(environ):
        if not is_build:
            is_starting = view.get("goal") == "running" and view["state"] not in ("paused", "done", "failed")
            known = {key: view.get(key) for key in ("name", "directory", "command")}
            views.append(known | {"state": "starting" if is_starting else "stopped"})
    return sorted(views, key=lambda view: view["name"])


def build_state_directory(directory: str, name: str | None, environ: Mapping[str, str]) -> Path:
    """Return the state directory for a build in ``directory``: ``build/NAME-HASH`` below the user's own.

    The hash is of the resolved directory, to keep directories of the same name apart.
    """
    from pathlib import Path

    from ralphd.config.values import fit_name

    real = os.path.realpath(directory)
    called = name or fit_name(os.path.basename(real))
    return Path(wire.state_directory(environ), "build", called + build_digest(real))


def build_digest(real: str) -> str:
    """Return what the name of a build's state directory ends in, for a resolved directory."""
    import hashlib

    return "-" + hashlib.sha256(os.fsencode(real)).hexdigest()[:8]


def build_directories(environ: Mapping[str, str]) -> list[str]:
    """Return the state directories of all builds."""
    return _below(os.path.join(wire.state_directory(environ), "build"))


def build_homes(state_directory: Path) -> list[Path]:
    """Return the homes of the ralphs of a build: one, unless it was given several names."""
    return sorted((state_directory / "ralphs").glob("*"))


def last_build(state_directory: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the command and the flags of the last build there.

    No command stands for the built-in loop, and for no build. A build that is done has no flags to keep.
    """
    for home in build_homes(state_directory):
        saved, state = (peek(str(home / file)) or {} for file in ("ralph.json", "regent-state.json"))
        command, flags = saved.get("command"), saved.get("flags")
        if isinstance(command, list) and isinstance(flags, dict):
            return [str(word) for word in command], {} if state.get("state") == "done" else flags
    return [], {}


CHECKPOINT_VERSION = 1
"""As in ``ralphd.core.loop.model``, which ``status`` does not load; a test compares them."""
CHECKPOINT_FILE = "checkpoint.json"


def checkpoint(directory: str) -> dict[str, Any] | None:
    return peek(os.path.join(directory, ".ralph", CHECKPOINT_FILE))


def checkpoint_fault(directory: str) -> str:
    """Return what is wrong with the checkpoint in ``directory``; empty for a good one and for none."""
    path = os.path.join(directory, ".ralph", CHECKPOINT_FILE)
    if not os.path.lexists(path):
        return ""
    if (saved := peek(path)) is None:
        return f"damaged, left unchanged: {path}"
    if isinstance(version := saved.get("version"), int) and version > CHECKPOINT_VERSION:
        return f"of a newer version ({version}), left unchanged: {path}"
    return ""


def read_bytes(path: str | Path) -> bytes | None:
    """Return the content of a regular file of 1 MiB at most; None for anything else, or if missing."""
    try:
        return read_plain(path, MAX_PEEK_BYTES)
    except (OSError, ValueError):
        return None


def quota_views(environ: Mapping[str, str], now: float) -> list[dict[str, Any]]:
    """Return the accounts of the agents from the files, as the daemon shows them."""
    from pathlib import Path

    from ralphd.core.quota.clock import view_of
    from ralphd.store.shared.quota import QuotaFiles, quota_directory

    files = QuotaFiles(quota_directory(Path(wire.state_directory(environ))))
    return [view_of(clock, now) for clock in files.clocks()]
