"""The checkpoint: saved whole, believed only when all of it can be, and never thrown away (002-US-002)."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.loop.model import Checkpoint, CheckpointTask, PauseReason
from ralphd.core.time import parse_rfc3339
from ralphd.errors import NewerState
from ralphd.store.checkpoint import DISCARDED_KEPT, MOST_FILES, CheckpointManager, from_json, to_json
from tests.store.conftest import SmallDisk

WHOLE = Checkpoint(
    created_at=parse_rfc3339("2026-11-22T01:00:00.250000Z"),
    iteration=7,
    pause_reason=PauseReason.USAGE_LIMIT,
    max_iterations=40,
    task=CheckpointTask("US-3", "Mend the parser", 2),
    agent="claude",
    resume_at=parse_rfc3339("2026-11-22T03:00:00Z"),
    uncommitted_files=("src/a.py", "new"),
    head_commit="0123456789abcdef0123456789abcdef01234567",
    snapshot_ref="refs/ralph/checkpoints/000007",
    session_id="6b1e",
    resumes_session=False,
    total_cost_usd=1.25,
    why="Claude says: You've hit your limit",
)
TEXT = st.text(alphabet='aé\n\0"\\☃😀', max_size=20)
LEAST = Checkpoint(created_at=0.0, iteration=0, pause_reason=PauseReason.ITERATION_BOUNDARY)
DIE = """
import sys
from pathlib import Path
from ralphd.core.loop.model import Checkpoint, PauseReason
from ralphd.store.checkpoint import CheckpointManager
manager = CheckpointManager(Path(sys.argv[1]), Path(sys.argv[2]))
manager.save(Checkpoint(created_at=0.0, iteration=8, pause_reason=PauseReason.TIMEOUT))
manager.clear()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def manager(home: Path, directory: Path) -> CheckpointManager:
    return CheckpointManager(home, directory)


def again(manager: CheckpointManager, directory: Path) -> CheckpointManager:
    """What the next run of the loop uses."""
    return CheckpointManager(manager.path.parent, directory)


# Saved and loaded


@pytest.mark.parametrize("checkpoint", [WHOLE, LEAST])
def test_what_is_saved_is_what_the_next_run_loads(
    manager: CheckpointManager, directory: Path, checkpoint: Checkpoint
) -> None:
    manager.save(checkpoint)

    assert again(manager, directory).load() == checkpoint


def test_every_field_is_saved() -> None:
    kept = from_json(json.loads(json.dumps(to_json(WHOLE))))

    assert kept == WHOLE
    assert all(getattr(WHOLE, field.name) != field.default for field in fields(Checkpoint))


@given(
    iteration=st.integers(0, 10**6),
    title=TEXT,
    files=st.lists(TEXT, max_size=3),
    cost=st.floats(0, 1e6),
    reason=st.sampled_from(PauseReason),
    why=TEXT,
)
@settings(max_examples=30)
def test_any_checkpoint_is_without_fault_once_it_is_written(
    iteration: int, title: str, files: list[str], cost: float, reason: PauseReason, why: str
) -> None:
    checkpoint = replace(
        WHOLE,
        iteration=iteration,
        task=CheckpointTask("id", title, 0),
        uncommitted_files=tuple(files),
        total_cost_usd=cost,
        pause_reason=reason,
        why=why,
    )
    raw = json.loads(json.dumps(to_json(checkpoint)))

    assert CheckpointManager(Path(), Path()).verify(raw) == []
    assert from_json(raw) == checkpoint


def test_without_one_there_is_none_and_no_fault(manager: CheckpointManager) -> None:
    assert manager.load() is None
    assert manager.fault == ""


def test_names_without_end_and_text_that_is_none_are_saved_all_the_same(
    manager: CheckpointManager, directory: Path
) -> None:
    names = tuple(map(str, range(MOST_FILES + 1)))
    manager.save(replace(WHOLE, uncommitted_files=names, why="\udcff", total_cost_usd=float("nan")))

    found = again(manager, directory).load()

    assert found is not None
    assert (len(found.uncommitted_files), found.why, found.total_cost_usd) == (MOST_FILES, "?", 0.0)


# Verified


def changed(key: str, value: object) -> dict[str, Any]:
    return to_json(WHOLE) | {key: value}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("version", [None, "1", 0, -1, True, 1.0]),
        ("created_at", [None, 5, "yesterday", "2026-11-22T01:00:00"]),
        ("iteration", [None, -1, "7", True, 1.5, 10**12]),
        ("max_iterations", [None, -1, "40"]),
        ("task", ["US-3", {}, {"id": "", "title": "", "attempt": 0}, {"id": "a", "title": 1, "attempt": 0}]),
        ("task", [{"id": "a", "title": "", "attempt": -1}, {"id": 5, "title": "", "attempt": 1}]),
        ("agent", [5, ["claude"]]),
        ("pause_reason", [None, "bored", 5, ["error"], {"error": "x"}]),
        ("resume_at", [5, "later", ""]),
        ("uncommitted_files", [None, "a", [5], {}]),
        ("head_commit", ["HEAD", "--all", 5, "", "abc"]),
        ("snapshot_ref", ["refs/heads/main", "HEAD", "refs/ralph/../heads/main", "refs/ralph/a b", 5]),
        ("session_id", [5]),
        ("total_cost_usd", [None, -1, "1", True, float("nan"), float("inf")]),
        ("why", [None, 5]),
    ],
)
def test_a_value_that_cannot_be_is_named_by_its_key(
    manager: CheckpointManager, key: str, values: list[object]
) -> None:
    for value in values:
        (fault,) = manager.verify(changed(key, value))
        assert fault.startswith(f"{key}: ")


