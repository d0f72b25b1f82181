"""The task list in a working directory: which file it is, and what it says now (L1, E4).

An agent can write every file here. So a read is bounded in bytes, opens regular files only, and never leaves
the directory; whatever is wrong becomes the plan's fault, in words.
"""

import asyncio
from pathlib import Path
from typing import Final

from ralphd.core.plan import Plan
from ralphd.core.task_lists import AUTO, HEADED_LISTS, LISTS, has_task_headings, parse
from ralphd.core.tasks import has_tasks
from ralphd.loop.inside import Unreadable, read_inside

MAX_BYTES: Final = 1 << 20


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


class Plans:
    """The task list of one loop: which file it is stays as it was at the beginning."""

    def __init__(self, directory: Path, tasks: str) -> None:
        self._directory = directory
        self._is_auto = tasks == AUTO
        self._file = tasks

    async def first(self) -> Plan | None:
        """What the list says at the beginning; None where there is none."""
        plan = await self.read(None)
        if plan is not None and plan.tasks:
            self._file = plan.file
        return plan

    async def read(self, known: Plan | None) -> Plan | None:
        """What the list says now; ``known`` is what it said last. One that never listed a task is none."""
        plan = await asyncio.to_thread(read_plan, self._directory, self._file)
        if plan is not None and self._is_auto and not plan.tasks and plan.fault is None:
            return plan if has_tasks(known) else None
        return plan


def _plan(directory: Path, file: str, *, only_headed: bool = False) -> Plan | None:
    try:
        text = _read(directory, file)
    except FileNotFoundError:
        return None
    except Unreadable as fault:
        return None if only_headed else Plan(file, fault=f"{file} {fault}")
    return None if only_headed and not has_task_headings(text) else parse(file, text)


def _read(directory: Path, file: str) -> str:
    """The text of a file. Raises FileNotFoundError, Unreadable."""
    return read_inside(directory, file, MAX_BYTES).decode("utf-8-sig", errors="replace")
