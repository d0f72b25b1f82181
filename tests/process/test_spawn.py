"""Starting a run, adopting it, waiting for its end, and what is said when it cannot be started."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.limits import RunLimits
from ralphd.errors import CommandNotStartable, DirectoryBusy
from ralphd.process import shim, spawn, tree
from ralphd.process.lock import DirectoryLock
from ralphd.process.rundir import RunDirectory, next_run_directory
from ralphd.process.spawn import Run, RunSpec, read_ended
from ralphd.process.start_errors import LACKING
from tests.helpers import eventually, is_alive
from tests.players import player
from tests.process.runs import Stage, names, nobody_alive, output, said


async def test_the_records_of_a_run_tell_who_runs(stage: Stage) -> None:
    before = time.time()
    run = await stage.spawn(player("sleeper"))
    record = run.record

    assert record is not None
    assert record.run_id == run.directory.run_id
    assert tree.is_same(record.pid, record.start_ticks, record.boot_id)
    assert tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id)
    assert before - 0.001 <= record.started_at <= time.time()
    intent = run.directory.intent()
    assert intent is not None
    assert intent["command"] == list(player("sleeper"))
    assert intent["definition"] == {"name": "stage"}


@pytest.mark.parametrize("code", [0, 1, 42, 75, 127, 137])
async def test_an_exit_code_is_told_as_it_is(stage: Stage, code: int) -> None:
    record = await stage.ended(player("exits", code))

    assert (record.code, record.signal, record.fault, record.lost) == (code, None, None, False)
    assert record.started_at is not None
    assert record.started_at <= record.ended_at <= time.time()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_an_end_by_a_signal_is_told_apart_from_a_code(stage: Stage, number: signal.Signals) -> None:
    record = await stage.ended(player("exits", -number))

    assert (record.code, record.signal) == (None, number)


async def test_the_exit_record_holds_what_the_command_used(stage: Stage) -> None:
    run = await stage.spawn((sys.executable, "-S", "-c", "sum(range(3_000_000))"))
    await run.ended()

    usage = json.loads((run.directory.path / "exit.json").read_text())["rusage"]
    assert usage["user_s"] > 0.01
    assert usage["max_rss_bytes"] > 1_000_000


async def test_a_script_whose_interpreter_is_missing_is_told(stage: Stage) -> None:
    (stage.home / "loop.sh").write_text("#!/no/such/shell -e\n")
    (stage.home / "loop.sh").chmod(0o755)

    with pytest.raises(CommandNotStartable, match="needs /no/such/shell, which does not exist"):
        await stage.spawn(("./loop.sh",))


async def test_a_failed_start_leaves_a_record_with_its_reason_and_nothing_else(stage: Stage) -> None:
    lock = DirectoryLock.acquire(stage.home)
    directory = stage.directory()
    with pytest.raises(CommandNotStartable):
        await Run.spawn(directory, stage.spec(directory, ("./nothing",)), lock)
    lock.release()

    record = read_ended(directory)
    assert (record.code, record.signal, record.lost) == (None, None, False)
    assert record.fault is not None
    assert record.fault.errno == 2
    assert Run.adopt(directory) is None
    assert not (directory.path / "run.json").exists()
    DirectoryLock.acquire(stage.home).release()


async def test_an_adopted_run_is_the_same_run_and_ends_with_its_true_status(stage: Stage) -> None:
    run = await stage.spawn(player("polite", 42))
    await said(run.directory, b"\n")

    adopted = Run.adopt(RunDirectory(run.directory.path))
    assert adopted is not None
    assert adopted.record == run.record
    adopted.terminate()
    record = await adopted.ended()

    assert record.code == 42
    assert await run.ended() == record


async def test_a_run_that_ended_meanwhile_is_not_adopted_and_its_status_is_read(stage: Stage) -> None:
    record = await stage.ended(player("exits", 42))
    directory = RunDirectory(next(stage.runs.iterdir()))

    assert Run.adopt(directory) is None
    assert read_ended(directory) == replace(record, unverified=True)  # nobody saw how its shim ended
    assert record.code == 42


async def test_waiting_for_an_end_can_be_given_up_and_taken_up_again_by_several(stage: Stage) -> None:
    run = await stage.spawn(player("polite", 3))
    await said(run.directory, b"\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run.ended(), 0.05)

    waiting = [asyncio.create_task(run.ended()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    run.terminate()

    assert [record.code for record in await asyncio.gather(*waiting[1:])] == [3, 3]
    assert waiting[0].cancelled()


async def test_a_run_whose_daemon_died_in_the_middle_of_its_start_is_adopted_when_it_is_ready(
    stage: Stage,
) -> None:
    directory = stage.directory()
    spec = stage.spec(directory, player("polite", 9))
    starting = asyncio.create_task(Run.spawn(directory, spec, None))
    await eventually(directory.is_locked)
    adopted = Run.adopt(directory)
    assert adopted is not None

    assert await adopted.ready() == (await starting).record
    await said(directory, b"\n")
    adopted.terminate()

    assert (await adopted.ended()).code == 9


async def test_a_cancelled_start_leaves_a_run_that_can_be_adopted(stage: Stage) -> None:
    directory = stage.directory()
    spec = stage.spec(directory, player("sleeper"))
    starting = asyncio.create_task(Run.spawn(directory, spec, None))
    await eventually(lambda: (directory.path / "shim.err").exists())
    starting.cancel()
    await asyncio.wait([starting])

    adopted = Run.adopt(directory)
    assert adopted is not None
    assert await adopted.ready() is not None
    adopted.kill_tree()
    assert (await adopted.ended()).signal == signal.SIGKILL


@pytest.mark.parametrize("place", ["spawn.after_intent", "spawn.after_popen"])
async def test_a_daemon_killed_in_the_middle_of_a_start_leaves_a_run_that_is_adopted_or_lost(
    stage: Stage, place: str
) -> None:
    directory = stage.directory()
    program = (
        "import asyncio, sys, json\n"
        "from pathlib import Path\n"
        "from ralphd.process.spawn import *\n"
        "path, home, command = sys.argv[1], sys.argv[2], tuple(sys.argv[3:])\n"
        "d = RunDirectory(Path(path))\n"
        "spec = RunSpec(d.run_id, 'x', command, Path(home), None, {}, 0o22, 1 << 20, {})\n"
        "asyncio.run(Run.spawn(d, spec, DirectoryLock.acquire(Path(home))))\n"
    )
    argv = [sys.executable, "-c", program, str(directory.path), str(stage.home), *player("polite", 5)]
    died = subprocess.run(argv, env={**os.environ, "RALPHD_FAILPOINTS": f"{place}=kill"}, cwd=Path.cwd())
    assert died.returncode == -signal.SIGKILL

    assert directory.intent() is not None
    adopted = Run.adopt(directory)
    if place == "spawn.after_intent":
        assert adopted is None
        assert read_ended(directory).lost
        DirectoryLock.acquire(stage.home).release()
        return
    assert adopted is not None
    with pytest.raises(DirectoryBusy):
        DirectoryLock.acquire(stage.home)
    await said(directory, b"\n")
    adopted.terminate()
    assert (await adopted.ended()).code == 5
    DirectoryLock.acquire(stage.home).release()


async def test_a_run_without_shim_and_record_is_lost_and_never_has_a_code(stage: Stage) -> None:
    run = await stage.spawn(player("stubborn"), allow_cgroup=False)
    both = await names(run.directory, 2)
    assert run.record is not None
    os.kill(run.record.shim_pid, signal.SIGKILL)
    await eventually(lambda: not run.directory.is_locked())

    assert Run.adopt(run.directory) is None
    record = read_ended(run.directory)

    assert record.lost
    assert (record.code, record.signal) == (None, None)
    assert record.survivors == ()
    assert nobody_alive(both)
    assert read_ended(run.directory).ended_at == record.ended_at <= time.time()
    assert (await run.ended()).lost


async def test_an_end_is_recorded_though_somebody_removed_temporary_files(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    assert run.record is not None
    (run.directory.path / "exit.json.tmp").unlink()

    os.kill(run.record.pid, signal.SIGTERM)
    record = await run.ended()

    assert (record.lost, record.signal) == (False, signal.SIGTERM)


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 99, "code": 0}', b"\xff"]
)
async def test_a_broken_exit_record_counts_as_none(stage: Stage, garbage: bytes) -> None:
    await stage.ended(player("exits", 0))
    directory = RunDirectory(next(stage.runs.iterdir()))
    (directory.path / "exit.json").write_bytes(garbage)

    record = read_ended(directory)

    assert record.lost
    assert record.code is None


async def test_a_dead_run_of_another_boot_is_not_examined(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    assert run.record is not None
    path = run.directory.path / "run.json"
    true_record = path.read_bytes()
    path.write_text(
        json.dumps({**json.loads(true_record), "boot_id": "00000000-0000-0000-0000-000000000000"})
    )

    record = read_ended(run.directory)  # as after a reboot: another process has the pid by now
    assert record.lost
    assert record.swept == record.survivors == ()
    assert is_alive(run.record.pid if run.record else 0)

    adopted = Run.adopt(run.directory)  # its lock is held: it lives, whatever the file states
    assert adopted is not None
    adopted.kill_tree()
    assert not (await adopted.ended()).lost


async def test_no_signal_is_sent_to_a_pid_that_was_used_again(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    assert run.record is not None
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        path = run.directory.path / "run.json"
        forged = {**json.loads(path.read_bytes()), "shim_pid": bystander.pid, "pid": bystander.pid}
        path.write_text(json.dumps(forged))
        adopted = Run.adopt(run.directory)
        assert adopted is not None
        adopted.terminate()
        adopted.kill_tree()
        await asyncio.sleep(0.05)

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        run.kill_tree()
        assert (await run.ended()).signal == signal.SIGKILL


@pytest.mark.parametrize("spare", range(5))
async def test_a_start_with_no_descriptor_left_starts_nothing(stage: Stage, spare: int) -> None:
    directory = stage.directory()
    spec = stage.spec(directory, player("sleeper"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.dup(0)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + spare, hard))
    try:
        with pytest.raises(OSError, match="open files") as lacking:
            await Run.spawn(directory, spec, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert lacking.value.errno in LACKING
    assert shim.carriers(directory.run_id) == []
    assert Run.adopt(directory) is None
    assert read_ended(directory).code is None


@pytest.mark.parametrize(("asked", "gets_it"), [(321, True), (1 << 50, False)])
async def test_a_limit_of_descriptors_that_cannot_be_set_refuses_no_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, asked: int, gets_it: bool
) -> None:
    monkeypatch.setattr("ralphd.process.spawn.limit_at_start", lambda: asked)

    run = await stage.spawn(("sh", "-c", "ulimit -Sn"))

    assert (await run.ended()).code == 0
    assert (output(run.directory).strip() == b"321") == gets_it


async def test_ten_runs_at_once_have_their_own_records(stage: Stage) -> None:
    runs = await asyncio.gather(*(stage.spawn(player("exits", code)) for code in range(10)))

    assert [(await run.ended()).code for run in runs] == list(range(10))
    assert len({run.directory.run_id for run in runs}) == 10


async def test_a_run_goes_on_when_the_process_that_spawned_it_is_killed(stage: Stage, tmp_path: Path) -> None:
    directory = stage.directory()
    program = (
        "import asyncio, sys, os, signal\n"
        "from pathlib import Path\n"
        "from ralphd.process.spawn import *\n"
        "d = RunDirectory(Path(sys.argv[1]))\n"
        "spec = RunSpec(d.run_id, 'x', tuple(sys.argv[3:]), Path(sys.argv[2]), None, {}, 0o22, 1 << 20, {})\n"
        "asyncio.run(Run.spawn(d, spec, None))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    counter = player("counter", tmp_path / "numbers", 0.001, 300)
    subprocess.run(
        [sys.executable, "-c", program, str(directory.path), str(stage.home), *counter], cwd=Path.cwd()
    )
    adopted = Run.adopt(directory)
    assert adopted is not None

    record = await adopted.ended()

    assert record.code == 0
    assert output(directory) == (tmp_path / "numbers").read_bytes()


def test_run_directories_are_numbered_by_age_and_never_the_same(tmp_path: Path) -> None:
    first, second = next_run_directory(tmp_path / "runs"), next_run_directory(tmp_path / "runs")
    first.path.rmdir()
    (tmp_path / "runs" / "rubbish").mkdir()
    third = next_run_directory(tmp_path / "runs")

    assert [directory.run_id[:8] for directory in (first, second, third)] == [
        "r000001-",
        "r000002-",
        "r000003-",
    ]
    assert second.run_id < third.run_id
    assert len(third.run_id) == len("r000012-3fa9c1d2")
    assert third.path.stat().st_mode & 0o777 == 0o700
    assert (third.intent(), third.run_record(), third.exit_record(), third.is_locked()) == (
        None,
        None,
        None,
        False,
    )


def test_a_run_cannot_use_up_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "r999999999999-00000000").mkdir()
    (tmp_path / "r12-strange").mkdir()
    assert next_run_directory(tmp_path).run_id.startswith("r000001-")


def test_a_directory_is_locked_once_and_the_holder_is_named(tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(tmp_path)

    with pytest.raises(DirectoryBusy, match=str(os.getpid())):
        DirectoryLock.acquire(tmp_path)

    lock.release()
    lock.release()
    DirectoryLock.acquire(tmp_path).release()


async def test_the_living_holder_is_named_after_the_one_that_took_the_lock_let_go(stage: Stage) -> None:
    lock = DirectoryLock.acquire(stage.home)
    run = await stage.spawn(player("sleeper"), lock=lock)
    lock.release()
    assert run.record is not None

    with pytest.raises(DirectoryBusy, match=f"pid {run.record.shim_pid}$|pid {run.record.shim_pid}\n"):
        DirectoryLock.acquire(stage.home)


def test_a_spec_is_plain_data(tmp_path: Path) -> None:
    directory = next_run_directory(tmp_path)
    spec = RunSpec(directory.run_id, "x", ("true",), tmp_path, None, {}, 0o22, 1, {})

    assert spec == RunSpec(directory.run_id, "x", ("true",), tmp_path, None, {}, 0o22, 1, {})


async def test_limits_are_in_the_control_group_before_the_command_starts(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory stands for the group: a machine may lack these controllers."""
    directory = stage.directory()
    leaf = tmp_path / "group" / f"ralphd-{directory.run_id}"
    leaf.mkdir(parents=True)
    wanted = {"memory.max": "8589934592", "pids.max": "500", "cpu.weight": "50"}
    for name in wanted:
        (leaf / name).touch()
    monkeypatch.setattr(tree, "writable_cgroup", lambda: leaf.parent)
    names_ = " ".join(str(leaf / name) for name in wanted)
    spec = stage.spec(directory, ("sh", "-c", f"for each in {names_}; do cat $each; echo; done"))
    run = await Run.spawn(directory, replace(spec, limits=RunLimits(8 << 30, 500, 50)), None)
    stage.started.append(run)

    assert (await run.ended()).code == 0
    assert output(directory).split() == [each.encode() for each in wanted.values()]


