"""``docs/files.md`` and ``docs/examples`` have the keys that the code writes for a real ralph."""

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ralphd import wire
from ralphd.api.routes.logs import as_json
from ralphd.core.loop.model import PauseReason
from ralphd.core.time import parse_rfc3339
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Chunk, Cursor, Gap, LogQuery, LogRecord, parse
from ralphd.process.rundir import RunRecord
from ralphd.process.shim import FORMAT_VERSION
from ralphd.store import mirror, state
from ralphd.store.loop_files import LoopFiles
from ralphd.store.webhooks import WEBHOOKS_VERSION
from tests.generated_events import TOLD
from tests.helpers import wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "files.md"
EXAMPLES = ROOT / "docs" / "examples"
HISTORY = "`history.jsonl`"
SECTION = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w.-]*\w\.(json|jsonl|md|log|db|err|sock)")
FOR_DEVELOPERS = ("dev", "fuzz", "mutants", "release")
CONSTRAINTS = ("constraints-all.txt", "constraints.txt")

Json = Mapping[str, Any]


REPORTS: tuple[Json, ...] = (
    {"kind": "waiting", "until": "2100-01-01T00:00:00Z", "reason": "usage limit"},
    {"kind": "hello", "signals": True},
    {"kind": "waiting", "until": None},
    {"kind": "iteration-started", "iteration": 1, "task": {"id": "US-1", "title": "Parse the list"}},
    {"kind": "attempt-finished", "agent": "claude", "outcome": "done", "exit_code": 0, "cost_usd": 0.21},
    {"kind": "cost", "usd": 0.05},
    {"kind": "iteration-finished", "iteration": 1, "summary": "US-1 is done"},
    {"kind": "agent-exhausted", "agent": "claude", "reason": "weekly limit", "until": "2100-01-01T00:00:00Z"},
    {"kind": "agent-returned", "agent": "claude"},
)


# --- the page -------------------------------------------------------------------------------------------


