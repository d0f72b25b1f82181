"""Streams: slow and dead followers cost nothing, and all end at once with the daemon."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from ralphd.api.streams import StreamReply, Turnstile
from tests.api.serving import Served, Whole, serve
from tests.helpers import eventually

GET = b"GET / HTTP/1.1\r\nHost: ralphd\r\n\r\n"
PIECE = b"x" * 16384

BEFORE_THE_GRACE_S = 2.5
"""At once, on a busy machine too: the server itself would wait three seconds."""


@dataclass
class Source:
    """An application that streams: endlessly at ``/``, nothing at all at ``/silent``."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    turnstile: Turnstile = field(default_factory=Turnstile)
    send_s: float = 30.0
    made: int = 0
    closed: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = self.silent() if scope["path"] == "/silent" else self.endless()
        stream = StreamReply(
            pieces,
            media_type="text/plain",
            stopping=self.stopping,
            turnstile=self.turnstile,
            send_s=self.send_s,
        )
        await stream(scope, receive, send)

    async def endless(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                self.made += 1
                yield PIECE
                await asyncio.sleep(0)
        finally:
            self.closed += 1

    async def silent(self) -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
            yield b"never"
        finally:
            self.closed += 1


@contextlib.asynccontextmanager
async def streaming(source: Source, directory: Path) -> AsyncIterator[Served]:
    async with serve(source, directory / "s") as served:
        yield served
        source.stopping.set()


async def test_a_follower_that_does_not_read_is_cut_and_costs_little_meanwhile(tmp_path: Path) -> None:
    source = Source(send_s=0.2)
    async with streaming(source, tmp_path) as served:
        with served.connect() as stuck:
            stuck.sendall(GET)
            await eventually(lambda: source.made > 0)
            await eventually(lambda: source.closed == 1)
            await eventually(lambda: not served.server.server_state.connections)

    assert source.made * len(PIECE) < 2 << 20


async def test_a_follower_that_reads_is_not_delayed_by_fifty_that_do_not(tmp_path: Path) -> None:
    source = Source()
    async with streaming(source, tmp_path) as served:
        stuck = [served.connect() for _ in range(50)]
        for one in stuck:
            one.sendall(GET)
        begun = time.monotonic()
        received = 0
        async with served.client.stream("GET", "/") as reply:
            async for piece in reply.aiter_raw():
                received += len(piece)
                if received > 5 << 20:
                    break
        assert time.monotonic() - begun < 3
        for one in stuck:
            one.close()
        await eventually(lambda: source.closed == 51)


@pytest.mark.parametrize("path", ["/", "/silent"])
async def test_what_makes_the_pieces_is_closed_when_the_client_leaves(tmp_path: Path, path: str) -> None:
    source = Source()
    async with streaming(source, tmp_path) as served:
        async with served.client.stream("GET", path):
            pass
        await eventually(lambda: source.closed == 1)


@pytest.mark.parametrize("path", ["/", "/silent"])
async def test_a_stream_that_does_not_end_by_itself_is_ended_with_the_daemon(
    tmp_path: Path, path: str
) -> None:
    source = Source()
    async with streaming(source, tmp_path) as served, served.client.stream("GET", path) as reply:
        assert await shut_down(source.stopping, served, reply) < BEFORE_THE_GRACE_S

    assert source.closed == 1


async def test_a_stuck_follower_does_not_hold_up_the_end_of_the_daemon(tmp_path: Path) -> None:
    source = Source()
    async with streaming(source, tmp_path) as served:
        with served.connect() as stuck:
            stuck.sendall(GET)
            await eventually(lambda: source.made > 10)
            begun = time.monotonic()
            source.stopping.set()
            served.server.ask_to_exit()
            await served.serving
            assert time.monotonic() - begun < BEFORE_THE_GRACE_S


@pytest.mark.parametrize(
    "url", ["/v1/events", "/v1/ralphs/alice/logs?follow=1", "/v1/ralphs/alice/logs?follow=1&format=json"]
)
async def test_open_streams_of_the_api_end_cleanly_at_once_at_shutdown(api: Whole, url: str) -> None:
    async with api.client.stream("GET", url) as reply:
        assert reply.status_code == 200
        assert await shut_down(api.host.stopping, api.served, reply) < BEFORE_THE_GRACE_S


async def test_a_half_sent_request_holds_up_the_end_of_the_daemon_for_its_grace_only(api: Whole) -> None:
    with api.served.connect() as half:
        half.sendall(b"GET /v1/sta")
        begun = time.monotonic()
        api.served.server.ask_to_exit()
        await api.served.serving

    assert time.monotonic() - begun < BEFORE_THE_GRACE_S


async def shut_down(stopping: asyncio.Event, served: Served, reply: httpx.Response) -> float:
    """Seconds from the order to the end of both the stream, which has to end well, and the server."""
    begun = time.monotonic()
    stopping.set()
    served.server.ask_to_exit()
    async for _ in reply.aiter_raw():
        pass
    await served.serving
    return time.monotonic() - begun


async def test_more_streams_than_the_bound_are_told_to_try_later(api: Whole) -> None:
    api.app.state.turnstile = Turnstile(2)

    async with api.client.stream("GET", "/v1/events"), api.client.stream("GET", "/v1/events"):
        third = await api.client.get("/v1/events")
        assert (third.status_code, third.json()["type"]) == (503, "urn:ralphd:problem:busy")
        assert (await api.client.get("/v1/status")).status_code == 200

    async def is_let_in() -> bool:
        async with api.client.stream("GET", "/v1/events") as reply:
            return reply.status_code == 200

    for _ in range(100):
        if await is_let_in():
            return
    raise AssertionError("a place was not given back")
