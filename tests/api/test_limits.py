"""What is refused before any route sees it, asked with raw bytes as an attacker would."""

import asyncio
import http.client
import json
import shutil
import subprocess

import pytest

from ralphd.api import limits, server
from ralphd.wire import MAX_BODY_BYTES
from tests.api.serving import Served, Whole

HEAD = b"POST /v1/ralphs HTTP/1.1\r\nHost: ralphd\r\nContent-Type: application/json\r\n"


def status_and_type(reply: bytes) -> tuple[int, str]:
    """The status of a raw reply and the slug of its problem."""
    head, _, body = reply.partition(b"\r\n\r\n")
    document, _ = json.JSONDecoder().raw_decode(body[body.index(b"{") :].decode())
    return int(head.split()[1]), document["type"].removeprefix("urn:ralphd:problem:")


def chunked(size: int) -> bytes:
    part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + part * (size // 0x10000) + b"0\r\n\r\n"


async def test_a_chunked_body_is_counted_while_it_comes_in(api: Whole) -> None:
    reply = await api.served.raw(chunked(MAX_BODY_BYTES + 0x10000))

    assert status_and_type(reply) == (413, "too-large")
    assert api.host.asked == []


async def test_a_chunked_body_without_an_end_is_cut(api: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINGER_S", 0.1)

    reply = await api.served.raw(chunked(3 * MAX_BODY_BYTES)[:-5])

    assert status_and_type(reply) == (413, "too-large")


async def test_a_body_of_just_the_limit_is_read(api: Whole) -> None:
    body = json.dumps({"directory": "/tmp/bob", "flags": {"a": ""}}).encode()
    body = body.replace(b'""', b'"' + b"x" * (MAX_BODY_BYTES - len(body)) + b'"')

    reply = await api.client.post("/v1/ralphs", content=body, headers={"content-type": "application/json"})

    assert len(body) == MAX_BODY_BYTES
    assert reply.status_code == 201


async def test_a_client_that_sends_a_large_body_in_full_still_reads_why_it_is_refused(api: Whole) -> None:
    def ask() -> int:
        connection = http.client.HTTPConnection("ralphd")
        connection.sock = api.served.connect()
        with connection.sock:
            body = b" " * (4 * MAX_BODY_BYTES)
            connection.request("POST", "/v1/ralphs", body, {"Content-Type": "application/json"})
            return connection.getresponse().status

    assert await asyncio.to_thread(ask) == 413


async def test_a_length_that_is_too_large_is_refused_before_the_body_is_asked_for(api: Whole) -> None:
    reply = await api.served.raw(
        HEAD + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n", half_close=True
    )

    assert b"100 Continue" not in reply
    assert status_and_type(reply) == (413, "too-large")


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    api: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.1)
    monkeypatch.setattr(limits, "LINGER_S", 0.1)

    reply = await api.served.raw(HEAD + b'Content-Length: 100\r\n\r\n{"directory"')

    assert status_and_type(reply) == (408, "too-slow")


async def test_a_client_that_leaves_in_the_middle_of_its_body_disturbs_nobody(
    api: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    connection = api.served.connect()
    connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    connection.close()

    assert (await api.client.get("/v1/health")).status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("request_line", [b"GET /v1/status", b"POST /v1/ralphs/alice/stop"])
async def test_a_request_of_a_browser_page_is_refused(api: Whole, request_line: bytes) -> None:
    reply = await api.served.raw(request_line + b" HTTP/1.1\r\nHost: ralphd\r\noRiGiN: null\r\n\r\n")

    assert status_and_type(reply) == (403, "forbidden")
    assert api.host.asked == []


@pytest.mark.parametrize("media_type", [b"text/plain", b"application/x-www-form-urlencoded", b""])
async def test_a_body_that_does_not_say_it_is_json_is_refused(api: Whole, media_type: bytes) -> None:
    reply = await api.served.raw(
        b"POST /v1/ralphs/alice/stop HTTP/1.1\r\nHost: ralphd\r\nContent-Type: "
        + media_type
        + b'\r\nContent-Length: 12\r\n\r\n{"now":true} '
    )

    assert status_and_type(reply) == (415, "not-json")
    assert api.host.asked == []


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/ralphs/..%2F..%2Fetc%2Fpasswd",
        b"/v1/ralphs/..%2flogs",
        b"/v1/ralphs/%2e%2e/logs",
        b"/v1/ralphs/../logs",
        b"/v1/ralphs/./logs",
        b"/v1/ralphs/alice%2Flogs",
        b"/v1/ralphs/alice%00/logs",
        b"/v1/ralphs/alice%0a/logs",
        b"/../v1/status",
    ],
)
async def test_a_path_that_escapes_is_refused(api: Whole, path: bytes) -> None:
    reply = await api.served.raw(b"GET " + path + b" HTTP/1.1\r\nHost: ralphd\r\n\r\n")

    assert status_and_type(reply) == (404, "not-found")


