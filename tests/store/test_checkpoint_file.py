"""The checkpoint as the daemon deals with it: shown, taken over, put back, and copied with its neighbours."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.loop.model import Checkpoint, CheckpointTask, PauseReason
from ralphd.store import mirror
from ralphd.store.checkpoint import (
    CheckpointManager,
    Pause,
    pause_in,
    put_back,
    take_over,
    to_json,
)
from ralphd.store.loop_files import LoopWatch
from ralphd.store.mirror import CHECKPOINT_FILE, TASKS_FILE

HELD = Checkpoint(
    created_at=1_700_000_000.0,
    iteration=3,
    pause_reason=PauseReason.USAGE_LIMIT,
    task=CheckpointTask("US-2", "Parse", 2),
    agent="claude",
    resume_at=1_700_003_600.0,
    uncommitted_files=("a", "b"),
    snapshot_ref="refs/ralph/checkpoints/1",
)


class Place:
    """A ralph's home and its working directory."""

    def __init__(self, root: Path) -> None:
        self.home, self.directory = root / "home", root / "work"
        self.home.mkdir()
        self.directory.mkdir()
        self.manager = CheckpointManager(self.home, self.directory)
        self.original, self.copy = self.home / CHECKPOINT_FILE, self.directory / ".ralph" / CHECKPOINT_FILE

    def write_copy(self, content: object) -> None:
        self.copy.parent.mkdir(exist_ok=True)
        self.copy.write_text(json.dumps(content))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_person_sees_where_the_loop_was_and_a_newer_one_when_it_is_there(place: Place) -> None:
    watch = LoopWatch(place.home)
    watch.look()
    assert watch.checkpoint is None

    place.manager.save(HELD)
    watch.look()
    assert watch.checkpoint == {
        "created_at": "2023-11-14T22:13:20.000000Z",
        "iteration": 3,
        "task": {"id": "US-2", "title": "Parse"},
        "attempt": 2,
        "agent": "claude",
        "pause_reason": "usage_limit",
        "resume_at": "2023-11-14T23:13:20.000000Z",
        "uncommitted": 2,
        "snapshot_ref": "refs/ralph/checkpoints/1",
    }
    before = watch.checkpoint
    watch.look()
    assert watch.checkpoint is before

    place.manager.clear()
    watch.look()
    assert watch.checkpoint is None


@pytest.mark.parametrize("content", ["[1]", "{", '{"task": 7, "iteration": "3", "agent": ["x"]}', "\0"])
def test_nothing_in_it_is_trusted(place: Place, content: str) -> None:
    place.original.write_text(content)
    watch = LoopWatch(place.home)
    watch.look()

    assert watch.checkpoint is None or not any(watch.checkpoint.values())
    assert pause_in(place.original) == Pause()


def test_the_first_one_that_is_there_says_why_it_rests(place: Place) -> None:
    place.write_copy({"pause_reason": "outage", "resume_at": "2023-11-14T23:13:20Z"})
    assert pause_in(place.original, place.copy) == Pause("outage", 1_700_003_600.0)

    place.original.write_text(json.dumps({"pause_reason": "usage_limit", "resume_at": "soon"}))
    assert pause_in(place.original, place.copy) == Pause("usage_limit", None)


def test_a_copy_without_an_original_is_taken_over_where_it_is_whole(place: Place) -> None:
    place.write_copy(to_json(HELD))

    assert take_over(place.home, place.directory)
    assert place.manager.load() == HELD
    assert not take_over(place.home, place.directory)


@pytest.mark.parametrize(
    "content",
    [{"version": 1}, {"version": 2}, {**to_json(HELD), "task": "x"}, {**to_json(HELD), "version": 9}],
)
def test_a_copy_that_is_none_is_not_taken_over(place: Place, content: dict[str, Any]) -> None:
    place.write_copy(content)

    assert not take_over(place.home, place.directory)
    assert not place.original.exists()


def test_one_that_was_put_aside_for_a_start_that_failed_is_back_with_its_copy(place: Place) -> None:
    place.manager.save(HELD)
    kept_as = place.manager.discard()
    assert not place.copy.exists()

    put_back(place.home, place.directory, kept_as)

    assert place.manager.load() == HELD
    assert json.loads(place.copy.read_text()) == to_json(HELD)


# copies


def test_copies_that_were_deleted_are_made_anew_and_one_of_what_is_gone_goes(place: Place) -> None:
    place.manager.save(HELD)
    (place.home / TASKS_FILE).write_text("{}")
    assert mirror.due(place.home, place.directory, at_rest=False)
    mirror.renew(place.home, place.directory, at_rest=False)
    assert not mirror.due(place.home, place.directory, at_rest=False)
    assert (place.copy.parent / TASKS_FILE).read_text() == "{}"

    place.original.unlink()
    assert mirror.due(place.home, place.directory, at_rest=False)
    mirror.renew(place.home, place.directory, at_rest=False)
    assert not place.copy.exists()
    assert not mirror.due(place.home, place.directory, at_rest=False)


def test_a_copy_of_an_older_original_is_replaced_even_when_it_was_written_later(place: Place) -> None:
    tasks, copied = place.home / TASKS_FILE, place.directory / ".ralph" / TASKS_FILE
    tasks.write_text("old")
    mirror.renew(place.home, place.directory, at_rest=False)
    changed_at = tasks.stat().st_mtime_ns + 1_000_000
    tasks.write_text("new")
    os.utime(tasks, ns=(changed_at, changed_at))

    mirror.renew(place.home, place.directory, at_rest=False)

    assert copied.read_text() == "new"


def test_at_rest_what_is_there_is_left_as_it_is(place: Place) -> None:
    place.write_copy({"another": "daemon's"})
    assert not mirror.due(place.home, place.directory, at_rest=True)
    mirror.renew(place.home, place.directory)
    assert json.loads(place.copy.read_text()) == {"another": "daemon's"}

    (place.home / TASKS_FILE).write_text("{}")
    mirror.renew(place.home, place.directory)
    assert (place.directory / ".ralph" / TASKS_FILE).exists()
