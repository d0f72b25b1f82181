"""What the loop keeps between its runs: whole, private, with copies for people, and never guessed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.loop.model import (
    Checkpoint,
    Cooldown,
    InFlight,
    LoopState,
    PauseReason,
    TaskRecord,
    TaskState,
)
from ralphd.core.loop.phases import Phase, Phases
from ralphd.core.loop.review import ReviewFinding
from ralphd.core.time import parse_rfc3339
from ralphd.errors import NewerState
from ralphd.store.codec import LoopFile
from ralphd.store.loop_files import HANDOFF_BYTES, LoopFiles
from tests.store.conftest import SmallDisk

T = TypeVar("T")
RECORD = TaskRecord(
    id="US-1",
    title="Mend the parser",
    state=TaskState.FAILED,
    failure_count=2,
    last_kind=FailureKind.TIMEOUT,
    last_failure="took longer than 600 s",
    reopened=True,
    timeout_factor=2.25,
    unreviewed=True,
    unjudged=True,
    reverted=RevertNotice(("abc1234",), "the tests failed", ("1 failed", "", "ü"), "r000001-3fa9c1d2/6"),
    attempts=4,
    last_attempt=3,
    last_agent="claude",
    last_lines=("one", "two"),
)
LEDGER = {"US-1": RECORD, "": TaskRecord(""), "ü/2": TaskRecord("ü/2", state=TaskState.COMPLETE)}
OUT = Cooldown(
    "claude",
    "usage limit",
    parse_rfc3339("2026-11-22T03:00:00Z"),
    probes=2,
    back=True,
    guessed=True,
    for_slot=True,
)
MEMORY = LoopState(
    iteration=7,
    cost_usd=3.5,
    began_at=parse_rfc3339("2026-11-22T01:00:00.5Z"),
    idle_successes=1,
    out=(OUT, Cooldown("codex", "login")),
    last_agent="codex",
    agents=("claude", "codex"),
    rotates=True,
    list_file="TASKS.md",
    in_flight=InFlight(8, 2, "codex", "US-1", "story 1", parse_rfc3339("2026-11-22T01:10:00Z")),
    judged="r000001-3fa9c1d2/7",
    notes_read=3,
    tasks=(2, 5),
)
PHASES = Phases(
    task_id="US-1",
    phase=Phase.TRIAGE,
    plan="first this",
    round=2,
    findings=(ReviewFinding("R1", "too short", "a.py:3"),),
    dismissed=(ReviewFinding("R2", "too long"),),
    tries=1,
    timeout_factor=1.5,
)
CHECKPOINT = Checkpoint(created_at=0.0, iteration=1, pause_reason=PauseReason.ITERATION_BOUNDARY)
DIE = """
import sys
from pathlib import Path
from ralphd.core.loop.model import LoopState, TaskRecord
from ralphd.core.loop.phases import Phases
from ralphd.store.loop_files import LoopFiles
files = LoopFiles(Path(sys.argv[1]), Path(sys.argv[2]))
files.create()
files.tasks.save({"new": TaskRecord("new")})
files.memory.save(LoopState(iteration=8))
files.phases.save(Phases("new"))
files.save_handoff("new")
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def files(tmp_path: Path, directory: Path) -> LoopFiles:
    files = LoopFiles(tmp_path / "state" / "home", directory)
    files.create()
    return files


def again(files: LoopFiles, directory: Path) -> LoopFiles:
    """What the next run of the loop uses."""
    return LoopFiles(files.home, directory)


def whole(file: LoopFile[T]) -> T:
    """What a file holds that is not damaged."""
    value = file.load()
    assert file.fault == ""
    return value


# Kept


def test_what_is_saved_is_what_the_next_run_loads(files: LoopFiles, directory: Path) -> None:
    files.tasks.save(LEDGER)
    files.memory.save(MEMORY)
    files.phases.save(PHASES)
    files.save_handoff("Previous rotation crashed: exit 1\n")

    following = again(files, directory)

    assert whole(following.tasks) == LEDGER
    assert whole(following.memory) == MEMORY
    assert whole(following.phases) == PHASES
    assert following.load_handoff() == "Previous rotation crashed: exit 1\n"


@pytest.mark.parametrize("example", [RECORD, OUT, MEMORY, PHASES])
def test_the_examples_leave_no_field_out(example: TaskRecord | Cooldown | LoopState | Phases) -> None:
    assert all(getattr(example, field.name) != field.default for field in fields(example))


def test_a_first_run_begins_with_nothing(files: LoopFiles) -> None:
    assert whole(files.tasks) == {}
    assert whole(files.memory) == LoopState()
    assert files.load_handoff() == ""
    assert files.checkpoints.load() is None


def test_the_prompt_of_the_attempt_lies_with_the_originals_alone(files: LoopFiles, directory: Path) -> None:
    path = files.save_prompt("Do it.\udcff")

    assert path == files.home / "PROMPT-now.md"
    assert path.read_text() == "Do it.?"
    assert not (directory / ".ralph" / "PROMPT-now.md").exists()


