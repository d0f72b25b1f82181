"""The hub of a fleet as files: nats-server's configuration, its CA, the hosts, and what each of them may do.

All is in one directory (0700). ``members.json`` is the truth about who belongs to the fleet; ``hosts.conf``,
which nats-server includes, is written from it. A CA, a key or a configuration is never overwritten.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ralphd.core.fleet.model import WANTS, HostName
from ralphd.core.fleet.names import is_host_name
from ralphd.core.text import one_line
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError, UnusableState, UsageError
from ralphd.fleet.fabric import Bucket
from ralphd.fleet.hub import keys
from ralphd.plain_files import read_plain
from ralphd.store import files
from ralphd.store.codec import Codec, Unfit

VERSION: Final = 1
ACCOUNT: Final = "FLEET"
JOIN_SUBJECT: Final = "ralph.join.request"
PORT: Final = 4222
ROUTE_PORT: Final = 6222
MOST_HOSTS: Final = 2000
MOST_PEM_BYTES: Final = 64 << 10
_ADDRESS: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F:]{2,45}")

_READS: Final = (*(f"ralph.ctl.*.{each}" for each in ("ralph", "explain", "log")), "$JS.API.DIRECT.GET.EV")
_ORDERS: Final = (*(f"ralph.ctl.*.{each}" for each in WANTS), "$KV.wants.>")
ROLES: Final = {
    "watch": _READS,
    "run": (*_READS, *_ORDERS),
    "own": (*_READS, *_ORDERS, "ralph.ctl.*.drain", "ralph.ctl.*.undrain"),
}
"""What a host may do to the others. Each may do its own work, and write items, without a role."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HubMember:
    """A host that may connect, and what people on it may do to the others (``ROLES``)."""

    name: HostName
    key: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A one-time code, known by its public key. It is used once, before ``expires_at``."""

    key: str
    expires_at: Moment
    role: str = ""
    is_used: bool = False


@dataclass(frozen=True, slots=True)
class HubRecord:
    """What ``fleet init`` was given, and who belongs to the fleet. ``admin`` is the hub's own ralphd.

    ``addresses`` are names or IPs: of one server all of its own, else one for each of three servers.
    """

    admin: HubMember
    addresses: tuple[str, ...]
    servers: int = 1
    listen: str = "0.0.0.0"  # noqa: S104  # what a hub is for
    port: int = PORT
    websocket_port: int = 0
    hosts: tuple[HubMember, ...] = ()
    invitations: tuple[Invitation, ...] = ()
    v: int = VERSION

    @property
    def urls(self) -> tuple[str, ...]:
        """Return what hosts connect to; nothing where the port is chosen at the start."""
        if self.port <= 0:
            return ()
        names = self.addresses[: 1 if self.servers == 1 else None]
        return tuple(f"tls://{_bracketed(name)}:{self.port}" for name in names)


@dataclass(frozen=True, slots=True)
class HubFiles:
    """What ``init_hub`` made, and what to type next."""

    made: tuple[str, ...]
    next: tuple[str, ...]


_RECORD: Final = Codec[HubRecord](HubRecord, moments=("expires_at",), most_chars=300)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


# --- what each user may do (nats-server refuses the rest) ------------------------------------------------


def host_permissions(host: HostName, *, role: str = "") -> Json:
    """Return what a host may publish and subscribe to. A role that is not known permits nothing."""
    publish = [
        f"$KV.hosts.{host}",
        "$KV.leases.>",
        "$KV.items.>",
        "$KV.quota.>",
        f"ralph.ev.{host}.>",
        "$JS.FC.>",
        "ralph.ctl.*.status",  # the question before a takeover
        *ROLES.get(role, ()),
    ]
    for bucket in Bucket:
        # nats-py creates consumers of buckets on the short subject, and asks for them on the long one.
        short = ("STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE")
        publish += [f"$JS.API.{call}.KV_{bucket}" for call in short]
        long = ("CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE")
        publish += [f"$JS.API.{call}.KV_{bucket}.>" for call in long]
    return _only(publish, [f"{inbox_of(host)}.>", f"ralph.ctl.{host}.>"], allow_responses=True)


def join_permissions(key: str) -> Json:
    """Return what the user of a one-time code may do: ask, and get the answer."""
    return _only([JOIN_SUBJECT], [f"{inbox_of(key)}.>"])


def inbox_of(user: str) -> str:
    """Return the prefix of a user's inboxes."""
    return f"_INBOX_{user}"


def _only(publish: Sequence[str], subscribe: Sequence[str], **more: bool) -> Json:
    return {"publish": {"allow": [*publish]}, "subscribe": {"allow": [*subscribe]}, **more}


