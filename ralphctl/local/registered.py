"""What a daemon knows while it is away: the ralphs in its state directory, as far as a start has to know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralphctl.local import lastknown
from ralphd import wire


def views(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Name, directory, command and state of each; what is to run does so as soon as a daemon is there."""
    homes = sorted((Path(wire.state_directory(environ)) / "ralphs").glob("*"))
    found = [_view(home) for home in homes if home.is_dir()]
    return [view for view in found if view is not None]


def _view(home: Path) -> dict[str, Any] | None:
    held = lastknown.read_file(str(home / "ralph.json"))
    if held is None or not isinstance(held.get("directory"), str):
        return None
    state = (lastknown.read_file(str(home / "regent-state.json")) or {}).get("state")
    return {
        "name": home.name,
        "directory": held["directory"],
        "command": held.get("command"),
        "state": "starting" if held.get("goal") == "running" and state != "paused" else "stopped",
    }