def test_all_faults_are_told_and_keys_that_are_not_known_are_none(manager: CheckpointManager) -> None:
    raw = to_json(WHOLE) | {"iteration": -1, "later_key": 5}
    del raw["agent"]
    del raw["why"]

    assert manager.verify(raw) == ["agent is missing", "iteration: not a number from 0 on: -1"]


# Damaged, newer


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", '{"version": 1}', "\0", '{"version": true}'])
def test_a_damaged_one_is_set_aside_and_said(manager: CheckpointManager, home: Path, text: str) -> None:
    manager.path.write_text(text)

    assert manager.load() is None
    (kept,) = home.glob("checkpoint.json.corrupt-*")
    assert kept.read_text() == text
    assert str(kept) in manager.fault and "the checkpoint in" in manager.fault
    assert manager.load() is None
    assert manager.fault == ""


@pytest.mark.parametrize("touch", [CheckpointManager.load, lambda m: m.save(WHOLE), CheckpointManager.clear])
def test_one_of_a_newer_version_is_refused_and_stays(
    manager: CheckpointManager, touch: Callable[[CheckpointManager], object]
) -> None:
    text = json.dumps(to_json(WHOLE) | {"version": 2, "iteration": "seven"})
    manager.path.write_text(text)

    with pytest.raises(NewerState, match="newer ralphd"):
        touch(manager)
    assert manager.path.read_text() == text


def test_a_save_without_a_load_before_keeps_what_was_damaged(
    manager: CheckpointManager, home: Path, directory: Path
) -> None:
    manager.path.write_text("{")

    manager.save(WHOLE)

    assert [path.read_text() for path in home.glob("*.corrupt-*")] == ["{"]
    assert again(manager, directory).load() == WHOLE


def test_a_link_is_not_read(manager: CheckpointManager, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(to_json(WHOLE)))
    manager.path.symlink_to(tmp_path / "elsewhere")

    assert manager.load() is None
    assert "symbolic link" in manager.fault


def test_a_full_disk_leaves_the_old_one(small_disk: SmallDisk, directory: Path) -> None:
    manager = CheckpointManager(small_disk.path, directory)
    manager.save(WHOLE)
    small_disk.fill()

    with pytest.raises(OSError, match="No space left"):
        manager.save(LEAST)
    assert again(manager, directory).load() == WHOLE
    small_disk.free()
    manager.save(LEAST)
    assert again(manager, directory).load() == LEAST


# Cleared, discarded


def test_a_cleared_one_is_gone_with_its_copy(manager: CheckpointManager, directory: Path) -> None:
    manager.save(WHOLE)
    manager.clear()
    manager.clear()

    assert manager.load() is None
    assert not (directory / ".ralph" / "checkpoint.json").exists()


def test_a_discarded_one_is_kept_aside_five_of_them(manager: CheckpointManager, home: Path) -> None:
    assert manager.discard() is None
    kept = []
    for number in range(DISCARDED_KEPT + 2):
        manager.save(replace(WHOLE, iteration=number))
        path = manager.discard()
        assert path is not None and re.fullmatch(r"checkpoint\.discarded-\w+\.\d{6}Z\.json", path.name)
        kept.append(path)

    assert manager.load() is None
    assert set(home.iterdir()) == set(kept[-DISCARDED_KEPT:])
    assert json.loads(kept[-1].read_text())["iteration"] == DISCARDED_KEPT + 1


def test_one_that_cannot_be_read_can_be_discarded(manager: CheckpointManager) -> None:
    manager.path.write_text('{"version": 99}')

    kept = manager.discard()

    assert kept is not None and kept.read_text() == '{"version": 99}'
    assert manager.load() is None


# The copy


def test_the_copy_is_for_people_and_never_read(manager: CheckpointManager, directory: Path) -> None:
    manager.save(WHOLE)
    copy = directory / ".ralph" / "checkpoint.json"
    assert copy.read_bytes() == manager.path.read_bytes()

    copy.write_text(json.dumps(to_json(replace(WHOLE, iteration=99))))
    assert manager.load() == WHOLE
    manager.clear()
    copy.write_text(json.dumps(to_json(WHOLE)))
    assert manager.load() is None


def test_a_directory_that_leads_elsewhere_is_not_written_to(
    manager: CheckpointManager, directory: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "checkpoint.json").write_text("somebody else's")
    (directory / ".ralph").symlink_to(elsewhere)

    manager.save(WHOLE)
    manager.clear()

    assert (elsewhere / "checkpoint.json").read_text() == "somebody else's"
    assert os.listdir(elsewhere) == ["checkpoint.json"]


def test_a_working_directory_that_is_gone_costs_the_copy_only(home: Path, tmp_path: Path) -> None:
    manager = CheckpointManager(home, tmp_path / "gone")
    manager.save(WHOLE)

    assert manager.load() == WHOLE
    assert not (tmp_path / "gone").exists()


# Killed at any line


@pytest.mark.parametrize(
    ("place", "iteration"),
    [
        ("write.checkpoint.json.before_rename", 7),
        ("loop.checkpoint_saved", 8),
        ("loop.checkpoint_cleared", None),
    ],
)
def test_whoever_is_killed_leaves_the_old_one_or_the_new_one(
    manager: CheckpointManager, home: Path, directory: Path, place: str, iteration: int | None
) -> None:
    manager.save(WHOLE)
    environment = {**os.environ, "RALPHD_FAILPOINTS": f"{place}=kill"}

    words = [sys.executable, "-c", DIE, str(home), str(directory)]
    ended = subprocess.run(words, env=environment, timeout=60, check=False).returncode

    found = again(manager, directory).load()
    assert ended == -signal.SIGKILL
    assert (None if found is None else found.iteration) == iteration
