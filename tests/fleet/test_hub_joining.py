"""A host joins by a token, over TLS, with a real nats-server; and is locked out again."""

import asyncio
import base64
import json
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ralphctl.setup import fleet as setup
from ralphd.core.fleet.model import HostName
from ralphd.errors import HubSilent, NameTaken, NewerState, NotFound, RalphdError, UsageError
from ralphd.fleet.fabric import HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import joining, keys
from ralphd.fleet.hub.files import Invitation
from ralphd.fleet.hub.joining import Joined, JoinRequest, JoinToken
from tests.fleet.hub_server import RunningHub, embedded_server, hub_in, init
from tests.helpers import eventually

NOW = 1_800_000_000.0
# A connection that meets a reload ends within the handshake; nats-py then makes a writer without a transport.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function StreamWriter:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHub]:
    with hub_in(tmp_path / "hub") as found:
        yield found


async def says_yes(request: JoinRequest) -> bool:
    return True


@asynccontextmanager
async def door(running: RunningHub, decide: joining.Decide = says_yes, **more: Any) -> AsyncIterator[None]:
    """Somebody at the hub answers hosts that ask."""
    options: dict[str, Any] = {"clock": time.time, "most": 99, "limit_s": 60}
    task = asyncio.create_task(joining.answer_joins(running.directory, decide, **options | more))
    async with running.user(running.admin_seed(), "hub") as admin:
        while True:  # a request without a reader is answered at once
            with pytest.raises(Exception) as caught:
                await admin.request(hub.JOIN_SUBJECT, b"", timeout=0.05)
            if type(caught.value).__name__ == "TimeoutError":
                break
            assert not task.done(), task
    yield
    task.cancel()
    await asyncio.wait([task])


async def token_of(running: RunningHub, **more: Any) -> str:
    return await joining.make_token(
        running.directory, addresses=[running.url], **{"now": time.time(), **more}
    )


async def joins(text: str, directory: Path, name: str = "rack1", **more: Any) -> Joined:
    options: dict[str, Any] = {"address": "10.0.0.7", "version": "1.0", "now": time.time(), "limit_s": 20}
    return await joining.join(text, directory=directory, name=name, **options | more)


async def gets_in(running: RunningHub, directory: Path, name: str) -> bool:
    try:
        async with running.user(keys.read_seed(directory / "host.seed"), name):
            return True
    except HubUnreachable as error:
        assert "does not know this key" in str(error)
        return False


# --- the whole -------------------------------------------------------------------------------------------


async def test_a_host_joins_by_a_token(running: RunningHub, tmp_path: Path) -> None:
    seen: list[JoinRequest] = []

    async def decide(request: JoinRequest) -> bool:
        seen.append(request)
        return True

    text = await token_of(running)
    async with door(running, decide):
        joined = await joins(text, tmp_path / "rack1")
        assert await gets_in(running, tmp_path / "rack1", "rack1")

        (request,) = seen
        assert (request.name, request.address, request.version) == ("rack1", "10.0.0.7", "1.0")
        assert request.code not in repr(request)
        assert joined == joining.membership(tmp_path / "rack1")
        assert (joined.host, joined.servers, joined.hub_host) == ("rack1", (running.url,), "hub")
        assert joined.ca.strip() == running.ca.strip()
        for name in ("host.seed", "ca.pem", "fleet.json"):
            assert stat.S_IMODE((tmp_path / "rack1" / name).stat().st_mode) == 0o600
        await eventually(lambda: hub.read_record(running.directory).invitations == ())
        code = keys.public_key(joining.read_token(text, now=time.time()).code)
        await eventually(lambda: code not in (running.directory / "hosts.conf").read_text())


async def test_connections_survive_that_others_join(running: RunningHub, tmp_path: Path) -> None:
    seed = await running.add("old")
    async with running.user(seed, "old") as old, door(running):
        for number in range(5):
            await joins(await token_of(running), tmp_path / f"{number}", f"rack{number}")

        await keys.settled(old)
        assert old.is_connected and old.stats["reconnects"] == 0


