"""Which of how many tasks a ralph is at, by the list that its built-in loop works off.

The list lies where agents write, so a read is bounded, opens regular files only, and follows no link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralphctl.offline import state as offline

_MOST_BYTES = 1 << 20


def of_task(view: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The place of the view's task in the list, from 1, and how many tasks there are.

    None where that cannot be known: without a list, of somebody else's daemon, for a task that is not in it.
    """
    task = view.get("task")
    if not isinstance(task, dict) or not (home := offline.home(dict(view), environ)):
        return None
    held = offline.read_file(str(Path(home) / "loop.json"))
    file = held.get("list_file") if held else None
    text = _read(Path(str(view["directory"])), file) if isinstance(file, str) else None
    if text is None:
        return None
    from ralphd.core.plan import parse

    ids = [each.id for each in parse(str(file), text).tasks]
    return (ids.index(task["id"]) + 1, len(ids)) if task.get("id") in ids else None


def _read(directory: Path, file: str) -> str | None:
    try:
        descriptor = os.open(directory / file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = opened.read(_MOST_BYTES + 1)
    return data.decode("utf-8-sig", "replace") if len(data) <= _MOST_BYTES else None
