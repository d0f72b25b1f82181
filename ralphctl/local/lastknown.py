"""What a working directory itself tells of its ralph: ``.ralph/regent-state.json`` and ``checkpoint.json``.

Used when no daemon answers, and for the checkpoint. Agents can write there, so every value is checked and
whatever does not fit is left out. Loaded by ``status``: little is imported.
"""

# pathlib would cost `status` its start-up time.
# ruff: noqa: PTH118, PTH119, PTH123, PTH208
from __future__ import annotations

import json
import os
import stat

from ralphd import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MOST_BYTES = 1 << 20
_TEXT = str | None
_HAS_A_RUN = ("starting", "running", "testing", "pausing", "stopping")
_STATE_KEYS: dict[str, Any] = {
    "ralph_pid": int | None,
    "iteration": int,
    "consecutive_errors": int,
    "last_output_at": _TEXT,
    "last_commit": _TEXT,
    "total_cost_usd": int | float,
    "version": int,
    "name": str,
    "state": str,
    "goal": str,
    "mode": str,
    "branch": _TEXT,
    "started_at": _TEXT,
    "finished_at": _TEXT,
    "passed": bool | None,
    "agent": _TEXT,
    "task": dict | None,
    "wait": dict | None,
    "restarts": int,
    "reverts": int,
    "last_exit": dict | None,
    "pause_reason": _TEXT,
    "run_id": _TEXT,
    "message": _TEXT,
    "last_change": dict | None,
    "incident": dict | None,
}


def state(directory: str) -> dict[str, Any] | None:
    """The last known view of the ralph in ``directory``; None when nothing can be read there.

    A ``regent-state.json`` with the seed's six keys alone counts too: its state is then told by its pid. So
    does a checkpoint alone, as a loop that was started by hand leaves it.
    """
    held = _read(directory, "regent-state.json")
    if held is None:
        return _by_checkpoint(directory)
    return shown(held, directory)


