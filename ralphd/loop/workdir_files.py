"""Reads the task list and the prompt in a working directory (L1, L4, E4).

An agent can write every file there. So a read is bounded in bytes, opens regular files only, and never leaves
the directory; whatever is wrong with the list becomes the plan's fault, in words.
"""

import asyncio
import logging
import os
import shlex
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from ralphd.core.loop.tasks import lost, with_restored_tasks
from ralphd.core.plan import AUTO, HEADED_LISTS, LISTS, Plan, Task, has_task_headings, parse
from ralphd.errors import ConfigFaults, RalphdError
from ralphd.git.repair import recommit
from ralphd.store.files import write_whole

MOST_PROMPT_BYTES: Final = 4 << 20
MAX_BYTES: Final = 1 << 20
CLAIM_AGAIN_S: Final = 5.0
logger = logging.getLogger(__name__)


class Unreadable(Exception):
    """A file is not read. The message ends a sentence that begins with its name."""


def read_inside(directory: Path, file: str, most_bytes: int) -> bytes:
    """Return the content of a regular file in ``directory``. Raise FileNotFoundError, or Unreadable.

    Blocks no longer than it takes to read ``most_bytes``; links that lead outside are not followed.
    """
    try:
        root = directory.resolve(strict=True)
        real = (root / file).resolve(strict=True)
        _check(real, root, real.stat().st_mode)
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
            # Checked again: the path may have been changed between the check and the open.
            _check(Path(f"/proc/self/fd/{descriptor}").readlink(), root, os.fstat(descriptor).st_mode)
            data = opened.read(most_bytes + 1)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise FileNotFoundError(file) from fault
    except OSError as fault:
        raise Unreadable(f"cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, RuntimeError) as fault:  # a null byte in the name; a loop of links
        raise Unreadable("cannot be read: it is not a path to a file") from fault
    if len(data) > most_bytes:
        raise Unreadable(f"is larger than {most_bytes >> 20} MiB")
    return data


def _check(path: Path, root: Path, mode: int) -> None:
    if not path.is_relative_to(root):
        raise Unreadable("lies outside the working directory")
    if not stat.S_ISREG(mode):
        raise Unreadable("is not a regular file")


def read_plan(directory: Path, tasks: str) -> Plan | None:
    """Return the task list; ``tasks`` is ``[ralph] tasks``, a file in ``directory`` or ``"auto"``.

    None if ``auto`` finds no list. A named file that is missing is a fault. Raises nothing for the content of
    the directory, and blocks no longer than it takes to read 1 MiB.
    """
    if tasks != AUTO:
        return _plan(directory, tasks) or Plan(tasks, fault=f"{tasks} is not there")
    plans = (_plan(directory, file, only_headed=file in HEADED_LISTS) for file in (*LISTS, *HEADED_LISTS))
    return next((plan for plan in plans if plan is not None), None)


def _plan(directory: Path, file: str, *, only_headed: bool = False) -> Plan | None:
    try:
        text = read_inside(directory, file, MAX_BYTES).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        return None
    except Unreadable as fault:
        return None if only_headed else Plan(file, fault=f"{file} {fault}")
    return None if only_headed and not has_task_headings(text) else parse(file, text)


class PlanReader:
    """The task list of one loop. It is the same file from the beginning to the end.

    ``added`` returns the tasks that a person added to it, ``own`` marks those that others do.
    """

    def __init__(
        self, directory: Path, tasks: str, added: Callable[[], tuple[Task, ...]] = lambda: (),
        own: Callable[[Plan], Plan] = lambda plan: plan,
    ) -> None:  # fmt: skip
        self._directory, self._added, self._own = directory, added, own
        self._is_auto = tasks == AUTO
        self._file = tasks
        self._head: str | None = None
        self._before: tuple[Plan, bytes] | None = None

    def remember(self, known: Plan | None, head: str | None) -> None:
        """Remember the list as an attempt finds it: what a person did before that stays. Blocks."""
        data = self.content(known)
        self._head, self._before = head, None
        if known is not None and data:
            self._before = parse(known.file, data.decode("utf-8-sig", errors="replace")), data

    def content(self, known: Plan | None) -> bytes:
        """Return the content of the list; empty if it cannot be read. Blocks."""
        with suppress(FileNotFoundError, Unreadable):
            if known is not None:
                return read_inside(self._directory, known.file, MAX_BYTES)
        return b""

    def restore_tasks(self, known: Plan, before: bytes, commits: Sequence[str]) -> str:
        """Restore the open tasks of the list ``before`` that the revert of ``commits`` has removed.

        Return a line for the log; empty if there are none. Blocks.
        """
        was, left = (each.decode(errors="surrogateescape") for each in (before, self.content(known)))
        text, names = with_restored_tasks(known.file, was, left)
        became = f"git show {' '.join(commits[:1])}:./{known.file} has it"
        with suppress(OSError):
            if text != left:
                path, data = (self._directory / known.file).resolve(), text.encode(errors="surrogateescape")
                write_whole(path, data, mode=stat.S_IMODE(path.stat().st_mode))
                became = "which is restored"
        return f"the revert removed open work from {known.file}, {became}: {names}" if names else ""

    def restore(self, read: Plan | None) -> tuple[str, str]:
        """Restore the list if the attempt lost it, on the branch too if its commits did.

        Return what became of the list, and a line for the log; both are empty if it can be used. Blocks.
        """
        if self._before is None or not (what := lost(self._before[0], read)):
            return "", ""
        plan, data = self._before
        try:
            aside = _put_back(self._directory, plan.file, data)
            note = recommit(self._directory, plan.file, self._head)
        except (OSError, RuntimeError) as fault:
            return "", f"the attempt lost the task list ({what}), and it cannot be restored: {fault}"
        line = f"the attempt lost the task list ({what}); {plan.file} is restored: leave it there"
        return what, "; ".join(filter(None, [line, aside, note]))

    async def first(self) -> Plan | None:
        """Return the list at the beginning; None if there is none."""
        plan = await self.read(None)
        if plan is not None and plan.tasks:
            self._file = plan.file
        return plan

    async def _claimed(self, plan: Plan) -> Plan:
        while True:
            try:
                return await asyncio.to_thread(self._own, plan)
            except OSError as fault:  # a full disk, a lock that is held: nothing is done that is not claimed
                logger.warning("no task can be claimed at present: %s", fault)
                await asyncio.sleep(CLAIM_AGAIN_S)

    async def read(self, known: Plan | None) -> Plan | None:
        """Return the current list; ``known`` is the last one. A file that never had a task is not a list."""
        plan = await asyncio.to_thread(read_plan, self._directory, self._file)
        if plan is not None and self._is_auto and not plan.tasks and plan.fault is None:
            plan = plan if known is not None and known.tasks else None
        if plan is not None and plan.tasks:
            plan = await self._claimed(plan)
        added = await asyncio.to_thread(self._added)
        return replace(plan or Plan(""), added=added) if added else plan


def _put_back(directory: Path, file: str, data: bytes) -> str:
    """Write a file. Return where what was there instead is kept, for people. Raise OSError."""
    root, aside = directory.resolve(strict=True), ""
    path = root / file
    if not path.parent.resolve().is_relative_to(root):
        raise OSError("its folder lies outside the working directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        others = (path.with_name(f"{path.name}.replaced-{number}") for number in count(1))
        other = next(each for each in others if not os.path.lexists(each))
        path.rename(other)
        aside = f"what was there is in {other.relative_to(root)}"
    write_whole(path, data, mode=0o644)
    return aside


def read_prompt(directory: Path, file: str) -> str:
    """Return the user's prompt. Raise ConfigFaults, with what is wrong and what to do. Blocks."""
    try:
        text = read_inside(directory, file, MOST_PROMPT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        if not directory.is_dir():
            mend = f"ralphctl vault restore {shlex.quote(str(directory))}"
            raise ConfigFaults(f"the directory {directory} is gone", mend=mend) from None
        raise _unusable(directory, file, "it does not exist", "ralphctl init  (creates it)\n") from None
    except Unreadable as fault:
        raise _unusable(directory, file, f"it {fault}") from fault
    except UnicodeDecodeError as fault:
        raise _unusable(directory, file, f"it is not UTF-8 (byte {fault.start})") from fault
    if not text.strip():
        raise _unusable(directory, file, "it is empty")
    return text


def _unusable(directory: Path, file: str, why: str, first: str = "") -> RalphdError:
    return ConfigFaults(
        f"the prompt {directory / file} cannot be used",
        why=why,
        mend=f"{first}write the prompt into {file}, or name another file in [ralph] prompt_file",
    )