def test_a_run_that_has_not_ended_keeps_the_next_one_waiting_where_only_one_may_run(tmp_path: Path) -> None:
    lock = next_run_directory(tmp_path).take_lock()
    with pytest.raises(BlockingIOError, match=r"r000001-.* has not ended"):
        next_run_directory(tmp_path, alone=True)
    os.close(lock)

    assert next_run_directory(tmp_path, alone=True).run_id.startswith("r000002-")


async def test_a_run_that_began_while_its_daemon_was_stopped_is_not_killed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "START_S", 0.3)
    starting = asyncio.create_task(stage.spawn(player("sleeper")))
    await eventually(lambda: list(stage.runs.glob("*/shim.err")))
    deadline = time.monotonic() + 30
    while not list(stage.runs.glob("*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.05)  # not asyncio's: this process is the daemon
    time.sleep(0.3)

    run = await starting

    assert run.directory.exit_record() is None
    run.kill_tree()
    await run.ended()


async def test_a_start_that_takes_too_long_says_nothing_about_its_command(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = subprocess.Popen

    def stopped(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        shim_process = begin(*words, **more)
        os.kill(shim_process.pid, signal.SIGSTOP)
        return shim_process

    monkeypatch.setattr(spawn, "START_S", 0.3)
    monkeypatch.setattr(subprocess, "Popen", stopped)

    with pytest.raises(OSError, match="nothing was executed"):
        await stage.spawn(player("sleeper"))
