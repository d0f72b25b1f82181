"""An agent's process: how it is started, with whom it dies, and that nothing of its tree is left."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ralphd.process import agent_process, shim
from ralphd.process.activity.probe import Observer
from ralphd.process.agent_process import AgentCommand, AgentProcess
from tests.helpers import eventually, is_alive, wait_for
from tests.players import player
from tests.process.activity.watched import NoFiles

THE_LIBRARYS_OWN = 0b11 << 31
"""Signals 32 and 33, which the C library keeps for itself: nobody can say how they are handled."""

LOOP = """
import asyncio, sys
from pathlib import Path
from ralphd.process.agent_process import AgentCommand, start
async def main():
    command = AgentCommand("a", tuple(sys.argv[2:]), Path(sys.argv[1]), {}, False)
    process = await start(command)
    print(process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _no_subreaper() -> Iterator[None]:
    """To start an agent makes this process a subreaper; the tests after these do not want one."""
    yield
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 0)


@asynccontextmanager
async def started(
    place: Path, argv: tuple[str, ...], environment: dict[str, str] | None = None
) -> AsyncIterator[AgentProcess]:
    """An agent's process, ended at the end."""
    process = await agent_process.start(AgentCommand("attempt-1", argv, place, environment or {}, False))
    try:
        yield process
    finally:
        process.end(10.0)
        process.close()
        for descriptor in (process.pipes.stdout, process.pipes.stderr):
            os.close(descriptor)


async def said(process: AgentProcess, lines: int) -> str:
    """What it says, once there are so many lines."""
    data = b""

    def read() -> bool:
        nonlocal data
        with suppress(BlockingIOError):
            data += os.read(process.pipes.stdout, 65536)
        return data.count(b"\n") >= lines

    await eventually(read, what=f"{lines} lines")
    return data.decode()


async def family_of(process: AgentProcess, count: int) -> dict[str, int]:
    """The pids that it tells as ``NAME PID``."""
    pairs = [line.split() for line in (await said(process, count)).splitlines()]
    return {name: int(pid) for name, pid in pairs}


async def test_an_end_is_known_before_the_loop_is_told(tmp_path: Path) -> None:
    async with started(tmp_path, ("/bin/sh", "-c", "exit 4")) as process:
        wait_for(lambda: not is_alive(process.pid), what="its end")  # blocks: the loop sees nothing of it

        assert process.has_exited


async def test_it_has_a_session_of_its_own_default_signals_and_nothing_on_stdin(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        script = "cat /proc/$$/status | grep -E '^Sig(Ign|Blk)'; readlink /proc/$$/fd/0; env; echo"
        environment = {"PATH": os.environ["PATH"], "LC_CTYPE": "C"}
        async with started(tmp_path, ("sh", "-c", script), environment) as process:
            told = await said(process, 8)
            assert os.getsid(process.pid) == process.pid == os.getpgid(process.pid)
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

    lines = told.split()
    assert [lines[0], lines[2], lines[4]] == ["SigBlk:", "SigIgn:", "/dev/null"]
    assert [int(mask, 16) & ~THE_LIBRARYS_OWN for mask in (lines[1], lines[3])] == [0, 0]
    names = {line.partition("=")[0] for line in lines[5:]} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "LC_CTYPE", "RALPH_ATTEMPT_ID"}
    assert "LC_CTYPE=C" in lines


async def test_it_gets_no_environment_that_was_not_given(tmp_path: Path) -> None:
    async with started(tmp_path, ("/usr/bin/env",)) as process:
        told = await said(process, 1)

    assert [line.partition("=")[0] for line in told.splitlines()] == ["RALPH_ATTEMPT_ID"]


async def test_it_holds_no_descriptor_of_ours(tmp_path: Path) -> None:
    ours = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(ours, True)
    try:
        async with started(tmp_path, ("/bin/sh", "-c", "/bin/ls /proc/$$/fd; echo")) as process:
            told = await said(process, 4)
    finally:
        os.close(ours)

    assert set(told.split()) <= {"0", "1", "2", "10"}


def test_a_loop_that_is_killed_takes_its_agent_along(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOOP, tmp_path, *player("sleeper")], stdout=subprocess.PIPE, text=True
    ) as loop:
        assert loop.stdout is not None
        agent = int(loop.stdout.readline())
        assert is_alive(agent)
        loop.kill()
    wait_for(lambda: not is_alive(agent), what="the agent's end")

    assert not is_alive(agent)