def hosts_conf(record: HubRecord, *, probe: str = "") -> bytes:
    """Return the users of the fleet's account. ``probe`` may connect and do nothing else."""
    nothing = {"publish": {"deny": [">"]}, "subscribe": {"deny": [">"]}}
    users: list[Json] = [{"nkey": record.admin.key}]
    users += [
        {"nkey": each.key, "permissions": host_permissions(each.name, role=each.role)}
        for each in record.hosts
    ]
    users += [{"nkey": each.key, "permissions": join_permissions(each.key)} for each in record.invitations]
    users += [{"nkey": probe, "permissions": nothing}] if probe else []
    lines = ",\n".join(f"  {json.dumps(user)}" for user in users)
    head = "# Written by ralphd from members.json, which overwrites changes.\n"
    return f'{head}{ACCOUNT}: {{"jetstream": "enabled", "users": [\n{lines}\n]}}\n'.encode()


# --- the record ------------------------------------------------------------------------------------------


def read_record(directory: Path) -> HubRecord:
    """Return the hub's record. Raises UnusableState, also where there is no hub."""
    path = directory / "members.json"
    try:
        if (stored := files.read_json(path)) is None:
            raise UnusableState(f"{directory} is not the directory of a hub", mend="ralphctl fleet init")
        files.refuse_newer(path, stored.get("v"), VERSION)
        return _RECORD.load(stored)
    except (files.Broken, Unfit) as error:
        mend = f"restore it from a backup: ls {directory}"
        raise UnusableState(f"{path} cannot be used", why=one_line(str(error), 300), mend=mend) from error


def change(directory: Path, edit: Callable[[HubRecord], HubRecord], *, probe: str = "") -> HubRecord:
    """Change the record and the users of nats-server, which has to be reloaded. The caller has the lock."""
    record = edit(read_record(directory))
    if len(record.hosts) > MOST_HOSTS:
        what = f"the fleet has {MOST_HOSTS} hosts, which is the most"
        raise RalphdError(what, mend="ralphctl fleet forget")
    files.write_whole(directory / "members.json", files.as_json(_RECORD.dump(record)))
    files.write_whole(directory / "hosts.conf", hosts_conf(record, probe=probe))
    return record


def lock(directory: Path, *, patient: bool = True) -> files.Lock:
    """Take the lock on a hub's files. Blocks for some seconds, or raises Held. Raises RalphdError."""
    try:
        path = directory / ".lock"
        return files.Lock.acquire_soon(path) if patient else files.Lock.acquire(path, f"{os.getpid()}\n")
    except OSError as error:
        raise RalphdError(f"{directory} is in use by another command, or gone", why=str(error)) from error


# --- init ------------------------------------------------------------------------------------------------


def init_hub(
    directory: Path, addresses: Sequence[str], *, name: str, now: Moment, program: Path, servers: int = 1,
    listen: str = "0.0.0.0", port: int = PORT, websocket_port: int = 0,  # noqa: S104
) -> HubFiles:  # fmt: skip
    """Write what is missing of a hub: CA, certificate, keys, configuration, unit. ``name`` is its own host's.

    Run again, it completes what is missing with the values of the first time. Raises RalphdError.
    """
    _check(addresses, name, servers)
    files.make_private_directory(directory)
    with lock(directory):
        before = {path.name for path in directory.iterdir()}
        admin = HubMember(HostName(name), keys.make_seed(directory / "admin.seed"), "own")
        if "members.json" not in before:
            given = HubRecord(admin, tuple(addresses), servers, listen, port, websocket_port)
            files.write_whole(directory / "members.json", files.as_json(_RECORD.dump(given)))
        record = read_record(directory)
        _make_certificates(directory, record, now=now)
        files.write_whole(directory / "hosts.conf", hosts_conf(record))
        for number in range(1, record.servers + 1):
            _make(directory / conf_name(number), partial(server_conf, directory, record, number))
            _make(directory / f"ralph-hub-{number}.service", partial(unit, directory, program, number))
        names = sorted(path.name for path in directory.iterdir() if path.is_file() and path.name[0] != ".")
    return HubFiles(tuple(each for each in names if each not in before), _next(directory, record))


def conf_name(number: int) -> str:
    """Return the name of a server's configuration."""
    return f"nats-server-{number}.conf"


def _check(addresses: Sequence[str], name: str, servers: int) -> None:
    if bad := next((each for each in addresses if not _ADDRESS.fullmatch(each)), None):
        raise UsageError(f"not a name or an IP of a machine: {one_line(bad, 100)}", mend="hub.example.org")
    if servers not in (1, 3) or (servers == 3 and len(addresses) != 3) or not addresses:
        raise UsageError("a hub has one server, or three of which each has one address")
    if not is_host_name(name):
        why = "it begins with a letter or a digit; then letters, digits and -, in lower case; 63 at most"
        raise UsageError(f"not the name of a host: {one_line(name, 100)}", why=why)


