"""A shim that is tied to somebody ends its run with them, whoever else lives or has died (P5)."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ralphd.process.lock import DirectoryLock
from ralphd.process.spawn import Run
from tests.helpers import eventually
from tests.players import player
from tests.process.runs import Stage, is_free, names, nobody_alive, output, said


@dataclass
class Cord:
    """A pipe: ``held`` is what a shim is given, and to ``cut`` it is to be gone."""

    held: int
    _end: int

    def cut(self) -> None:
        """Close the other end."""
        os.close(self._end)
        self._end = -1

    def close(self) -> None:
        """Let go of both."""
        for descriptor in (self.held, self._end):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def cord() -> Iterator[Cord]:
    """What a shim can be tied by."""
    cord = Cord(*os.pipe())
    yield cord
    cord.close()


async def spawn(
    stage: Stage,
    cord: Cord,
    command: tuple[str, ...],
    *,
    lock: DirectoryLock | None = None,
    allow_cgroup: bool = True,
) -> Run:
    """Start a run that is tied."""
    directory = stage.directory()
    spec = replace(stage.spec(directory, command), tied=cord.held)
    run = await Run.spawn(directory, spec, lock, allow_cgroup=allow_cgroup)
    stage.started.append(run)
    return run


async def test_the_end_of_file_ends_the_whole_tree_and_leaves_its_record(
    stage: Stage, cord: Cord, allow_cgroup: bool
) -> None:
    run = await spawn(stage, cord, player("family"), allow_cgroup=allow_cgroup)
    family = await names(run.directory, 6)

    cord.cut()
    record = await run.ended()

    assert nobody_alive(family)
    assert (record.code, record.signal, record.lost) == (None, signal.SIGKILL, False)
    assert {each.pid for each in record.swept} == set(family.values()) - {family["leader"]}


async def test_what_was_printed_before_the_end_is_in_the_log(stage: Stage, cord: Cord) -> None:
    run = await spawn(stage, cord, player("says", "out:the last words", "wait:600"))
    await said(run.directory, b"the last words")

    cord.cut()
    await run.ended()

    assert output(run.directory).startswith(b"the last words")


async def test_a_cord_that_was_cut_before_the_start_lets_nothing_run_on(stage: Stage, cord: Cord) -> None:
    cord.cut()

    run = await spawn(stage, cord, player("sleeper"))
    record = await run.ended()

    assert record.signal == signal.SIGKILL


async def test_the_lock_of_the_working_directory_is_free_after_it(stage: Stage, cord: Cord) -> None:
    lock = DirectoryLock.acquire(stage.home)
    run = await spawn(stage, cord, player("sleeper"), lock=lock)
    lock.release()
    assert not is_free(stage.home)

    cord.cut()
    await run.ended()

    assert is_free(stage.home)


async def test_a_tied_run_that_ends_by_itself_is_like_any_other(stage: Stage, cord: Cord) -> None:
    record = await (await spawn(stage, cord, player("exits", 3))).ended()

    assert (record.code, record.swept) == (3, ())


async def test_a_tied_shim_still_heeds_its_signals(stage: Stage, cord: Cord) -> None:
    run = await spawn(stage, cord, player("polite", 7))
    await said(run.directory, b"\n")

    run.terminate()

    assert (await run.ended()).code == 7


async def test_the_command_gets_no_end_of_the_pipe_and_the_shim_only_the_one(
    stage: Stage, cord: Cord
) -> None:
    run = await spawn(stage, cord, player("mirror"))
    await eventually(lambda: output(run.directory).endswith(b"\n"))
    found = json.loads(output(run.directory))
    assert set(found["descriptors"]) <= {0, 1, 2}

    other = await spawn(stage, cord, player("sleeper"))
    assert other.record is not None
    assert _ends_held_by(other.record.shim_pid, cord.held) == [os.O_RDONLY]
    assert _ends_held_by(other.record.pid, cord.held) == []


def _ends_held_by(pid: int, pipe: int) -> list[int]:
    """How a process holds the pipe behind our descriptor: reading, writing."""
    wanted, found = os.fstat(pipe).st_ino, []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        about = entry.stat()
        if stat.S_ISFIFO(about.st_mode) and about.st_ino == wanted:
            info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().split()
            found.append(int(info[info.index("flags:") + 1], 8) & os.O_ACCMODE)
    return found


async def test_a_shim_of_a_daemon_of_its_own_is_not_tied(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))

    assert run.record is not None
    assert b"tied=" not in Path(f"/proc/{run.record.shim_pid}/cmdline").read_bytes()
