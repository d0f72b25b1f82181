"""What a working directory itself tells of its ralph: ``.ralph/regent-state.json`` and ``checkpoint.json``.

Used when no daemon answers, and for the checkpoint. Agents can write there, so every value is checked and
whatever does not fit is left out. Loaded by ``status``: little is imported.
"""

# pathlib would cost `status` its start-up time.
# ruff: noqa: PTH118, PTH119
from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 1 << 20
_TEXT = str | None
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
    "task": _TEXT,
    "wait": dict | None,
    "restarts": int,
    "reverts": int,
    "last_exit": dict | None,
    "pause_reason": _TEXT,
    "run_id": _TEXT,
    "message": _TEXT,
}


def state(directory: str) -> dict[str, Any] | None:
    """The last known view of the ralph in ``directory``; None when nothing can be read there.

    A ``regent-state.json`` with the seed's six keys alone counts too: its state is then told by its pid.
    """
    held = _read(directory, "regent-state.json")
    if held is None:
        return None
    view = {
        key: value for key, value in held.items() if key in _STATE_KEYS and _fits(value, _STATE_KEYS[key])
    }
    view.setdefault("name", os.path.basename(directory) or "/")
    view.setdefault("state", "running" if view.get("ralph_pid") else "idle")
    view["directory"] = directory
    return view


def checkpoint(directory: str) -> dict[str, Any] | None:
    """The checkpoint kept in ``directory``; None when there is none that can be read."""
    return _read(directory, "checkpoint.json")


def _fits(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not (
        isinstance(value, bool) and kind in (int, int | None, int | float)
    )


def _read(directory: str, name: str) -> dict[str, Any] | None:
    path = os.path.join(directory, ".ralph", name)
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
