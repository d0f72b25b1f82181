"""Section 9, webhooks: signed, from the outbox, at least once, in order, and nothing private is reached."""

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Destination, Format, StoredEvent
from ralphd.notify import client, http, worker
from ralphd.notify.client import WebhookClient
from ralphd.notify.worker import DeliveryWorker
from ralphd.store.events import EventStore
from tests.helpers import eventually
from tests.notify.receiver import Handler, Receiver, receiving, status

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
FOREVER = 1e12

ENQUEUE = """
import asyncio, os, signal, sys
from pathlib import Path
from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Destination
from ralphd.store.events import EventStore
from ralphd.notify.client import WebhookClient
from ralphd.notify.worker import DeliveryWorker

class Known:
    def __init__(self, to): self.to = to
    def destinations(self): return {self.to.id: self.to}
    def why_gone(self, id): return None

async def no_facts(event):
    return AlertFacts("here")

async def main(path, url, send):
    events = await EventStore.open(Path(path))
    to = Destination(url, allow_private=True)
    await events.append("ralph.escalated", 1.0, "demo", "r1", {}, key="k", deliver_to=[to])
    if send == "send":
        await DeliveryWorker(events, lambda: Known(to), WebhookClient(no_facts)).run()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


async def no_facts(event: StoredEvent) -> AlertFacts:
    return AlertFacts("here")


@asynccontextmanager
async def outbox(tmp_path: Path) -> AsyncIterator[EventStore]:
    store = await EventStore.open(tmp_path / "events.db")
    try:
        yield store
    finally:
        await store.close()


class Marks:
    """The destinations of a test, and who said that it is gone."""

    def __init__(self, *known: Destination) -> None:
        self.known = {destination.id: destination for destination in known}
        self.gone: dict[str, str] = {}

    def destinations(self) -> Mapping[str, Destination]:
        return self.known

    def why_gone(self, destination_id: str) -> str | None:
        return self.gone.get(destination_id)

    async def note_gone(self, destination_id: str, why: str) -> None:
        self.gone[destination_id] = why


@asynccontextmanager
async def sending(
    store: EventStore,
    *destinations: Destination,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
    marks: Marks | None = None,
) -> AsyncIterator[DeliveryWorker]:
    known = marks or Marks(*destinations)
    sender = DeliveryWorker(
        store, lambda: known, WebhookClient(no_facts, environ=environ or {}, clock=clock), clock
    )
    running = asyncio.create_task(sender.run())
    try:
        yield sender
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def to(receiver: Receiver, **more: object) -> Destination:
    return replace(Destination(receiver.url, allow_private=True), **more)  # type: ignore[arg-type]  # test's own


async def add(store: EventStore, *destinations: Destination, ralph: str = "demo", n: int = 0) -> StoredEvent:
    event = await store.append("ralph.escalated", 1.5, ralph, "r1", {"n": n}, deliver_to=destinations)
    assert event is not None
    return event


async def nothing_waits(store: EventStore) -> None:
    deadline = time.monotonic() + 5
    while await store.next_due_at() is not None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def failed(store: EventStore, times: int = 1) -> float:
    """Seconds from now until the oldest message is sent again, once it has failed so often."""
    deadline = time.monotonic() + 5
    while not (due := await store.due(FOREVER)) or due[0].failures < times:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    return due[0].next_at - time.time()


async def test_a_message_arrives_signed_as_standard_webhooks_want_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    with receiving() as receiver:
        async with outbox(tmp_path) as store:
            destination = to(receiver, secret_file=str(tmp_path / "secret"))
            event = await add(store, destination)
            async with sending(store, destination):
                await nothing_waits(store)

    (request,) = receiver.received
    assert Webhook(SECRET).verify(request.body, request.headers) == json.loads(request.body)
    assert json.loads(request.body) == {
        "type": "ralph.escalated",
        "timestamp": event.at,
        "data": event.as_object() | asdict(AlertFacts("here")) | {"last_lines": []},
    }
    assert request.path == "/hook"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == receiver.url.split("/")[2]
    assert request.headers["user-agent"].startswith("ralphd/")


async def test_the_receiver_that_the_page_shows_knows_what_is_ours(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "receiver.py"
    shown: dict[str, Any] = {}
    exec(example.read_text(), shown)
    with receiving() as receiver:
        destination = to(receiver, secret_env="S")
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination, environ={"S": SECRET}):
                await nothing_waits(store)

    [request] = receiver.received
    assert shown["is_from_ralphd"](SECRET, request.headers, request.body)
    assert not shown["is_from_ralphd"](SECRET, request.headers, request.body + b" ")
    late = request.headers | {"webhook-timestamp": str(int(time.time()) - 1000)}
    assert not shown["is_from_ralphd"](SECRET, late, request.body)


async def test_what_is_sent_to_slack_is_signed_over_the_very_bytes(tmp_path: Path) -> None:
    with receiving() as receiver:
        destination = to(receiver, secret_env="S", format=Format.SLACK)
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination, environ={"S": SECRET}):
                await nothing_waits(store)

    [request] = receiver.received
    assert "text" in Webhook(SECRET).verify(request.body, request.headers)


async def test_a_name_that_leads_elsewhere_by_then_is_not_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def fickle(host: str, *more: Any, **words: Any) -> Any:
        asked.append(host)
        first = asked.count("fickle.example") == 1
        return look_up("127.0.0.1" if first else "169.254.169.254", *more, **words)

    monkeypatch.setattr(socket, "getaddrinfo", fickle)
    with receiving() as receiver:
        destination = to(receiver, url=receiver.url.replace("127.0.0.1", "fickle.example"))
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination):
                await nothing_waits(store)

    assert asked.count("fickle.example") == 1
    assert receiver.received[0].headers["host"].startswith("fickle.example:")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://169.254.169.254/latest/meta-data", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "metadata"),
        ("http://me:hunter2@127.0.0.1/", "user names and passwords"),
        ("file:///etc/passwd", "not of the form"),
    ],
)
async def test_what_is_never_sent_to_is_not_even_where_private_addresses_are(
    tmp_path: Path, url: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    destination = Destination(url, allow_private=True)
    async with outbox(tmp_path) as store:
        await add(store, destination)
        async with sending(store, destination):
            await failed(store)
            (kept,) = await store.deliveries(None, 1)

    assert why in (kept.last_error or "")
    assert "hunter2" not in caplog.text


async def test_a_secret_comes_from_the_environment_or_there_is_no_signature(tmp_path: Path) -> None:
    with receiving() as one, receiving() as two:
        signed, unsigned = to(one, secret_env="HOOK_SECRET"), to(two)
        async with outbox(tmp_path) as store:
            await add(store, signed, unsigned)
            async with sending(store, signed, unsigned, environ={"HOOK_SECRET": SECRET}):
                await nothing_waits(store)

    Webhook(SECRET).verify(one.received[0].body, one.received[0].headers)
    assert "webhook-signature" not in two.received[0].headers


async def test_a_secret_is_read_for_each_message_and_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret, other = tmp_path / "secret", "whsec_" + base64.b64encode(b"another secret of ours").decode()
    secret.write_text(SECRET)
    with receiving(status(500)) as receiver:
        destination = to(receiver, secret_file=str(secret))
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination) as sender:
                await failed(store)
                secret.write_text(other)
                await add(store, destination, ralph="other")
                sender.nudge()
                await eventually(lambda: len(receiver.received) == 2)

    Webhook(other).verify(receiver.received[1].body, receiver.received[1].headers)
    kept = caplog.text.encode() + b"".join(path.read_bytes() for path in tmp_path.glob("events.db*"))
    for text in (SECRET, other):
        assert text.encode() not in kept
        assert base64.b64decode(text.removeprefix("whsec_")) not in kept


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ({"secret_file": "/not-there"}, "No such file"),
        ({"secret_file": "/"}, "not a regular file"),
        ({"secret_env": "NOT_THERE"}, "NOT_THERE is not set"),
    ],
)
async def test_without_its_secret_a_message_waits_rather_than_going_out_unsigned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, secret: dict[str, str], why: str
) -> None:
    with receiving() as receiver:
        destination = to(receiver, **secret)
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination):
                assert 3 < await failed(store) < 7

    assert receiver.received == []
    assert "the secret cannot be used: " in caplog.text
    assert why in caplog.text


async def test_a_message_is_sent_again_under_the_same_id_until_it_is_taken(tmp_path: Path) -> None:
    now = [time.time() + 1]
    with receiving(status(500), status(503)) as receiver:
        destination = to(receiver)
        async with outbox(tmp_path) as store:
            await add(store, destination)
            (delivery,) = await store.due(FOREVER)
            async with sending(store, destination, clock=lambda: now[0]) as sender:
                for failures in (1, 2):
                    await failed(store, failures)
                    assert len(receiver.received) == failures
                    now[0] += 1000
                    sender.nudge()
                await nothing_waits(store)

    assert receiver.message_ids == [delivery.message_id] * 3
    assert len({request.body for request in receiver.received}) == 1


async def test_messages_of_a_ralph_stay_in_order_and_ralphs_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    with receiving(status(500)) as receiver:
        destination = to(receiver)
        async with outbox(tmp_path) as store:
            for n in range(3):
                await add(store, destination, ralph="held", n=n)
            for n in range(3):
                await add(store, destination, ralph="free", n=n)
            async with sending(store, destination):
                await eventually(lambda: len(receiver.received) == 4)

    seen = [json.loads(request.body)["data"] for request in receiver.received]
    assert [(e["ralph"], e["data"]["n"]) for e in seen] == [
        ("held", 0),
        ("free", 0),
        ("free", 1),
        ("free", 2),
    ]


async def test_a_destination_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    with receiving() as dead, receiving() as alive:
        dead.replies.append(lambda handler: release(dead))
        async with outbox(tmp_path) as store:
            await add(store, to(dead))
            await add(store, to(alive))
            async with sending(store, to(dead), to(alive)):
                await eventually(lambda: dead.received and alive.received)
                while len(due := await store.due(FOREVER)) > 1:
                    await asyncio.sleep(0.005)

                assert (due[0].destination, due[0].failures) == (to(dead).id, 0)


def release(receiver: Receiver) -> None:
    """Hang for as long as the test lasts."""
    receiver.closing.wait(5)


async def test_a_destination_that_hangs_is_left_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "SEND_LIMIT_S", 0.3)
    with receiving() as dead:
        dead.replies.append(lambda handler: release(dead))
        async with outbox(tmp_path) as store:
            await add(store, to(dead))
            async with sending(store, to(dead)):
                await failed(store)

    assert "no reply within 0.3 s" in caplog.text


@pytest.mark.parametrize(("chunk", "pause_s"), [(1 << 16, 0.0), (1, 0.02)], ids=["flood", "drip"])
async def test_an_answer_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, pause_s: float
) -> None:
    monkeypatch.setattr(http, "REPLY_LIMIT_S", 0.1)
    ended_by_us = False

    def endless(handler: Handler) -> None:
        nonlocal ended_by_us
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(4096):
                handler.wfile.write(b"x" * chunk)
                time.sleep(pause_s)
        except OSError:
            ended_by_us = True

    with receiving(endless) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                await nothing_waits(store)

    assert ended_by_us


def cut_off(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x")
    handler.close_connection = True


async def test_a_connection_that_breaks_after_the_status_was_delivered_all_the_same(tmp_path: Path) -> None:
    with receiving(cut_off) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                await nothing_waits(store)
    assert len(receiver.received) == 1


def say_nonsense(handler: Handler) -> None:
    handler.wfile.write(b"this is not HTTP\r\n\r\n")
    handler.close_connection = True


async def test_an_answer_that_is_no_http_is_a_failure(tmp_path: Path) -> None:
    with receiving(say_nonsense) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                assert 3 < await failed(store) < 7


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with receiving() as elsewhere, receiving(status(307, location=elsewhere.url)) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                await failed(store)

    assert elsewhere.received == []


async def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    with receiving(status(429, retry_after="100")) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                assert 98 < await failed(store) <= 100


async def test_a_destination_that_is_gone_gets_nothing_more(tmp_path: Path) -> None:
    with receiving(status(410)) as receiver:
        async with outbox(tmp_path) as store:
            await add(store, to(receiver))
            await add(store, to(receiver))
            marks = Marks(to(receiver))
            async with sending(store, marks=marks) as sender:
                await nothing_waits(store)
                await add(store, to(receiver))
                sender.nudge()
                await nothing_waits(store)
            kept = await store.deliveries(to(receiver).id, 10)

    assert len(receiver.received) == 1
    assert marks.gone == {to(receiver).id: "answered 410 Gone"}
    assert [(each.state.value, each.last_error) for each in kept] == [("given_up", "answered 410 Gone")] * 3


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0.0.0.0"]
)
async def test_private_addresses_are_refused_however_they_are_written(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", host)
        destination = Destination(url)
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination):
                await failed(store)

    assert receiver.received == []
    assert "the address is private" in caplog.text


async def test_a_name_is_reached_at_the_address_that_was_checked(tmp_path: Path) -> None:
    with receiving() as receiver:
        destination = to(receiver, url=receiver.url.replace("127.0.0.1", "localhost"))
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination):
                await nothing_waits(store)

    assert receiver.received[0].headers["host"].startswith("localhost:")


@pytest.mark.parametrize(
    "url",
    ["ftp://127.0.0.1/", "nonsense", "", "http://", "https://" + "a" * 300 + ".example/", "http://[::1"],
)
async def test_an_address_that_is_none_is_a_failure_told_in_words(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    destination = Destination(url, allow_private=True)
    async with outbox(tmp_path) as store:
        await add(store, destination)
        async with sending(store, destination):
            await failed(store)

    assert "internal error" not in caplog.text


async def test_nobody_listening_is_a_failure_and_a_proxy_variable_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with receiving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        destination = Destination(f"http://127.0.0.1:{port}/", allow_private=True)
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination):
                assert 3 < await failed(store) < 7

    assert proxy.received == []
    assert "no connection" in caplog.text


async def test_a_destination_that_left_the_configuration_keeps_its_messages_for_a_while(
    tmp_path: Path,
) -> None:
    async with outbox(tmp_path) as store:
        await add(store, Destination("http://gone.example"))
        async with sending(store):
            assert 3 < await failed(store) < 7


async def test_a_bug_ends_neither_the_sending_nor_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "LOOK_AGAIN_S", 0.05)
    asked = 0

    class Buggy(Marks):
        def destinations(self) -> Mapping[str, Destination]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise KeyError("a bug")
            return {}

    async with outbox(tmp_path) as store:
        await add(store, Destination("http://one.example"))
        sending_all = asyncio.create_task(DeliveryWorker(store, Buggy, WebhookClient(no_facts)).run())
        await failed(store)
        sending_all.cancel()
        await asyncio.gather(sending_all, return_exceptions=True)

    assert "KeyError" in caplog.text


async def test_neither_path_nor_query_of_an_address_is_logged_or_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with receiving(status(500)) as receiver:
        destination = to(receiver, url=receiver.url + "/T0ken?key=T0ken")
        async with outbox(tmp_path) as store:
            await add(store, destination)
            async with sending(store, destination) as sender:
                await failed(store)
                await add(store, destination, ralph="other")
                sender.nudge()
                await eventually(lambda: len(receiver.received) == 2)

    assert "T0ken" not in caplog.text
    assert all(b"T0ken" not in path.read_bytes() for path in tmp_path.glob("events.db*"))


async def _run(path: Path, url: str, send: str) -> int:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ENQUEUE, str(path), url, send)
    return await process.wait()


async def test_a_message_queued_by_a_daemon_that_was_killed_is_sent_by_the_next_one(tmp_path: Path) -> None:
    with receiving() as receiver:
        assert await _run(tmp_path / "events.db", receiver.url, "die") == -signal.SIGKILL
        async with outbox(tmp_path) as store:
            (delivery,) = await store.due(FOREVER)
            async with sending(store, to(receiver)):
                await nothing_waits(store)

    assert receiver.message_ids == [delivery.message_id]


async def test_a_daemon_killed_while_it_sends_leads_to_the_same_message_again(tmp_path: Path) -> None:
    pids: list[int] = []

    def kill_the_sender(handler: Handler) -> None:
        os.kill(pids[0], signal.SIGKILL)

    with receiving(kill_the_sender) as receiver:
        process = subprocess.Popen(
            [sys.executable, "-c", ENQUEUE, str(tmp_path / "events.db"), receiver.url, "send"]
        )
        pids.append(process.pid)
        assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL
        async with outbox(tmp_path) as store, sending(store, to(receiver)):
            await nothing_waits(store)

    first, second = receiver.message_ids
    assert first == second


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("making a certificate needs openssl")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    cert.write_bytes(cert.read_bytes() + key.read_bytes())
    return cert


async def test_tls_is_checked_against_the_name_and_not_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving(certificate=certificate) as receiver:
        named = to(receiver, url=receiver.url.replace("127.0.0.1", "localhost"))
        async with outbox(tmp_path) as store:
            await add(store, named)
            async with sending(store, named):
                await nothing_waits(store)
            await add(store, to(receiver))
            async with sending(store, to(receiver)):
                await failed(store)

    assert len(receiver.received) == 1
    assert receiver.server_names[0] == "localhost"


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path, certificate: Path) -> None:
    with receiving(certificate=certificate) as receiver:
        named = to(receiver, url=receiver.url.replace("127.0.0.1", "localhost"))
        async with outbox(tmp_path) as store:
            await add(store, named)
            async with sending(store, named):
                await failed(store)

    assert receiver.received == []


def test_a_daemon_without_webhooks_does_not_load_httpx() -> None:
    look = "import sys, ralphd.app, ralphd.daemon.webhooks; print('httpx' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", look], text=True) == "False\n"
