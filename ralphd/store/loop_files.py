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
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ralphd import diagnostics
from ralphd.core.backoff import LONGEST_TIMEOUT_FACTOR
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.loop.phases import Phase, Phases
from ralphd.core.loop.pool import changes_at, pool_view
from ralphd.core.loop.review import ReviewFinding
from ralphd.core.loop.state import Cooldown, InFlight, Ledger, LoopState, TaskRecord, TaskState
from ralphd.core.time import Moment, parse_rfc3339
from ralphd.store import mirror
from ralphd.store.checkpoint import CheckpointManager, CheckpointWatch, Signature, Summary, read, signature_of
from ralphd.store.files import (
    Broken,
    as_json,
    finite,
    make_private_directory,
    moment_text,
    read_versioned,
    remove_leftovers,
    said,
    set_aside,
    set_aside_as,
    write_whole,
)
from ralphd.store.mirror import CHECKPOINT_FILE, HANDOFF_FILE, TASKS_FILE

# ``loop.json``: what a loop remembers, as JSON and back; every value is looked at.

MEMORY_VERSION: Final = 1
MEMORY_FILE: Final = "loop.json"
_MOST_CHARS: Final = 4000

T = TypeVar("T")


def look_into(path: Path) -> LoopState | None:
    """What the ``loop.json`` of a loop that may live tells; None for what tells nothing. It is left alone."""
    found = read(path)
    if found is None or found.get("version") != MEMORY_VERSION:
        return None
    try:
        return memory_of(found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def memory_of(found: Mapping[str, Any]) -> LoopState:
    """What the object tells. Of what is no such object: KeyError, TypeError, ValueError, AttributeError,
    OverflowError.
    """
    began_at = found["began_at"]
    return LoopState(
        iteration=count_of(found["iteration"]),
        cost_usd=amount_of(found["cost_usd"]),
        began_at=None if began_at is None else parse_rfc3339(began_at),
        idle_successes=count_of(found["idle_successes"]),
        out=tuple(map(_out, of_kind(list, found["out"]))),
        last_agent=None if (last := found.get("last_agent")) is None else of_kind(str, last),
        agents=tuple(of_kind(str, each) for each in of_kind(list, found.get("agents", []))),
        rotates=of_kind(bool, found.get("rotates", False)),
        in_flight=None if (begun := found.get("under_way")) is None else _under_way(begun),
        list_file=None if (file := found.get("list_file")) is None else of_kind(str, file),
        judged=None if (boundary := found.get("judged")) is None else of_kind(str, boundary),
    )


def _under_way(found: Mapping[str, Any]) -> InFlight:
    return InFlight(
        iteration=count_of(found["iteration"]),
        attempt=count_of(found["attempt"]),
        agent=of_kind(str, found["agent"]),
        task_id=of_kind(str, found["task"]),
        title=of_kind(str, found["title"]),
        began_at=parse_rfc3339(found["began_at"]),
    )


def _out(found: Mapping[str, Any]) -> Cooldown:
    until = found["until"]
    return Cooldown(
        agent=of_kind(str, found["agent"]),
        reason=of_kind(str, found["reason"]),
        until=None if until is None else parse_rfc3339(until),
        probes=count_of(found["probes"]),
        back=of_kind(bool, found["back"]),
    )


def memory_json(memory: LoopState) -> dict[str, Any]:
    """The object that ``memory_of`` reads."""
    return {
        "version": MEMORY_VERSION,
        "iteration": memory.iteration,
        "cost_usd": finite(memory.cost_usd),
        "began_at": moment_text(memory.began_at),
        "idle_successes": memory.idle_successes,
        "last_agent": memory.last_agent,
        "agents": list(memory.agents),
        "rotates": memory.rotates,
        "list_file": memory.list_file,
        "judged": memory.judged,
        "under_way": None if memory.in_flight is None else _under_way_json(memory.in_flight),
        "out": [
            {
                "agent": out.agent,
                "reason": out.reason[:_MOST_CHARS],
                "until": moment_text(out.until),
                "probes": out.probes,
                "back": out.back,
            }
            for out in memory.out
        ],
    }


def _under_way_json(begun: InFlight) -> dict[str, Any]:
    return {
        "iteration": begun.iteration,
        "attempt": begun.attempt,
        "agent": begun.agent,
        "task": begun.task_id[:_MOST_CHARS],
        "title": begun.title[:_MOST_CHARS],
        "began_at": moment_text(begun.began_at),
    }


def of_kind(kind: type[T], value: object) -> T:
    """``value``, when it is of that kind. Raises ValueError."""
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def count_of(value: object) -> int:
    """A number from 0 on. Raises ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def amount_of(value: object) -> float:
    """A finite amount from 0 on. Raises ValueError, TypeError."""
    if type(value) not in (int, float) or finite(amount := float(str(value))) != amount or amount < 0:
        raise ValueError(f"{value!r:.40} is no amount")
    return amount


# ``phases.json``: where an attempt is, as JSON and back; every value is looked at.

PHASES_VERSION: Final = 1
PHASES_FILE: Final = "phases.json"


def phases_of(found: Mapping[str, Any]) -> Phases:
    """What the object tells. Of what is no such object: KeyError, TypeError, ValueError, AttributeError."""
    return Phases(
        task_id=of_kind(str, found["task_id"]),
        phase=Phase(found["phase"]),
        plan=of_kind(str, found["plan"]),
        round=count_of(found["round"]),
        findings=_findings(found["findings"]),
        dismissed=_findings(found["dismissed"]),
        tries=count_of(found["tries"]),
    )


def phases_json(phases: Phases) -> dict[str, Any]:
    """The object for the file."""
    return {
        "version": PHASES_VERSION,
        "task_id": phases.task_id,
        "phase": phases.phase.value,
        "plan": phases.plan,
        "round": phases.round,
        "findings": [_finding_json(each) for each in phases.findings],
        "dismissed": [_finding_json(each) for each in phases.dismissed],
        "tries": phases.tries,
    }


def _findings(found: object) -> tuple[ReviewFinding, ...]:
    return tuple(
        ReviewFinding(*(of_kind(str, each[key]) for key in ("id", "text", "place")))
        for each in of_kind(list, found)
    )


def _finding_json(finding: ReviewFinding) -> dict[str, str]:
    return {"id": finding.id, "text": finding.text, "place": finding.place}


LEDGER_VERSION: Final = 1
PROMPT_FILE: Final = "PROMPT-now.md"
SCRATCH: Final = "snapshot-"
"""How the names begin of directories in which git works for us; of a killed loop they are left over."""
OWN: Final = (CHECKPOINT_FILE, TASKS_FILE, MEMORY_FILE, PHASES_FILE, HANDOFF_FILE, PROMPT_FILE)
HANDOFF_BYTES: Final = 64 << 10
_CUT: Final = "(the beginning is cut off here)\n"


@dataclass(frozen=True, slots=True)
class LoadedFile(Generic[T]):
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
        mirror.renew(self.home, self._directory, at_rest=False)

    def load_tasks(self) -> LoadedFile[Ledger]:
        """``tasks.json``: the records by the tasks' ids."""
        path = self.home / TASKS_FILE
        self._looked_at.add(TASKS_FILE)
        try:
            found = read_versioned(path, LEDGER_VERSION)
            return LoadedFile({} if found is None else _understood(path, found, _tasks))
        except Broken as broken:
            return LoadedFile(
                {}, said(broken, "the record of the tasks", "what was counted of their failures is gone")
            )

    def save_tasks(self, ledger: Ledger) -> None:
        """Replace ``tasks.json`` and its copy. Raises NewerState rather than write over a newer one."""
        if TASKS_FILE not in self._looked_at:
            self.load_tasks()
        tasks = {id_: _task_json(record) for id_, record in ledger.items()}
        data = as_json({"version": LEDGER_VERSION, "tasks": tasks})
        write_whole(self.home / TASKS_FILE, data)
        diagnostics.reach("loop.tasks_saved")
        mirror.put(self._directory, TASKS_FILE, data)

    def load_memory(self) -> LoadedFile[LoopState]:
        """``loop.json``: counts, costs, and the agents that are out."""
        path = self.home / MEMORY_FILE
        self._looked_at.add(MEMORY_FILE)
        try:
            found = read_versioned(path, MEMORY_VERSION)
            return LoadedFile(LoopState() if found is None else _understood(path, found, memory_of))
        except Broken as broken:
            return LoadedFile(
                LoopState(), said(broken, "the memory of the loop", "iterations and costs count from 0")
            )

    def save_memory(self, memory: LoopState) -> None:
        """Replace ``loop.json``. Raises NewerState rather than write over a newer one."""
        if MEMORY_FILE not in self._looked_at:
            self.load_memory()
        write_whole(self.home / MEMORY_FILE, as_json(memory_json(memory)))
        diagnostics.reach("loop.memory_saved")

    def load_phases(self) -> LoadedFile[Phases | None]:
        """``phases.json``: where the last attempt was; None without one."""
        path = self.home / PHASES_FILE
        self._looked_at.add(PHASES_FILE)
        try:
            found = read_versioned(path, PHASES_VERSION)
            return LoadedFile(None if found is None else _understood(path, found, phases_of))
        except Broken as broken:
            return LoadedFile(
                None, said(broken, "what is known of the phases", "they begin anew with the plan")
            )

    def save_phases(self, phases: Phases) -> None:
        """Replace ``phases.json``. Raises NewerState rather than write over a newer one."""
        if PHASES_FILE not in self._looked_at:
            self.load_phases()
        write_whole(self.home / PHASES_FILE, as_json(phases_json(phases)))
        diagnostics.reach("loop.phases_saved")

    def clear_phases(self) -> None:
        """Remove ``phases.json``: the next attempt begins with its plan. One of a newer version stays."""
        if PHASES_FILE not in self._looked_at:
            self.load_phases()
        (self.home / PHASES_FILE).unlink(missing_ok=True)
        diagnostics.reach("loop.phases_cleared")

    def load_handoff(self) -> LoadedFile[str]:
        """``handoff.md``: what the next agent is told, 64 KiB at most; empty when there is nothing to say."""
        path = self.home / HANDOFF_FILE
        try:
            return LoadedFile(_bounded(_read_text(path)))
        except FileNotFoundError:
            return LoadedFile("")
        except OSError as error:
            broken = Broken(path, error.strerror or str(error), set_aside(path))
            return LoadedFile("", said(broken, "the note for the next agent", "it is told nothing"))

    def save_handoff(self, text: str) -> None:
        """Replace ``handoff.md`` and its copy. Of what is longer than 64 KiB the end is kept."""
        data = _bounded(text).encode(errors="replace")
        write_whole(self.home / HANDOFF_FILE, data)
        diagnostics.reach("loop.handoff_saved")
        mirror.put(self._directory, HANDOFF_FILE, data)

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
        state=TaskState(found["status"]),
        failure_count=count_of(found["failure_count"]),
        last_kind=None if kind is None else FailureKind(kind),
        last_failure=of_kind(str, found["last_failure"]),
        reopened=of_kind(bool, found["reopened"]),
        timeout_factor=_factor(found.get("timeout_factor", 1.0)),
        unreviewed=of_kind(bool, found.get("unreviewed", False)),
        unjudged=of_kind(bool, found.get("unjudged", False)),
        reverted=None if (note := found.get("reverted")) is None else _reverted(note),
    )