async def test_the_whole_tree_is_swept_while_its_leader_lives(tmp_path: Path) -> None:
    async with started(tmp_path, player("family")) as process:
        family = await family_of(process, 6)
        swept = process.end(10.0)
        again = process.end(10.0)

    assert not any(map(is_alive, family.values()))
    assert set(swept.ended) == set(family.values()) - {family["leader"]}
    assert (swept.survivors, again) == ({}, swept)
    assert process.status is not None and os.WTERMSIG(process.status) == signal.SIGKILL


async def test_what_was_left_behind_is_found_though_it_carries_no_cookie(tmp_path: Path) -> None:
    async with started(tmp_path, player("family", "leave")) as process:
        family = await family_of(process, 6)
        await process.exited()
        assert is_alive(family["cleared"])
        process.end(10.0)

    assert not any(map(is_alive, family.values()))
    assert process.status is not None and os.waitstatus_to_exitcode(process.status) == 3


async def test_one_that_hides_below_another_subreaper_is_found_by_its_cookie(tmp_path: Path) -> None:
    hide = (
        "import ctypes, os, time\n"
        "ctypes.CDLL(None).prctl(36, 1)\n"
        "os.fork() and os._exit(0)\n"
        "os.setsid()\n"
        "pid = os.fork()\n"
        "pid or time.sleep(600)\n"
        "os.write(1, f'hidden {pid}\\n'.encode())\n"
        "time.sleep(600)\n"
    )
    async with started(tmp_path, (sys.executable, "-S", "-c", hide)) as process:
        hidden = (await family_of(process, 1))["hidden"]
        process.end(10.0)

    assert not is_alive(hidden)


async def test_nothing_that_was_not_started_in_the_attempt_is_touched(tmp_path: Path) -> None:
    sleeper = player("sleeper")
    with subprocess.Popen(sleeper, start_new_session=True) as before:
        async with started(tmp_path, player("family")) as process:
            await family_of(process, 6)
            with subprocess.Popen(sleeper, process_group=0) as meanwhile:
                process.reap_orphans()
                process.end(10.0)
                lived = before.poll() is None and meanwhile.poll() is None
                meanwhile.kill()
        before.kill()

    assert lived


async def test_our_own_children_keep_their_exit_status_while_orphans_are_reaped(tmp_path: Path) -> None:
    async with started(tmp_path, player("double_forker", "stay")) as process:
        orphan = (await family_of(process, 1))["orphan"]
        with subprocess.Popen(["/bin/sh", "-c", "exit 7"], process_group=0) as ours:
            os.kill(orphan, signal.SIGKILL)
            await eventually(lambda: not is_alive(orphan), what="the orphan's end")
            process.reap_orphans()
            code = ours.wait(10)
        assert orphan not in shim.below(os.getpid())

    assert code == 7


async def test_a_look_sees_the_tree_and_none_of_our_own_calls(tmp_path: Path) -> None:
    async with started(tmp_path, player("family")) as process:
        family = await family_of(process, 6)
        observer = Observer(process, NoFiles())
        await asyncio.to_thread(observer.look)
        subprocess.run(["/bin/true"], process_group=0, check=True)
        with subprocess.Popen(player("sleeper"), process_group=0) as ours:
            window = await asyncio.to_thread(observer.look)
            seen = {one.pid for one in observer.processes() if one.state != "Z"}
            ours.kill()

    assert window.new_processes == 0
    assert seen == set(family.values())


async def test_an_orphan_that_came_and_went_is_seen_by_who_reaped_it(tmp_path: Path) -> None:
    async with started(tmp_path, ("/bin/sh", "-c", "(sleep 0.1 & echo begun); sleep 60")) as process:
        await said(process, 1)

        def reaped() -> bool:
            process.reap_orphans()
            return process.orphan_faults() > 0

        assert await eventually(reaped, what="its page faults")


async def test_two_threads_may_end_it_at_once(tmp_path: Path) -> None:
    async with started(tmp_path, player("family")) as process:
        family = await family_of(process, 6)
        threads = [threading.Thread(target=process.end, args=(10.0,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    assert not any(map(is_alive, family.values()))
