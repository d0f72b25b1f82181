"""Who a process is, what belongs to a run, and what does not (S7, S8)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.core.supervision.model import RunId
from ralphd.process import shim, tree
from ralphd.process.shim import all_pids, children, process_stat, signal_if
from ralphd.process.tree import Stranger
from tests.helpers import eventually, is_alive, wait_for
from tests.players import player
from tests.process.runs import Stage, names, said

THREADS_THAT_END = """
import subprocess, threading, time
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
while True:
    threading.Thread(target=time.sleep, args=(0.0001,)).start()
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that belongs to no run."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_pid_start_and_boot(sleeper: subprocess.Popen[bytes]) -> None:
    ticks = tree.start_ticks(sleeper.pid)

    assert ticks is not None
    assert tree.is_same(sleeper.pid, ticks, shim.boot_id())
    assert not tree.is_same(sleeper.pid, ticks + 1, shim.boot_id())
    assert not tree.is_same(sleeper.pid, ticks, "another boot")
    sleeper.kill()
    sleeper.wait()
    assert tree.start_ticks(sleeper.pid) is None
    assert not tree.is_same(sleeper.pid, ticks, shim.boot_id())


def test_a_signal_goes_only_to_whom_a_second_look_confirms(sleeper: subprocess.Popen[bytes]) -> None:
    assert not signal_if(sleeper.pid, signal.SIGKILL, lambda *_: False)
    assert sleeper.poll() is None

    assert signal_if(sleeper.pid, signal.SIGKILL, lambda *_: True)
    sleeper.wait()
    assert not signal_if(sleeper.pid, signal.SIGKILL, lambda *_: True)


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_nothing_is_ever_sent_to_the_first_process_or_to_everybody(pid: int) -> None:
    assert not signal_if(pid, signal.SIGCONT, lambda *_: True)


def test_a_child_is_found_while_threads_of_its_parent_end() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", THREADS_THAT_END], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())

        assert all(children(parent.pid) == [child] for _ in range(2_000))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


async def test_descendants_are_found_through_sessions_and_forks(stage: Stage) -> None:
    run = await stage.spawn(player("family"))
    family = await names(run.directory, 6)
    assert run.record is not None

    assert set(shim.below(run.record.shim_pid)) >= set(family.values())
    assert family["double"] not in shim.below(family["leader"])


async def test_the_cookie_finds_all_that_did_not_clear_its_environment(stage: Stage) -> None:
    run = await stage.spawn(player("family"))
    family = await names(run.directory, 6)
    cleared = family.pop("cleared")

    assert set(shim.carriers(run.directory.run_id)) == set(family.values())
    assert cleared not in shim.carriers(run.directory.run_id)
    assert shim.carriers(RunId(run.directory.run_id[:-1])) == []


async def test_a_sweep_ends_one_runs_tree_and_no_others(
    stage: Stage, sleeper: subprocess.Popen[bytes]
) -> None:
    spared = await stage.spawn(player("sleeper"), allow_cgroup=False)
    swept_run = await stage.spawn(player("stubborn"), allow_cgroup=False)
    both = await names(swept_run.directory, 2)

    swept, gone = tree.sweep(swept_run.directory.run_id, None, limit_s=5)

    assert gone
    assert set(swept) == set(both.values())
    assert sleeper.poll() is None
    assert spared.record is not None
    assert tree.start_ticks(spared.record.pid) == spared.record.start_ticks


def test_what_is_below_one_that_dies_of_the_sweep_is_not_left_frozen_for_ever() -> None:
    for attempt in range(12):  # where it was forgotten, one in ten was
        run_id = RunId(f"r{attempt:06}-frozen")
        parent = subprocess.Popen(
            ["/bin/sh", "-c", "env -i sleep 600 & echo $!; wait"],
            env={"PATH": os.environ["PATH"], "RALPH_RUN_ID": run_id},
            stdout=subprocess.PIPE,
        )
        with parent:
            assert parent.stdout is not None
            cleared = int(parent.stdout.readline())
            wait_for(lambda: shim.carriers(run_id) == [parent.pid])  # noqa: B023

            swept, gone = tree.sweep(run_id, None, limit_s=5)

        assert gone
        assert cleared in swept
        assert wait_for(lambda: not is_alive(cleared), what="the end of all that was swept")  # noqa: B023


async def test_a_stranger_in_the_directory_is_reported_and_left_alone(stage: Stage) -> None:
    began_at = time.time() - 1
    run = await stage.spawn(player("double_forker", "stay"))
    await said(run.directory, b"orphan")
    outsider = subprocess.Popen(
        ["setsid", "--fork", "sleep", "61"], cwd=stage.home, env={"PATH": os.environ["PATH"]}
    )
    outsider.wait()

    def seen() -> list[Stranger]:
        return tree.strangers(stage.home, began_at, [run.directory.run_id])

    try:
        await eventually(lambda: [stranger.command for stranger in seen()] == ["sleep 61"])
        assert tree.strangers(stage.home, time.time() + 1, [run.directory.run_id]) == []
        assert tree.strangers(stage.home / "elsewhere", began_at, [run.directory.run_id]) == []
    finally:
        for stranger in seen():
            os.kill(stranger.pid, signal.SIGKILL)


