"""What a look at a silent run's tree tells, and what it does not make up (H2, H3)."""

import os
import shutil
import signal
import time
from dataclasses import replace

import pytest

from ralphd.core.stall_detector import SilenceLimits, Window, signs
from ralphd.git.worktree_scan import WorkTree
from ralphd.process import shim
from ralphd.process.activity.probe import Observer, RunTree
from tests.helpers import eventually, is_alive
from tests.players import player
from tests.process.activity.watched import NoFiles, closing, look_until, obedient, observer_of, window_of
from tests.process.runs import Stage, names, output, said


async def test_the_first_look_only_begins_a_window(stage: Stage) -> None:
    run = await stage.spawn(player("watch_mover", 60, 0.01, "begun"))
    await said(run.directory, b"begun")

    assert observer_of(run).look() == Window(processes=1)


async def test_files_that_the_first_look_finds_changed_are_told_with_the_second(stage: Stage) -> None:
    run = await stage.spawn(player("watch_writer", 60, 0.01, "begun"))
    await said(run.directory, b"begun")
    await eventually((stage.home / "notes.txt").exists, what="the file")
    assert run.record is not None
    os.kill(run.record.pid, signal.SIGSTOP)
    observer = Observer(RunTree(run.record), WorkTree(stage.home, since=run.record.started_at - 1))
    first, second, third = observer.look(), observer.look(), observer.look()
    observer.close()

    assert first.changed_files == 0
    assert (second.changed_files, second.changed_file) == (1, "notes.txt")
    assert third.changed_files == 0


async def test_a_silent_writer_changes_a_file_and_moves_next_to_nothing(stage: Stage) -> None:
    run = await stage.spawn(player("watch_writer", 60, 0.01, "begun"))
    await said(run.directory, b"begun")
    assert run.record is not None
    observer = Observer(RunTree(run.record), WorkTree(stage.home))
    await look_until(observer, "changed_files")
    window = await look_until(observer, "changed_files")
    observer.close()

    assert window.changed_file == "notes.txt"
    assert (window.io_bytes or 0) < 4096


async def test_a_tree_that_rests_shows_nothing_at_all(stage: Stage, allow_cgroup: bool) -> None:
    nothing = Window(processes=1, io_bytes=0, received_bytes=0, cpu_s=0.0, switches_per_s=0.0)
    with closing(await obedient(stage, allow_cgroup=allow_cgroup)) as idle:
        observer = observer_of(idle.run)
        observer.look()

        def shows_nothing() -> bool:
            window = observer.look()
            assert window.elapsed_s > 0
            return replace(window, elapsed_s=0.0) == nothing

        assert await eventually(shows_nothing, what="rest")


async def test_bytes_moved_by_read_and_write_are_counted(stage: Stage) -> None:
    with closing(await obedient(stage)) as run:
        observer = observer_of(run.run)
        observer.look()
        await run.do("move")
        window = observer.look()

    assert 2 * 65536 <= (window.io_bytes or 0) < 3 * 65536
    assert window.new_processes == 0


async def test_a_process_that_was_started_is_seen_and_counted_once(stage: Stage, allow_cgroup: bool) -> None:
    with closing(await obedient(stage, allow_cgroup=allow_cgroup)) as run:
        observer = observer_of(run.run)
        observer.look()
        await run.do("child")
        first, second = observer.look(), observer.look()

    assert (first.processes, first.new_processes) == (2, 1)
    # Once, and what the interpreter reads of its own accord, which differs between versions.
    assert 100_000 <= (first.io_bytes or 0) < 2 * 100_000
    assert (second.new_processes, second.io_bytes) == (0, 0)


async def test_a_process_that_came_and_went_between_two_looks_is_seen_by_its_traces(stage: Stage) -> None:
    with closing(await obedient(stage)) as run:
        observer = observer_of(run.run)
        observer.look()
        await run.do("true")
        first, second = observer.look(), observer.look()

    assert (first.processes, first.new_processes) == (1, 1)
    assert second.new_processes == 0


