"""The shim dies at each of its last system calls: the run is lost or has its true end; one run follows."""

import os
import random
import shutil
import subprocess

import pytest

from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

CALLS = {"wait4": 2, "write": 3, "fsync": 3, "openat": 12, "rename": 1, "close": 6, "pidfd_open": 1}
"""System calls of a shim after its command's end, and how many of each are died at."""


def chosen() -> list[tuple[str, int]]:
    every = [(call, number) for call, most in CALLS.items() for number in range(1, most + 1)]
    if os.environ.get("MATRIX") == "1":
        return every
    return random.Random(int(os.environ.get("SEED", "1"))).sample(every, 1)


@pytest.mark.parametrize(("call", "number"), chosen())
def test_a_shim_that_dies_there_leaves_one_end_and_one_run(
    daemon: Daemon, witness: Witness, call: str, number: int
) -> None:
    if (strace := shutil.which("strace")) is None:
        pytest.skip("no strace: the shim cannot be killed at a system call")
    daemon.start()
    first = witness.register(retry_backoff_seconds=0.05)["ralph_pid"]
    shim = daemon.run_record("demo")["shim_pid"]
    inject = f"inject={call}:signal=SIGKILL:when={number}"
    tracer = subprocess.Popen(
        [strace, "-q", "-o", os.devnull, "-p", str(shim), "-e", f"trace={call}", "-e", inject],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _is_traced(shim), what="a traced shim")
        witness.end(3)
        second = witness.started(2)
        wait_for(lambda: not is_alive(shim), what="the end of the shim")
    finally:
        tracer.kill()
        tracer.wait()
    assert not is_alive(first)
    assert daemon.becomes("demo", "running")["ralph_pid"] == second
    [end] = daemon.history("demo")
    assert (end["code"], end["outcome"]) in ((3, "failed"), (None, "lost"))
    assert len(daemon.events("ralph.exited")) == 1
    witness.end(0)
    daemon.becomes("demo", "done")
    assert len(witness.starts()) == 2


def _is_traced(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("TracerPid")) > 0
