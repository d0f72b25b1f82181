"""The client of the daemon's HTTP: what it reads of a reply, whole or in parts, and what it refuses."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.unix_http import BadReply, CutOff, HttpReply, UnixConnection

HEAD = b"HTTP/1.1 200 OK\r\n"


def reply_of(data: bytes) -> HttpReply:
    return HttpReply(io.BufferedReader(io.BytesIO(data)))  # as from a socket


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x;why=not\r\n%s\r\n" % (len(part), part) for part in parts)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


@contextmanager
def answering(path: Path, data: bytes) -> Iterator[list[bytes]]:
    """A server that reads one request, answers with these bytes, and hangs up."""
    heard = list[bytes]()

    def serve() -> None:
        link, _ = listener.accept()
        with link:
            heard.append(link.recv(65536))
            link.sendall(data)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        thread = threading.Thread(target=serve)
        thread.start()
        yield heard
        thread.join(10)


def test_a_request_is_sent_and_its_reply_read(tmp_path: Path) -> None:
    with (
        answering(tmp_path / "s", HEAD + b"Content-Length: 2\r\n\r\n{}") as heard,
        closing(UnixConnection(str(tmp_path / "s"), 5.0)) as connection,
    ):
        connection.request("POST", "/v1/ralphs", b"[1]", {"Content-Type": "application/json"})
        with connection.getresponse() as reply:
            assert (reply.status, reply.read()) == (200, b"{}")
    lines = heard[0].split(b"\r\n")
    assert lines[0] == b"POST /v1/ralphs HTTP/1.1"
    assert {b"Host: ralphd", b"Content-Type: application/json", b"Content-Length: 3"} <= set(lines)
    assert lines[-1] == b"[1]"


@pytest.mark.parametrize("text", ["a\r\nX: y", "a\nb", "a\0b"])
def test_no_line_is_smuggled_into_a_head(tmp_path: Path, text: str) -> None:
    with closing(UnixConnection(str(tmp_path / "s"), 5.0)) as connection:
        for target, headers in ((f"/{text}", {}), ("/", {"X": text})):
            with pytest.raises(ValueError, match="not for a head"):
                connection.request("GET", target, None, headers)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", CutOff),
        (b"HTTP/1.1 200 OK", CutOff),
        (HEAD + b"Content-Length: 5\r\n", CutOff),
        (b"SSH-2.0-OpenSSH_9.2\r\n", BadReply),
        (b"HTTP/1.1 nothing\r\n\r\n", BadReply),
        (b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n", BadReply),
        (HEAD + b"Content-Length: -1\r\n\r\n", BadReply),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", BadReply),
        (HEAD + b"Content-Length: 5\r\n\r\n1234", CutOff),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n1234", CutOff),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", BadReply),
    ],
)
def test_what_is_no_whole_reply_is_told(data: bytes, fault: type[Exception]) -> None:
    with pytest.raises(fault) as told:
        reply_of(data).read()
    assert type(told.value) is fault


def test_a_body_ends_where_its_length_says() -> None:
    reply = reply_of(HEAD + b"Content-Length: 3\r\n\r\n123456")
    assert [reply.read1(2), reply.read1(2), reply.read1(2), reply.read1(2)] == [b"12", b"3", b"", b""]


def test_a_limit_ends_the_reading_of_a_long_body() -> None:
    assert len(reply_of(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 1_000_000).read(100_000)) < 200_000


@given(parts=st.lists(st.binary(min_size=1, max_size=300), max_size=8), most=st.integers(1, 400))
def test_chunks_of_any_size_are_the_whole_body(parts: list[bytes], most: int) -> None:
    reply = reply_of(chunked(*parts))
    assert b"".join(iter(lambda: reply.read1(most), b"")) == b"".join(parts) + reply.read()


@given(data=st.binary(max_size=400), head=st.sampled_from([b"", HEAD, chunked(b"abc")[:-5]]))
def test_no_bytes_raise_anything_else(data: bytes, head: bytes) -> None:
    try:
        reply_of(head + data).read()
    except BadReply:
        return
