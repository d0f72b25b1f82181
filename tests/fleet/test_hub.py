"""What ``fleet init`` writes, which nats-server is taken, and what doctor finds wrong."""

import asyncio
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.fleet.model import HostName
from ralphd.errors import RalphdError, UnusableState, UsageError
from ralphd.fleet.fabric import Bucket
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import keys
from ralphd.fleet.hub import server as hub_server
from tests.fleet.hub_server import PROGRAM, RunningHub, embedded_server, hub_in, init
from tests.helpers import is_alive

KEPT = ("ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "admin.seed", "nats-server-1.conf")
NOW = 1_800_000_000.0


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def checked(directory: Path, number: int = 1) -> str:
    """What nats-server says of a configuration; it reads certificates too."""
    command = [str(PROGRAM), "-t", "-c", str(directory / hub.conf_name(number))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert run.returncode == 0, run.stderr
    return run.stderr


# --- init ------------------------------------------------------------------------------------------------


def test_all_files_are_for_us_alone(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    try:
        files = init(tmp_path / "hub")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "hub").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "hub").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert set(files.made) == modes.keys() - {".lock"}
    assert any("ralph-hub-1.service" in each for each in files.next)


def test_two_inits_leave_keys_as_they_are(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    before = contents(tmp_path / "hub")

    again = init(tmp_path / "hub", addresses=["other.test"], name="other")

    assert contents(tmp_path / "hub") == before
    assert again.made == ()


def test_a_renewed_certificate_has_the_same_ca(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    before = contents(tmp_path / "hub")
    (tmp_path / "hub" / "server.pem").unlink()

    again = init(tmp_path / "hub")

    after = contents(tmp_path / "hub")
    assert again.made == ("server.pem",)
    assert {name for name in before if before[name] != after[name]} == {"server.pem"}


def test_a_ca_without_its_key_is_an_error(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    (tmp_path / "hub" / "ca-key.pem").unlink()
    assert init(tmp_path / "hub").made == ()  # on the second server of three it is not there on purpose
    (tmp_path / "hub" / "server.pem").unlink()

    with pytest.raises(UnusableState, match="is missing: this CA cannot sign"):
        init(tmp_path / "hub")


def test_certificates_are_what_they_should_be(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    init(tmp_path / "hub", addresses=["hub.test", "10.1.2.3"], now=NOW)
    chain = x509.load_pem_x509_certificates((tmp_path / "hub" / "server.pem").read_bytes())
    (server, ca) = chain

    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.test", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3", "127.0.0.1"]
    for certificate, days in ((server, 730), (ca, 3650)):
        assert round((certificate.not_valid_after_utc.timestamp() - NOW) / 86400) == days
        public = certificate.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name == "secp256r1"
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    pin = keys.fingerprint((tmp_path / "hub" / "ca.pem").read_bytes())
    assert pin == ca.fingerprint(hashes.SHA256()).hex()


@pytest.mark.parametrize("name", ["plain", "with space", 'qu"ote', "back\\slash", "per%cent", "dol$lar"])
def test_nats_server_takes_it_in_any_directory(tmp_path: Path, name: str) -> None:
    init(tmp_path / name, websocket_port=8443)

    assert "is valid" in checked(tmp_path / name)
    text = (tmp_path / name / "nats-server-1.conf").read_text()
    assert "sync_interval: always" in text and "handshake_first: true" in text


def test_three_servers_have_three_configurations(tmp_path: Path) -> None:
    files = init(tmp_path / "hub", addresses=["a.test", "b.test", "c.test"], servers=3)

    for number in (1, 2, 3):
        assert "is valid" in checked(tmp_path / "hub", number)
    assert len([each for each in files.next if each.startswith("copy ")]) == 2
    assert hub.read_record(tmp_path / "hub").urls == ()  # its port is chosen at the start
    with pytest.raises(UsageError):
        init(tmp_path / "other", addresses=["a.test"], servers=3)


@pytest.mark.parametrize(
    "more",
    [
        {"addresses": []}, {"addresses": ["a b"]}, {"addresses": ['a"; x']}, {"addresses": ["-a"]},
        {"name": "A.b"}, {"name": ""}, {"servers": 2},
    ],
)  # fmt: skip
def test_bad_names_are_refused_before_anything(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        init(tmp_path / "hub", **more)
    assert not (tmp_path / "hub").exists()


def test_hosts_get_the_addresses_of_all_servers() -> None:
    admin = hub.HubMember(HostName("hub"), "U")
    assert hub.HubRecord(admin, ("a.test", "10.0.0.1")).urls == ("tls://a.test:4222",)
    assert hub.HubRecord(admin, ("a", "b", "::1"), servers=3).urls == (
        "tls://a:4222", "tls://b:4222", "tls://[::1]:4222",
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("name", ["plain", 'a "b" c', "back\\slash", "100%h; a", "dol$lar"])
def test_systemd_takes_the_unit(tmp_path: Path, name: str) -> None:
    init(tmp_path / name)
    (tmp_path / "run").mkdir(mode=0o700)
    unit = tmp_path / "ralph-hub-1.service"
    shutil.copy(tmp_path / name / "ralph-hub-1.service", unit)
    home = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    run = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(unit)],
        env={"PATH": os.environ["PATH"], **home}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (run.returncode, run.stderr, run.stdout) == (0, "", "")


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnusableState, match="not the directory of a hub"):
        hub.read_record(tmp_path)
    for text in ("[]", "{}", '{"v": 1, "hosts": 3}'):
        (tmp_path / "members.json").write_text(text)
        with pytest.raises(UnusableState, match="cannot be used"):
            hub.read_record(tmp_path)
    (tmp_path / "members.json").write_text('{"v": 2}')
    with pytest.raises(UnusableState, match="newer ralphd"):
        hub.read_record(tmp_path)


# --- keys ------------------------------------------------------------------------------------------------


def test_a_seed_is_made_once(tmp_path: Path) -> None:
    public = keys.make_seed(tmp_path / "seed")

    assert keys.make_seed(tmp_path / "seed") == public == keys.public_key(keys.read_seed(tmp_path / "seed"))
    assert keys.is_public_key(public)
    assert stat.S_IMODE((tmp_path / "seed").stat().st_mode) == 0o600


def test_a_seed_is_read_with_care(tmp_path: Path) -> None:
    keys.make_seed(good := tmp_path / "good")
    seed = good.read_text()
    (tmp_path / "link").symlink_to(good)
    (tmp_path / "open").write_text(seed)
    (tmp_path / "open").chmod(0o640)
    os.mkfifo(tmp_path / "fifo", 0o600)
    typo = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    import nkeys  # type: ignore[import-untyped]  # has no types

    account = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_ACCOUNT).decode()
    for name, text in (("long", seed * 9), ("empty", ""), ("typo", typo), ("odd", "é"), ("account", account)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)

    for path in tmp_path.iterdir():
        if path != good:
            with pytest.raises(RalphdError, match="cannot be used"):
                keys.read_seed(path)
    with pytest.raises(RalphdError, match="cannot be used"):
        keys.read_seed(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "U", "U" * 56, "A" * 56, "U" + "é" * 55])
def test_what_is_no_public_key(text: str) -> None:
    assert not keys.is_public_key(text)


# --- the server ------------------------------------------------------------------------------------------


def a_program(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def test_an_old_nats_server_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_program(tmp_path / "bin" / "nats-server", "nats-server: v2.9.10")
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)
    assert hub_server.find_program() == PROGRAM.absolute()
    assert "is 2.9.10; older than 2.11" in hub_server.unfit(old)

    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(RalphdError, match=r"2\.9\.10"):
        hub_server.find_program()


@pytest.mark.parametrize("prints", ["", "nats-server: v", "nats-server: 2.15.1", "hello"])
def test_a_program_without_a_version_is_refused(tmp_path: Path, prints: str) -> None:
    assert "does not print a version" in hub_server.unfit(a_program(tmp_path / "nats-server", prints))
    assert hub_server.unfit(tmp_path / "missing")


def test_the_next_versions_are_taken(tmp_path: Path) -> None:
    for version in ("2.11.0", "2.100.3", "3.0.0"):
        assert not hub_server.unfit(a_program(tmp_path / "nats-server", f"nats-server: v{version}"))


def test_a_trial_server_ends_with_its_block(tmp_path: Path) -> None:
    with hub_in(tmp_path / "hub") as running:
        pid = int((running.directory / "nats-server-1.pid").read_text())
        assert is_alive(pid)
        with pytest.raises(RalphdError, match="running already"), hub_in(tmp_path / "hub"):
            pass

    assert not is_alive(pid)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    init(tmp_path / "hub")
    with (tmp_path / "hub" / "nats-server-1.conf").open("a") as conf:
        conf.write("\nno_such_key: 1\n")

    with pytest.raises(AssertionError, match="no_such_key"), embedded_server(tmp_path / "hub"):
        pass


def test_the_websocket_port_speaks_tls(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    init(tmp_path / "hub", websocket_port=port)
    head = (
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with embedded_server(tmp_path / "hub"):
        ca = (tmp_path / "hub" / "ca.pem").read_text()
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            keys.client_tls(ca).wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(head.encode())
            assert tls.recv(100).startswith(b"HTTP/1.1 101")
        pinned = asyncio.run(keys.pinned_authority(f"wss://127.0.0.1:{port}", keys.fingerprint(ca.encode())))
        assert pinned.strip() == ca.strip()


# --- doctor ----------------------------------------------------------------------------------------------


async def problems_of(running: RunningHub, now: float | None = None) -> str:
    found = await hub_server.hub_problems(running.directory, now=now or time.time())
    return "\n".join(f"{each.what} > {each.mend}" for each in found)


async def test_a_healthy_hub_has_no_problems(tmp_path: Path) -> None:
    with hub_in(tmp_path / "hub") as running:
        assert await problems_of(running) == ""


async def test_doctor_names_each_problem(tmp_path: Path) -> None:
    with hub_in(tmp_path / "hub") as running:
        soon = await problems_of(running, time.time() + 720 * 86400)
        assert re.search(r"server.pem ends at .* > rm .*server.pem", soon) and "ca.pem ends" not in soon
        assert "ca.pem ended" in await problems_of(running, time.time() + 3700 * 86400)
        conf = running.directory / "nats-server-1.conf"
        conf.write_text(conf.read_text().replace("sync_interval: always,", "# sync_interval: always"))
        conf.chmod(0o644)
        found = await problems_of(running)
        assert "no `sync_interval: always`" in found and f"chmod 600 {conf}" in found

    stopped = await problems_of(running)
    assert "does not answer" in stopped


async def test_a_host_learns_why_it_is_refused(tmp_path: Path) -> None:
    async def found(seed: str, url: str) -> str:
        problems = await hub_server.host_problems([url], ca=running.ca, seed=seed, host="h1")
        assert all("on the hub" in each.mend for each in problems)
        return "\n".join(each.what for each in problems)

    with hub_in(tmp_path / "hub") as running:
        seed = await running.add("h1")
        assert (await found(seed, running.url)).count("has no bucket") == len(Bucket)
        assert "does not know this key" in await found(keys.new_seed(), running.url)
        assert "cannot be reached" in await found(seed, "tls://127.0.0.1:1")

        hosts = running.directory / "hosts.conf"
        hosts.write_text(hosts.read_text().replace("$JS.API.STREAM.INFO.KV_quota", "x"))
        os.kill(int((running.directory / "nats-server-1.pid").read_text()), 1)
        text = ""
        for _ in range(20):
            if "permissions violation" in (text := await found(seed, running.url)):
                break
        assert 'permissions violation for publish to "$js.api.stream.info.kv_quota"' in text
