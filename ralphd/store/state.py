"""What is kept of one ralph: its definition, its state, and the mirrors of both in the working directory.

The originals lie in ``<state directory>/ralphs/NAME/``. ``.ralph/`` in the working directory holds copies for
people and programs to read; an agent may delete it, and it is written anew.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ralphd.core.incidents import Incident
from ralphd.core.record import LastChange
from ralphd.core.supervision.model import (
    Done,
    Failed,
    Goal,
    Paused,
    Pausing,
    RunId,
    Running,
    Starting,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.errors import DirectoryUnusable
from ralphd.store import mirror as copies
from ralphd.store.checkpoint import Pause, pause_in
from ralphd.store.files import Broken, make_private_directory, read_json, set_aside, write_whole
from ralphd.store.mirror import HISTORY_FILE, STATE_FILE, STATE_VERSION, Mirror, newer

PROGRESS_FILE = "progress.md"
GATE_FILE = "gate.json"
_OWN = (STATE_FILE, HISTORY_FILE, PROGRESS_FILE)
T = TypeVar("T")
_SUPERVISION = TypeAdapter(Supervision)


@dataclass(frozen=True, slots=True)
class Definition:
    """What was registered (``ralph.json``): the command, its place, the pinned configuration, the goal.

    An empty ``command`` stands for the built-in loop.
    ``umask`` is the mode mask that the run's files are made under, ``flags`` what was given on the command
    line, by configuration key.
    """

    name: str
    directory: Path
    command: tuple[str, ...]
    configuration: Mapping[str, Any]
    registered_at: Moment
    goal: Goal = Goal.STOPPED
    flags: Mapping[str, Any] | None = None

    @property
    def runs_own_loop(self) -> bool:
        """Whether its runs are the built-in loop."""
        return not self.command

    def to_json(self) -> dict[str, Any]:
        """The object that ``ralph.json`` holds, and a run's intent beside it."""
        return {
            "version": STATE_VERSION,
            "name": self.name,
            "directory": str(self.directory),
            "command": list(self.command),
            "goal": self.goal.value,
            "registered_at": rfc3339(self.registered_at),
            "flags": dict(self.flags or {}),
            "configuration": dict(self.configuration),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Definition":
        """The definition in ``found``. Raises KeyError, TypeError or ValueError when it is none."""
        return cls(
            name=str(found["name"]),
            directory=Path(found["directory"]),
            command=tuple(str(word) for word in found["command"]),
            configuration=dict(found["configuration"]),
            registered_at=parse_rfc3339(found["registered_at"]),
            goal=Goal(found["goal"]),
            flags=dict(found.get("flags") or {}),
        )


@dataclass(frozen=True, slots=True)
class LastExit:
    """How the last run ended."""

    run_id: RunId
    code: int | None
    signal: int | None
    outcome: str
    at: Moment


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a ralph beside its supervision. The pid is the command's, not the shim's.

    ``start_commit`` is where HEAD was when the run began, ``reflog`` up to where its commits are counted.
    ``incident`` is what a person was called for, while it is open; ``last_change`` what got anywhere last.
    """

    run_id: RunId | None = None
    ralph_pid: int | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None
    last_output_at: Moment | None = None
    last_commit: str | None = None
    start_commit: str | None = None
    reflog: tuple[int, str] | None = None
    branch: str | None = None
    last_exit: LastExit | None = None
    last_change: LastChange | None = None
    incident: Incident | None = None


_FACTS = TypeAdapter(Facts)


@dataclass(frozen=True, slots=True)
class RegentState:
    """All that ``regent-state.json`` holds. ``pool`` is shown, and not read back: the loop keeps it."""

    supervision: Supervision
    facts: Facts = Facts()
    pool: Mapping[str, Any] | None = None

    def to_json(self, definition: Definition) -> dict[str, Any]:
        """What is shown, and last the exact supervision, which a new daemon goes on from."""
        return self.shown(definition) | {
            "supervision": _SUPERVISION.dump_python(self.supervision, mode="json"),
            "facts": _FACTS.dump_python(self.facts, mode="json"),
        }

    def shown(self, definition: Definition) -> dict[str, Any]:
        """The seed's keys, then ours."""
        now, facts = self.supervision, self.facts
        return {
            "ralph_pid": facts.ralph_pid,
            "iteration": now.tally.iteration,
            "consecutive_errors": now.tally.consecutive_errors,
            "last_output_at": _text(facts.last_output_at),
            "last_commit": facts.last_commit,
            "total_cost_usd": now.tally.cost_usd,
            "version": STATE_VERSION,
            "name": definition.name,
            "state": _shown_state(now),
            "goal": now.goal.value,
            "mode": definition.configuration.get("values", {}).get("ralph", {}).get("mode", "loop"),
            "branch": facts.branch,
            "started_at": _text(facts.started_at),
            "finished_at": _text(facts.finished_at),
            "passed": _passed(now),
            "agent": now.said.agent,
            "pool": self.pool,
            "task": None if now.said.task is None else asdict(now.said.task),
            "wait": _wait(now),
            "restarts": now.tally.restarts,
            "reverts": now.tally.reverts,
            "last_exit": _last_exit(facts.last_exit),
            "pause_reason": now.state.reason if isinstance(now.state, Paused) else None,
            "run_id": facts.run_id,
            "message": message(now),
            "last_change": None if facts.last_change is None else _change(facts.last_change),
            "incident": None if facts.incident is None else _incident(facts.incident),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "RegentState":
        """The record in ``found``. Raises ValueError (pydantic's included) or KeyError when it is none."""
        return cls(
            _SUPERVISION.validate_python(found["supervision"]),
            _FACTS.validate_python(found["facts"]),
        )


def message(now: Supervision) -> str | None:
    """What a person should know about a state that will not change by itself, or not soon."""
    match now.state:
        case Failed(why=why):
            return why
        case Stopped(why=why) | Paused(why=why) if why:
            return why
        case Done(why="limit", limit=limit):
            return "a limit of yours was reached" + (f": {limit}" if limit else "")
        case Stopping(since=since) | Pausing(since=since) if now.said.testing:
            return f"ends when the tests of its iteration are over; asked at {rfc3339(since)}"
        case Starting() if now.said.testing:
            return "the tests run once before Ralph begins, to know whether they are green"
        case Stopping(again=True):
            return "starts again as soon as it has ended"
        case Stopping(kill_at=None, since=since) | Pausing(kill_at=None, since=since):
            return f"ends when its iteration is finished; asked at {rfc3339(since)}"
        case _:
            return None


def _shown_state(now: Supervision) -> str:
    """Who is being tested is shown so, unless it is to end."""
    tested = now.said.testing and isinstance(now.state, Running | Starting)
    return "testing" if tested else now.state.kind


def _passed(now: Supervision) -> bool | None:
    match now.state:
        case Done():
            return True
        case Failed():
            return False
        case Stopped(why=why):
            return True if not why else None  # True: ended as it was asked to
        case _:
            return None


def _wait(now: Supervision) -> dict[str, str] | None:
    match now.state:
        case Waiting(reason=reason, until=until):
            return {"reason": reason.value, "until": rfc3339(until)}
        case Paused(reason=reason, resume_at=float() as until):
            return {"reason": reason, "until": rfc3339(until)}
        case _ if now.said.wait is not None:
            return {"reason": now.said.wait.reason, "until": rfc3339(now.said.wait.until)}
        case _:
            return None


def _last_exit(last: LastExit | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {
        "run_id": last.run_id,
        "code": last.code,
        "signal": last.signal,
        "outcome": last.outcome,
        "at": rfc3339(last.at),
    }


def _change(last: LastChange) -> dict[str, str]:
    return {"what": last.what, "at": rfc3339(last.at)}


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "opened_at": rfc3339(incident.opened_at),
        "message": incident.message,
        "needs": incident.call.needs,
        "do": incident.call.do,
        "held_back": incident.held_back,
        "latest": incident.latest or None,
        "reminders": incident.reminders,
        "told_at": rfc3339(incident.told_at),
        "acknowledged_at": _text(incident.acknowledged_at),
    }


def _text(moment: Moment | None) -> str | None:
    return None if moment is None else rfc3339(moment)


class RalphFiles:
    """The files of one ralph, originals and mirrors. All methods block; none needs the event loop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.definition_file = home / "ralph.json"
        self.state_file = home / STATE_FILE
        self.history_file = home / HISTORY_FILE
        self.progress_file = home / PROGRESS_FILE
        self.environment_file = home / "env"
        self.gate_file = home / GATE_FILE
        self.own = (self.definition_file.name, self.environment_file.name, GATE_FILE, *_OWN)
        self.runs = home / "runs"
        self.tests = home / "tests"

    def create(self) -> None:
        """Make the ralph's own directory, private to us."""
        make_private_directory(self.home)
        make_private_directory(self.runs)

    def save_definition(self, definition: Definition, *, durable: bool = True) -> None:
        """Write ``ralph.json``. Raises OSError when the disk does not take it."""
        write_whole(self.definition_file, _json(definition.to_json()), durable=durable)

    def load_definition(self) -> Definition | None:
        """What ``ralph.json`` holds; None when it is missing. Raises Broken or NewerState."""
        found = _read_ours(self.definition_file)
        return None if found is None else _understood(self.definition_file, Definition.from_json, found)

    def save_record(self, record: RegentState, definition: Definition, *, durable: bool = True) -> None:
        """Write ``regent-state.json``, then its mirror. Raises OSError for the original only."""
        data = _json(record.to_json(definition))
        write_whole(self.state_file, data, durable=durable)
        self.mirror(definition.directory, {self.state_file.name: data})

    def load_record(self) -> RegentState | None:
        """What ``regent-state.json`` holds; None when it is missing. Raises Broken or NewerState."""
        found = _read_ours(self.state_file)
        return None if found is None else _understood(self.state_file, RegentState.from_json, found)

    def save_environment(self, environment: Mapping[str, str]) -> None:
        """Keep the environment of the runs, for us alone."""
        write_whole(self.environment_file, _json(dict(environment)))

    def load_environment(self) -> dict[str, str]:
        """The environment of the runs; empty when it is missing or broken."""
        try:
            found = read_json(self.environment_file) or {}
        except Broken:
            return {}
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def mirror(self, directory: Path, contents: Mapping[str, bytes] | None = None) -> None:
        """Write the copies in ``.ralph/``: those in ``contents`` and whatever is not as it should be there.

        A working directory that takes none (full, read-only, gone) costs the copies and nothing else.
        """
        with suppress(OSError, DirectoryUnusable):
            Mirror(directory).renew(contents or {}, self.state_file, self.history_file)
            if self._progress_is_due(directory):
                copies.copy(self.progress_file, Mirror(directory).path / PROGRESS_FILE)

    def mirror_is_whole(self, directory: Path) -> bool:
        """Whether the copies are there, as far as a few looks can tell."""
        return Mirror(directory).is_whole(self.history_file) and not self._progress_is_due(directory)

    def _progress_is_due(self, directory: Path) -> bool:
        if not self.progress_file.exists():
            return False
        return copies.is_due(self.progress_file, Mirror(directory).path / PROGRESS_FILE, at_rest=False)

    def checkpoint(self, directory: Path, *, own_loop: bool = False) -> Pause:
        """The pause reason and resume time that a run left, if it did.

        The built-in loop leaves them in the ralph's home, with a copy in ``.ralph/``; a command only there.
        Nothing in the file is trusted to be there or of the right kind.
        """
        left = Mirror(directory).path / copies.CHECKPOINT_FILE
        return pause_in(self.home / copies.CHECKPOINT_FILE, left) if own_loop else pause_in(left)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def _read_ours(path: Path) -> dict[str, Any] | None:
    found = read_json(path)
    if found is not None and isinstance(found.get("version"), int) and found["version"] > STATE_VERSION:
        raise newer(path, found["version"])
    return found


def _understood(path: Path, read: Callable[[Mapping[str, Any]], T], found: Mapping[str, Any]) -> T:
    """``read(found)``; a file that is JSON but not ours is broken like one that is no JSON."""
    try:
        return read(found)
    except (KeyError, TypeError, ValueError, ValidationError) as fault:
        raise Broken(path, str(fault), set_aside(path)) from fault