def _make_certificates(directory: Path, record: HubRecord, *, now: Moment) -> None:
    ca, ca_key = directory / "ca.pem", directory / "ca-key.pem"
    if ca.exists() and not ca_key.exists() and not (directory / "server.pem").exists():
        mend = f"restore {ca_key} from a backup"
        raise UnusableState(f"{ca_key} is missing: this CA cannot sign", mend=mend)
    if not ca.exists():
        _make(ca_key, keys.private_key)
        _make(ca, lambda: keys.authority(pem(ca_key), f"ralphd fleet {record.admin.name}", now=now))
    _make(directory / "server-key.pem", keys.private_key)
    names = dict.fromkeys((*record.addresses, "localhost", "127.0.0.1"))

    def certificate() -> bytes:
        own = pem(directory / "server-key.pem")
        return keys.server_certificate(own, [*names], ca=pem(ca), ca_key=pem(ca_key), now=now)

    _make(directory / "server.pem", certificate)


def pem(path: Path) -> bytes:
    """Return a certificate or a key. Raises OSError."""
    return read_plain(path, MOST_PEM_BYTES)


def _make(path: Path, content: Callable[[], bytes]) -> None:
    if not os.path.lexists(path):
        files.write_whole(path, content())


def server_conf(directory: Path, record: HubRecord, number: int) -> bytes:
    """Return the configuration of one of the servers."""
    tls = f"cert_file: {_quoted(directory / 'server.pem')}, key_file: {_quoted(directory / 'server-key.pem')}"
    tls += ', min_version: "1.3", timeout: 5'
    lines = [
        f"# Server {number} of the hub. ralphd does not overwrite it.",
        f'server_name: "ralph-hub-{number}"',
        f"listen: {_quoted(f'{record.listen}:{record.port}')}",
        # Without TLS first, somebody in between could tell a client that TLS is not needed.
        f"tls: {{ {tls}, handshake_first: true }}",
        f"pid_file: {_quoted(directory / f'nats-server-{number}.pid')}",
        f"ports_file_dir: {_quoted(directory)}",
        "max_payload: 1MB",
        "max_connections: 4096",
        "max_subscriptions: 1000",
        "max_control_line: 4KB",
        'write_deadline: "10s"',
        # An acknowledged write is on the disk: the default is every 2 minutes.
        f"jetstream: {{ store_dir: {_quoted(directory / f'store-{number}')}, sync_interval: always,",
        "  max_memory_store: 256MB, max_file_store: 20GB }",
        "accounts: { include hosts.conf }",
    ]
    if record.websocket_port:
        where = f"{record.listen}:{record.websocket_port}"
        lines.append(f"websocket: {{ listen: {_quoted(where)}, tls: {{ {tls} }} }}")
    if record.servers > 1:
        routes = ", ".join(_quoted(f"tls://{_bracketed(name)}:{ROUTE_PORT}") for name in record.addresses)
        lines += [
            f"cluster: {{ name: ralph-hub, listen: {_quoted(f'{record.listen}:{ROUTE_PORT}')},",
            "  no_advertise: true,",
            f"  tls: {{ {tls}, ca_file: {_quoted(directory / 'ca.pem')}, verify: true }},",
            f"  routes: [{routes}] }}",
        ]
    return "\n".join([*lines, ""]).encode()


def unit(directory: Path, program: Path, number: int) -> bytes:
    """Return a systemd user unit for one of the servers."""

    def word(path: Path) -> str:
        return _quoted(path).replace("%", "%%").replace("$", "$$")

    return f"""\
# Written by `ralphctl fleet init`, which does not overwrite it.
[Unit]
Description=nats-server, the hub of a fleet of ralphd
StartLimitIntervalSec=0

[Service]
ExecStart={word(program)} -c {word(directory / conf_name(number))}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
UMask=0077
LimitNOFILE=65536
NoNewPrivileges=yes

[Install]
WantedBy=default.target
""".encode()


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _next(directory: Path, record: HubRecord) -> tuple[str, ...]:
    enable = f"systemctl --user enable --now {directory}/ralph-hub-1.service; loginctl enable-linger"
    if record.servers == 1:
        return (enable, "ralphctl fleet token")
    there = "without ca-key.pem and admin.seed; again after each join and forget, then reload the units there"
    copies = [
        f"copy {directory} to the same path on {name} as server {number}, {there}"
        for number, name in enumerate(record.addresses[1:], 2)
    ]
    return (enable, *copies, "ralphctl fleet token")
