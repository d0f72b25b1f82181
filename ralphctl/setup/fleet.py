"""The hub of a fleet, and this machine's part in it: files in the state directory, and nats-server."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ralphd import __version__, wire
from ralphd.errors import HubSilent, RalphdError, WrongState
from ralphd.fleet.fabric import HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import joining, keys, server
from ralphd.fleet.hub.files import HubFiles
from ralphd.fleet.hub.joining import Joined, JoinRequest

T = TypeVar("T")


def hub_directory(environ: Mapping[str, str]) -> Path:
    """Return where the hub is, if this machine has it."""
    return Path(wire.state_directory(environ)) / "hub"


def fleet_directory(environ: Mapping[str, str]) -> Path:
    """Return where key and authority of a member are."""
    return Path(wire.state_directory(environ)) / "fleet"


def make_hub(
    environ: Mapping[str, str], addresses: tuple[str, ...], *, name: str, servers: int,
    listen: str, port: int, websocket_port: int,
) -> HubFiles:  # fmt: skip
    """Write the files of a hub, and make its own machine a member. Raises RalphdError."""
    _needs_extra()
    directory, program = hub_directory(environ), server.find_program()
    member = joining.membership(fleet_directory(environ))
    if member is not None and (member.hub_host != member.host or not (directory / "members.json").exists()):
        what = f"this machine is in the fleet of {member.hub_host or 'another hub'}, as {member.host}"
        raise RalphdError(what, why="the key of that fleet would be lost", mend="ralphctl fleet leave, first")
    made = hub.init_hub(
        directory, addresses or (socket.getfqdn(),), name=name, now=time.time(), program=program,
        servers=servers, listen=listen, port=port, websocket_port=websocket_port,
    )  # fmt: skip
    record = hub.read_record(directory)
    if addresses not in ((), record.addresses):
        what = f"init does not change the addresses of the hub: {', '.join(record.addresses)}"
        why = "its certificate and the machines that have joined name them"
        raise WrongState(what, why=why, mend=f"ralphctl fleet init {' '.join(record.addresses)}")
    ca, name = hub.pem(directory / "ca.pem").decode("ascii"), record.admin.name
    own = Joined(name, (f"tls://localhost:{record.port}",), ca, hub_host=name)
    if own != member:  # ``keep`` deletes the items that this machine knows
        joining.keep(fleet_directory(environ), own, seed=keys.read_seed(directory / "admin.seed"))
    return made


def hub_command(environ: Mapping[str, str]) -> list[str]:
    """Return the command that runs the hub. Raises RalphdError."""
    return server.run_command(_own_hub(environ))


def _own_hub(environ: Mapping[str, str]) -> Path:
    directory = hub_directory(environ)
    if not (directory / "members.json").exists():
        member = joining.membership(fleet_directory(environ))
        there = f"type it on {member.hub_host}" if member else "ralphctl fleet init, where the hub is to be"
        raise WrongState("this machine is not the hub of a fleet", mend=there)
    return directory


def invite(
    environ: Mapping[str, str], *, role: str, addresses: tuple[str, ...],
    show: Callable[[str], None], decide: Callable[[str, str, str, str], bool],
) -> list[str]:  # fmt: skip
    """Make a token, show it, and answer the machine that joins with it. Raises RalphdError.

    ``decide`` gets its name, address, version and public key.
    """
    _needs_extra()
    directory = _own_hub(environ)

    async def is_welcome(asked: JoinRequest) -> bool:
        return decide(asked.name, asked.address, asked.version, asked.key)

    async def answer() -> list[str]:
        async with server.local(directory, hub.read_record(directory)):  # else nobody can join
            text = await joining.make_token(directory, now=time.time(), addresses=addresses, role=role)
        show(text)
        return [*await joining.answer_joins(directory, is_welcome, clock=time.time)]

    return _run(answer())


def join(environ: Mapping[str, str], token: str, name: str) -> Joined:
    """Join a fleet. Raises RalphdError."""
    _needs_extra()
    if (member := joining.membership(fleet_directory(environ))) is not None:
        what = f"this machine is in a fleet already, as {member.host}"
        raise RalphdError(what, mend="ralphctl fleet leave, and its next lines; then join again")
    asking = joining.join(
        token, directory=fleet_directory(environ), name=name, address=socket.getfqdn(), version=__version__,
        now=time.time(),
    )  # fmt: skip
    return _run(asking)


def leave(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Remove key and membership of this machine. Return what to type at the hub, and the items that it has.

    Raises NotFound.
    """
    directory = fleet_directory(environ)
    return joining.leave(directory), sorted(each.stem for each in (directory / joining.HOLDS).glob("*.json"))


def forget(environ: Mapping[str, str], name: str) -> tuple[bool, int]:
    """Lock a machine out of the fleet. Return whether the hub runs now, and how many servers it has.

    Raises RalphdError.
    """
    _needs_extra()
    directory = _own_hub(environ)
    return _run(joining.forget_host(directory, name)), hub.read_record(directory).servers


def problems(environ: Mapping[str, str]) -> list[server.HubProblem]:
    """Return what is wrong with the hub here, and with this machine's way to its hub; and the fix."""
    _needs_extra()
    found: list[server.HubProblem] = []
    if (hub_directory(environ) / "members.json").exists():
        found += _run(server.hub_problems(hub_directory(environ), now=time.time()))
    directory = fleet_directory(environ)
    if (own := joining.membership(directory)) is None:
        found.append(server.HubProblem("this machine is in no fleet", "ralphctl fleet join TOKEN"))
    else:
        seed = keys.read_seed(directory / "host.seed")
        found += _run(server.host_problems(own.servers, ca=own.ca, seed=seed, host=own.host))
    return found


def _needs_extra() -> None:
    try:
        import cryptography  # noqa: F401
        import nats  # noqa: F401
        import nkeys  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as missing:
        why, mend = f"Python has no module {missing.name}", "make install FLEET=1, or with pip: .[fleet]"
        raise RalphdError("a fleet needs more packages", why=why, mend=mend) from missing


def _run(work: Coroutine[Any, Any, T]) -> T:
    logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in record.msg)  # each TLS end
    try:
        return asyncio.run(work)
    except HubUnreachable as fault:
        raise HubSilent("the hub does not answer", why=str(fault), mend="ralphctl fleet doctor") from fault