async def test_what_is_not_http_is_answered_and_closed(api: Whole) -> None:
    reply = await api.served.raw(b"\x16\x03\x01 hello\r\n\r\n")

    assert status_and_type(reply) == (400, "usage")
    assert (await api.client.get("/v1/health")).status_code == 200


async def test_heads_without_an_end_are_not_kept_in_memory(api: Whole) -> None:
    reply = await api.served.raw(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)

    assert status_and_type(reply) == (400, "usage")


async def test_a_body_that_stops_being_http_is_answered_or_cut_and_disturbs_nobody(
    api: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    begun = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

    early = await api.served.raw(begun + b"zzz\r\n")
    late = await api.served.raw(chunked(2 * MAX_BODY_BYTES)[:-5] + b"zzz\r\n")

    assert status_and_type(early) == (400, "usage")
    assert late == b"" or status_and_type(late)[0] in (400, 413)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl_works_as_the_manual_says(api: Whole) -> None:
    status = await curl(api.served, "http://ralphd/v1/status")
    huge = await curl(
        api.served,
        *("-H", "Content-Type: application/json", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-"),
        "http://ralphd/v1/ralphs",
        given=b" " * (2 * MAX_BODY_BYTES),
    )

    assert json.loads(status)["ralphs"][0]["name"] == "alice"
    assert json.loads(huge)["status"] == 413


async def curl(served: Served, *words: str, given: bytes = b"") -> bytes:
    """What curl prints. The address is made for this process, so curl runs with its directory as its own."""
    directory = served.path.parent

    def run() -> bytes:
        argv = ["curl", "-sS", "--max-time", "5", "--unix-socket", served.path.name, *words]
        return subprocess.run(argv, cwd=directory, input=given, capture_output=True, check=True).stdout

    return await asyncio.to_thread(run)


async def test_two_requests_on_one_connection_are_both_answered(api: Whole) -> None:
    one = b"GET /v1/ready HTTP/1.1\r\nHost: ralphd\r\n"

    reply = await api.served.raw(one + b"\r\n" + one + b"Connection: close\r\n\r\n")

    assert reply.count(b'{"ready":true}') == 2


@pytest.mark.parametrize("said", [b"", b"GET /v1/sta"])
async def test_a_connection_that_never_gets_to_a_request_is_cut(
    api: Whole, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.1)

    assert await api.served.raw(said) == b""


async def test_a_stream_outlives_the_time_in_which_a_request_has_to_begin(
    api: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.05)

    async with api.client.stream("GET", "/v1/events") as reply:
        lines = reply.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        assert await api.served.raw(b"") == b""  # opened later, and cut by now
        await api.host.tell("ralph.started", 1)
        assert [await anext(lines), (await anext(lines))[:4]] == ["", "id: "]


async def test_the_head_of_a_later_request_has_the_same_time_limit(
    api: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    one = b"GET /v1/ready HTTP/1.1\r\nHost: ralphd\r\n"

    def second_head() -> bytes:
        with api.served.connect() as connection:
            connection.sendall(one + b"\r\n")
            answer = b""
            while b'{"ready":true}' not in answer:  # head and body may come one by one
                piece = connection.recv(4096)
                assert piece, answer
                answer += piece
            connection.sendall(one)
            return connection.recv(1)

    assert await asyncio.to_thread(second_head) == b""


@pytest.mark.parametrize(
    "header", [{"host": "evil.example"}, {"host": "127.0.0.1:8080"}, {"sec-fetch-site": "same-origin"}]
)
async def test_a_forwarded_socket_serves_no_web_page(api: Whole, header: dict[str, str]) -> None:
    reply = await api.client.get("/v1/status", headers=header)

    assert (reply.status_code, reply.json()["type"]) == (403, "urn:ralphd:problem:forbidden")
    assert (await api.client.get("/v1/ready", headers={"host": "LocalHost:80"})).status_code == 200


async def test_half_of_a_surrogate_pair_is_refused(api: Whole) -> None:
    body = b'{"directory":"/x\\ud800"}'
    reply = await api.client.post("/v1/ralphs", content=body, headers={"content-type": "application/json"})

    assert reply.status_code == 422
    assert "surrogate" in reply.json()["why"]
