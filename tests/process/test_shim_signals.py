"""The shim's column of the table of signals, and what a command finds when it starts (S3)."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from ralphd.process import shim, tree
from ralphd.process.lock import DirectoryLock
from ralphd.process.spawn import Run
from tests.helpers import is_alive
from tests.players import player
from tests.process.runs import Stage, is_free, output, said


def shim_pid(run: Run) -> int:
    """The pid of a run's shim."""
    assert run.record is not None
    return run.record.shim_pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sigterm_and_sigint_reach_the_command_as_sigterm(stage: Stage, number: signal.Signals) -> None:
    run = await stage.spawn(player("polite", 7))
    await said(run.directory, b"\n")

    os.kill(shim_pid(run), number)
    record = await run.ended()

    assert (record.code, record.signal) == (7, None)
    assert b"got SIGTERM" in output(run.directory)


async def test_sigterm_goes_to_the_whole_process_group_with_a_sigcont(stage: Stage) -> None:
    run = await stage.spawn(player("hearer"))
    await said(run.directory, b"ready")
    assert run.record is not None
    os.kill(run.record.pid, signal.SIGSTOP)

    run.terminate()

    await said(run.directory, b"SIGTERM")
    await said(run.directory, b"SIGCONT")


async def test_a_plain_command_ends_by_sigterm_and_the_record_says_so(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))

    run.terminate()
    record = await run.ended()

    assert (record.code, record.signal) == (None, signal.SIGTERM)


async def test_sigquit_kills_the_tree_at_once(stage: Stage) -> None:
    run = await stage.spawn(player("hearer"))
    await said(run.directory, b"ready")

    os.kill(shim_pid(run), signal.SIGQUIT)
    record = await run.ended()

    assert record.signal == signal.SIGKILL


async def test_the_user_signals_are_kept_back_until_a_hello_said_signals(stage: Stage) -> None:
    run = await stage.spawn(player("hearer"))
    await said(run.directory, b"ready")

    run.pass_on(signal.SIGUSR1)
    run.terminate()
    await said(run.directory, b"SIGTERM")
    assert b"SIGUSR1" not in output(run.directory)

    (run.directory.path / "signals").touch()
    run.pass_on(signal.SIGUSR1)
    await said(run.directory, b"SIGUSR1")
    run.pass_on(signal.SIGUSR2)
    await said(run.directory, b"SIGUSR2")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTSTP, signal.SIGPIPE, signal.SIGTTOU])
async def test_what_the_table_does_not_name_changes_nothing(stage: Stage, number: signal.Signals) -> None:
    run = await stage.spawn(player("polite"))
    await said(run.directory, b"\n")

    os.kill(shim_pid(run), number)
    run.terminate()
    record = await run.ended()

    assert record.code == 0


async def test_a_command_starts_with_clean_signals_its_own_session_and_no_foreign_descriptors(
    stage: Stage,
) -> None:
    lock = DirectoryLock.acquire(stage.home)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        run = await stage.spawn(player("mirror", "a b", "ü"), lock=lock)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        lock.release()
    await run.ended()
    seen = json.loads(output(run.directory))

    assert seen["argv"] == ["a b", "ü"]
    assert seen["cwd"] == str(stage.home)
    assert seen["blocked"] == []
    pythons_own = {signal.SIGPIPE, signal.SIGXFSZ}
    nobodys_own = {32, 33}  # posix_spawn(3) of the C library leaves its internal ones ignored, as under make
    ignored = {number for number in range(1, signal.NSIG) if seen["ignored"] >> (number - 1) & 1}
    assert ignored - pythons_own - nobodys_own == set()
    assert seen["descriptors"] == [0, 1, 2]
    assert seen["stdin"] == "/dev/null"
    assert seen["pid"] == seen["group"] == seen["session_of"]
    assert run.record is not None
    assert (seen["pid"], seen["parent"]) == (run.record.pid, run.record.shim_pid)