def shown(held: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """What a ``regent-state.json`` holds as a view, without what does not fit."""
    view = {
        key: value for key, value in held.items() if key in _STATE_KEYS and _fits(value, _STATE_KEYS[key])
    }
    if "pool" in held:
        view["pool"] = _pool(held["pool"])
    view.setdefault("name", os.path.basename(directory) or "/")
    view.setdefault("state", "running" if view.get("ralph_pid") else "idle")
    view["directory"] = directory
    return view


_AGENT_KEYS: dict[str, Any] = {"name": str, "in": bool, "until": _TEXT, "reason": _TEXT, "last": bool}
_STRATEGIES = ("rotate", "fallback")


def _pool(held: object) -> dict[str, Any] | None:
    """Who may be asked, when it is told as it should be."""
    if not isinstance(held, dict) or held.get("strategy") not in _STRATEGIES:
        return None
    agents = held.get("agents")
    if not isinstance(agents, list) or not agents or not all(map(_is_agent, agents)):
        return None
    told = [{key: agent[key] for key in _AGENT_KEYS} for agent in agents]
    return {"strategy": held["strategy"], "agents": told}


def _is_agent(held: object) -> bool:
    return isinstance(held, dict) and all(
        key in held and _fits(held[key], kind) for key, kind in _AGENT_KEYS.items()
    )


_RESTS = ("usage_limit", "rate_limit", "outage", "user_requested")
"""Why a checkpoint is saved at the end of a run that wants to be gone on with."""


def _by_checkpoint(directory: str) -> dict[str, Any] | None:
    held = checkpoint(directory)
    if held is None:
        return None
    reason = held.get("pause_reason")
    reason = reason if isinstance(reason, str) else None
    rests = reason in _RESTS
    view: dict[str, Any] = {"name": os.path.basename(directory) or "/", "directory": directory}
    return view | {
        "state": "paused" if rests else "stopped",
        "pause_reason": reason if rests else None,
        "notes": ["known by its checkpoint alone: whether a loop works here now is not"],
    }


def without_daemon(view: dict[str, Any], *, ended_with_it: bool = False) -> dict[str, Any]:
    """``view`` as far as it can be so while no daemon answers: nothing is started, or goes on, by itself.

    Whether its run lives is looked up, by the pid and the cookie that a run's processes carry. What was to be
    running is started by the next daemon (G2), but where it ``ended_with_it``: that of ``ralphctl build`` has
    no next one.
    """
    view, state = {**view}, view["state"]
    again = view.get("goal") == "running" and not ended_with_it
    later = "; it starts again as soon as a ralphd runs" if again else ""
    wait = {"reason": "no_daemon", "until": None} if again else None
    if state in _HAS_A_RUN and _lives(view.get("ralph_pid"), view.get("run_id")):
        view["notes"] = ["no ralphd watches it now"]
    elif state in _HAS_A_RUN:
        view.update(state="waiting_for_retry" if again else "stopped", ralph_pid=None, wait=wait)
        view["notes"] = [
            f"it was {state} when its ralphd ended; its process is gone, and nobody saw how{later}"
        ]
    elif state == "waiting_for_retry":
        view.update(state=state if again else "stopped", wait=wait)
        view["notes"] = [f"it was waiting to start again when its ralphd ended{later}"]
    elif view.get("wait"):
        view.update(wait=None)
        view["notes"] = ["it was to go on by itself, but no ralphd is there to see to that"]
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
    except PermissionError:  # another user's: it cannot be told apart
        return True
    except OSError:
        return False
    return not isinstance(run_id, str) or f"RALPH_RUN_ID={run_id}".encode() in carried


def build_home(view: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Where a private ralphd of ``ralphctl build`` keeps the originals; None if the last run was not its."""
    builds = os.path.join(wire.state_directory(environ), "build")
    try:
        places = os.listdir(builds)
    except OSError:
        return None
    homes = (_home_in(os.path.join(builds, place), view) for place in places)
    return next((home for home in homes if home), None)


def home(view: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Where the originals are, whoever kept them; None if that cannot be found."""
    return build_home(view, environ) or _home_in(wire.state_directory(environ), view)


def _home_in(place: str, view: dict[str, Any]) -> str | None:
    """The ralph's home in a state directory, if the run in ``view`` was its last."""
    home = os.path.join(place, "ralphs", str(view["name"]))
    held = read_file(os.path.join(home, "regent-state.json"))
    return home if held is not None and held.get("run_id") and held["run_id"] == view.get("run_id") else None


CHECKPOINT_VERSION = 1
"""As in ``ralphd.core.loop.state``, which ``status`` does not load; a test holds them together."""
CHECKPOINT_FILE = "checkpoint.json"


def checkpoint(directory: str) -> dict[str, Any] | None:
    """The checkpoint kept in ``directory``; None when there is none that can be read."""
    return _read(directory, CHECKPOINT_FILE)


def checkpoint_fault(directory: str) -> str:
    """What is wrong with the checkpoint in ``directory``, in words; empty for a good one and for none."""
    path = os.path.join(directory, ".ralph", CHECKPOINT_FILE)
    if not os.path.lexists(path):
        return ""
    held = read_file(path)
    if held is None:
        return f"damaged, and kept as it is: {path}"
    version = held.get("version")
    if isinstance(version, int) and version > CHECKPOINT_VERSION:
        return f"of a newer version ({version}), and kept as it is: {path}"
    return ""


def _fits(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not (
        isinstance(value, bool) and kind in (int, int | None, int | float)
    )


def _read(directory: str, name: str) -> dict[str, Any] | None:
    return read_file(os.path.join(directory, ".ralph", name))


def read_file(path: str) -> dict[str, Any] | None:
    """The JSON object in a regular file of 1 MiB at most; None for anything else, and for nothing."""
    try:
        # O_NONBLOCK: a FIFO put in its place must not hang `status`.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            return None
        held = json.loads(os.read(descriptor, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    return held if isinstance(held, dict) else None