def test_of_a_long_note_the_end_is_kept_in_whole_lines(files: LoopFiles, directory: Path) -> None:
    files.save_handoff("".join(f"é line {number}\n" for number in range(20_000)))

    text = again(files, directory).load_handoff()

    cut, first, *_, last = text.splitlines()
    assert len(text.encode()) <= HANDOFF_BYTES
    assert cut == "(the beginning is cut off here)"
    assert first.startswith("é line ") and last == "é line 19999"


def test_a_text_without_end_in_the_tasks_is_cut_and_a_cost_that_is_none_is_0(
    files: LoopFiles, directory: Path
) -> None:
    files.tasks.save({"a": TaskRecord("a", last_failure="x" * 100_000 + "\udcff")})
    files.memory.save(LoopState(cost_usd=float("inf")))

    assert len(again(files, directory).tasks.load()["a"].last_failure) == 4000
    assert whole(again(files, directory).memory) == LoopState()


def test_half_written_files_of_a_killed_run_are_removed(files: LoopFiles) -> None:
    (files.home / ".tasks.json.0a1b2c3d.ralphd-tmp").write_text("{")
    (files.home / "snapshot-0a1b2c").mkdir()
    (files.home / "snapshot-0a1b2c" / "index").write_text("DIRC")

    files.create()

    assert os.listdir(files.home) == []


# Damaged, newer, full

FILES: dict[str, Callable[[LoopFiles], LoopFile[Any]]] = {
    "tasks.json": lambda files: files.tasks,
    "loop.json": lambda files: files.memory,
    "phases.json": lambda files: files.phases,
}
VALUES: dict[str, object] = {"tasks.json": LEDGER, "loop.json": MEMORY, "phases.json": PHASES}
EMPTY: dict[str, object] = {"tasks.json": {}, "loop.json": LoopState(), "phases.json": None}


@pytest.mark.parametrize("name", list(EMPTY))
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "tasks": [], "out": {}}'])
def test_a_damaged_file_is_set_aside_said_and_begun_anew(files: LoopFiles, name: str, text: str) -> None:
    (files.home / name).write_text(text)

    file = FILES[name](files)
    value, fault = file.load(), file.fault

    (kept,) = files.home.glob(f"{name}.corrupt-*")
    assert kept.read_text() == text
    assert value == EMPTY[name]
    assert str(kept) in fault
    assert (file.load(), file.fault) == (EMPTY[name], "")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "bored"},
        {"failure_count": -1},
        {"failure_count": True},
        {"title": 5},
        {"last_kind": "odd"},
        {"reopened": 1},
    ],
)
def test_a_record_that_cannot_be_is_damage(
    files: LoopFiles, directory: Path, change: dict[str, object]
) -> None:
    files.tasks.save(LEDGER)
    raw = json.loads((files.home / "tasks.json").read_text())
    raw["tasks"]["US-1"] |= change
    (files.home / "tasks.json").write_text(json.dumps(raw))

    file = again(files, directory).tasks
    file.load()
    assert file.fault != ""


@pytest.mark.parametrize(
    "change",
    [
        *({"cost_usd": -1}, {"cost_usd": "1"}, {"began_at": "now"}, {"out": [5]}),
        *({"agents": "claude"}, {"agents": [1]}, {"rotates": "yes"}, {"last_agent": 0}),
    ],
)
def test_a_memory_that_cannot_be_is_damage(
    files: LoopFiles, directory: Path, change: dict[str, object]
) -> None:
    files.memory.save(MEMORY)
    raw = json.loads((files.home / "loop.json").read_text())
    (files.home / "loop.json").write_text(json.dumps(raw | change))

    file = again(files, directory).memory
    file.load()
    assert file.fault != ""


@pytest.mark.parametrize("name", list(EMPTY))
def test_a_file_of_a_newer_version_is_refused_and_stays(files: LoopFiles, name: str) -> None:
    (files.home / name).write_text('{"version": 2}')

    file = FILES[name](LoopFiles(files.home, files.home))
    for touch in (file.load, partial(file.save, VALUES[name]), file.clear):
        with pytest.raises(NewerState, match="left as it is"):
            touch()
    assert (files.home / name).read_text() == '{"version": 2}'


@pytest.mark.parametrize(
    "change",
    [
        *({"task_id": 5}, {"phase": "bored"}, {"plan": None}, {"round": -1}, {"tries": True}),
        *({"findings": {}}, {"findings": ["R1"]}, {"dismissed": [{"id": "R1"}]}),
    ],
)
def test_phases_that_cannot_be_are_damage(
    files: LoopFiles, directory: Path, change: dict[str, object]
) -> None:
    files.phases.save(PHASES)
    raw = json.loads((files.home / "phases.json").read_text())
    (files.home / "phases.json").write_text(json.dumps(raw | change))

    file = again(files, directory).phases

    assert file.load() is None
    assert "the attempt starts with the plan again" in file.fault