async def test_an_orphan_that_came_and_went_is_seen_by_the_shim_that_reaped_it(stage: Stage) -> None:
    with closing(await obedient(stage)) as run:
        observer = observer_of(run.run)
        await run.do("true")
        observer.look()
        await run.do("orphan")
        assert run.run.record is not None
        shim_pid = run.run.record.shim_pid
        await eventually(lambda: len(list(shim.below(shim_pid))) == 1, what="the orphan's end")
        window = observer.look()

    assert window.new_processes >= 1


async def test_a_shell_that_starts_short_programs_is_at_work_in_each_window(stage: Stage) -> None:
    run = await stage.spawn(("/bin/sh", "-c", "echo begun; while :; do /bin/true; done"))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    observer.look()

    for _ in range(3):
        assert (await look_until(observer, "new_processes")).new_processes >= 1


async def test_what_a_reaped_child_had_done_before_is_not_counted_again(
    stage: Stage, allow_cgroup: bool
) -> None:
    with closing(await obedient(stage, allow_cgroup=allow_cgroup)) as run:
        observer = observer_of(run.run)
        await run.do("child")
        before = observer.look()
        await run.do("reap")
        reaped, after = observer.look(), observer.look()

    assert (before.processes, reaped.processes) == (2, 1)
    assert (reaped.new_processes, after.new_processes) == (0, 0)
    assert (reaped.io_bytes or 0) < 200
    assert (reaped.cpu_s or 0.0) <= 0.02
    assert after.io_bytes == 0


async def test_what_is_received_by_recv_is_told_by_the_sockets_and_by_nothing_else(stage: Stage) -> None:
    run = await stage.spawn(player("watch_receiver", 60, 0.02, "begun"))
    observer = observer_of(run)
    await eventually(lambda: len(list(shim.below(run.record.shim_pid if run.record else 0))) == 2)
    await look_until(observer, "received_bytes")
    window = await look_until(observer, "received_bytes")

    assert (window.received_bytes or 0) > 0
    assert window.io_bytes == 0
    assert window.new_processes == 0


async def test_computing_is_seen_as_processor_time(stage: Stage) -> None:
    run = await stage.spawn(player("watch_burner", 60, 0.1))
    observer = observer_of(run)
    window = await look_until(observer, "cpu_s")

    assert window.io_bytes is not None
    assert (window.cpu_s or 0.0) < 2 * window.elapsed_s + 0.05


async def test_a_timer_of_100_ms_is_no_more_than_ten_switches_a_second(stage: Stage) -> None:
    run = await stage.spawn(player("watch_timer", 60, 0.1, "begun"))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    window = await window_of(observer, 1.0)

    assert 0 < (window.switches_per_s or 0.0) < 10
    assert (window.io_bytes, window.new_processes) == (0, 0)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_node_with_an_idle_timer_of_100_ms_shows_no_evidence(stage: Stage) -> None:
    script = "console.log('begun'); setInterval(() => {}, 100)"
    run = await stage.spawn(("node", "-e", script))
    await said(run.directory, b"begun")
    observer = observer_of(run)

    for _ in range(20):  # it needs a moment to settle, and some more on a busy machine
        window = await window_of(observer, 1.0)
        if not signs(window, SilenceLimits()):
            break
    assert signs(window, SilenceLimits()) == ()
    assert (window.io_bytes, window.new_processes) == (0, 0)


async def test_switches_are_those_of_the_busiest_process_alone(stage: Stage) -> None:
    path = player("watch_timer", 60, 0.02)
    run = await stage.spawn(("/bin/sh", "-c", '"$@" & "$@" & "$@" & echo begun; wait', "sh", *path))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    await eventually(lambda: observer.look().processes == 4)
    window = await window_of(observer, 0.5)
    rates = sorted(seen.switches_per_s or 0.0 for seen in observer.processes())

    assert window.switches_per_s == rates[-1] <= 60
    assert sum(rates) > rates[-1]


