"""The sandbox of a run, as its processes find it (A1)."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.sandbox import SIGNALS_ABI, SandboxChoice
from ralphd.errors import CommandNotStartable
from ralphd.process import agent_process, shim
from ralphd.process.agent_process import AgentCommand
from ralphd.process.sandbox import probe
from ralphd.process.spawn import Run
from tests.helpers import is_alive, wait_for
from tests.process.runs import Stage, output

SIGNALS = SandboxChoice("signals", required=True)
needs_landlock = pytest.mark.skipif(
    shim.landlock_abi() < SIGNALS_ABI, reason=f"Landlock ABI {shim.landlock_abi()} restricts no signals"
)
TRIES = """
import ctypes, os, signal, subprocess, sys
def tried(name, call):
    try:
        call()
        print(name, "reached")
    except OSError as error:
        print(name, os.strerror(error.errno))
pid = int(sys.argv[1])
def poke():
    with open(f"/proc/{pid}/mem", "rb+"):
        pass
def trace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
tried("kill", lambda: os.kill(pid, 0))
tried("killpg", lambda: os.killpg(os.getpgid(pid), 0))
tried("stop", lambda: os.kill(pid, signal.SIGSTOP))
tried("parent", lambda: os.kill(os.getppid(), 0))
tried("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))
tried("mem", poke)
tried("ptrace", trace)
child = subprocess.Popen(["sleep", "60"])
tried("child", child.kill)
child.wait()
print("level", os.environ.get("RALPH_SANDBOX"))
"""
REFUSED = [f"{name} Operation not permitted" for name in ("kill", "killpg", "stop", "parent", "pidfd")]
CLOSED = ["mem Permission denied", "ptrace Operation not permitted", "child reached"]


async def started(stage: Stage, command: tuple[str, ...], sandbox: SandboxChoice) -> Run:
    directory = stage.directory()
    spec = stage.spec(directory, command)
    run = await Run.spawn(directory, replace(spec, sandbox=sandbox), None)
    stage.started.append(run)
    return run


@needs_landlock
async def test_a_run_reaches_its_own_processes_and_no_others(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as sibling:
        try:
            run = await started(stage, (sys.executable, "-c", TRIES, str(sibling.pid)), SIGNALS)
            record = await run.ended()
        finally:
            sibling.kill()

    lines = [line.decode().split(" F ")[-1] for line in output(run.directory).splitlines()]
    assert [line for line in lines if line] == [*REFUSED, *CLOSED, "level signals"]
    assert record.code == 0
    assert run.record is not None
    assert (run.record.sandbox, run.record.sandbox_reason) == ("signals", "")


async def test_without_a_sandbox_the_record_has_the_reason(stage: Stage) -> None:
    run = await started(stage, ("sh", "-c", "echo $RALPH_SANDBOX"), SandboxChoice(reason="no Landlock"))
    await run.ended()

    assert run.record is not None
    assert (run.record.sandbox, run.record.sandbox_reason) == ("none", "no Landlock")


@needs_landlock
async def test_the_shim_ends_what_is_inside(stage: Stage) -> None:
    run = await started(stage, ("sh", "-c", "setsid sleep 60 & sleep 60"), SIGNALS)
    run.kill_tree()
    record = await run.ended()

    assert record.signal == signal.SIGKILL
    assert record.survivors == ()


@needs_landlock
async def test_a_run_changes_files_only_where_it_may(stage: Stage) -> None:
    script = (
        "echo x > own; mkdir a b; echo x > a/y; mv a/y b/y; echo x > /dev/null; ls b;"
        f" cd {stage.runs}; echo x > x; mv ../home/own own; ln ../home/own own; ln -s own s; cd ../home;"
        " rm ../runs/r*/lock; truncate -s 0 ../runs/r*/intent.json; mknod disk b 8 0; ls"
    )
    sandbox = SandboxChoice("write", required=True, writable=(str(stage.home), "/dev/null", "/none"))
    run = await started(stage, ("sh", "-c", script), sandbox)
    await run.ended()

    assert output(run.directory).decode().split() == ["y", "a", "b", "own"]
    assert [path.name for path in stage.runs.iterdir()] == [run.directory.path.name]
    assert run.record is not None
    assert run.record.sandbox == "write"


@needs_landlock
async def test_a_run_whose_records_are_writable_does_not_start(stage: Stage) -> None:
    sandbox = SandboxChoice("write", required=True, writable=(str(stage.home), str(stage.runs)))

    with pytest.raises(CommandNotStartable, match="sandbox cannot be set up"):
        await started(stage, ("true",), sandbox)


@needs_landlock
async def test_an_agent_cannot_signal_the_loop_and_the_loop_ends_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shim.SANDBOX, "signals")
    script = f"kill -0 {os.getpid()} 2> {tmp_path}/said; echo $? > {tmp_path}/code; sleep 60 & sleep 60"
    command = AgentCommand("a", ("sh", "-c", script), tmp_path, dict(os.environ), has_stdin=False)
    agent = await agent_process.start(command)
    try:
        wait_for(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text(), what="the answer")
        assert (tmp_path / "code").read_text().strip() != "0"
        assert "not permitted" in (tmp_path / "said").read_text()
    finally:
        swept = agent.end(10)
        for pipe in (agent.pipes.stdout, agent.pipes.stderr):
            os.close(pipe)
        agent.close()
        shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 0)  # else orphans of later tests are ours
    assert not is_alive(agent.pid)
    assert not swept.survivors


@pytest.mark.parametrize(("code", "works"), [(0, True), (1, False)])
def test_sudo_is_asked_without_a_password(tmp_path: Path, code: int, works: bool) -> None:
    (tmp_path / "sudo").write_text(f"#!/bin/sh\n[ \"$*\" = '-kn true' ] && exit {code}\nexit 3\n")
    (tmp_path / "sudo").chmod(0o755)

    assert probe.has_sudo({"PATH": str(tmp_path)}) is works
    assert not probe.has_sudo({"PATH": str(tmp_path / "none")})
