"""Who may call: our own user and root, by the kernel's word."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from ralphd.api.server import most_connections
from ralphd.process.peer_run import Peer
from tests.api.serving import Whole, serve

STRANGER = """
import os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.settimeout(5)
try:
    client.connect("ralphd.sock")
    client.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: ralphd\\r\\n\\r\\n")
    print(client.recv(100))
except OSError as refusal:
    print(type(refusal).__name__)
"""


async def stranger_in(directory: Path) -> str:
    """What a process of another user gets to read from the socket in ``directory``."""

    def run() -> str:
        argv = [sys.executable, "-I", "-S", "-c", STRANGER]
        return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=True).stdout.strip()

    return await asyncio.to_thread(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_a_foreign_user_is_cut_off_even_where_the_files_let_it_through(api: Whole) -> None:
    assert await stranger_in(api.served.path.parent) == "PermissionError"

    api.served.path.parent.chmod(0o711)
    api.served.path.chmod(0o666)

    assert await stranger_in(api.served.path.parent) in {"b''", "ConnectionResetError", "BrokenPipeError"}
    assert (await api.client.get("/v1/health")).status_code == 200
    assert api.host.asked == []


async def test_a_request_knows_who_sent_it(tmp_path: Path) -> None:
    async def who(scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["state"]["peer"]
        body = json.dumps([peer.pid, peer.uid, peer.gid]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with serve(who, tmp_path / "s") as served:
        reply = await served.client.get("/")

    assert reply.json() == [os.getpid(), os.geteuid(), os.getegid()]


def test_only_our_own_user_and_root_are_welcome() -> None:
    us = os.geteuid()

    assert Peer(1, us, 0).is_welcome
    assert Peer(1, 0, 0).is_welcome
    assert not Peer(1, us + 1, 0).is_welcome
    assert not Peer(1, 65534, 65534).is_welcome or us == 65534


async def test_more_connections_than_the_bound_are_cut_and_the_others_live(
    api: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphd.api.server.most_connections", lambda descriptors: 3)
    assert (await api.client.get("/v1/health")).status_code == 200

    more = [api.served.connect() for _ in range(4)]
    cut = await asyncio.to_thread(lambda: [one.recv(1) for one in more[2:]])

    assert cut == [b"", b""]
    assert (await api.client.get("/v1/health")).status_code == 200
    for one in more:
        one.close()


async def test_the_last_connections_are_kept_for_processes_of_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_within = True

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr("ralphd.api.server.most_connections", lambda descriptors: 9)
    async with serve(answer, tmp_path / "s", is_within=lambda peer: is_within) as served:
        first = served.connect()
        second = served.connect()
        assert await asyncio.to_thread(second.recv, 1) == b""
        is_within = False
        assert (await served.client.get("/")).status_code == 204
        first.close()
        second.close()


@pytest.mark.parametrize(("descriptors", "most"), [(64, 16), (256, 74), (1024, 330), (4096, 512)])
def test_connections_are_bounded_by_the_limit_of_descriptors(descriptors: int, most: int) -> None:
    assert most_connections(descriptors) == most
