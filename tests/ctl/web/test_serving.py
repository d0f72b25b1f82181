"""Connections that are slow, TLS by the page's own certificate, and codes that run out."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from ralphctl.web import guard, listening, pairing
from ralphctl.web.devices import Devices
from ralphctl.web.guard import Guard, Site
from ralphctl.web.pairing import PairingDesk
from ralphd.errors import Forbidden, NotFound


@asynccontextmanager
async def served(tmp_path: Path, serve: Any, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The guard before ``serve``, on a port of loopback."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = int(bound.getsockname()[1])
        site = Site(f"127.0.0.1:{port}", ("page.example",), "127.0.0.1")
        server = await listening.listen(Guard(site, Devices(tmp_path), serve), bound, context)
        try:
            yield port
        finally:
            server.close()
            await server.wait_closed()


async def hello(_: object) -> Response:
    return Response("hello")


async def reply(port: int, data: bytes, **named: Any) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **named)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: page.example\r\nX: "])
async def test_a_slow_head_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(listening, "HEAD_S", 0.1)
    monkeypatch.setattr(listening, "_LOOK_S", 0.02)
    async with served(tmp_path, hello) as port:
        with suppress(ConnectionResetError):
            assert await reply(port, sent) == b""


async def test_a_slow_body_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.1)
    head = "POST /act HTTP/1.1\r\nHost: page.example\r\nOrigin: https://page.example\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    async with served(tmp_path, hello) as port:
        assert (await reply(port, head.encode())).startswith(b"HTTP/1.1 408")


async def test_a_reader_that_reads_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "READER_S", 0.2)
    monkeypatch.setattr(listening, "_LOOK_S", 0.02)
    cut = asyncio.Event()
    lost = listening.WebProtocol.connection_lost

    def noted(self: listening.WebProtocol, exc: Exception | None) -> None:
        lost(self, exc)
        cut.set()

    async def much(_: object) -> Response:
        return Response(b"x" * 20_000_000)

    monkeypatch.setattr(listening.WebProtocol, "connection_lost", noted)
    async with served(tmp_path, much) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: page.example\r\n\r\n")
            async with asyncio.timeout(10):
                await cut.wait()


async def test_devices_trust_the_pages_own_ca(tmp_path: Path) -> None:
    site = Site("eth0:8443", ("page.example",), "192.0.2.7")
    context = listening.tls(site, tmp_path)
    first = {name: (tmp_path / name).read_bytes() for name in ("ca.pem", "web.pem", "web.key")}
    assert not list(tmp_path.glob("ca*key*")) and all(
        (tmp_path / name).stat().st_mode & 0o777 == 0o600 for name in first
    )
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    async with served(tmp_path, hello, context) as port:
        request = b"GET / HTTP/1.1\r\nHost: page.example\r\nConnection: close\r\n\r\n"
        for name in ("page.example", "192.0.2.7"):
            got = await reply(port, request, ssl=trusting, server_hostname=name)
            assert got.startswith(b"HTTP/1.1 200")
        with pytest.raises(ssl.SSLCertVerificationError):
            await reply(port, request, ssl=trusting, server_hostname="bank.example")
        with pytest.raises(ssl.SSLCertVerificationError):
            await reply(port, request, ssl=ssl.create_default_context(), server_hostname="page.example")
    listening.tls(site, tmp_path)
    assert first == {name: (tmp_path / name).read_bytes() for name in first}
    listening.tls(Site("eth0:8443", ("other.example",), "192.0.2.7"), tmp_path)
    assert first["ca.pem"] != (tmp_path / "ca.pem").read_bytes()


class Terminal:
    """A terminal at the desk, over a real socket of this process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def hears(self) -> dict[str, Any]:
        return dict(json.loads(await self._reader.readline()))


@asynccontextmanager
async def terminal(desk: PairingDesk, path: Path) -> AsyncIterator[Terminal]:
    server = await asyncio.start_unix_server(desk.serve_terminal, path)
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(b'{"do": "pair", "role": "look"}\n')
        yield Terminal(reader, writer)
    finally:
        writer.close()
        server.close()
        await server.wait_closed()


async def test_a_code_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "CODE_S", 0.05)
    monkeypatch.setattr(pairing, "run_of", lambda *about: None)  # these tests may run within a run
    desk = PairingDesk(Site("unix", ()), Devices(tmp_path), dict)
    async with terminal(desk, tmp_path / "s") as at:
        code = (await at.hears())["code"]
        assert "nobody has used" in (await at.hears())["detail"]
        with pytest.raises(Forbidden):
            desk.ask(code, "late", None)
    assert Devices(tmp_path).all() == ()


async def test_an_answer_that_never_comes_is_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "run_of", lambda *about: None)
    desk = PairingDesk(Site("unix", ()), Devices(tmp_path), dict)
    async with terminal(desk, tmp_path / "s") as at:
        code = (await at.hears())["code"]
        monkeypatch.setattr(pairing, "CODE_S", 0.05)
        monkeypatch.setattr(pairing, "POLL_S", 0.01)
        ticket, number = desk.ask(f" {code[:4]}-{code[4:].lower()}\n", "<b>Phone\x1b[31m", None)
        assert await at.hears() == {"asks": "<b>Phone", "number": number}
        assert "is not paired" in (await at.hears())["detail"]
        with pytest.raises(Forbidden, match="did not let"):
            await desk.outcome(ticket)
        with pytest.raises(NotFound):
            await desk.outcome(ticket)
    assert Devices(tmp_path).all() == ()


async def test_one_terminal_pairs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "run_of", lambda *about: None)
    desk = PairingDesk(Site("unix", ()), Devices(tmp_path), dict)
    async with terminal(desk, tmp_path / "a") as first:
        code = (await first.hears())["code"]
        async with terminal(desk, tmp_path / "b") as second:
            assert "another terminal" in (await second.hears())["detail"]
        ticket, _ = desk.ask(code, "Phone", None)
        await first.hears()
        first.writer.write(b'{"yes": true}\n')
        assert await desk.outcome(ticket) is not None
