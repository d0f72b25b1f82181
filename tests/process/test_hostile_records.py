"""A run that kills its shim and writes its own records: the kernel decides how it ended (S6)."""

import asyncio
import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import pytest

from ralphd.process import shim, tree
from ralphd.process.rundir import ExitRecord, RunDirectory, verified
from ralphd.process.spawn import Run
from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.process.runs import Stage

END: dict[str, Any] = {
    "version": 1,
    "code": 0,
    "signal": None,
    "started_at": "2026-11-21T20:00:00Z",
    "ended_at": "2026-11-21T20:00:01Z",
    "oom": None,
    "swept": [],
    "survivors": [],
    "dropped_bytes": 0,
    "log_bytes": 0,
    "error": None,
}
BIRTH: dict[str, Any] = {
    "version": 1,
    "pid": 4001,
    "start_ticks": 5,
    "shim_pid": 4000,
    "shim_start_ticks": 4,
    "boot_id": "b",
    "tree_means": "cgroup",
    "cgroup": None,
    "started_at": "2026-11-21T20:00:00Z",
}
RUN_ID = "r000001-abcdef01"


def directory_with(path: Path, name: str, record: dict[str, Any]) -> RunDirectory:
    home = path / RUN_ID
    home.mkdir(exist_ok=True)
    (home / name).write_text(json.dumps({"run_id": RUN_ID} | record))
    return RunDirectory(home)


def forge_exit(directory: RunDirectory, **changed: object) -> None:
    forged = END | {"run_id": directory.run_id} | changed
    (directory.path / "exit.json").write_text(json.dumps(forged))


def kill_shim(run: Run) -> int:
    assert run.record is not None
    os.kill(run.record.shim_pid, signal.SIGKILL)
    return run.record.pid


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dropped_bytes", float("inf")),
        ("log_bytes", float("nan")),
        ("code", True),
        ("code", 10**30),
        ("signal", -1),
        ("run_id", "r000002-abcdef01"),
        ("error", {"errno": float("inf"), "text": ""}),
        ("swept", [{"pid": float("inf"), "command": ""}]),
        ("ended_at", 5),
    ],
)
def test_an_exit_record_with_a_wrong_value_does_not_exist(tmp_path: Path, key: str, value: object) -> None:
    assert directory_with(tmp_path, "exit.json", END).exit_record() is not None
    assert directory_with(tmp_path, "exit.json", END | {key: value}).exit_record() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start_ticks", float("inf")),
        ("shim_start_ticks", "4"),
        ("pid", 0),
        ("shim_pid", 1 << 40),
        ("run_id", "r000002-abcdef01"),
        ("cgroup", "/sys/fs/cgroup/user.slice"),
        ("cgroup", f"/sys/fs/cgroup/a/../ralphd-{RUN_ID}"),
        ("boot_id", 5),
    ],
)
def test_a_run_record_with_a_wrong_value_does_not_exist(tmp_path: Path, key: str, value: object) -> None:
    group = {"cgroup": f"/sys/fs/cgroup/ralphd-{RUN_ID}"}
    assert directory_with(tmp_path, "run.json", BIRTH | group).run_record() is not None
    assert directory_with(tmp_path, "run.json", BIRTH | {key: value}).run_record() is None


def test_a_record_that_is_a_fifo_or_endless_does_not_exist(tmp_path: Path) -> None:
    home = tmp_path / RUN_ID
    home.mkdir()
    os.mkfifo(home / "exit.json")
    (home / "run.json").symlink_to("/dev/zero")
    assert RunDirectory(home).exit_record() is None
    assert RunDirectory(home).run_record() is None


@pytest.mark.parametrize(("padding", "counts"), [(b"", True), (b"\0" * 64, False)])
def test_a_record_that_could_not_be_named_counts_once_the_shim_is_gone(
    tmp_path: Path, padding: bytes, counts: bool
) -> None:
    """On a mount that became read-only; what is only reserved, or half written, ends with zeros."""
    directory = directory_with(tmp_path, "exit.json.tmp", END)
    unnamed = directory.path / "exit.json.tmp"
    unnamed.write_bytes(unnamed.read_bytes() + padding)

    assert directory.exit_record() is None
    assert (directory.final_record() is not None) is counts
    assert (directory.exit_record() is not None) is counts, "it has its name now"