def test_phases_that_are_cleared_are_gone(files: LoopFiles) -> None:
    files.phases.save(PHASES)
    files.phases.clear()
    files.phases.clear()

    assert files.phases.load() is None


def test_keys_that_are_not_known_are_passed_over(files: LoopFiles, directory: Path) -> None:
    files.memory.save(MEMORY)
    raw = json.loads((files.home / "loop.json").read_text())
    (files.home / "loop.json").write_text(json.dumps(raw | {"later": 5}))

    assert whole(again(files, directory).memory) == MEMORY


def test_a_note_that_is_no_plain_file_is_set_aside(files: LoopFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (files.home / "handoff.md").symlink_to(tmp_path / "secret")
    assert files.load_handoff() == ""
    os.mkfifo(files.home / "handoff.md")
    assert files.load_handoff() == ""

    assert len(list(files.home.glob("handoff.md.corrupt-*"))) == 2


def test_a_full_disk_is_told_and_leaves_what_was_there(small_disk: SmallDisk, directory: Path) -> None:
    files = LoopFiles(small_disk.path / "home", directory)
    files.create()
    files.tasks.save(LEDGER)
    files.save_handoff("old")
    small_disk.fill()

    with pytest.raises(OSError, match="No space left"):
        files.tasks.save({})
    with pytest.raises(OSError, match="No space left"):
        files.save_handoff("new")
    assert whole(again(files, directory).tasks) == LEDGER
    assert again(files, directory).load_handoff() == "old"


# Copies


def test_tasks_handoff_and_checkpoint_are_copied_and_nothing_else(files: LoopFiles, directory: Path) -> None:
    files.tasks.save(LEDGER)
    files.memory.save(MEMORY)
    files.phases.save(PHASES)
    files.save_handoff("note")
    files.checkpoints.save(CHECKPOINT)
    files.save_prompt("prompt")

    copies = directory / ".ralph"
    assert sorted(os.listdir(copies)) == [".gitignore", "checkpoint.json", "handoff.md", "tasks.json"]
    for name in ("checkpoint.json", "handoff.md", "tasks.json"):
        assert (copies / name).read_bytes() == (files.home / name).read_bytes()


def test_copies_that_were_removed_or_changed_come_back(files: LoopFiles, directory: Path) -> None:
    files.tasks.save(LEDGER)
    files.save_handoff("note")
    tasks, handoff = directory / ".ralph" / "tasks.json", directory / ".ralph" / "handoff.md"
    tasks.unlink()
    handoff.write_text("another note")

    files.renew_copies()

    assert tasks.read_bytes() == (files.home / "tasks.json").read_bytes()
    assert handoff.read_text() == "note"


def test_copies_that_are_as_they_should_be_are_not_written(files: LoopFiles, directory: Path) -> None:
    files.tasks.save(LEDGER)
    before = (directory / ".ralph" / "tasks.json").stat()

    files.renew_copies()

    assert (directory / ".ralph" / "tasks.json").stat() == before


def test_a_new_run_removes_the_copy_of_a_checkpoint_that_was_cleared(
    files: LoopFiles, directory: Path
) -> None:
    files.checkpoints.save(CHECKPOINT)
    (files.home / "checkpoint.json").unlink()

    again(files, directory).create()

    assert not (directory / ".ralph" / "checkpoint.json").exists()


def test_a_renewal_follows_no_link(files: LoopFiles, directory: Path, tmp_path: Path) -> None:
    files.save_handoff("note")
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (directory / ".ralph" / "handoff.md").unlink()
    (directory / ".ralph" / "handoff.md").symlink_to(victim)

    files.renew_copies()

    assert victim.read_text() == "untouched"
    assert (directory / ".ralph" / "handoff.md").read_text() == "note"


# Killed at any line


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("loop.tasks_saved", (["new"], 7, "old")),
        ("loop.memory_saved", (["new"], 8, "old")),
        ("loop.phases_saved", (["new"], 8, "old")),
        ("write.handoff.md.before_rename", (["new"], 8, "old")),
        ("loop.handoff_saved", (["new"], 8, "new")),
    ],
)
def test_whoever_is_killed_leaves_what_was_written(
    files: LoopFiles, directory: Path, place: str, kept: tuple[list[str], int, str]
) -> None:
    files.tasks.save(LEDGER)
    files.memory.save(MEMORY)
    files.save_handoff("old")
    words = [sys.executable, "-c", DIE, str(files.home), str(directory)]
    environment = {**os.environ, "RALPHD_FAILPOINTS": f"{place}=kill"}

    ended = subprocess.run(words, env=environment, timeout=60, check=False).returncode

    assert ended == -signal.SIGKILL
    following = again(files, directory)
    following.create()
    found = following.tasks.load(), following.memory.load(), following.load_handoff()
    assert (list(found[0]), found[1].iteration, found[2]) == kept
    are_saved = place not in ("loop.tasks_saved", "loop.memory_saved")
    assert whole(following.phases) == (Phases("new") if are_saved else None)
    assert not list(files.home.glob(".*"))
