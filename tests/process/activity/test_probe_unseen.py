"""What a look cannot see is not said to be idle; what another network namespace receives is seen (H2)."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from ralphd.core.stall_detector import Changes, Window
from ralphd.process.activity.probe import Observer, RunTree
from tests.players import player
from tests.process.activity.watched import look_until, observer_of
from tests.process.runs import Stage, said

NAMESPACE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "/bin/sh",
    "-c",
    'ip link set lo up; exec "$@"',
    "-",
)


@cache
def has_namespaces() -> bool:
    """Whether we may make a network namespace here, and set up its loopback device."""
    found = shutil.which("unshare") is not None and shutil.which("ip") is not None
    made = ("unshare", "--user", "--map-root-user", "--net", "ip", "link", "set", "lo", "up")
    return found and subprocess.run(made, capture_output=True, timeout=10, check=False).returncode == 0


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened in this process meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class AFileAtEachLook:
    """A working directory in which a file changes from look to look."""

    def changes(self) -> Changes:
        """One."""
        return Changes(files=1, file="notes.txt")

    def close(self) -> None:
        """Nothing is held."""


async def test_who_cannot_be_seen_for_want_of_descriptors_is_not_said_to_be_idle(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("watch_mover", 60, 0.01, "begun"), allow_cgroup=allow_cgroup)
    await said(run.directory, b"begun")
    observer = observer_of(run)
    observer.look()
    with no_descriptor_left():
        blind = [observer.look() for _ in range(3)]
        unseen = observer.processes()
    begun = observer.look()

    assert blind == [Window()] * 3
    assert unseen == ()
    assert (begun.elapsed_s, begun.processes) == (0.0, 1)
    assert (await look_until(observer, "io_bytes")).elapsed_s > 0


async def test_files_that_change_while_no_process_can_be_seen_are_told_later(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    assert run.record is not None
    observer = Observer(RunTree(run.record), AFileAtEachLook())
    observer.look()
    with no_descriptor_left():
        observer.look()
    observer.look()

    assert observer.look().changed_files == 4


@pytest.mark.skipif(not has_namespaces(), reason="no network namespace can be made here")
async def test_what_is_received_in_another_network_namespace_is_told(stage: Stage) -> None:
    run = await stage.spawn((*NAMESPACE, *player("watch_receiver", 60, 0.02, "begun")))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    await look_until(observer, "received_bytes")
    window = await look_until(observer, "received_bytes")

    assert (window.received_bytes or 0) > 0
    assert window.io_bytes == 0


@pytest.mark.skipif(not has_namespaces(), reason="no network namespace can be made here")
async def test_nothing_is_received_in_a_network_namespace_that_rests(stage: Stage) -> None:
    run = await stage.spawn((*NAMESPACE, *player("watch_timer", 60, 0.1, "begun")))
    await said(run.directory, b"begun")
    observer = observer_of(run)
    observer.look()
    assert run.record is not None
    ours, theirs = (os.stat(f"/proc/{pid}/ns/net").st_ino for pid in ("self", run.record.pid))

    assert ours != theirs
    assert observer.look().received_bytes == 0
