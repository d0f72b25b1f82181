"""What TCP sockets have received, as the kernel tells it by inode."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from ralphd.process.activity import probe
from tests.helpers import wait_for


def pair(family: socket.AddressFamily, address: str) -> tuple[socket.socket, socket.socket]:
    """Two ends of a loopback connection."""
    with socket.create_server((address, 0), family=family) as listener:
        near = socket.create_connection(listener.getsockname()[:2])
        far, _ = listener.accept()
    return near, far


def inode(end: socket.socket) -> int:
    """By which number the kernel knows a socket."""
    return os.fstat(end.fileno()).st_ino


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["v4", "v6"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection over IPv4, then one over IPv6."""
    try:
        near, far = pair(*request.param)
    except OSError:
        pytest.skip("this machine has no such loopback address")
    with near, far:
        yield near, far


def test_the_bytes_that_a_socket_received_are_told_and_not_those_it_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    wanted = {inode(near), inode(far)}
    assert probe.received(wanted) == {inode(near): 0, inode(far): 0}

    near.sendall(bytes(5000))
    wait_for(lambda: (probe.received(wanted) or {}).get(inode(far)) == 5000, what="5000 bytes")

    assert probe.received(wanted) == {inode(near): 0, inode(far): 5000}


def test_only_the_sockets_that_were_asked_for_are_told() -> None:
    near, far = pair(socket.AF_INET, "127.0.0.1")
    with near, far:
        assert probe.received({inode(far)}) == {inode(far): 0}
        assert probe.received(set()) == {}


def test_a_socket_of_another_kind_is_not_among_them() -> None:
    near, far = socket.socketpair()
    with near, far, socket.create_server(("127.0.0.1", 0)) as listener:
        assert probe.received({inode(near), inode(listener)}) == {}


def test_the_sockets_of_a_process_are_found_by_its_descriptors() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert {inode(near), inode(far)} <= probe.inodes([os.getpid()])


def test_processes_that_are_gone_hold_no_sockets() -> None:
    assert probe.inodes([1 << 30]) == set()


def test_a_kernel_that_does_not_answer_in_time_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIME_LIMIT_S", -1.0)

    assert probe.received({1}) is None


def test_a_machine_with_more_sockets_than_are_looked_through_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = pair(socket.AF_INET, "127.0.0.1")
    with near, far:
        monkeypatch.setattr(probe, "MOST_SOCKETS", 0)
        assert (probe.received({inode(far)}) or {}) == {}


def test_messages_that_are_cut_short_or_make_no_sense_are_passed_over() -> None:
    whole = _message(20, bytes(72))

    assert list(probe._split(whole[:10])) == []
    assert list(probe._split(struct.pack("=IHHII", 4, 20, 0, 0, 0))) == []
    assert [kind for kind, _ in probe._split(whole + _message(3, b""))] == [20, 3]
    assert probe._received_bytes(bytes(72) + struct.pack("=HH", 0, 2) * 3) == 0
    assert probe._received_bytes(bytes(10)) == 0


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_a_hundred_connections_are_asked_about_in_a_moment() -> None:
    pairs = [pair(socket.AF_INET, "127.0.0.1") for _ in range(50)]
    ends = [end for both in pairs for end in both]
    began = time.thread_time()
    found = probe.received({inode(end) for end in ends})
    took_s = time.thread_time() - began
    for end in ends:
        with closing(end):
            pass

    assert found is not None and len(found) == 100
    assert took_s < 0.2
