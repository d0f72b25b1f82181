"""A run whose own record is lost is found again by its processes, and is as good as any other."""

import os
import signal
import sys
from pathlib import Path

import pytest

from ralphd.process import spawn
from ralphd.process.rundir import RunDirectory
from ralphd.process.spawn import Run
from tests.helpers import eventually, is_alive
from tests.players import player
from tests.process.runs import Stage, names, nobody_alive, said


@pytest.mark.parametrize("left", [b"", b'{"version": 99}', None])
@pytest.mark.parametrize("allow_cgroup", [True, False])
async def test_a_run_without_a_readable_record_is_adopted_asked_and_ends_with_its_true_status(
    stage: Stage, left: bytes | None, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("polite", 42), allow_cgroup=allow_cgroup)
    await said(run.directory, b"\n")
    truth, path = run.record, run.directory.path / "run.json"
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)

    adopted = Run.adopt(RunDirectory(run.directory.path))
    assert adopted is not None
    record = await adopted.ready()

    assert truth is not None and record is not None
    assert abs(record.started_at - truth.started_at) < 2.0
    told = (record.pid, record.start_ticks, record.shim_pid, record.shim_start_ticks, record.boot_id)
    assert told == (truth.pid, truth.start_ticks, truth.shim_pid, truth.shim_start_ticks, truth.boot_id)
    assert (record.run_id, record.tree_means, record.cgroup) == (truth.run_id, truth.tree_means, truth.cgroup)
    adopted.terminate()
    assert (await adopted.ended()).code == 42


async def test_the_command_is_told_from_what_it_started_in_sessions_of_their_own(stage: Stage) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(['sh', '-c', 'setsid sleep 60 & :']).wait()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    run = await stage.spawn((sys.executable, "-S", "-c", program))
    await said(run.directory, b"ready")
    truth = run.record
    (run.directory.path / "run.json").write_bytes(b"{")

    record = spawn.who_runs(run.directory)

    assert truth is not None and record is not None
    assert record.pid == truth.pid
    run.kill_tree()
    await run.ended()


async def test_a_tree_of_a_run_without_a_record_is_killed_whole(stage: Stage) -> None:
    run = await stage.spawn(player("stubborn"), allow_cgroup=False)
    both = await names(run.directory, 2)
    (run.directory.path / "run.json").write_bytes(b"")

    adopted = Run.adopt(RunDirectory(run.directory.path))
    assert adopted is not None
    assert await adopted.ready() is not None
    adopted.kill_tree()

    assert (await adopted.ended()).signal == signal.SIGKILL
    assert nobody_alive(both)


async def test_a_record_that_was_written_anew_is_read_as_the_same(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    truth = run.record
    assert truth is not None
    run.directory.run_file.unlink()

    run.directory.save_run_record(truth)

    again = run.directory.run_record()
    assert again is not None
    assert abs(again.started_at - truth.started_at) < 1e-5
    assert again.shim_pid == truth.shim_pid
    run.kill_tree()
    await run.ended()


async def test_who_holds_the_lock_of_a_run_and_is_not_its_shim_is_not_taken_for_it(
    stage: Stage, tmp_path: Path
) -> None:
    directory = stage.directory()
    held = directory.take_lock()
    child = os.posix_spawnp("sleep", ["sleep", "60"], {}, setsid=True)
    try:
        await eventually(lambda: is_alive(child))
        assert spawn.who_runs(directory) is None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(held)
    assert spawn.who_runs(directory) is None
