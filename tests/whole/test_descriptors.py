"""A daemon without a free descriptor: clients wait, ralphs are supervised, and nothing is lost."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

NONE_LEFT = "no descriptor is left for another connection; it is accepted when one is free"


@contextmanager
def none_left(daemon: Daemon) -> Iterator[None]:
    """Have the daemon open no descriptor any more; those that it has stay."""
    before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)


def asking(daemon: Daemon) -> socket.socket:
    """A client whose request has not been answered yet."""
    directory = os.open(daemon.state, os.O_RDONLY)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    try:
        client.connect(f"/proc/self/fd/{directory}/ralphd.sock")
    finally:
        os.close(directory)
    client.sendall(b"GET /v1/status HTTP/1.1\r\nhost: ralphd\r\nconnection: close\r\n\r\n")
    return client


def test_clients_wait_and_ralphs_are_supervised_without_a_descriptor(daemon: Daemon) -> None:
    daemon.start()
    ends, stays = Witness.of(daemon, "ends"), Witness.of(daemon, "stays")
    ends.register()
    stays.register()
    shim, pid = Path("/proc", str(daemon.run_record("ends")["shim_pid"])), stays.started(1)

    with none_left(daemon):
        client = asking(daemon)
        wait_for(lambda: NONE_LEFT in daemon.words(), what="the warning")
        ends.end(1)
        wait_for(lambda: not shim.exists(), what="the daemon has seen the end")  # it reaps its shims
        assert is_alive(pid)

    with closing(client):
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    ends.started(2)
    assert [(each["code"], each["outcome"]) for each in ends.ended(1)] == [(1, "failed")]
    assert daemon.words().count(NONE_LEFT) == 1
    assert stays.starts() == [(pid, stays.starts()[0][1])]
    ends.end(0)
    daemon.becomes("ends", "done")


def test_a_run_that_has_ended_keeps_no_descriptor(daemon: Daemon) -> None:
    daemon.start()
    ralph = Witness.of(daemon)
    ralph.register(healthy_after_seconds=0)
    for count in range(1, 6):
        ralph.started(count)
        ralph.end(1)
        ralph.ended(count)
    ralph.started(6)

    pinned = [pid for pid in pids_of_pidfds(daemon.pid) if pid != daemon.run_record("demo")["shim_pid"]]
    assert pinned == []


def pids_of_pidfds(pid: int) -> list[int]:
    """The processes that a process has descriptors of; -1 stands for one that has ended."""
    texts = list[str]()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            texts.append(path.read_text())
    return [int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Pid:")]
