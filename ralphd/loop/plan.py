"""The task list in a working directory: which file it is, and what it says now (L1, E4).

An agent can write every file here. So a read is bounded in bytes, opens regular files only, and never leaves
the directory; whatever is wrong becomes the plan's fault, in words.
"""

import os
import stat
from pathlib import Path
from typing import Final

from ralphd.core.plan import Plan
from ralphd.core.task_lists import has_task_headings, parse

AUTO: Final = "auto"
LISTS: Final = ("prd.json", "fix_plan.md", ".ralph/fix_plan.md", "IMPLEMENTATION_PLAN.md", "TASKS.md")
"""What ``tasks = "auto"`` looks for, in this order."""

HEADED_LISTS: Final = ("PLAN.md", "PRD.md")
"""What it looks for then: files that are a list of tasks only when they have headings like ``## Task 1``."""

MAX_BYTES: Final = 1 << 20


class _Unreadable(Exception):
    """Why a file is not read, as the end of a sentence that begins with its name."""


def read_plan(directory: Path, tasks: str) -> Plan | None:
    """What the task list says; ``tasks`` is ``[ralph] tasks``, a file in ``directory`` or ``"auto"``.

    None when ``auto`` finds no list. A named file that is not there is a fault. Raises nothing for what the
    directory holds, and blocks no longer than it takes to read 1 MiB.
    """
    if tasks != AUTO:
        return _plan(directory, tasks) or Plan(tasks, fault=f"{tasks} is not there")
    found = (_plan(directory, file) for file in LISTS)
    headed = (_plan(directory, file, only_headed=True) for file in HEADED_LISTS)
    return next((plan for plans in (found, headed) for plan in plans if plan is not None), None)


def _plan(directory: Path, file: str, *, only_headed: bool = False) -> Plan | None:
    try:
        text = _read(directory, file)
    except FileNotFoundError:
        return None
    except _Unreadable as fault:
        return None if only_headed else Plan(file, fault=f"{file} {fault}")
    return None if only_headed and not has_task_headings(text) else parse(file, text)


def _read(directory: Path, file: str) -> str:
    """The text of a file. Raises FileNotFoundError, or _Unreadable in words."""
    try:
        root = directory.resolve(strict=True)
        real = (root / file).resolve(strict=True)
        _check(real, root)
        return _read_bytes(real, root).decode("utf-8-sig", errors="replace")
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise FileNotFoundError(file) from fault
    except OSError as fault:
        raise _Unreadable(f"cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, RuntimeError) as fault:  # a null byte in the name; links in a circle
        raise _Unreadable("cannot be read: it is no path to a file") from fault


def _read_bytes(real: Path, root: Path) -> bytes:
    if not stat.S_ISREG(real.stat().st_mode):
        raise _Unreadable("is no regular file")
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
        # Asked again of what was opened: the path may have been changed since.
        _check(Path(f"/proc/self/fd/{descriptor}").readlink(), root)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _Unreadable("is no regular file")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _Unreadable(f"is larger than {MAX_BYTES >> 20} MiB")
    return data


def _check(place: Path, root: Path) -> None:
    if not place.is_relative_to(root):
        raise _Unreadable("lies outside the working directory")