async def test_what_an_older_program_starts_is_no_stranger_and_what_escaped_is(stage: Stage) -> None:
    fifo, clean = stage.home / "go", {"PATH": os.environ["PATH"]}
    os.mkfifo(fifo)
    language_servers = f"read go <{fifo}; sleep 64 & setsid sleep 65 & wait"
    editor = ["setsid", "--fork", "/bin/sh", "-c", language_servers]
    subprocess.run(editor, cwd=stage.home, env=clean, check=True)

    def started() -> dict[str, int]:
        ours = {pid: shim.command_line(pid) for pid in all_pids() if tree._works_in(pid, stage.home)}
        return {command: pid for pid, command in ours.items()}

    try:
        await eventually(lambda: any("read go" in command for command in started()))
        began_at = time.time() + 0.02  # start times are cut to 0.01 s
        await eventually(lambda: time.time() > began_at + 0.02)
        fifo.write_text("now\n")
        double_fork = ["setsid", "--fork", "/bin/sh", "-c", "sleep 66 & exit"]
        subprocess.run(double_fork, cwd=stage.home, env=clean, check=True)
        await eventually(lambda: {"sleep 64", "sleep 65", "sleep 66"} <= set(started()))

        seen = tree.strangers(stage.home, began_at, [])

        assert [stranger.command for stranger in seen] == ["sleep 66"]
    finally:
        for pid in started().values():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("terminal", "arguments", "expected"),
    [
        ("0", ["sleep", "61"], False),
        ("34816", ["vim", "x"], True),
        ("0", ["python3", "/opt/bin/ralphctl", "logs", "-f"], True),
        ("0", ["python3", "-P", "-m", "ralphctl", "wait"], True),
        ("0", [sys.executable, "/home/x/.local/bin/ralph", "logs"], True),
        ("0", ["node", "/usr/bin/ralph", "loop"], False),
        ("0", ["grep", "-r", "x", "y", "ralphctl"], False),
    ],
)
def test_what_a_person_runs_in_the_directory_is_no_stranger(
    terminal: str, arguments: list[str], expected: bool
) -> None:
    fields = [b"S", b"1", b"1", b"1", terminal.encode()]

    assert tree.is_a_persons(fields, [word.encode() for word in arguments]) is expected


async def test_programs_on_a_terminal_are_not_reported(stage: Stage) -> None:
    began_at = time.time() - 1
    screen, terminal = os.openpty()
    on_terminal = subprocess.Popen(
        ["setsid", "--ctty", "sleep", "62"], stdin=terminal, cwd=stage.home, env={"PATH": os.environ["PATH"]}
    )
    plain = subprocess.Popen(["sleep", "63"], cwd=stage.home, start_new_session=True)
    try:
        wait_for(lambda: shim.command_line(on_terminal.pid) == "sleep 62", what="sleep on its terminal")
        # Our own descendants are never strangers: look as another process would.
        seen = [
            pid for pid in (on_terminal.pid, plain.pid)
            if (stat := process_stat(pid)) and not tree.is_a_persons(stat[4], [b"sleep"])
        ]  # fmt: skip
        assert seen == [plain.pid]
        assert tree.strangers(stage.home, began_at, []) == []
    finally:
        for process in (on_terminal, plain):
            process.kill()
            process.wait()
        os.close(screen)
        os.close(terminal)


def test_a_writable_control_group_takes_a_leaf_and_is_left_as_it_was() -> None:
    group = tree.writable_cgroup()
    if group is None:
        pytest.skip("no control group is writable here")
    leaf = group / f"ralphd-test-{os.getpid()}"
    leaf.mkdir()
    leaf.rmdir()

    assert tree.tree_means() == "cgroup"
    assert not (group / f"ralphd-trial-{os.getpid()}").exists()


def test_a_leaf_that_a_killed_process_had_tried_is_removed() -> None:
    group = tree.writable_cgroup()
    if group is None:
        pytest.skip("no control group is writable here")
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = group / f"ralphd-trial-{ended.pid}"
    left.mkdir()

    tree.writable_cgroup.cache_clear()
    assert tree.writable_cgroup() == group

    assert not left.exists()


def test_without_root_or_delegation_the_means_are_told_honestly() -> None:
    assert tree.tree_means() == ("subreaper" if tree.writable_cgroup() is None else "cgroup")


def test_a_process_with_an_odd_name_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        assert process.pid in shim.below(os.getpid())
        assert (tree.start_ticks(process.pid) or 0) > (tree.start_ticks(1) or 0)
    finally:
        process.kill()
        process.wait()
