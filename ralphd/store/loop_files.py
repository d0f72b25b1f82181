"""What the built-in loop keeps between its runs: tasks, memory, phases, the handoff; and what people send it.

The originals lie in the ralph's home and are on the disk when a method returns; ``.ralph/`` gets copies of
some. Each write is followed by a failpoint: a loop that dies there resumes from what was written.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ralphd import diagnostics
from ralphd.core.loop.inbox import Inbox, unread
from ralphd.core.loop.model import Ledger, LoopState, TaskRecord
from ralphd.core.loop.phases import Phases
from ralphd.core.loop.pool import changes_at, pool_view
from ralphd.core.supervision.backoff import LONGEST_TIMEOUT_FACTOR
from ralphd.core.time import Moment
from ralphd.errors import DirectoryUnusable
from ralphd.plain_files import open_plain
from ralphd.store import files, mirror
from ralphd.store.checkpoint import CheckpointManager, Summary, summary
from ralphd.store.codec import Codec, LoopFile, load_file, peek_file
from ralphd.store.mirror import CHECKPOINT_FILE, HANDOFF_FILE, TASKS_FILE

VERSION: Final = 1
MEMORY_FILE: Final = "loop.json"
PHASES_FILE: Final = "phases.json"
PROMPT_FILE: Final = "PROMPT-now.md"
INBOX_FILE: Final = "inbox.json"
SCRATCH: Final = "snapshot-"
"""The prefix of directories in which git works for the loop; a killed loop leaves them."""
OWN: Final = (CHECKPOINT_FILE, TASKS_FILE, MEMORY_FILE, PHASES_FILE, HANDOFF_FILE, PROMPT_FILE)
HANDOFF_BYTES: Final = 64 << 10
_CUT: Final = "(the beginning is cut off here)\n"
_MOST: Final = 10**9
_MOST_CHARS: Final = 4000

T = TypeVar("T")

MEMORY: Final = Codec[LoopState](
    LoopState, moments=("began_at", "until"), names={"task_id": "task", "in_flight": "under_way"},
    newer=("last_agent", "agents", "rotates", "under_way", "list_file", "judged", "notes_read", "tasks"),
    last="under_way out", most=_MOST, most_chars=_MOST_CHARS,
)  # fmt: skip
_TASK: Final = Codec[TaskRecord](
    TaskRecord, names={"state": "status"}, newer=None, most=_MOST, most_chars=_MOST_CHARS,
    last="last_kind reopened timeout_factor unreviewed unjudged reverted commits why tail attempts"
    " last_attempt last_agent last_lines",
)  # fmt: skip
_PHASES: Final = Codec[Phases](Phases, newer=("timeout_factor",), most=_MOST)
_INBOX: Final = Codec[Inbox](Inbox, moments=("added_at",), most=_MOST, most_chars=_MOST_CHARS)


def _tasks_json(ledger: Ledger) -> dict[str, Any]:
    records = [_TASK.dump(record) for record in ledger.values()]
    return {"tasks": {record.pop("id"): record for record in records}}  # the id is the key


def _tasks_of(stored: Mapping[str, Any]) -> Ledger:
    ledger = {id_: _TASK.load({**record, "id": id_}) for id_, record in stored["tasks"].items()}
    for record in ledger.values():
        if not 1.0 <= record.timeout_factor <= LONGEST_TIMEOUT_FACTOR:
            raise ValueError(f"timeout_factor: out of range: {record.timeout_factor}")
    return ledger


class LoopFiles:
    """The files of one loop. ``home`` holds the originals, ``directory`` is where Ralph works.

    ``tasks`` is the ledger, ``memory`` has counts, costs and the agents that are out, ``phases`` is where the
    last attempt was. All methods block.
    """

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.checkpoints = CheckpointManager(home, directory)
        self.tasks: LoopFile[Ledger] = LoopFile(
            home / TASKS_FILE, _tasks_json, _tasks_of, empty={}, failpoint="loop.tasks", copy_in=directory,
            what="the record of the tasks", loss="their failure counts are lost",
        )  # fmt: skip
        self.memory = LoopFile(
            home / MEMORY_FILE, MEMORY.dump, MEMORY.load, empty=LoopState(), failpoint="loop.memory",
            what="the memory of the loop", loss="iterations and costs count from 0",
        )  # fmt: skip
        self.phases: LoopFile[Phases | None] = LoopFile(
            home / PHASES_FILE, _PHASES.dump, _PHASES.load, empty=None, failpoint="loop.phases",
            what="the record of the phases", loss="the attempt starts with the plan again",
        )  # fmt: skip
        self._directory = directory

    def create(self) -> None:
        """Make the home, and the copies equal to the originals. Raises DirectoryUnusable.

        Call it before anything else, and only where no other loop lives: half-written files are removed.
        """
        files.make_private_directory(self.home)
        files.remove_leftovers(self.home, of=OWN)  # a Regent writes its own files there
        for left in self.home.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        self.renew_copies()

    def renew_copies(self) -> None:
        """Make the copies equal to the originals; an agent may have removed or changed them."""
        mirror.renew(self.home, self._directory, at_rest=False)

    def load_handoff(self) -> str:
        """Return ``handoff.md``, the note for the next agent, 64 KiB at most; a broken one is set aside."""
        path = self.home / HANDOFF_FILE
        try:
            with open_plain(path) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * HANDOFF_BYTES))
                return _bounded(file.read(2 * HANDOFF_BYTES).decode(errors="replace"))
        except FileNotFoundError:
            return ""
        except OSError:
            files.set_aside(path)
            return ""

    def save_handoff(self, text: str) -> None:
        """Replace ``handoff.md`` and its copy. Of a text over 64 KiB the end is kept. Raises OSError."""
        data = _bounded(text).encode(errors="replace")
        files.write_whole(self.home / HANDOFF_FILE, data)
        diagnostics.reach("loop.handoff_saved")
        mirror.put(self._directory, HANDOFF_FILE, data)

    def save_prompt(self, text: str) -> Path:
        """Write the prompt of the present attempt and return its path. It is not copied, and not synced."""
        path = self.home / PROMPT_FILE
        files.write_whole(path, text.encode(errors="replace"), durable=False)
        return path


def peek_inbox(home: Path) -> Inbox:
    """Return what a person sent to the loop; nothing if the file is damaged. Changes nothing."""
    return peek_file(home / INBOX_FILE, VERSION, _INBOX.load) or Inbox()


def pending_inbox(home: Path) -> Inbox:
    """Return the same without the notes that an agent got."""
    inbox, memory = peek_inbox(home), peek_file(home / MEMORY_FILE, VERSION, MEMORY.load) or LoopState()
    taken_at = None if memory.in_flight is None else memory.in_flight.began_at
    return replace(inbox, notes=unread(inbox.notes, memory.notes_read, taken_at=taken_at))


def change_inbox(home: Path, change: Callable[[Inbox], Inbox]) -> dict[str, Any]:
    """Change what a person sent to the loop; return it as the API shows it. One caller at a time.

    A damaged file is set aside (F2). Raise what ``change`` raises, NewerState, and DirectoryUnusable.
    """
    path = home / INBOX_FILE
    try:
        stored = load_file(path, VERSION, _INBOX.load) or Inbox()
    except files.Broken:
        stored = Inbox()
    memory = peek_file(home / MEMORY_FILE, VERSION, MEMORY.load) or LoopState()
    inbox = change(replace(stored, notes=unread(stored.notes, memory.notes_read)))
    try:
        files.write_whole(path, files.as_json({"version": VERSION, **_INBOX.dump(inbox)}))
    except OSError as fault:
        raise DirectoryUnusable(f"{path} cannot be written", why=str(fault)) from fault
    pending = _INBOX.dump(pending_inbox(home))
    return {key: pending[key] for key in ("tasks", "notes")}


def _bounded(text: str) -> str:
    data = text.encode(errors="replace")
    if len(data) <= HANDOFF_BYTES:
        return data.decode()
    end = data[-(HANDOFF_BYTES - len(_CUT)) :].decode(errors="ignore")
    _, newline, whole_lines = end.partition("\n")
    return _CUT + (whole_lines if newline and whole_lines else end)


class FileWatch(Generic[T]):
    """What ``read`` makes of a file that another process replaces. ``look`` reads it only after a change."""

    def __init__(self, path: Path, read: Callable[[Path], T | None]) -> None:
        self.value: T | None = None
        self._path, self._read = path, read
        self._signature: tuple[int, int, int] | None = None

    def look(self) -> None:
        """Bring ``value`` up to date; None without a file. It costs a stat."""
        try:
            status = self._path.lstat()
            signature = status.st_ino, status.st_size, status.st_mtime_ns
        except OSError:
            signature = None
        if signature != self._signature:
            self._signature = signature
            self.value = None if signature is None else self._read(self._path)


class LoopWatch:
    """The checkpoint and the pool of agents in a ralph's home, as others see them. ``look`` blocks."""

    def __init__(self, home: Path) -> None:
        self._checkpoint = FileWatch[Summary](home / CHECKPOINT_FILE, summary)
        self._memory = FileWatch(home / MEMORY_FILE, lambda path: peek_file(path, VERSION, MEMORY.load))
        self._pool_view: tuple[LoopState, Moment, Moment, dict[str, Any] | None] | None = None

    @property
    def checkpoint(self) -> Summary | None:
        """The checkpoint that the loop would resume."""
        return self._checkpoint.value

    @property
    def tasks(self) -> dict[str, int] | None:
        """How many tasks are done, and how many there are; None where that is not known."""
        memory = self._memory.value
        if memory is None or memory.tasks is None:
            return None
        return dict(zip(("done", "total"), memory.tasks, strict=True))

    @property
    def cost_usd(self) -> float:
        """What counts toward the loop's ``max_cost_usd``: a start that resumes continues it."""
        return 0.0 if self._memory.value is None else self._memory.value.cost_usd

    def look(self) -> None:
        """Read what was written since; it costs two stats."""
        self._checkpoint.look()
        self._memory.look()

    def pool(self, at: Moment) -> dict[str, Any] | None:
        """Return the agents that may be asked at ``at``: the same object as long as nothing changes in it."""
        memory, shown = self._memory.value, self._pool_view
        if memory is None:
            return None
        if shown is None or shown[0] is not memory or not shown[1] <= at < shown[2]:
            self._pool_view = shown = memory, at, changes_at(memory, at), pool_view(memory, at)
        return shown[3]
