"""Which run a process belongs to (A3), by each sign alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ralphd.core.supervision.door import UNKNOWN_RUN
from ralphd.core.supervision.model import RunId
from ralphd.process import shim
from ralphd.process.peer_run import run_of
from ralphd.process.tree import start_ticks, writable_cgroup
from tests.helpers import wait_for

RUN = RunId("r000007-0123abcd")
UID = os.geteuid()


@contextmanager
def process(*arguments: str, env: dict[str, str] | None = None) -> Iterator[int]:
    """A process that sleeps."""
    argv = arguments or ("sleep", "60")
    started = subprocess.Popen(argv, env=env or {"PATH": os.environ["PATH"]}, start_new_session=True)
    try:
        yield started.pid
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def is_ours(run_id: RunId) -> bool:
    return run_id == RUN


def of(pid: int, uid: int = UID) -> RunId | None:
    return run_of(pid, uid, start_ticks(pid), is_ours)


def test_a_process_without_a_sign_belongs_to_no_run() -> None:
    with process() as pid:
        assert of(pid) is None
    assert run_of(0, UID, None, is_ours) is None


def test_a_cookie_tells_and_that_of_another_daemon_does_not() -> None:
    path = {"PATH": os.environ["PATH"]}
    with (
        process(env=path | {"RALPH_RUN_ID": RUN}) as pid,
        process(env=path | {"RALPH_RUN_ID": "r000008-0123abcd"}) as other,
    ):
        wait_for(lambda: of(pid) == RUN)  # within execve a process has no environment
        assert of(other) is None


def test_descent_from_a_shim_tells_though_the_environment_is_empty(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; 'import shim'\n"
        "print(subprocess.Popen(['sleep', '60'], env={}).pid, flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "runs" / RUN)]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    try:
        below = int(started.stdout.readline())
        assert of(below) == RUN
        assert of(started.pid) is None  # the shim itself sends nothing
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


@pytest.mark.skipif(writable_cgroup() is None, reason="no control group can be made here")
def test_a_control_group_tells() -> None:
    group = writable_cgroup()
    assert group is not None
    leaf = group / f"ralphd-{RUN}"
    leaf.mkdir()
    try:
        with process() as pid:
            (leaf / "cgroup.procs").write_text(str(pid))
            assert of(pid) == RUN
    finally:
        shim.remove_cgroup(str(leaf))


def test_a_process_that_is_gone_or_replaced_counts_as_within() -> None:
    with process() as pid:
        ticks = start_ticks(pid)
        assert ticks is not None
        assert run_of(pid, UID, ticks + 1, is_ours) == UNKNOWN_RUN
        assert run_of(pid, UID, None, is_ours) == UNKNOWN_RUN
    assert run_of(pid, UID, ticks, is_ours) == UNKNOWN_RUN


def test_an_unreadable_environment_counts_as_within_except_that_of_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = shim.read_bytes

    def refuse(path: str) -> bytes:
        if path.endswith("/environ"):
            raise PermissionError
        return read(path)

    monkeypatch.setattr(shim, "read_bytes", refuse)
    with process() as pid:
        assert of(pid, 1000) == UNKNOWN_RUN
        assert of(pid, 0) is None
