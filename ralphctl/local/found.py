"""What a working directory holds, as far as reading tells: nothing of it is run.

An agent can have written every file here. So a read is bounded in bytes, opens regular files only, and never
leaves the directory; what cannot be read counts as not there.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ralphd.core.plan import AUTO, HEADED_LISTS, LISTS, Plan, has_task_headings, parse

_MOST_BYTES = 1 << 20
_MOST_ENTRIES = 2000


def read(directory: Path, name: str) -> str | None:
    """The text of a file in ``directory``; None where there is none that can be read."""
    try:
        root = directory.resolve(strict=True)
        real = (root / name).resolve(strict=True)
        if not real.is_relative_to(root) or not stat.S_ISREG(real.stat().st_mode):
            return None
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError, RuntimeError):  # a null byte in the name; links in a circle
        return None
    return None if len(data) > _MOST_BYTES else data.decode("utf-8-sig", errors="replace")


def read_json(directory: Path, name: str) -> Mapping[str, Any]:
    """The object in a file of JSON; empty for anything else."""
    try:
        found = json.loads(read(directory, name) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_toml(directory: Path, name: str) -> Mapping[str, Any]:
    """What a file of TOML says; empty for anything else."""
    try:
        return tomllib.loads(read(directory, name) or "")
    except (ValueError, RecursionError):
        return {}


def within(tree: Mapping[str, Any], *names: str) -> Any:
    """What lies at the end of ``names`` in it; None where they do not lead anywhere."""
    found: Any = tree
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def names_in(directory: Path) -> frozenset[str]:
    """The names in a directory; of a very large one only some."""
    try:
        with os.scandir(directory) as entries:
            return frozenset(entry.name for entry in islice(entries, _MOST_ENTRIES))
    except OSError:
        return frozenset()


def task_list(directory: Path, tasks: str) -> Plan | None:
    """The task list as the loop will find it (L1): ``tasks`` is a file or ``auto``. None: it finds none."""
    if tasks != AUTO:
        text = read(directory, tasks)
        return Plan(tasks, fault=f"{tasks} cannot be read") if text is None else parse(tasks, text)
    for name in LISTS:
        if (text := read(directory, name)) is not None:
            return parse(name, text)
    for name in HEADED_LISTS:
        if (text := read(directory, name)) is not None and has_task_headings(text):
            return parse(name, text)
    return None
