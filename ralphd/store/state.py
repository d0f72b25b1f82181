"""The files of one ralph: its definition, its state, and their copies in the working directory.

The originals lie in ``<state directory>/ralphs/NAME/``. ``.ralph/`` in the working directory holds copies for
people and programs; an agent may delete them, and they are written again.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Final

from ralphd import wire
from ralphd.core.incidents import Incident
from ralphd.core.record import LastChange
from ralphd.core.supervision import model
from ralphd.core.supervision.model import Goal, RunId, Supervision
from ralphd.core.time import LATEST, Moment, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import DirectoryUnusable
from ralphd.plain_files import peek
from ralphd.store import mirror as copies
from ralphd.store.checkpoint import Pause, pause_in
from ralphd.store.codec import Codec, load_file
from ralphd.store.files import Broken, as_json, make_private_directory, read_json, write_whole
from ralphd.store.mirror import HISTORY_FILE, STATE_FILE, STATE_VERSION, Mirror

PROGRESS_FILE = "progress.md"
GATE_FILE = "gate.json"
AGENTS: Final = "=agents"
"""The key of the agents' variables in the ``env`` file. A variable's name has no ``=``; no run gets them."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A registration (``ralph.json``). ``configuration`` is the pinned one; ``flags`` are the values from the
    command line, by configuration key. An empty ``command`` stands for the built-in loop.
    """

    name: str
    directory: Path
    command: tuple[str, ...]
    configuration: Mapping[str, Any]
    registered_at: Moment
    goal: Goal = Goal.STOPPED
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs_own_loop(self) -> bool:
        return not self.command

    def to_json(self) -> dict[str, Any]:
        """Return the object in ``ralph.json``, also part of a run's intent, without the agents' variables."""
        plain = {"version": STATE_VERSION, **_DEFINITION.dump(self)}
        for _, table, key in _agents_variables(plain["configuration"], plain["flags"]):
            table[key] = {}
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Definition":
        """Return the definition in ``stored``. Raises ValueError."""
        return _DEFINITION.load(stored)


def _agents_variables(configuration: Any, flags: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield each agent and account with a mapping that holds its variables, and the key for them there."""
    values = configuration.get("values")
    for section, prefix in (("agents", ""), ("accounts", "@")):
        named = values.get(section) if isinstance(values, dict) else None
        for name, table in named.items() if isinstance(named, dict) else ():
            if isinstance(table, dict) and "env" in table:
                yield f"{prefix}{name}", table, "env"
    for key in flags:
        if key.startswith("agents.") and key.endswith(".env"):
            yield key.removeprefix("agents.").removesuffix(".env"), flags, key


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
    """What is known of a ralph apart from its supervision. The pid is the command's, not the shim's.

    ``start_commit`` was HEAD when the run began; its commits are counted up to ``reflog``. ``incident`` is
    open until a person has dealt with it; ``last_change`` is the last progress. ``uncommitted`` are
    digests of the files that were not committed at ``uncommitted_at``, when a person started it.
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
    uncommitted: Mapping[str, str] = field(default_factory=dict)
    uncommitted_at: Moment | None = None


_DEFINITION: Final = Codec[Definition](
    Definition, moments=("registered_at",), last="registered_at flags configuration"
)
SUPERVISION: Final = Codec[Supervision](Supervision, most=LATEST)
_FACTS: Final = Codec[Facts](Facts, most=LATEST)  # what no calendar has cannot be shown
_OF_INCIDENTS: Final = ("at", "opened_at", "told_at", "acknowledged_at")
_MOMENTS: Final = ("started_at", "finished_at", "last_output_at", "uncommitted_at", *_OF_INCIDENTS)
_SHOWN_FACTS: Final = Codec[Facts](Facts, moments=_MOMENTS)


@dataclass(frozen=True, slots=True)
class RegentState:
    """The content of ``regent-state.json``. What the loop keeps is only shown: pool, tasks and its costs."""

    supervision: Supervision
    facts: Facts = Facts()
    pool: Mapping[str, Any] | None = None
    tasks: Mapping[str, int] | None = None
    cost_usd: float = 0.0

    def to_json(self, definition: Definition) -> dict[str, Any]:
        """Return what is shown, and then the exact supervision and facts, from which a new daemon resumes."""
        exact = {"supervision": SUPERVISION.dump(self.supervision), "facts": _FACTS.dump(self.facts)}
        return self.shown(definition) | exact

    def shown(self, definition: Definition) -> dict[str, Any]:
        """Return the part of the view that a file can show: the keys of ``wire.STATE_KEYS``."""
        current, facts = self.supervision, _SHOWN_FACTS.dump(self.facts)
        state, tally, reports = current.state, current.tally, current.said
        shown = {
            **facts, **asdict(tally),
            "total_cost_usd": max(tally.cost_usd, self.cost_usd),
            "version": STATE_VERSION, "name": definition.name,
            "state": shown_state(current, own_loop=definition.runs_own_loop),
            "goal": current.goal.value,
            "mode": definition.configuration.get("values", {}).get("ralph", {}).get("mode", "loop"),
            "passed": _passed(current), "agent": reports.agent, "pool": self.pool, "tasks": self.tasks,
            "task": None if reports.task is None else asdict(reports.task),
            "wait": _wait(current.wait),
            "pause_reason": state.reason if isinstance(state, model.Paused) else None,
            "message": message(current),
        }  # fmt: skip
        if (incident := facts["incident"]) is not None:
            incident = incident["call"] | incident | {"latest": incident["latest"] or None}
            shown["incident"] = {key: incident[key] for key in wire.INCIDENT_KEYS}
        return {key: shown[key] for key in wire.STATE_KEYS}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "RegentState":
        """Return the state in ``stored``. Raises ValueError or KeyError."""
        return cls(SUPERVISION.load(stored["supervision"]), _FACTS.load(stored["facts"]))


def _wait(wait: model.Wait | None) -> dict[str, Any] | None:
    if wait is None:
        return None
    return {"reason": wait.reason, "until": None if wait.ends_at is None else rfc3339(wait.ends_at)}


def shown_state(current: Supervision, *, own_loop: bool) -> str:
    """Return the state's name for people and scripts: a wait of the built-in loop is one of the ralph."""
    state, reports = current.state, current.said
    if reports.testing and isinstance(state, model.Running | model.Starting):
        return "testing"
    waits = own_loop and reports.wait is not None and isinstance(state, model.Running)
    return "waiting_for_retry" if waits else state.kind


