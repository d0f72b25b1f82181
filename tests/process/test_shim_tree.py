"""The end of a run's tree: nothing of it outlives the run, and what was ended is named (S5, S7)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ralphd.process import shim, tree
from ralphd.process.spawn import Run
from tests.helpers import is_alive
from tests.players import player
from tests.process.runs import Stage, names, nobody_alive, said


async def test_a_kill_ends_a_tree_that_does_all_it_can_to_be_left_behind(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("family"), allow_cgroup=allow_cgroup)
    family = await names(run.directory, 6)
    asked_at = time.monotonic()

    run.kill_tree()
    record = await run.ended()

    assert time.monotonic() - asked_at < 5
    assert record.signal == signal.SIGKILL
    assert nobody_alive(family)
    assert {swept.pid for swept in record.swept} == set(family.values()) - {family["leader"]}
    assert all("python" in swept.command for swept in record.swept)
    assert record.survivors == ()


async def test_a_command_that_ends_by_itself_takes_its_tree_with_it(stage: Stage, allow_cgroup: bool) -> None:
    run = await stage.spawn(player("family", "leave"), allow_cgroup=allow_cgroup)
    family = await names(run.directory, 6)

    record = await run.ended()

    assert (record.code, record.signal) == (3, None)
    assert nobody_alive(family)
    assert len(record.swept) == 5


async def test_a_fork_storm_of_500_with_hoppers_is_ended_within_five_seconds(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("fork_storm", 500, 3), allow_cgroup=allow_cgroup)
    await said(run.directory, b"storm")
    asked_at = time.monotonic()

    run.kill_tree()
    record = await run.ended()

    assert time.monotonic() - asked_at < 5
    assert shim.carriers(run.directory.run_id) == []
    assert len(record.swept) >= 500
    assert not any(is_alive(swept.pid) for swept in record.swept)


async def test_an_orphan_that_closed_its_output_is_swept(stage: Stage, allow_cgroup: bool) -> None:
    run = await stage.spawn(player("double_forker", "quiet"), allow_cgroup=allow_cgroup)

    record = await run.ended()
    orphan = (await names(run.directory, 1))["orphan"]

    assert record.code == 0
    assert [swept.pid for swept in record.swept] == [orphan]
    assert not is_alive(orphan)


async def test_a_command_that_leaves_nothing_behind_has_nothing_swept(
    stage: Stage, allow_cgroup: bool
) -> None:
    record = await stage.ended(player("exits", 0), allow_cgroup=allow_cgroup)

    assert (record.code, record.swept, record.survivors) == (0, (), ())


async def test_the_control_group_of_a_run_is_gone_after_its_end(stage: Stage) -> None:
    if tree.writable_cgroup() is None:
        pytest.skip("no control group is writable here")
    run = await stage.spawn(player("family"))
    family = await names(run.directory, 6)
    assert run.record is not None
    leaf = run.record.cgroup
    assert leaf is not None
    assert run.record.tree_means == "cgroup"
    assert {int(pid) for pid in (leaf / "cgroup.procs").read_text().split()} == set(family.values())

    run.kill_tree()
    await run.ended()

    assert not leaf.exists()


async def test_the_shim_itself_never_enters_the_control_group(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    assert run.record is not None

    with open(f"/proc/{run.record.shim_pid}/cgroup") as theirs, open("/proc/self/cgroup") as mine:
        assert theirs.read() == mine.read()


async def test_without_a_control_group_the_means_are_the_subreapers(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)

    assert run.record is not None
    assert (run.record.tree_means, run.record.cgroup) == ("subreaper", None)


async def test_a_group_that_cannot_be_entered_leaves_the_subreapers_means(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "writable_cgroup", lambda: tmp_path)  # takes directories, but no processes
    run = await stage.spawn(player("family"))
    family = await names(run.directory, 6)

    assert run.record is not None
    assert (run.record.tree_means, run.record.cgroup) == ("subreaper", None)
    assert not list(tmp_path.glob("ralphd-*"))
    run.kill_tree()
    await run.ended()
    assert nobody_alive(family)


async def test_a_tree_is_ended_whole_after_its_command_ended_in_the_middle_of_a_stop(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("stubborn"), allow_cgroup=allow_cgroup)
    both = await names(run.directory, 2)

    os.kill(both["leader"], signal.SIGSEGV)
    record = await run.ended()

    assert record.signal == signal.SIGSEGV
    assert [swept.pid for swept in record.swept] == [both["grandchild"]]
    assert nobody_alive(both)


async def test_the_kill_of_a_stopped_tree_works(stage: Stage, allow_cgroup: bool) -> None:
    run = await stage.spawn(player("stubborn"), allow_cgroup=allow_cgroup)
    both = await names(run.directory, 2)
    for pid in both.values():
        os.kill(pid, signal.SIGSTOP)

    run.kill_tree()
    record = await run.ended()

    assert record.signal == signal.SIGKILL
    assert nobody_alive(both)


async def kill_shim(run: Run) -> None:
    """End a shim the hard way."""
    assert run.record is not None
    os.kill(run.record.shim_pid, signal.SIGKILL)


async def test_a_killed_shim_takes_the_command_along_and_the_rest_is_swept_by_its_cookie(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("stubborn"), allow_cgroup=allow_cgroup)
    both = await names(run.directory, 2)

    await kill_shim(run)
    record = await run.ended()

    assert record.lost
    assert (record.code, record.signal) == (None, None)
    assert both["grandchild"] in [swept.pid for swept in record.swept]
    assert nobody_alive(both)
    assert not run.directory.is_locked()
    assert shim.carriers(run.directory.run_id) == []


async def test_a_killed_shim_in_a_storm_leaves_nothing_alive(stage: Stage, allow_cgroup: bool) -> None:
    run = await stage.spawn(player("fork_storm", 100), allow_cgroup=allow_cgroup)
    await said(run.directory, b"storm")
    assert run.record is not None
    leaf = run.record.cgroup

    await kill_shim(run)
    record = await run.ended()

    assert record.lost
    assert shim.carriers(run.directory.run_id) == []
    assert leaf is None or not leaf.exists()


@pytest.mark.skipif(tree.writable_cgroup() is None, reason="no control group can be made here")
@pytest.mark.parametrize("is_known", [True, False])
def test_a_fork_is_inside_of_its_group_where_the_kernel_can_do_it(is_known: bool, tmp_path: Path) -> None:
    """A container may refuse ``clone3``; the fork then enters by itself."""
    group = tree.writable_cgroup()
    assert group is not None
    leaf = group / f"ralphd-{tmp_path.name}"
    leaf.mkdir()
    try:
        words = [sys.executable, *shim.FLAGS, FORKS, str(Path(shim.__file__).parent), str(leaf)]
        said = subprocess.run([*words, "" if is_known else "no"], capture_output=True, check=True, timeout=20)
        assert said.stdout.decode().split() == (["True", "True"] if is_known else ["False", "False"])
    finally:
        shim.remove_cgroup(str(leaf))


FORKS = """
import os, sys
sys.path.append(sys.argv[1])
import shim
if sys.argv[3]:
    shim.CLONE3 = 100_000
pid, is_inside = shim.fork_into(sys.argv[2])
if pid == 0:
    os._exit(os.path.basename(sys.argv[2]) in open("/proc/self/cgroup").read())
print(is_inside, os.waitpid(pid, 0)[1] != 0)
"""
"""Prints what ``fork_into`` says, and whether the child found itself inside."""
