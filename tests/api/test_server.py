"""The socket: private from birth, stale ones replaced, living ones left alone, made anew when it is gone."""

import asyncio
import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from ralphd.api.server import Listener
from ralphd.errors import DaemonBusy, SocketUnusable
from tests.api.serving import Whole, serve, serve_host, short_address
from tests.helpers import eventually


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    former = os.umask(mask)
    try:
        yield
    finally:
        os.umask(former)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_the_socket_is_private_under_any_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask), contextlib.closing(Listener.bind(tmp_path / "s")) as listener:
        assert stat.S_IMODE(listener.path.lstat().st_mode) == 0o600
        assert os.umask(mask) == mask


def test_the_socket_is_private_from_its_first_moment(tmp_path: Path) -> None:
    path, seen, over = tmp_path / "s", set[int](), threading.Event()

    def look() -> None:
        while not over.is_set():
            with contextlib.suppress(FileNotFoundError):
                seen.add(stat.S_IMODE(path.lstat().st_mode))

    looking = threading.Thread(target=look)
    with umask(0):
        looking.start()
        for _ in range(200):
            Listener.bind(path).close()
        over.set()
        looking.join()

    assert seen <= {0o600}


def test_a_missing_directory_is_made_private(tmp_path: Path) -> None:
    with umask(0), contextlib.closing(Listener.bind(tmp_path / "state" / "s")) as listener:
        assert stat.S_IMODE(listener.path.parent.lstat().st_mode) == 0o700


def test_a_path_that_does_not_fit_an_address_works(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120) / "ralphd.sock"

    with contextlib.closing(Listener.bind(path)), short_address(path) as address:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
        with pytest.raises(DaemonBusy):
            Listener.bind(path)

    assert not path.exists()


def test_a_name_that_fits_no_address_is_told(tmp_path: Path) -> None:
    with pytest.raises(SocketUnusable, match="cannot listen at"):
        Listener.bind(tmp_path / ("s" * 120))


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead, short_address(path) as address:
        dead.bind(address)

    with contextlib.closing(Listener.bind(path)) as listener:
        assert listener.is_reachable()


def test_a_socket_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(Listener.bind(tmp_path / "s")) as first:
        with pytest.raises(DaemonBusy, match="somebody listens"):
            Listener.bind(first.path)
        assert first.is_reachable()


@pytest.mark.parametrize("kind", ["file", "symlink", "directory"])
def test_what_is_no_socket_is_not_removed(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "s", tmp_path / "precious"
    other.write_text("precious")
    {"file": path.touch, "symlink": lambda: path.symlink_to(other), "directory": path.mkdir}[kind]()

    with pytest.raises(SocketUnusable, match="cannot listen"):
        Listener.bind(path)

    assert os.path.lexists(path)
    assert other.read_text() == "precious"


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)

    with pytest.raises(SocketUnusable, match="cannot be used") as told:
        Listener.bind(directory / "s")

    assert "0777" in told.value.why
    assert list(directory.iterdir()) == []


def test_a_directory_that_is_a_symbolic_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()

    for name in ("link", "file"):
        with pytest.raises(SocketUnusable):
            Listener.bind(tmp_path / name / "s")

    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, 65534, 65534)

    with pytest.raises(SocketUnusable) as told:
        Listener.bind(directory / "s")

    assert "65534" in told.value.why


def test_closing_removes_our_own_file_and_no_other(tmp_path: Path) -> None:
    first = Listener.bind(tmp_path / "s")
    first.path.unlink()
    second = Listener.bind(tmp_path / "s")

    first.close()
    assert second.is_reachable()
    second.close()
    assert not second.path.exists()


async def test_a_socket_whose_file_is_gone_is_made_anew_and_open_connections_go_on(api: Whole) -> None:
    keeping = asyncio.create_task(api.served.server.keep_reachable(lambda problem: None, every_s=0.01))
    assert (await api.client.get("/v1/ready")).status_code == 200  # its connection stays open

    for _ in range(2):
        api.served.path.unlink()
        await eventually(api.served.path.exists)
        fresh = await api.served.raw(b"GET /v1/ready HTTP/1.1\r\nHost: ralphd\r\nConnection: close\r\n\r\n")
        assert fresh.startswith(b"HTTP/1.1 200")
        assert (await api.client.get("/v1/ready")).status_code == 200
        assert stat.S_IMODE(api.served.path.lstat().st_mode) == 0o600

    keeping.cancel()


async def test_a_socket_that_cannot_be_made_anew_yet_is_made_once_it_can(tmp_path: Path) -> None:
    problems: list[str | None] = []
    async with serve_host(tmp_path) as api:
        path = api.served.path
        work = api.served.server.keep_reachable(problems.append, every_s=0.01)
        keeping = asyncio.create_task(work)
        path.unlink()
        path.mkdir()
        await eventually(lambda: any(problems))
        assert not keeping.done()

        path.rmdir()
        await eventually(path.is_socket)
        await eventually(lambda: problems[-1] is None)
        keeping.cancel()

    assert not path.exists()


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_reply_that_lasts_longer_than_the_end_is_cut_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_begun: bool
) -> None:
    under_way = asyncio.Event()

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        under_way.set()
        await asyncio.Event().wait()

    async with serve(endless, tmp_path / "s") as served:
        served.server.config.timeout_graceful_shutdown = 0
        reading = asyncio.create_task(served.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        await under_way.wait()
        served.server.ask_to_exit()
        await served.serving
        reply = await reading

    assert reply.startswith(b"HTTP/1.1 200") == has_begun
    assert not [record for record in caplog.records if record.exc_info or "ASGI" in record.message]