def message(current: Supervision) -> str | None:
    """Return what a person should know about a state that will not change without one, or not soon."""
    match current.state:
        case model.Failed(why=why):
            return why
        case model.Stopped(why=why) | model.Paused(why=why) | model.Waiting(why=why) if why:
            return why
        case model.Done(why="limit", limit=limit, uncommitted=left):
            text = "a limit of yours was reached" + (f": {limit}" if limit else "")
            return text + (f" ({left})" if left else "")
        case model.Done(uncommitted=left) if left:
            return f"but {left}"
        case model.Stopping(since=since) | model.Pausing(since=since) if current.said.testing:
            return f"ends when the tests of its iteration are over; asked at {rfc3339(since)}"
        case model.Starting() if current.said.testing:
            return "the tests run once before Ralph begins, to know whether they are green"
        case model.Stopping(again=True, since=since) if current.said.off_schedule:
            return f"ends when its iteration is finished: outside its schedule; asked at {rfc3339(since)}"
        case model.Stopping(again=True):
            return "starts again as soon as it has ended"
        case model.Stopping(kill_at=None, since=since) | model.Pausing(kill_at=None, since=since):
            return f"ends when its iteration is finished; asked at {rfc3339(since)}"
        case _:
            return None


def _passed(current: Supervision) -> bool | None:
    match current.state:
        case model.Done() | model.Stopped(why=""):  # stopped without a reason: as it was requested
            return True
        case model.Failed():
            return False
        case _:
            return None


