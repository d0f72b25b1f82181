"""The checkpoint of the built-in loop as a start meets it: whole, damaged, newer than us (L13, CP-6).

What is gone on from is the original in the ralph's own directory. The copy in ``.ralph/``, where agents
write, counts only where there is no other one: a daemon takes it over then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphctl.offline import state as offline
from ralphctl.offline.state import CHECKPOINT_FILE, CHECKPOINT_VERSION


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that is there. ``fault`` says why nothing can be gone on from by it.

    ``is_copy``: it is the copy in the working directory, and there is no original.
    """

    path: Path
    content: Mapping[str, Any]
    fault: str = ""
    is_newer: bool = False
    is_copy: bool = False


def find(directory: str, homes: list[Path], *, told: object = None) -> Found | None:
    """The checkpoint that a start in ``directory`` goes on from, or has to leave aside.

    ``homes`` are where its original may be; ``told`` is what the daemon tells of it, where we cannot look.
    """
    originals = [home / CHECKPOINT_FILE for home in homes]
    for path in originals:
        if os.path.lexists(path):
            return checked(path, Path(directory))
    if isinstance(told, dict):
        return Found(originals[0] if originals else Path(CHECKPOINT_FILE), told)
    copy = Path(directory) / ".ralph" / CHECKPOINT_FILE
    if not os.path.lexists(copy):
        return None
    found = checked(copy, Path(directory))
    return Found(found.path, found.content, found.fault, found.is_newer, is_copy=True)


def checked(path: Path, directory: Path) -> Found:
    """What is at ``path``, which is there."""
    from ralphd.store.checkpoint import CheckpointManager

    held = offline.read_file(str(path))
    if held is None:
        return Found(path, {}, "it is damaged: not a file with one JSON object")
    version = held.get("version")
    if isinstance(version, int) and version > CHECKPOINT_VERSION:
        known = f"version {version}, and this one knows {CHECKPOINT_VERSION}"
        return Found(path, held, f"it was written by a newer ralphd ({known})", is_newer=True)
    faults = CheckpointManager(path.parent, directory).verify(held)
    return Found(path, held, f"it is damaged: {'; '.join(faults)}" if faults else "")


def put_aside(found: Found) -> Path | None:
    """Put a copy aside that nobody can take over, before the loop writes its own there; where it is now."""
    from ralphd.store.files import set_aside

    return set_aside(found.path)


def runs_built_in(directory: str, flags: Mapping[str, object]) -> bool:
    """Whether a registration there without a command runs the built-in loop. Raises ConfigFaults."""
    from ralphd.config import load  # it loads pydantic, and is asked only where a checkpoint is

    return not load(Path(directory), flags=flags, environ=os.environ).ralph.command