def _reverted(found: Mapping[str, Any]) -> RevertNotice:
    return RevertNotice(
        commits=tuple(of_kind(str, each) for each in of_kind(list, found["commits"])),
        why=of_kind(str, found["why"]),
        tail=tuple(of_kind(str, each) for each in of_kind(list, found["tail"])),
        boundary=of_kind(str, found["boundary"]),
    )


def _task_json(record: TaskRecord) -> dict[str, Any]:
    return {
        "title": record.title[:_MOST_CHARS],
        "status": record.state.value,
        "failure_count": record.failure_count,
        "last_failure": record.last_failure[:_MOST_CHARS],
        "last_kind": None if record.last_kind is None else record.last_kind.value,
        "reopened": record.reopened,
        "timeout_factor": record.timeout_factor,
        "unreviewed": record.unreviewed,
        "unjudged": record.unjudged,
        "reverted": None if (note := record.reverted) is None else _reverted_json(note),
    }


def _reverted_json(note: RevertNotice) -> dict[str, Any]:
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


# What the built-in loop of one ralph keeps, as far as others are shown it; read only when it was written.


class _Shown(NamedTuple):
    """A view of a pool, and how long it is so."""

    memory: LoopState
    made_at: Moment
    until: Moment
    view: dict[str, Any] | None


class LoopWatch:
    """The checkpoint and the pool of agents in a ralph's home. Only ``look`` looks there; it blocks."""

    def __init__(self, home: Path) -> None:
        self._checkpoint = CheckpointWatch(home)
        self._path = home / MEMORY_FILE
        self._signature: Signature = None
        self._memory: LoopState | None = None
        self._shown: _Shown | None = None

    @property
    def checkpoint(self) -> Summary | None:
        """What the loop would go on from."""
        return self._checkpoint.summary

    def look(self) -> None:
        """Know what was written since; it costs two stats."""
        self._checkpoint.look()
        signature = signature_of(self._path)
        if signature != self._signature:
            self._signature = signature
            self._memory = None if signature is None else look_into(self._path)

    def pool(self, at: Moment) -> dict[str, Any] | None:
        """Who may be asked at that moment, as ``pool_view`` has it: the same object as long as it is so."""
        memory, shown = self._memory, self._shown
        if memory is None:
            return None
        if shown is None or shown.memory is not memory or not shown.made_at <= at < shown.until:
            self._shown = shown = _Shown(memory, at, changes_at(memory, at), pool_view(memory, at))
        return shown.view
