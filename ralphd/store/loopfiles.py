"""What the loop keeps between its runs: how each task stands, who is out, what the next agent is told.

The originals lie in the ralph's own directory and are on the disk when a method returns; ``.ralph/`` gets
copies. Each store write is followed by a failpoint: the loop may die there, and goes on from what was
written.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ralphd import failpoint
from ralphd.core.failure import FailureKind
from ralphd.core.heard import Reverted
from ralphd.core.ladders import LONGEST_TIMEOUT_FACTOR
from ralphd.core.ledger import Ledger, Memory, Standing, TaskRecord
from ralphd.core.phases import Phases
from ralphd.store import copies
from ralphd.store.checkpoint import CheckpointManager
from ralphd.store.copies import CHECKPOINT_FILE, HANDOFF_FILE, TASKS_FILE
from ralphd.store.files import Broken, make_private_directory, remove_leftovers, set_aside, write_whole
from ralphd.store.memory_json import (
    MEMORY_FILE,
    MEMORY_VERSION,
    amount_of,
    count_of,
    memory_json,
    memory_of,
    of_kind,
)
from ralphd.store.phases_json import PHASES_FILE, PHASES_VERSION, phases_json, phases_of
from ralphd.store.versions import as_json, read_versioned, said, set_aside_as

LEDGER_VERSION: Final = 1
PROMPT_FILE: Final = "PROMPT-now.md"
SCRATCH: Final = "snapshot-"
"""How the names begin of directories in which git works for us; of a killed loop they are left over."""
OWN: Final = (CHECKPOINT_FILE, TASKS_FILE, MEMORY_FILE, PHASES_FILE, HANDOFF_FILE, PROMPT_FILE)
HANDOFF_BYTES: Final = 64 << 10
_CUT: Final = "(the beginning is cut off here)\n"
_MOST_CHARS: Final = 4000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """What a file held; of a damaged one ``value`` is empty and ``fault`` says what became of it."""

    value: T
    fault: str = ""


class LoopFiles:
    """The files of one loop. ``home`` holds the originals, ``directory`` is where Ralph works.

    Loads raise NewerState for a file of a newer version, saves OSError when the disk does not take the
    original (the old one is as it was then). All methods block.
    """

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.checkpoints = CheckpointManager(home, directory)
        self._directory = directory
        self._looked_at: set[str] = set()

    def create(self) -> None:
        """Have the directory, and the copies as the originals are. Raises DirectoryUnusable in words.

        Call it before anything else, and only where no other loop lives: half-written files are removed.
        """
        make_private_directory(self.home)
        remove_leftovers(self.home, of=OWN)  # a Regent writes its own files there
        for left in self.home.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        self.renew_copies()

    def renew_copies(self) -> None:
        """Make the copies in ``.ralph/`` as the originals are; an agent may have removed or changed them."""
        copies.renew(self.home, self._directory, at_rest=False)

    def load_tasks(self) -> Kept[Ledger]:
        """``tasks.json``: the records by the tasks' ids."""
        path = self.home / TASKS_FILE
        self._looked_at.add(TASKS_FILE)
        try:
            found = read_versioned(path, LEDGER_VERSION)
            return Kept({} if found is None else _understood(path, found, _tasks))
        except Broken as broken:
            return Kept(
                {}, said(broken, "the record of the tasks", "what was counted of their failures is gone")
            )

    def save_tasks(self, ledger: Ledger) -> None:
        """Replace ``tasks.json`` and its copy. Raises NewerState rather than write over a newer one."""
        if TASKS_FILE not in self._looked_at:
            self.load_tasks()
        tasks = {id_: _task_json(record) for id_, record in ledger.items()}
        data = as_json({"version": LEDGER_VERSION, "tasks": tasks})
        write_whole(self.home / TASKS_FILE, data)
        failpoint.reach("loop.tasks_saved")
        copies.put(self._directory, TASKS_FILE, data)

    def load_memory(self) -> Kept[Memory]:
        """``loop.json``: counts, costs, and the agents that are out."""
        path = self.home / MEMORY_FILE
        self._looked_at.add(MEMORY_FILE)
        try:
            found = read_versioned(path, MEMORY_VERSION)
            return Kept(Memory() if found is None else _understood(path, found, memory_of))
        except Broken as broken:
            return Kept(Memory(), said(broken, "the memory of the loop", "iterations and costs count from 0"))

    def save_memory(self, memory: Memory) -> None:
        """Replace ``loop.json``. Raises NewerState rather than write over a newer one."""
        if MEMORY_FILE not in self._looked_at:
            self.load_memory()
        write_whole(self.home / MEMORY_FILE, as_json(memory_json(memory)))
        failpoint.reach("loop.memory_saved")

    def load_phases(self) -> Kept[Phases | None]:
        """``phases.json``: where the last attempt was; None without one."""
        path = self.home / PHASES_FILE
        self._looked_at.add(PHASES_FILE)
        try:
            found = read_versioned(path, PHASES_VERSION)
            return Kept(None if found is None else _understood(path, found, phases_of))
        except Broken as broken:
            return Kept(None, said(broken, "what is known of the phases", "they begin anew with the plan"))

    def save_phases(self, phases: Phases) -> None:
        """Replace ``phases.json``. Raises NewerState rather than write over a newer one."""
        if PHASES_FILE not in self._looked_at:
            self.load_phases()
        write_whole(self.home / PHASES_FILE, as_json(phases_json(phases)))
        failpoint.reach("loop.phases_saved")

    def clear_phases(self) -> None:
        """Remove ``phases.json``: the next attempt begins with its plan. One of a newer version stays."""
        if PHASES_FILE not in self._looked_at:
            self.load_phases()
        (self.home / PHASES_FILE).unlink(missing_ok=True)
        failpoint.reach("loop.phases_cleared")

    def load_handoff(self) -> Kept[str]:
        """``handoff.md``: what the next agent is told, 64 KiB at most; empty when there is nothing to say."""
        path = self.home / HANDOFF_FILE
        try:
            return Kept(_bounded(_read_text(path)))
        except FileNotFoundError:
            return Kept("")
        except OSError as error:
            broken = Broken(path, error.strerror or str(error), set_aside(path))
            return Kept("", said(broken, "the note for the next agent", "it is told nothing"))

    def save_handoff(self, text: str) -> None:
        """Replace ``handoff.md`` and its copy. Of what is longer than 64 KiB the end is kept."""
        data = _bounded(text).encode(errors="replace")
        write_whole(self.home / HANDOFF_FILE, data)
        failpoint.reach("loop.handoff_saved")
        copies.put(self._directory, HANDOFF_FILE, data)

    def save_prompt(self, text: str) -> Path:
        """Write the prompt of the present attempt, and say where. It is not copied, and not synced."""
        path = self.home / PROMPT_FILE
        write_whole(path, text.encode(errors="replace"), durable=False)
        return path