async def test_the_broken_pipe_signal_is_a_commands_own_again(stage: Stage) -> None:
    record = await stage.ended(("/bin/sh", "-c", "kill -PIPE $$"))

    assert record.signal == signal.SIGPIPE


async def test_a_command_gets_its_environment_from_the_file_and_ours_last(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "env"
    file.write_text(
        json.dumps({"PATH": "/usr/bin:/bin", "WHO": "file", "RALPH_RUN_ID": "forged", "ODD": "\udcff"})
    )
    directory = stage.directory()
    spec = stage.spec(
        directory, player("mirror"), environment={"WHO": "extra"}, environment_file=file, umask=0o027
    )

    run = await Run.spawn(directory, spec, None)
    await run.ended()
    seen = json.loads(output(directory))

    environment = {key: value for key, value in seen["environment"].items() if key != "LC_CTYPE"}
    assert environment == {
        "PATH": "/usr/bin:/bin",
        "WHO": "extra",
        "ODD": "\udcff",
        "RALPH_NAME": "stage",
        "RALPH_RUN_ID": directory.run_id,
    }
    assert seen["umask"] == 0o027


async def test_neither_shim_nor_we_carry_the_cookie(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    assert run.record is not None

    assert shim.carriers(run.directory.run_id) == [run.record.pid]


async def test_a_living_run_holds_both_locks_and_its_command_none(stage: Stage) -> None:
    lock = DirectoryLock.acquire(stage.home)
    run = await stage.spawn(player("stubborn"), lock=lock)
    await said(run.directory, b"grandchild")
    lock.release()
    assert run.directory.is_locked()
    assert not is_free(stage.home)

    os.kill(shim_pid(run), signal.SIGKILL)
    await run.ended()

    assert not run.directory.is_locked()
    assert is_free(stage.home)


async def test_the_shim_does_not_need_its_installation_once_it_runs(stage: Stage, tmp_path: Path) -> None:
    """Everything is imported at start: no Python file is open, and none is opened at the end."""
    run = await stage.spawn(player("polite"))
    opened = {str(entry.readlink()) for entry in Path(f"/proc/{shim_pid(run)}/fd").iterdir()}

    assert not any(name.endswith((".py", ".pyc")) for name in opened)
    assert Path(f"/proc/{shim_pid(run)}/cwd").readlink() == Path("/")


async def test_the_shim_is_small_and_loads_no_heavy_module(stage: Stage) -> None:
    heavy = {"re", "enum", "json", "typing", "asyncio", "threading", "subprocess", "contextlib", "pathlib"}
    program = (
        f"import sys; sys.path.append({str(SHIM_FOLDER)!r}); import shim; "
        f"print(sorted(set(sys.modules) & {heavy!r}))"
    )
    run = await stage.spawn((sys.executable, "-I", "-S", "-E", "-c", program))
    await run.ended()

    assert output(run.directory) == b"[]\n"


SHIM_FOLDER = Path(tree.__file__).parent


async def test_a_stop_that_comes_twice_is_one_stop(stage: Stage) -> None:
    run = await stage.spawn(player("polite", 4))
    await said(run.directory, b"\n")

    run.terminate()
    run.terminate()
    run.kill_tree()
    record = await run.ended()
    run.terminate()
    run.kill_tree()

    assert record.code == 4 or record.signal == signal.SIGKILL
    assert run.record is not None
    assert not is_alive(run.record.pid)


async def test_a_command_that_knows_our_signals_is_asked_to_end_alone_and_what_it_started_is_let_be(
    stage: Stage,
) -> None:
    started = "(trap - TERM; sleep 1000 & echo ready; wait; echo cut)"
    shell = f"trap 'echo asked' TERM; {started} & wait; echo waited; wait"
    run = await stage.spawn(("/bin/sh", "-c", shell))
    await said(run.directory, b"ready")
    (run.directory.path / "signals").touch()

    run.terminate()
    await said(run.directory, b"waited")

    assert len(list(shim.below(run.record.pid if run.record else 0))) == 2
