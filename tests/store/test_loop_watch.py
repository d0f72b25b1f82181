"""What the daemon knows of a loop's pool: read when it was written, as it is at the moment that is asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.loop.model import Cooldown, LoopState
from ralphd.core.supervision.model import Supervision, Tally
from ralphd.store.loop_files import LoopFiles, LoopWatch
from ralphd.store.state import Definition, RegentState

MEMORY = LoopState(agents=("a", "b"), rotates=True, last_agent="b", out=(Cooldown("a", "limit", 100.0),))


def kept(home: Path, memory: LoopState = MEMORY) -> LoopWatch:
    """A look at what a loop has saved."""
    LoopFiles(home, home).memory.save(memory)
    watch = LoopWatch(home)
    watch.look()
    return watch


def test_who_is_in_is_told_for_the_moment_that_is_asked_about(tmp_path: Path) -> None:
    watch = kept(tmp_path)

    before, after = watch.pool(99.0), watch.pool(100.0)

    assert before is not None and after is not None
    assert [agent["in"] for agent in before["agents"]] == [False, True]
    assert [agent["in"] for agent in after["agents"]] == [True, True]
    assert watch.pool(101.0) is after
    assert watch.pool(98.0) == before, "a clock can be set back"


def test_a_loop_that_was_not_begun_has_no_pool(tmp_path: Path) -> None:
    watch = LoopWatch(tmp_path)
    watch.look()

    assert watch.pool(0.0) is None


def test_what_is_written_is_known_after_a_look_and_what_is_removed_is_not(tmp_path: Path) -> None:
    watch = kept(tmp_path)
    LoopFiles(tmp_path, tmp_path).memory.save(LoopState(agents=("c",)))
    stale = watch.pool(0.0)
    assert stale is not None and len(stale["agents"]) == 2

    watch.look()
    fresh = watch.pool(0.0)
    (tmp_path / "loop.json").unlink()
    watch.look()

    assert fresh is not None and [agent["name"] for agent in fresh["agents"]] == ["c"]
    assert watch.pool(0.0) is None


@pytest.mark.parametrize(
    "change",
    [
        *({"agents": "a"}, {"agents": [5]}, {"agents": {"a": 1}}, {"rotates": 1}, {"last_agent": 5}),
        *({"out": {}}, {"out": [{"agent": "a"}]}, {"version": 2}, {"version": None}),
    ],
)
def test_a_file_that_cannot_be_tells_nothing_and_stays_as_it_is(
    tmp_path: Path, change: dict[str, object]
) -> None:
    kept(tmp_path)
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    before = path.read_bytes()
    watch = LoopWatch(tmp_path)

    watch.look()

    assert watch.pool(0.0) is None
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["loop.json"]


def test_keys_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    kept(tmp_path)
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"later": 5}))
    watch = LoopWatch(tmp_path)

    watch.look()

    assert watch.pool(0.0) is not None


def test_the_costs_that_count_toward_the_limit_are_the_loops(tmp_path: Path) -> None:
    assert kept(tmp_path, LoopState(cost_usd=5.0)).cost_usd == 5.0
    assert LoopWatch(tmp_path / "none").cost_usd == 0.0
    shown = RegentState(Supervision(tally=Tally(cost_usd=1.0)), cost_usd=5.0)
    definition = Definition("demo", tmp_path, (), {}, 1.0)
    assert shown.shown(definition)["total_cost_usd"] == 5.0
    assert replace(shown, cost_usd=0.0).shown(definition)["total_cost_usd"] == 1.0
