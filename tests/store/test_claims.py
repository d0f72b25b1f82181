"""Records of worktrees and claims on the disk: by many writers, damaged, of another version."""

import fcntl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.worktrees.rules import Claim, Claims, Worktree, claimed
from ralphd.store import files
from ralphd.store.shared import claims

TREE = Worktree("fix", "/data/fix", "/home/demo/.git", "/home/demo", "ralph/fix", "a" * 40, 1.5, 20_000)


def change(state: Path, claims_after: Claims) -> Claims:
    return claims.change_claims(state, "/demo/.git", "TASKS.md", lambda before: {**before, **claims_after})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    tree = replace(TREE, tasks=("a", "b"), shares=True, stage="preparing", setup_run="r000001")
    claims.save_worktree(tmp_path, tree)
    assert claims.load_worktrees(tmp_path) == {"fix": tree}
    assert (tmp_path / "trees/fix.json").stat().st_mode & 0o777 == 0o600
    claims.drop_worktree(tmp_path, "fix")
    assert claims.load_worktrees(tmp_path) == {}


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    claims.save_worktree(tmp_path, TREE)
    (tmp_path / "trees/fix.json").write_text("{")
    (tmp_path / "trees/other.json").write_text('{"version": 9}')
    assert claims.load_worktrees(tmp_path) == {}
    assert claims.worktree_of(tmp_path, "absent") is None


def test_claims_of_two_lists_are_apart(tmp_path: Path) -> None:
    change(tmp_path, {"a": Claim("one")})
    other = claims.change_claims(tmp_path, "/demo/.git", "other.md", lambda before: before)
    assert (other, change(tmp_path, {})) == ({}, {"a": Claim("one")})


def test_a_removed_ralph_frees_its_tasks_in_all_lists(tmp_path: Path) -> None:
    change(tmp_path, {"a": Claim("one"), "b": Claim("two")})
    claims.release_claims(tmp_path, "one")
    assert change(tmp_path, {}) == {"b": Claim("two")}


def test_damaged_claims_are_set_aside(tmp_path: Path) -> None:
    change(tmp_path, {"a": Claim("one")})
    [path] = (tmp_path / "claims").glob("*.json")
    path.write_text("[")
    assert change(tmp_path, {}) == {}
    assert len(list((tmp_path / "claims").glob("*.corrupt-*"))) == 1


def test_many_at_once_claim_no_task_twice(tmp_path: Path) -> None:
    tasks = tuple(Task(f"t{n}", f"t{n}", TaskStatus.PENDING) for n in range(8))

    def claim(ralph: int) -> None:
        def take(before: Claims) -> Claims:
            return claimed(before, Plan("TASKS.md", tasks), f"r{ralph}")[0]

        claims.change_claims(tmp_path, "/demo/.git", "TASKS.md", take)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, range(8)))

    after = change(tmp_path, {})
    assert len(after) == 8 and len({each.ralph for each in after.values()}) == 8


def test_a_lock_that_is_never_released_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_PATIENCE_S", 0.05)
    claims.change_claims(tmp_path, "repository", "TASKS.md", lambda _: {"1": Claim("a")})
    (lock,) = (tmp_path / "claims").glob("*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="does not release the lock"):
            claims.release_claims(tmp_path, "a")
    claims.release_claims(tmp_path, "a")
    assert claims.change_claims(tmp_path, "repository", "TASKS.md", lambda found: found) == {}