@pytest.mark.parametrize("times", [2, 3])
async def test_a_connection_that_a_reload_ends_before_it_asked_is_made_again(
    running: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    text, really, ended = await token_of(running), keys.asked, list[str]()

    async def ends(client: Any, subject: str, data: bytes, *, limit_s: float) -> bytes:
        if len(ended) < times:
            ended.append(subject)
            await client.close()
        return await really(client, subject, data, limit_s=limit_s)

    monkeypatch.setattr(keys, "asked", ends)
    async with door(running):
        if times == keys.TRIES:
            with pytest.raises(HubUnreachable, match="connection closed"):
                await joins(text, tmp_path / "rack1")
        else:
            assert (await joins(text, tmp_path / "rack1")).host == "rack1"

    hosts = [each.name for each in hub.read_record(running.directory).hosts]
    assert (len(ended), hosts) == (times, [] if times == keys.TRIES else ["rack1"])


async def test_a_used_token_is_refused(running: RunningHub, tmp_path: Path) -> None:
    text = await token_of(running)
    async with door(running):
        await joins(text, tmp_path / "rack1")

        with pytest.raises(RalphdError, match=r"used before|refused this host"):
            await joins(text, tmp_path / "rack2", "rack2")
    assert [each.name for each in hub.read_record(running.directory).hosts] == ["rack1"]


async def test_of_two_with_one_token_one_joins(running: RunningHub, tmp_path: Path) -> None:
    text = await token_of(running)
    async with door(running):
        results = await asyncio.gather(
            *(joins(text, tmp_path / name, name, limit_s=5) for name in ("a", "b", "c")),
            return_exceptions=True,
        )

    assert sum(isinstance(each, Joined) for each in results) == 1
    assert all(isinstance(each, Joined | RalphdError | HubUnreachable) for each in results), results
    assert len(hub.read_record(running.directory).hosts) == 1


async def test_the_hub_refuses_an_expired_token(running: RunningHub, tmp_path: Path) -> None:
    text = await token_of(running)
    async with door(running, clock=lambda: time.time() + joining.TOKEN_S + 1):
        with pytest.raises(RalphdError, match="expired"):
            await joins(text, tmp_path / "rack1")
    assert hub.read_record(running.directory).hosts == ()


async def test_a_second_host_of_a_name_is_refused(running: RunningHub, tmp_path: Path) -> None:
    async with door(running):
        await joins(await token_of(running), tmp_path / "first")
        for name in ("rack1", "hub"):
            with pytest.raises(NameTaken, match=f"belongs to another host\n.* ralphctl fleet forget {name}"):
                await joins(await token_of(running), tmp_path / f"second-{name}", name)
        with pytest.raises(RalphdError, match="has joined as rack1"):
            await joins(await token_of(running), tmp_path / "first", "other")

        await joins(await token_of(running), tmp_path / "first")  # the same host again
    (host,) = hub.read_record(running.directory).hosts
    assert host.key == keys.make_seed(tmp_path / "first" / "host.seed")


async def test_a_person_can_refuse_a_host(running: RunningHub, tmp_path: Path) -> None:
    async def says_no(request: JoinRequest) -> bool:
        return False

    text = await token_of(running)
    async with door(running, says_no):
        with pytest.raises(RalphdError, match="the person at the hub refused it"):
            await joins(text, tmp_path / "rack1")
        await eventually(lambda: hub.read_record(running.directory).invitations == ())
    assert not await gets_in(running, tmp_path / "rack1", "rack1")
    assert joining.membership(tmp_path / "rack1") is None


async def test_a_wrong_fingerprint_is_refused(running: RunningHub, tmp_path: Path) -> None:
    token = joining.read_token(await token_of(running), now=time.time())
    with pytest.raises(UsageError, match="is not the hub of this token"):
        await joins(packed(replace(token, pin="0" * 64)), tmp_path / "rack1")


async def test_another_server_with_our_ca_is_refused(running: RunningHub, tmp_path: Path) -> None:
    """It may send the CA's certificate, which is no secret; its own has to be signed by it."""
    init(tmp_path / "evil")
    conf = tmp_path / "evil" / "server.pem"
    end = "-----END CERTIFICATE-----\n"
    conf.write_text(conf.read_text().split(end)[0] + end + running.ca)

    token = joining.read_token(await token_of(running), now=time.time())
    with (
        embedded_server(tmp_path / "evil") as url,
        pytest.raises(HubUnreachable, match="certificate"),
    ):
        await joins(packed(replace(token, addresses=(url,))), tmp_path / "rack1")


async def test_tls_cannot_be_stripped_off(running: RunningHub, tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"nonce":"abc"}\r\n')
        heard.append(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(HubUnreachable):
            async with keys.connected(
                [f"tls://127.0.0.1:{port}"], ca=running.ca, seed=keys.new_seed(), inbox="_INBOX_x"
            ):
                pass
    assert heard and all(each[:1] in (b"\x16", b"") for each in heard)  # a handshake, and no CONNECT


async def test_without_anybody_at_the_hub_it_fails(running: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(RalphdError, match="nobody at the hub answers"):
        await joins(await token_of(running), tmp_path / "rack1")


def test_while_the_hub_does_not_run_no_token_is_shown(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        init(tmp_path / "hub", port=free.getsockname()[1])
    shown: list[str] = []

    with pytest.raises(HubSilent, match="does not answer"):
        setup.invite(
            {"RALPHD_STATE_DIR": str(tmp_path)}, role="", addresses=(), show=shown.append,
            decide=lambda *_: False,
        )  # fmt: skip

    assert not shown
    assert not hub.read_record(tmp_path / "hub").invitations


async def test_what_a_one_time_code_cannot_do(running: RunningHub) -> None:
    from nats.errors import Error

    token = joining.read_token(await token_of(running), now=time.time())
    key = keys.public_key(token.code)
    faults: list[str] = []
    async with running.user(token.code, key, faults) as client:
        for subject in ("$KV.items.x", "ralph.ev.h1.x", "$JS.API.STREAM.LIST", "ralph.ctl.h1.stop"):
            await client.publish(subject, b"{}")
        for subject in (">", "_INBOX_hub.>", hub.JOIN_SUBJECT):
            await client.subscribe(subject)
        await keys.settled(client)
        await eventually(lambda: len(faults) == 7)
        with pytest.raises(Error):
            await client.request(hub.JOIN_SUBJECT, b"x" * (2 << 20))


BAD_REQUESTS: dict[str, bytes] = {
    "empty": b"",
    "no object": b"[1]",
    "too deep": b"[" * 2000,
    "too long": b'{"code": "' + b"x" * 5000 + b'"}',
    "no text": b"\xff\xfe",
    "wrong types": b'{"code": 1, "name": [], "key": null, "address": {}, "version": 0}',
}


async def test_bad_requests_are_answered_and_harmless(running: RunningHub, tmp_path: Path) -> None:
    token = joining.read_token(text := await token_of(running), now=time.time())
    key = keys.public_key(token.code)
    good = {
        "code": token.code,
        "name": "a",
        "key": keys.public_key(keys.new_seed()),
        "address": "",
        "version": "",
    }
    bad = [
        *BAD_REQUESTS.values(),
        *(json.dumps(good | more).encode() for more in (
            {"name": "a.>"}, {"name": "A"}, {"key": "U" * 56}, {"key": good["key"][:-1] + "!"}, {"key": key},
            {"code": keys.new_seed()}, {"code": "é"},
        )),
    ]  # fmt: skip
    async with door(running):
        async with running.user(token.code, key) as client:
            for data in bad:
                answer = json.loads((await client.request(hub.JOIN_SUBJECT, data, timeout=10)).data)
                assert answer["refused"] and answer["ca"] == "", data[:80]
        await joins(text, tmp_path / "rack1")
    assert [each.name for each in hub.read_record(running.directory).hosts] == ["rack1"]


async def test_a_forgotten_host_is_locked_out(running: RunningHub, tmp_path: Path) -> None:
    async with door(running):
        await joins(await token_of(running), tmp_path / "rack1")
        await joins(await token_of(running), tmp_path / "rack2", "rack2")
    async with running.user(keys.read_seed(tmp_path / "rack1" / "host.seed"), "rack1") as client:
        assert await joining.forget_host(running.directory, "rack1")

        await eventually(lambda: not client.is_connected)
    assert not await gets_in(running, tmp_path / "rack1", "rack1")
    assert await gets_in(running, tmp_path / "rack2", "rack2")
    with pytest.raises(NotFound):
        await joining.forget_host(running.directory, "rack1")
    with pytest.raises(UsageError):
        await joining.forget_host(running.directory, "hub")


async def test_a_host_that_leaves_keeps_no_key(running: RunningHub, tmp_path: Path) -> None:
    async with door(running):
        await joins(await token_of(running), tmp_path / "rack1")

    (tmp_path / "rack1/draining").touch()
    assert joining.leave(tmp_path / "rack1") == "ralphctl fleet forget rack1"
    assert not (tmp_path / "rack1/draining").exists(), "it would drain in the next fleet, too"
    assert list((tmp_path / "rack1").iterdir()) == []
    with pytest.raises(NotFound):
        joining.leave(tmp_path / "rack1")


def test_the_hub_itself_has_a_server_to_stop_when_it_leaves(tmp_path: Path) -> None:
    joining.keep(tmp_path / "hub", joining.Joined(HostName("hub"), hub_host=HostName("hub")))
    assert joining.leave(tmp_path / "hub") == "systemctl --user disable --now ralph-hub-1"


def test_a_newer_membership_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text('{"v": 2, "host": "rack1", "more": 1}')
    with pytest.raises(NewerState):
        joining.membership(tmp_path)
    assert "more" in (tmp_path / "fleet.json").read_text()


async def test_a_hub_that_does_not_run_forgets_later(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    stopped = RunningHub(tmp_path / "hub", "")
    seed = await stopped.add("rack1")

    assert keys.public_key(seed) in (tmp_path / "hub" / "hosts.conf").read_text()
    assert not await joining.forget_host(tmp_path / "hub", "rack1")
    assert keys.public_key(seed) not in (tmp_path / "hub" / "hosts.conf").read_text()


async def test_a_reload_that_fails_is_reported(running: RunningHub) -> None:
    with (running.directory / "nats-server-1.conf").open("a") as conf:
        conf.write("nonsense {\n")
    from ralphd.fleet.hub import server as hub_server

    with pytest.raises(RalphdError, match="did not take the change"):
        await hub_server.apply(running.directory, lambda before: before, limit_s=0.3)


async def test_another_process_is_never_signalled(running: RunningHub) -> None:
    """A pid file that names somebody else, here ourselves, counts as no server."""
    import os

    from ralphd.fleet.hub import server as hub_server

    (running.directory / "nats-server-1.pid").write_text(f"{os.getpid()}")

    assert not await hub_server.apply(running.directory, lambda before: before)


# --- tokens ----------------------------------------------------------------------------------------------


def packed(token: JoinToken, version: int = 1) -> str:
    text = json.dumps({**_fields(token)}).encode()
    return f"ralph-fleet-{version}.{base64.urlsafe_b64encode(text).decode().rstrip('=')}"


def _fields(token: JoinToken) -> dict[str, Any]:
    return {
        "addresses": list(token.addresses), "pin": token.pin, "code": token.code,
        "expires_at": token.expires_at,
    }  # fmt: skip


def a_token(**more: Any) -> JoinToken:
    good = JoinToken(("tls://hub.example.org:4222",), "a" * 64, keys.new_seed(), NOW + 900)
    return replace(good, **more)


def test_a_token_is_read_as_it_was_made() -> None:
    token = a_token(addresses=("tls://hub.example.org:4222", "wss://[::1]:443"))

    assert joining.read_token(f"  {packed(token)}\n", now=NOW) == token
    assert token.code not in repr(token)


BAD_TOKENS = {
    "an empty one": ("", "not a token"),
    "other words": ("rm -rf /", "not a token"),
    "a part": (packed(a_token())[:100], "damaged"),
    "a newer version": (packed(a_token(), 2), "version 2"),
    "a long one": ("ralph-fleet-1." + "A" * 3000, "not a token"),
    "an expired one": (packed(a_token(expires_at=NOW - 1)), "expired"),
    "one for ever": (packed(a_token(expires_at=1e300)), "damaged"),
    "a bad pin": (packed(a_token(pin="A" * 64)), "damaged"),
    "a bad code": (packed(a_token(code="SU" + "A" * 56)), "damaged"),
    "no address": (packed(a_token(addresses=())), "damaged"),
    "many addresses": (packed(a_token(addresses=("tls://a:1",) * 9)), "damaged"),
    "an address without TLS": (packed(a_token(addresses=("nats://a:4222",))), "damaged"),
    "an address with a password": (packed(a_token(addresses=("tls://u:p@a:4222",))), "damaged"),
    "an odd port": (packed(a_token(addresses=("tls://a:99999",))), "damaged"),
    "deep JSON": ("ralph-fleet-1." + base64.urlsafe_b64encode(b"[" * 1500).decode(), "damaged"),
    "no JSON": ("ralph-fleet-1.AAAA", "damaged"),
}


@pytest.mark.parametrize(("text", "why"), BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_a_bad_token_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        joining.read_token(text, now=NOW)


async def test_tokens_are_bounded_and_old_ones_go(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    many = tuple(
        Invitation(keys.public_key(keys.new_seed()), NOW + 1) for _ in range(joining.MOST_INVITATIONS)
    )
    hub.change(tmp_path / "hub", lambda before: replace(before, invitations=many))
    with pytest.raises(RalphdError, match="tokens already"):
        await joining.make_token(tmp_path / "hub", now=NOW, addresses=["tls://a:1"])

    await joining.make_token(tmp_path / "hub", now=NOW + joining.TOKEN_S, addresses=["tls://a:1"])
    assert len(hub.read_record(tmp_path / "hub").invitations) == 1


def test_a_host_without_a_fleet_has_no_membership(tmp_path: Path) -> None:
    assert joining.membership(tmp_path) is None
    (tmp_path / "fleet.json").write_text('{"host": 1}')
    with pytest.raises(RalphdError, match="cannot be used"):
        joining.membership(tmp_path)


async def test_a_host_that_waits_notices_a_dead_hub(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def thinks(request: JoinRequest) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    with hub_in(tmp_path / "hub") as running:
        text = await token_of(running)
        answering = asyncio.create_task(joining.answer_joins(running.directory, thinks, clock=time.time))
        waiting: asyncio.Task[Joined] | None = None
        while not asked.is_set():  # until somebody answers at the hub
            if waiting is None or waiting.done():
                waiting = asyncio.create_task(joins(text, tmp_path / "rack1", limit_s=600))
            await asyncio.wait([waiting, asyncio.ensure_future(asked.wait())], return_when="FIRST_COMPLETED")
    assert waiting is not None
    with pytest.raises((HubUnreachable, RalphdError)):
        await waiting
    answering.cancel()
    await asyncio.wait([answering])


def test_a_daemon_without_a_fleet_loads_nothing() -> None:
    names = "files, server, joining, keys"
    heavy = "{'nats', 'nkeys', 'nacl', 'cryptography'}"
    code = f"import sys; from ralphd.fleet.hub import {names}; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (run.stdout, run.stderr) == ("set()\n", "")
