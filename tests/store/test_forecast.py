"""Whose histories a forecast reads: those of all ralphs of the repository, within bounds (Q7)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.worktrees.rules import Worktree
from ralphd.store.shared.claims import save_worktree
from ralphd.store.shared.quota import MOST_ENTRIES, forecast_for
from tests.core.quota.test_forecast import NOW, history

TREE = Worktree("fix", "/trees/fix", "/srv/demo/.git", "/srv/demo", "ralph/fix", "abc", 100.0, 20000)


def ralph(state: Path, name: str, directory: str, tasks: int = 2) -> None:
    home = state / "ralphs" / name
    home.mkdir(parents=True)
    (home / "ralph.json").write_text(json.dumps({"directory": directory}))
    entries = [entry for number in range(tasks) for entry in history((1.0, 1.0))]
    for number, entry in enumerate(entries):
        entry |= {"key": f"r1/{name}{number // 2}", "task": {"id": f"t{number // 2}"}}
    (home / "history.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in reversed(entries)))


def test_without_worktrees_its_own_history_counts(tmp_path: Path) -> None:
    ralph(tmp_path, "demo", "/srv/demo", tasks=3)
    ralph(tmp_path, "other", "/srv/other", tasks=3)
    likely = forecast_for(tmp_path, "demo", ["a", "b"], NOW)
    assert (likely.open, likely.finished, likely.usd, likely.hours) == (2, 3, (2.0, 2.0), (2.0, 2.0))


def test_worktrees_and_their_source_share_what_is_known(tmp_path: Path) -> None:
    ralph(tmp_path, "demo", "/srv/demo")
    ralph(tmp_path, "other", "/srv/other")
    for name in ("fix", "old"):
        ralph(tmp_path, name, f"/trees/{name}")
        save_worktree(tmp_path, replace(TREE, name=name))
    assert [forecast_for(tmp_path, name, ["a"], NOW).finished for name in ("demo", "fix", "other")] == [
        6,
        6,
        2,
    ]


def test_ralphs_of_one_start_divide_the_time(tmp_path: Path) -> None:
    for name, made_at in (("fix", 100.0), ("fix-2", 101.0), ("old", 9000.0)):
        ralph(tmp_path, name, f"/trees/{name}")
        save_worktree(tmp_path, replace(TREE, name=name, made_at=made_at, shares=True))
    assert forecast_for(tmp_path, "fix", ["a", "b"], NOW).hours == (1.0, 1.0)
    assert forecast_for(tmp_path, "old", ["a", "b"], NOW).hours == (2.0, 2.0)


def test_only_its_own_tasks_are_open(tmp_path: Path) -> None:
    ralph(tmp_path, "fix", "/trees/fix", tasks=3)
    save_worktree(tmp_path, replace(TREE, tasks=("a",)))
    assert forecast_for(tmp_path, "fix", ["a", "b", "c"], NOW).open == 1


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    ralph(tmp_path, "demo", "/srv/demo", tasks=MOST_ENTRIES)
    assert forecast_for(tmp_path, "demo", ["a"], NOW).finished == MOST_ENTRIES // 2


@pytest.mark.parametrize("damage", ['"duration_s": "x"', '"duration_s": NaN', '"tests_s": [{}]', '"at": []'])
def test_a_damaged_history_gives_no_forecast_and_no_error(tmp_path: Path, damage: str) -> None:
    ralph(tmp_path, "demo", "/srv/demo", tasks=3)
    path = tmp_path / "ralphs/demo/history.jsonl"
    broken = '{"kind": "attempt", "cost_usd": 1, "cost_source": "told", "duration_s": 1, "task": {}, '
    path.write_text(path.read_text() + broken + f"{damage}}}\n" + '{"kind": "verdict", "tests_s": 7}\n')
    assert forecast_for(tmp_path, "demo", ["a"], NOW).words()
    assert forecast_for(tmp_path, "missing", ["a"], NOW).words() == "no forecast yet: 0 tasks done"