def _understood(path: Path, found: Mapping[str, Any], read: Any) -> Any:
    """``read(found)``; what is JSON but not ours is damaged like what is no JSON."""
    try:
        if type(found.get("version")) is not int or found["version"] < 1:
            raise ValueError("no version")
        return read(found)
    except KeyError as fault:
        raise set_aside_as(path, f"{fault.args[0]} is missing") from fault
    except (TypeError, ValueError, AttributeError, OverflowError) as fault:
        raise set_aside_as(path, str(fault)) from fault


def _tasks(found: Mapping[str, Any]) -> dict[str, TaskRecord]:
    return {id_: _task(id_, record) for id_, record in found["tasks"].items()}


def _task(id_: str, found: Mapping[str, Any]) -> TaskRecord:
    kind = found["last_kind"]
    return TaskRecord(
        id=id_,
        title=of_kind(str, found["title"]),
        standing=Standing(found["status"]),
        failure_count=count_of(found["failure_count"]),
        last_kind=None if kind is None else FailureKind(kind),
        last_failure=of_kind(str, found["last_failure"]),
        reopened=of_kind(bool, found["reopened"]),
        timeout_factor=_factor(found.get("timeout_factor", 1.0)),
        unreviewed=of_kind(bool, found.get("unreviewed", False)),
        unjudged=of_kind(bool, found.get("unjudged", False)),
        reverted=None if (note := found.get("reverted")) is None else _reverted(note),
    )


def _reverted(found: Mapping[str, Any]) -> Reverted:
    return Reverted(
        commits=tuple(of_kind(str, each) for each in of_kind(list, found["commits"])),
        why=of_kind(str, found["why"]),
        tail=tuple(of_kind(str, each) for each in of_kind(list, found["tail"])),
        boundary=of_kind(str, found["boundary"]),
    )


def _task_json(record: TaskRecord) -> dict[str, Any]:
    return {
        "title": record.title[:_MOST_CHARS],
        "status": record.standing.value,
        "failure_count": record.failure_count,
        "last_failure": record.last_failure[:_MOST_CHARS],
        "last_kind": None if record.last_kind is None else record.last_kind.value,
        "reopened": record.reopened,
        "timeout_factor": record.timeout_factor,
        "unreviewed": record.unreviewed,
        "unjudged": record.unjudged,
        "reverted": None if (note := record.reverted) is None else _reverted_json(note),
    }


def _reverted_json(note: Reverted) -> dict[str, Any]:
    return {
        "boundary": note.boundary,
        "commits": list(note.commits),
        "why": note.why[:_MOST_CHARS],
        "tail": list(note.tail),
    }


def _factor(value: object) -> float:
    if not 1.0 <= (factor := amount_of(value)) <= LONGEST_TIMEOUT_FACTOR:
        raise ValueError(f"{value!r:.40} is no factor of a time")
    return factor


def _bounded(text: str) -> str:
    """The end of a text, whole lines where there are any, with a word about what is missing."""
    data = text.encode(errors="replace")
    if len(data) <= HANDOFF_BYTES:
        return data.decode()
    end = data[-(HANDOFF_BYTES - len(_CUT)) :].decode(errors="ignore")
    _, newline, whole = end.partition("\n")
    return _CUT + (whole if newline and whole else end)


def _read_text(path: Path) -> str:
    """The last of a regular file of ours, 64 KiB and a little. Raises OSError for anything else."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a plain file")
        file.seek(max(0, found.st_size - 2 * HANDOFF_BYTES))
        return file.read(2 * HANDOFF_BYTES).decode(errors="replace")