def test_only_a_shim_that_exited_with_0_has_written_the_record(tmp_path: Path) -> None:
    record = directory_with(tmp_path, "exit.json", END).exit_record()
    assert isinstance(record, ExitRecord)
    assert verified(record, 0) == record
    assert verified(record, -9) is verified(record, 1) is verified(None, 0) is None
    unknown = verified(record, None)
    assert unknown is not None
    assert unknown.unverified


async def test_a_shim_killed_by_its_run_is_lost_whatever_the_run_wrote(stage: Stage) -> None:
    run = await stage.spawn(("sh", "-c", "setsid sleep 1000 & exec sleep 1000"), allow_cgroup=False)
    forge_exit(run.directory)
    wait_for(lambda: len(shim.carriers(run.directory.run_id)) == 2, what="the child")
    leader = kill_shim(run)

    record = await run.ended()
    assert (record.lost, record.code) == (True, None)
    assert not is_alive(leader)
    assert shim.carriers(run.directory.run_id) == []


async def test_what_was_seen_below_a_killed_shim_ends_with_an_empty_environment(stage: Stage) -> None:
    script = "(exec env -i setsid sleep 1000) & exec sleep 1000"
    run = await stage.spawn(("sh", "-c", script), allow_cgroup=False)
    assert run.record is not None
    shim_pid, leader = run.record.shim_pid, run.record.pid
    [bare] = wait_for(lambda: without_cookie(run, leader), what="a process with an empty environment")
    bystander = await asyncio.create_subprocess_exec("sleep", "1000", env={})
    try:
        run.keep()
        os.kill(shim_pid, signal.SIGKILL)

        record = await run.ended()

        assert bare in {each.pid for each in record.swept}
        assert not is_alive(bare)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        await bystander.wait()


async def test_a_pid_that_was_reused_since_is_spared(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    bystander = await asyncio.create_subprocess_exec("sleep", "1000", env={})
    try:
        ticks = tree.start_ticks(bystander.pid)
        assert ticks is not None
        assert run.record is not None
        os.kill(run.record.shim_pid, signal.SIGKILL)
        await run.ended()

        swept, is_empty = tree.sweep(run.directory.run_id, None, limit_s=5, known={bystander.pid: ticks - 1})

        assert (swept, is_empty) == ({}, True)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        await bystander.wait()


def without_cookie(run: Run, leader: int) -> list[int]:
    assert run.record is not None
    below = set(shim.below(run.record.shim_pid)) - {leader}
    return [pid for pid in below if shim.command_line(pid) == "sleep 1000"]


async def test_the_kernel_reports_the_end_of_an_adopted_shim(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    adopted = Run.adopt(run.directory)
    assert adopted is not None
    forge_exit(run.directory)
    kill_shim(run)

    assert (await run.ended()).lost  # which reaps it
    record = await adopted.ended()
    is_reported = tuple(map(int, platform.release().split(".")[:2])) >= (6, 15)
    assert record.lost if is_reported else record.unverified


async def test_a_rewritten_boot_id_saves_nobody(stage: Stage) -> None:
    run = await stage.spawn(("sh", "-c", "setsid sleep 1000 & exec sleep 1000"), allow_cgroup=False)
    wait_for(lambda: len(shim.carriers(run.directory.run_id)) == 2, what="the child")
    for name in ("run.json", "intent.json"):
        path = run.directory.path / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    adopted = Run.adopt(run.directory)
    assert adopted is not None
    kill_shim(run)

    assert (await adopted.ended()).lost
    assert shim.carriers(run.directory.run_id) == []


async def test_an_adopted_run_with_a_forged_record_is_known_by_its_processes(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    assert run.record is not None
    path = run.directory.run_file
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shim_pid": os.getpid()}))

    adopted = Run.adopt(run.directory)
    assert adopted is not None
    found = await adopted.ready()
    assert found is not None
    assert found.shim_pid == run.record.shim_pid
    adopted.kill_tree()
    assert not (await adopted.ended()).lost
