"""The task list in a working directory: which file it is, and what it says now (L1, E4).

An agent can write every file here. So a read is bounded in bytes, opens regular files only, and never leaves
the directory; whatever is wrong becomes the plan's fault, in words.
"""

import asyncio
import os
import stat
from pathlib import Path
from typing import Final

from ralphd.core.loop.tasks import has_tasks
from ralphd.core.plan import AUTO, HEADED_LISTS, LISTS, Plan, has_task_headings, parse
from ralphd.errors import ConfigFaults, RalphdError

# Reading a file of a working directory, in which an agent can put anything: bounded, never outside of it.


class Unreadable(Exception):
    """Why a file is not read, as the end of a sentence that begins with its name."""


def read_inside(directory: Path, file: str, most_bytes: int) -> bytes:
    """What a regular file in ``directory`` holds. Raises FileNotFoundError, or Unreadable in words.

    Blocks no longer than it takes to read ``most_bytes``; links that lead outside are not followed.
    """
    try:
        root = directory.resolve(strict=True)
        real = (root / file).resolve(strict=True)
        _check(real, root)
        return _read(real, root, most_bytes)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise FileNotFoundError(file) from fault
    except OSError as fault:
        raise Unreadable(f"cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, RuntimeError) as fault:  # a null byte in the name; links in a circle
        raise Unreadable("cannot be read: it is no path to a file") from fault


def _read(real: Path, root: Path, most_bytes: int) -> bytes:
    if not stat.S_ISREG(real.stat().st_mode):
        raise Unreadable("is no regular file")
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
        # Asked again of what was opened: the path may have been changed since.
        _check(Path(f"/proc/self/fd/{descriptor}").readlink(), root)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable("is no regular file")
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise Unreadable(f"is larger than {most_bytes >> 20} MiB")
    return data


def _check(place: Path, root: Path) -> None:
    if not place.is_relative_to(root):
        raise Unreadable("lies outside the working directory")


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


class PlanReader:
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
        text = _plan_read(directory, file)
    except FileNotFoundError:
        return None
    except Unreadable as fault:
        return None if only_headed else Plan(file, fault=f"{file} {fault}")
    return None if only_headed and not has_task_headings(text) else parse(file, text)


def _plan_read(directory: Path, file: str) -> str:
    """The text of a file. Raises FileNotFoundError, Unreadable."""
    return read_inside(directory, file, MAX_BYTES).decode("utf-8-sig", errors="replace")


# The user's prompt file, read at registration and before each attempt (L4).

MOST_PROMPT_BYTES = 4 << 20


def read_prompt(directory: Path, file: str) -> str:
    """The user's prompt. Raises ConfigFaults that says what is wrong with the file and what to do. Blocks."""
    try:
        text = read_inside(directory, file, MOST_PROMPT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise _unusable(directory, file, "it is not there") from None
    except Unreadable as fault:
        raise _unusable(directory, file, f"it {fault}") from fault
    except UnicodeDecodeError as fault:
        raise _unusable(directory, file, f"it is not UTF-8 (byte {fault.start})") from fault
    if not text.strip():
        raise _unusable(directory, file, "it is empty")
    return text


def _unusable(directory: Path, file: str, why: str) -> RalphdError:
    return ConfigFaults(
        f"the prompt {directory / file} cannot be used",
        why=why,
        mend=f"write what Ralph is to do into {file}, or name another file by [ralph] prompt_file",
    )