@cache
def sections() -> Mapping[str, str]:
    """The text below each heading."""
    _, *parts = SECTION.split(PAGE.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def tables(heading: str) -> list[list[list[str]]]:
    """The tables of a section: rows of cells, without the head."""
    blocks = re.findall(r"(?:^\|.*\n)+", sections()[heading], re.MULTILINE)
    return [[row.strip("| ").split(" | ") for row in block.splitlines()[2:]] for block in blocks]


def keys(heading: str) -> list[str]:
    """The keys in the first table of a section; entries of the history share the first ones."""
    common = keys(HISTORY) if heading.startswith(f"{HISTORY}: kind ") else []
    return [*common, *(cells[0].strip("`") for table in tables(heading)[:1] for cells in table)]


def examples(heading: str, kind: str = "json") -> list[str]:
    """The examples of a section that are of this kind."""
    return [text for found, text in FENCE.findall(sections()[heading]) if found == kind]


def example_text(heading: str) -> str:
    """The example of a file: in ``docs/examples``, else the first one of its section."""
    file = EXAMPLES / heading.strip("`")
    return file.read_text(encoding="utf-8") if "/" not in heading and file.exists() else examples(heading)[0]


def example(heading: str) -> dict[str, Any]:
    """The same, read."""
    found: dict[str, Any] = json.loads(example_text(heading))
    return found


# --- what the code writes -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What a daemon left of a ralph that reported, failed, and hung; ``signpost`` was read while it ran."""

    daemon: Daemon
    signpost: Json
    events: list[dict[str, Any]]
    names: frozenset[str]

    def object(self, name: str) -> dict[str, Any]:
        """A file of the ralph, or of its first run."""
        for place in (self.daemon.files("demo"), *self.daemon.run_directories("demo")):
            if (place / name).exists():
                found: dict[str, Any] = json.loads((place / name).read_text())
                return found
        raise AssertionError(f"no {name} was written")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Runs a ralph for real until it has failed for good: the first run reports, the second one hangs."""
    with daemon_in(tmp_path_factory.mktemp("documents") / "one") as daemon:
        daemon.start()
        witness = Witness.of(daemon)
        place = witness.directory
        _commit(place, "init", "-q")
        witness.register(
            max_retries=2,
            hang_timeout_seconds=4.0,
            startup_grace_seconds=0.0,
            rollback_on_test_failure=True,
            test_command="! test -e bad",
            test_retries=0,
        )
        run_id = daemon.becomes("demo", "running")["run_id"]
        for number, words in enumerate(REPORTS):
            if words["kind"] == "iteration-finished":
                _commit(place)
            report = {"run_id": run_id, "id": str(number), **words}
            daemon.ask("POST", "/v1/ralphs/demo/reports", report)
        (place / "bad").touch()
        _commit(place, "add", "bad")
        bad = {"run_id": run_id, "id": "bad", "kind": "iteration-finished", "iteration": 2}
        daemon.ask("POST", "/v1/ralphs/demo/reports", bad)
        _commit(place, "reset", "-q", "--hard", "HEAD~1")  # loses the revert: it is restored
        daemon.ask("POST", "/v1/ralphs/demo/reports", bad | {"id": "reset", "iteration": 3})
        signpost = wait_for(lambda: _json(place / ".ralph" / "lock"), what="a signpost")
        witness.end(1)
        daemon.becomes("demo", "failed", timeout_s=60)
        daemon.ask("POST", "/v1/ralphs/demo/undo", {})
        daemon.ask("POST", "/v1/ralphs/demo/ack")
        found = (path for root in (daemon.state, place) for path in root.rglob("*"))
        names = frozenset(
            path.name for path in found if not any(part.endswith(".git") for part in path.parts)
        )
        yield Written(daemon, signpost or {}, daemon.events(), names)


def _commit(place: Path, *first: str) -> None:
    """Commit nothing as a run does (decision 0036), after another call of git."""
    settings = ("user.name=Ralph", "user.email=ralph@example.invalid", "core.looseCompression=2")
    someone = [word for setting in settings for word in ("-c", setting)]
    for words in (first, (*someone, "commit", "-q", "--allow-empty", "-m", "done")):
        if words:
            subprocess.run(["git", "-C", str(place), *words], check=True)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


# --- the one is the other -------------------------------------------------------------------------------


FILES = ["ralph.json", "regent-state.json", "gate.json", "intent.json", "run.json", "exit.json"]


@pytest.mark.parametrize("name", [*FILES, "explanation.json", "evidence.json"])
def test_the_keys_of_a_file_are_those_that_are_written(written: Written, name: str) -> None:
    heading = f"`{name}`"

    assert keys(heading) == list(written.object(name))
    assert keys(heading) == list(example(heading))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ralph.json", "configuration"),
        ("regent-state.json", "last_exit"),
        ("regent-state.json", "facts"),
        ("regent-state.json", "supervision"),
        ("exit.json", "rusage"),
        ("intent.json", "environment"),
    ],
)
def test_the_keys_within_a_key_are_those_that_are_written(written: Written, name: str, key: str) -> None:
    assert list(example(f"`{name}`")[key]) == list(written.object(name)[key])


def test_every_kind_of_entry_in_the_history_is_told_with_its_keys(written: Written) -> None:
    lines = (written.daemon.files("demo") / "history.jsonl").read_text().splitlines()
    entered = {entry["kind"]: list(entry) for entry in map(json.loads, lines)}
    prefix = "`history.jsonl`: kind "
    told = {heading.removeprefix(prefix).strip("`"): heading for heading in sections() if prefix in heading}
    shown = map(json.loads, example_text(HISTORY).splitlines())

    assert {kind: keys(heading) for kind, heading in told.items()} == entered
    assert {entry["kind"]: list(entry) for entry in shown} == entered


def test_the_signpost_holds_what_is_told(written: Written) -> None:
    assert keys("`.ralph/lock`") == list(written.signpost) == list(example("`.ralph/lock`"))


def test_every_file_that_is_written_is_in_the_picture_of_the_directories(written: Written) -> None:
    drawn = " ".join(examples("The state directory", "text"))
    varying = re.compile(r"r\d{6}-[0-9a-f]{8}|demo|events\.db-(wal|shm)")
    unnamed = {name for name in written.names if not varying.fullmatch(name) and name not in drawn}

    assert unnamed <= {".ralph", ".gitignore", "bad"}


def test_an_event_has_the_keys_that_are_told_and_its_data_too(written: Written) -> None:
    assert keys("Events") == list(example("Events")) == list(written.events[0])
    for event in written.events:
        told = TOLD[event["type"]]
        assert set(told.data) <= set(event["data"]) <= {*told.data, *told.at_times}, event


def test_the_events_that_are_told_are_those_that_the_code_tells() -> None:
    sources = [path for path in (ROOT / "ralphd").rglob("*.py") if path.name != "wire.py"]

    assert set(TOLD) == texts_in(sources) & set(wire.EVENT_TYPES), "tests/generated_events.py says when"


def test_every_file_that_the_code_names_is_in_the_picture_of_the_directories() -> None:
    ours = ("ralphd/app.py", "ralphd/__main__.py", "ralphctl/service/daemon.py")
    sources = [ROOT / path for path in ours]
    for package in ("store", "process", "daemon", "notify", "api"):
        sources += (ROOT / "ralphd" / package).rglob("*.py")
    named = {text for text in texts_in(sources) if FILE.fullmatch(text)}
    drawn = "\n".join(examples("The state directory", "text"))

    assert "ralph.json" in named
    assert {name for name in named if name not in drawn} == set(), "docs/files.md, The state directory"


def texts_in(sources: Iterable[Path]) -> set[str]:
    """All texts that these modules hold."""
    return set().union(*map(texts_of, sources))


@cache
def texts_of(source: Path) -> frozenset[str]:
    """The same of one module."""
    held = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    constants = (node.value for node in held if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


def test_the_states_are_those_on_the_wire() -> None:
    told = next(cells[1] for cells in tables("`regent-state.json`")[0] if cells[0] == "`state`")

    assert set(NAME.findall(told)) == set(wire.STATES)


def test_the_examples_of_a_log_are_records(written: Written) -> None:
    text = examples("Logs", "log")[0].encode()
    records = parse(Chunk(text, 0))

    assert [record.stream for record in records] == ["stdout", "stderr", "regent"]
    assert all(parse_rfc3339(record.at) for record in records)
    assert str(Cursor.parse(examples("Logs", "cursor")[0].strip())) == examples("Logs", "cursor")[0].strip()
    shown = [json.loads(line) for line in examples("Logs")[0].splitlines()]
    read = next(each for each in RalphLog(written.daemon.files("demo") / "runs").read(LogQuery()))
    gap = Gap(Cursor.parse(shown[1]["cursor"]), shown[1]["gap"])
    assert isinstance(read, LogRecord)
    assert [list(each) for each in shown] == [list(json.loads(as_json(each))) for each in (read, gap)]


def test_the_example_of_a_checkpoint_is_read(tmp_path: Path) -> None:
    heading = "`.ralph/checkpoint.json`"
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph" / "checkpoint.json").write_text(examples(heading)[0])
    shown = example(heading)

    found = state.RalphFiles(tmp_path / "home").checkpoint(tmp_path)

    assert keys(heading) == list(shown)
    assert (found.reason, found.resume_at) == (shown["pause_reason"], parse_rfc3339(shown["resume_at"]))


def test_the_examples_of_what_the_loop_keeps_are_what_it_writes(tmp_path: Path) -> None:
    names = ("checkpoint.json", "tasks.json", "loop.json")
    files = LoopFiles(tmp_path, tmp_path)
    for name in names:
        (tmp_path / name).write_text(example_text(f"`{name}`"))

    checkpoint, tasks, memory = files.checkpoints.load(), files.tasks.load(), files.memory.load()

    assert (files.checkpoints.fault, files.tasks.fault, files.memory.fault) == ("", "", "")
    assert checkpoint is not None
    files.checkpoints.save(checkpoint)
    files.tasks.save(tasks)
    files.memory.save(memory)
    for name in names:
        written = json.loads((tmp_path / name).read_text())
        assert written == example(f"`{name}`")
        assert keys(f"`{name}`") == list(written) == list(example(f"`{name}`"))
    assert set(NAME.findall(tables("`checkpoint.json`")[0][6][1])) == set(PauseReason)


def test_the_examples_of_a_definition_and_of_a_state_are_read() -> None:
    definition = state.Definition.from_json(example("`ralph.json`"))
    record = state.RegentState.from_json(example("`regent-state.json`"))

    assert record.to_json(definition) == example("`regent-state.json`")


def test_what_the_daemon_reads_of_a_run_is_in_its_record() -> None:
    assert {field.name for field in fields(RunRecord)} <= set(keys("`run.json`"))


def test_the_version_is_the_one_that_is_told() -> None:
    shown = [json.loads(file.read_text(encoding="utf-8")) for file in EXAMPLES.glob("*.json")]
    versions = {each["version"] for each in shown if "version" in each}

    assert versions == {mirror.STATE_VERSION, FORMAT_VERSION, WEBHOOKS_VERSION}


def test_the_socket_is_looked_for_in_the_order_that_is_told() -> None:
    heading = "Where `ralphctl` looks for the socket"
    told = re.findall(r"^\d\. (.*)$", sections()[heading], re.MULTILINE)
    environ = {"RALPHD_SOCKET": "$RALPHD_SOCKET", "RALPHD_STATE_DIR": "/the state directory"}
    looked = list(wire.socket_candidates(environ, "`build/NAME-HASH`"))

    assert len(looked) == len(told)
    for place, words in zip(looked, told, strict=True):
        assert place.strip("/").removesuffix("/ralphd.sock") in words


# --- the packages of the extras -------------------------------------------------------------------------


def test_make_install_knows_each_extra_and_pins_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name: each for name, each in project["optional-dependencies"].items() if name not in FOR_DEVELOPERS
    }
    known = re.search(r"^KNOWN_EXTRAS = (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert known and sorted(known[1].split()) == sorted(extras)
    pinned, plain = (
        re.findall(r"^(\S+?)==", (ROOT / name).read_text(), re.MULTILINE) for name in CONSTRAINTS
    )
    wanted = {re.split(r"[\[<>=]", package)[0] for each in extras.values() for package in each}
    assert wanted - {*pinned} == set(), "make constraints"
    assert {*plain} - {*pinned} == set(), "make constraints"
    assert (ROOT / CONSTRAINTS[0]).read_text().count("--hash=") >= len(pinned)