class RalphFiles:
    """The files of one ralph, originals and mirrors. All methods block; none needs the event loop.

    No mirror is written while the working directory ``hangs``.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.hangs = home, False
        self._mirror: Mirror | None = None  # of the directory that was asked for last
        self.definition_file = home / "ralph.json"
        self.state_file = home / STATE_FILE
        self.history_file = home / HISTORY_FILE
        self.progress_file = home / PROGRESS_FILE
        self.environment_file = home / "env"
        self.gate_file = home / GATE_FILE
        self.own = ("ralph.json", "env", GATE_FILE, STATE_FILE, HISTORY_FILE, PROGRESS_FILE)
        self.runs = home / "runs"
        self.tests = home / "tests"
        self._environment: dict[str, Any] = {}  # what ``env`` held last: a run may delete the file

    def exists(self) -> bool:
        """Return whether the definition is there, for the price of one stat."""
        return os.path.exists(self.definition_file)  # noqa: PTH110 - half as dear, every 8 s

    def create(self) -> None:
        make_private_directory(self.home)
        make_private_directory(self.runs)

    def save_definition(self, definition: Definition) -> None:
        """Write ``ralph.json``, and the agents' variables into ``env``. Raises OSError."""
        found = _agents_variables(definition.configuration, definition.flags)
        variables = {name: table[key] for name, table, key in found if table[key]}
        environment = self._load_environment()
        is_gone = bool(environment) and not self.environment_file.exists()
        if environment.pop(AGENTS, {}) != variables or is_gone:
            environment |= {AGENTS: variables} if variables else {}
            write_whole(self.environment_file, as_json(environment))
        write_whole(self.definition_file, as_json(definition.to_json()))

    def load_definition(self) -> Definition | None:
        """Return what ``ralph.json`` holds; None if missing. Raises Broken or NewerState."""
        definition = load_file(self.definition_file, STATE_VERSION, Definition.from_json)
        return None if definition is None else self.complete(definition)

    def complete(self, definition: Definition) -> Definition:
        """Return a definition from a file with the agents' variables. Earlier versions kept them there."""
        stored = (peek(self.environment_file) or {}).get(AGENTS)  # a broken file is reported later
        configuration, flags = deepcopy((dict(definition.configuration), dict(definition.flags)))
        for name, table, key in _agents_variables(configuration, flags):
            table[key] = table[key] or (stored.get(name, {}) if isinstance(stored, dict) else {})
        return replace(definition, configuration=configuration, flags=flags)

    def save_record(self, record: RegentState, definition: Definition, *, durable: bool = True) -> None:
        """Write ``regent-state.json``, then its mirror. Raises OSError for the original only."""
        data = as_json(record.to_json(definition))
        write_whole(self.state_file, data, durable=durable)
        self.mirror(definition.directory, {self.state_file.name: data})

    def load_record(self) -> RegentState | None:
        """Return what ``regent-state.json`` holds; None if missing. Raises Broken or NewerState."""
        return load_file(self.state_file, STATE_VERSION, RegentState.from_json)

    def save_environment(self, environment: Mapping[str, str]) -> None:
        """Keep the environment of the runs, readable for us alone."""
        variables = {key: value for key, value in self._load_environment().items() if key == AGENTS}
        write_whole(self.environment_file, as_json({**environment, **variables}))
        self._environment = {**environment, **variables}

    def load_environment(self) -> dict[str, str]:
        """Return the environment of the runs: the last known one if the file is missing or damaged."""
        return {name: value for name, value in self._load_environment().items() if isinstance(value, str)}

    def _load_environment(self) -> dict[str, Any]:
        with suppress(Broken):
            self._environment = read_json(self.environment_file) or self._environment
        return dict(self._environment)

    def mirror(self, directory: Path, contents: Mapping[str, bytes] | None = None) -> None:
        """Write the copies in ``.ralph/``: those in ``contents``, and those that differ from their originals.

        A working directory that takes none (full, read-only, gone) costs the copies and nothing else.
        """
        if self.hangs:
            return
        with suppress(OSError, DirectoryUnusable):
            mirror = self._mirror_in(directory)
            mirror.renew(contents or {}, self.state_file, self.history_file)
            if self._progress_is_due(mirror):
                copies.copy(self.progress_file, mirror.path / PROGRESS_FILE)

    def mirror_is_whole(self, directory: Path) -> bool:
        """Return whether the copies are there, as far as sizes and times show."""
        mirror = self._mirror_in(directory)
        return mirror.is_whole(self.history_file) and not self._progress_is_due(mirror)

    def _progress_is_due(self, mirror: Mirror) -> bool:
        if not os.path.exists(self.progress_file):  # noqa: PTH110 - as above
            return False
        return copies.is_due(self.progress_file, mirror.path / PROGRESS_FILE, at_rest=False)

    def _mirror_in(self, directory: Path) -> Mirror:
        if self._mirror is None or self._mirror.directory != directory:
            self._mirror = Mirror(directory)
        return self._mirror

    def checkpoint(self, directory: Path, *, own_loop: bool = False) -> Pause:
        """Return the pause reason and resume time that a run left. Nothing in the file is trusted.

        The built-in loop leaves them in the ralph's home, with a copy in ``.ralph/``; a command only there.
        """
        left = Mirror(directory).path / copies.CHECKPOINT_FILE
        return pause_in(self.home / copies.CHECKPOINT_FILE, left) if own_loop else pause_in(left)
