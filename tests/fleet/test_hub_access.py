"""Who may do what on a hub, as a host sees it: nkeys, refusals, a key that is struck out, TLS."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ralphd.fleet.fabric import REQUEST_S, Bucket, HubUnreachable, JsonObject
from ralphd.fleet.nats import HubSettings, NatsFabric
from tests.fleet.server import NatsServer
from tests.fleet.test_fabric import LIMIT_S, back, following, until
from tests.helpers import eventually

READ = ", ".join(
    f'"$JS.API.{call}.KV_{bucket}{end}"'
    for bucket in Bucket
    for call, end in (
        ("STREAM.INFO", ""), ("STREAM.MSG.GET", ""), ("CONSUMER.CREATE", ".>"), ("CONSUMER.DELETE", ".>"),
    )
)  # fmt: skip
ACCOUNT = """
accounts {{ FLEET {{ jetstream: enabled, users: [ {{ user: admin, password: admin }}{hosts} ] }} }}
no_auth_user: admin
"""
HOST = """, {{ nkey: {key}, permissions {{
  publish: {{ allow: ["$KV.hosts.{name}", "$KV.leases.>", "ralph.ev.{name}.>", "ralph.ctl.>",
    "$JS.FC.>", {read}] }}
  subscribe: {{ allow: ["_INBOX_{name}.>", "ralph.ctl.{name}.>"] }}
  allow_responses: true }} }}"""


class Keys:
    """Seed files in a directory, and the configuration of their owners."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def seed_file(self, name: str) -> Path:
        file = self._directory / f"{name}.seed"
        if not file.exists():
            file.write_bytes(nkeys.encode_seed(name.encode().ljust(32, b"."), nkeys.PREFIX_BYTE_USER))
        return file

    def account(self, *names: str) -> str:
        pairs = [(name, nkeys.from_seed(bytearray(self.seed_file(name).read_bytes()))) for name in names]
        hosts = (HOST.format(name=name, key=pair.public_key.decode(), read=READ) for name, pair in pairs)
        return ACCOUNT.format(hosts="".join(hosts))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def closed_server(tmp_path: Path, keys: Keys) -> Iterator[NatsServer]:
    """A server for the hosts h1 and h2."""
    server = NatsServer(tmp_path / "hub", keys.account("h1", "h2"))
    server.start()
    yield server
    server.kill()


async def test_a_host_with_few_rights_works(closed_server: NatsServer, keys: Keys) -> None:
    await closed_server.make_buckets()
    one, two = (NatsFabric(closed_server.settings(name, keys.seed_file(name))) for name in ("h1", "h2"))
    await one.connect()
    await two.connect()

    async def answer(route: str, body: JsonObject) -> JsonObject:
        return {"route": route}

    await two.serve(answer)
    assert await one.request("h2", "status", {}) == {"route": "status"}
    await one.put(Bucket.HOSTS, "h1", {"at": 1})
    revision = await one.create(Bucket.LEASES, "r.b", {"n": 1})
    await one.update(Bucket.LEASES, "r.b", {"n": 2}, revision=revision)
    await one.publish_events([("boot:1", "web.run.ended", {})])
    assert len(await two.entries(Bucket.LEASES)) == 1
    async with aclosing(two.watch(Bucket.HOSTS)) as watch:
        assert (await following(watch)).key == "h1"
    assert one.problem == two.problem == ""
    await one.close()
    await two.close()


async def test_a_refusal_comes_at_once_with_its_reason(closed_server: NatsServer, keys: Keys) -> None:
    await closed_server.make_buckets()
    host = NatsFabric(closed_server.settings("h1", keys.seed_file("h1")))
    await host.connect()
    before = asyncio.get_running_loop().time()
    for key in ("h2", "h3"):
        with pytest.raises(HubUnreachable, match=r"(?i)permissions violation for publish to .\$KV\.hosts\.h"):
            await host.put(Bucket.HOSTS, key, {})
    assert asyncio.get_running_loop().time() - before < REQUEST_S
    await host.close()


async def test_a_key_that_is_unknown_is_refused(closed_server: NatsServer, keys: Keys) -> None:
    host = NatsFabric(closed_server.settings("h3", keys.seed_file("h3")))
    reasons = ""
    for _ in range(20):  # the server's reason may be lost in the reset of the connection
        with pytest.raises(HubUnreachable) as refused:
            await host.connect()
        reasons += str(refused.value).lower()
    assert "the hub does not know this key" in reasons
    await host.close()


async def test_a_key_struck_out_may_come_back(closed_server: NatsServer, keys: Keys) -> None:
    await closed_server.make_buckets()
    host = NatsFabric(closed_server.settings("h1", keys.seed_file("h1")))
    await host.connect()
    async with aclosing(host.watch(Bucket.LEASES)) as watch:
        await host.create(Bucket.LEASES, "r.b", {"n": 1})
        await following(watch)
        closed_server.reload(keys.account("h2"))
        await eventually(lambda: "does not know this key" in host.problem, timeout_s=LIMIT_S)
        assert host.connected_since is None
        with pytest.raises(HubUnreachable, match="does not know this key"):
            await host.get(Bucket.LEASES, "r.b")
        closed_server.reload(keys.account("h1", "h2"))
        await back(host)
        await host.create(Bucket.LEASES, "r.c", {"n": 2})
        await until(watch, {"n": 2})
    await host.close()


def certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    loopback = x509.IPAddress(__import__("ipaddress").ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


async def test_tls_comes_before_anything_else(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    extra = f'tls {{ cert_file: "{cert}", key_file: "{key}", handshake_first: true }}'
    server = NatsServer(tmp_path / "hub", extra)
    server.start()
    try:
        for settings in (
            HubSettings((server.url,), "h1", ca_file=cert),
            HubSettings((server.url,), "h1", tls=ssl.create_default_context(cafile=cert)),
        ):
            host = NatsFabric(settings)
            await host.connect()
            since = host.connected_since
            await asyncio.to_thread(server.restart)
            await eventually(lambda h=host, s=since: h.connected_since not in (None, s))  # type: ignore[misc]
            await host.close()
        stranger = NatsFabric(HubSettings((server.url,), "h1", tls=ssl.create_default_context()))
        with pytest.raises(HubUnreachable, match="certificate verify failed"):
            await stranger.connect()
    finally:
        server.kill()


async def test_a_hub_without_tls_is_refused(bare_server: NatsServer, tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    host = NatsFabric(HubSettings((bare_server.url,), "h1", ca_file=cert))
    with pytest.raises(HubUnreachable):
        await host.connect()
    await host.close()