async def test_the_shim_and_we_ourselves_are_never_looked_at(stage: Stage, allow_cgroup: bool) -> None:
    run = await stage.spawn(player("family"), allow_cgroup=allow_cgroup)
    family = await names(run.directory, 6)
    observer = observer_of(run)
    observer.look()

    looked_at = {seen.pid: seen.state for seen in observer.processes()}
    assert {pid for pid, state in looked_at.items() if state != "Z"} == set(family.values())
    assert run.record is not None
    assert looked_at.keys().isdisjoint({run.record.shim_pid, os.getpid()})


async def test_each_process_is_told_with_its_command_and_what_it_did(stage: Stage) -> None:
    with closing(await obedient(stage)) as run:
        observer = observer_of(run.run)
        assert observer.processes() == ()
        observer.look()
        (first,) = observer.processes()
        await run.do("move")
        observer.look()
        (second,) = observer.processes()

    assert run.run.record is not None
    assert (first.pid, first.parent) == (run.run.record.pid, run.run.record.shim_pid)
    assert "watch_spawner" in first.command
    assert (first.io_bytes, first.cpu_s, first.switches_per_s) == (None, None, None)
    assert second.io_bytes is not None and second.io_bytes >= 2 * 65536
    assert second.age_s >= first.age_s


async def test_a_tree_of_another_boot_or_of_a_shim_that_is_gone_is_not_looked_at(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"), allow_cgroup=False)
    assert run.record is not None

    for stale in (
        replace(run.record, boot_id="another boot"),
        replace(run.record, shim_start_ticks=run.record.shim_start_ticks + 1),
    ):
        observer = Observer(RunTree(stale), NoFiles())
        observer.look()
        window = observer.look()
        assert window.processes == 0
        assert (window.io_bytes, window.cpu_s, window.switches_per_s) == (None, None, None)


async def test_a_run_that_ends_between_two_looks_is_no_evidence_and_no_error(stage: Stage) -> None:
    run = await stage.spawn(player("stubborn"))
    both = await names(run.directory, 2)
    observer = observer_of(run)
    observer.look()
    run.kill_tree()
    await run.ended()
    window = observer.look()

    assert not any(map(is_alive, both.values()))
    assert (window.processes, window.new_processes) == (0, 0)
    assert observer.processes() == ()


async def test_looks_at_a_fork_storm_pass_over_what_vanishes(stage: Stage) -> None:
    storm = "echo begun; while :; do (:; :) & (/bin/true | /bin/true) & wait; done"
    run = await stage.spawn(("/bin/sh", "-c", storm))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    observer.look()
    windows = [observer.look() for _ in range(50)]

    assert sum(window.new_processes for window in windows) > 0
    assert all(window.processes >= 1 for window in windows)


async def test_a_stopped_tree_is_silent_in_every_way(stage: Stage) -> None:
    run = await stage.spawn(player("watch_mover", 60, 0.01, "begun"))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    assert run.record is not None
    await look_until(observer, "io_bytes")
    os.kill(run.record.pid, signal.SIGSTOP)

    def rests() -> bool:
        observer.look()
        return {seen.state for seen in observer.processes()} == {"T"}

    await eventually(rests)
    window = observer.look()
    assert (window.io_bytes, window.cpu_s, window.switches_per_s) == (0, 0.0, 0.0)


async def test_a_look_at_three_idle_processes_costs_little(stage: Stage) -> None:
    run = await stage.spawn(("/bin/sh", "-c", "sleep 60 & sleep 60 & echo begun; wait"))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    await eventually(lambda: observer.look().processes == 3)
    began = time.thread_time()
    for _ in range(20):
        observer.look()

    assert (time.thread_time() - began) / 20 < 0.02
    assert output(run.directory) == b"begun\n"
