"""A scene for a fleet: daemons with a hub, proxies between them, and faults of each in any order.

All decisions come from the seed; the timing does not. ``fleet_proof.py`` checks what became of it.
"""

import asyncio
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ralphd.core.fleet.model import HostName
from ralphd.fleet.hub import joining, keys
from ralphd.fleet.hub import server as hub_server
from ralphd.fleet.hub.files import HubMember, HubRecord
from tests.fleet import hub_server as hub
from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, Reply, View, daemon_in

PATIENCE_S, SETTLE_S, HUB_S = 40.0, 240.0, 20.0
FAULTS = (
    *("cut", "cut", "cut", "freeze", "freeze", "freeze", "kill", "kill", "kill", "die", "die"),
    *("kill_hub", "wipe_hub", "rewind_hub", "drain", "lose_git"),
)
"""``die``: with its agents, as in a power cut. ``rewind_hub``: it has lost its last acknowledged writes."""
CONFIGURATION = """
[fleet]
allow_repos = ["{folder}/*"]
work_directory = "{folder}/work-{name}"
slots = 3
lease_seconds = 2
takeover_wait_seconds = 2
offline_push_seconds = 1
"""
TOML = """[ralph]
command = ["./work.sh"]
[regent]
retry_backoff_seconds = 0
max_retries = 1000000
max_restarts_per_hour = 1000000
"""
WORK = """#!/bin/sh
# One commit, and exit status 1 while there is more to do: each run of this is an iteration.
mkdir -p work; n=$(ls work | wc -l); next=$((n + 1))
[ "$n" -lt {steps} ] || exit 0
sleep 0.$((n % 4 + 4))
if [ $((n % 5)) = 2 ]; then  # a file that is never committed
  echo "$(date +%s%N) $$ scratch" > scratch-$next; git hash-object scratch-$next >> "{ledger}.files"
fi
echo "$(date +%s%N) $$" > work/$next
git add -A work && git -c user.name=r -c user.email=r@example.com commit -qm "step $next" || exit 1
echo "$(git symbolic-ref --short HEAD) $(git rev-parse HEAD)" >> "{ledger}"
[ "$next" -lt {steps} ]  && exit 1
exit 0
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much happens: machines, items, commits of each, the time for faults, and between two of them."""

    hosts: int
    items: int
    steps: int
    play_s: float
    fault_s: float


class Proxy:
    """TCP between one machine and the hub. While it is held it closes nothing, and no byte passes."""

    def __init__(self, hub_port: int) -> None:
        self._hub_port, self._loop = hub_port, asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def hold(self, *, is_on: bool) -> None:
        self._loop.call_soon_threadsafe(self._passes.clear if is_on else self._passes.set)

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._passes.wait()
            there, away = await asyncio.open_connection("127.0.0.1", self._hub_port)
            await asyncio.gather(self._pump(reader, away), self._pump(there, writer), return_exceptions=True)
        except (OSError, asyncio.CancelledError):  # a cancelled callback of a server is logged as a fault
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


class TortureHub:
    """The hub's own nats-server with TLS, killed, wiped and started again on one port."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        hub.init(directory, addresses=["127.0.0.1"], port=self.port, name=names[0])
        self.seeds = {name: keys.new_seed() for name in names[1:]}
        members = tuple(HubMember(HostName(name), keys.public_key(seed)) for name, seed in self.seeds.items())
        self.seeds[names[0]] = keys.read_seed(directory / "admin.seed")

        def add(before: HubRecord) -> HubRecord:
            return replace(before, hosts=(*before.hosts, *members))

        asyncio.run(hub_server.apply(directory, add))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = hub_server.run_command(self.directory)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(HUB_S)
            self._process = None

    def wipe(self) -> None:
        self.kill()
        shutil.rmtree(self.directory / "store-1", ignore_errors=True)

    def rewind(self) -> None:
        """Go back to the store of the last call, or of this moment: a copy, torn by the writes meanwhile."""
        kept, present = self.directory / "store-kept", self.directory / "store-present"
        with suppress(shutil.Error):  # files go while they are copied
            shutil.copytree(self.directory / "store-1", present)
        self.wipe()
        if not kept.exists():
            shutil.copytree(present, kept)
        kept.rename(self.directory / "store-1")
        present.rename(kept)


@dataclass(slots=True)
class Machine:
    """One daemon of the fleet, its way to the hub, and which of its faults last."""

    name: str
    daemon: Daemon
    proxy: Proxy
    work: Path
    is_dead: bool = False
    is_frozen: bool = False
    is_cut: bool = False

    @property
    def is_up(self) -> bool:
        return not self.is_dead and not self.is_frozen

    def ask(self, method: str, path: str, body: View | None = None) -> Reply | None:
        """Ask its daemon once; None without an answer."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            return self.daemon.api(method, path, body)
        return None


@dataclass(order=True, slots=True)
class Heal:
    at: float
    act: Callable[[], None] = field(compare=False)


class FleetScene:
    """A remote, a hub and machines, with faults."""

    def __init__(self, root: Path, seed: int, pace: Pace) -> None:
        self.root, self.seed, self.pace = root, seed, pace
        self.rng = random.Random(seed)
        self.ledger, self.remotes = root / "ledger", root / "remotes"
        self.faults: Counter[str] = Counter()
        self._is_hub_down = False
        self.items: list[str] = []
        self.held: list[str] = []
        self._heals: list[Heal] = []
        self.bares = [self._make_remote(number) for number in range(2)]
        self.names = [f"h{number}" for number in range(1, pace.hosts + 1)]
        self.hub = TortureHub(root / "hub", self.names)
        self.machines: list[Machine] = []

    def git(self, *words: str, at: Path | None = None) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        command = ("git", "-C", str(at or self.root), *identity, *words)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def _make_remote(self, number: int) -> Path:
        """Make a bare repository whose reflogs are the record of all pushes."""
        bare, seed = self.remotes / f"app{number}.git", self.root / f"seed{number}"
        self.remotes.mkdir(exist_ok=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
        self.git("config", "core.logAllRefUpdates", "always", at=bare)
        self.git("config", "receive.autogc", "false", at=bare)
        self.git("clone", "--quiet", str(bare), str(seed))
        (seed / "work.sh").write_text(WORK.format(steps=self.pace.steps, ledger=self.ledger))
        (seed / "work.sh").chmod(0o755)
        (seed / "ralph.toml").write_text(TOML)
        self.git("add", ".", at=seed)
        self.git("commit", "--quiet", "-m", f"first of {number}", at=seed)
        self.git("push", "--quiet", "origin", "HEAD:main", at=seed)
        self.url(bare).symlink_to(bare)
        return bare

    def url(self, bare: Path) -> Path:
        """Return its address, a link: a rename of the repository would keep git from removing its locks."""
        return bare.with_suffix("")

    @contextmanager
    def running(self) -> Iterator["FleetScene"]:
        """Run the hub and all machines until the end of the block, after which no process is left."""
        with ExitStack() as stack:
            stack.callback(self.hub.kill)
            self.hub.start()
            for name in self.names:
                machine = self._machine(name, stack)
                machine.daemon.start(wait=False)
            for machine in self.machines:
                wait_for(lambda m=machine: m.ask("GET", "/v1/ready") is not None, timeout_s=PATIENCE_S)  # type: ignore[misc]
            yield self

    def _machine(self, name: str, stack: ExitStack) -> Machine:
        daemon = stack.enter_context(daemon_in(self.root / name))
        proxy = Proxy(self.hub.port)
        stack.callback(proxy.close)
        daemon.configure(CONFIGURATION.format(folder=self.remotes, name=name))
        joined = joining.Joined(
            HostName(name), (f"tls://127.0.0.1:{proxy.port}",), (self.hub.directory / "ca.pem").read_text(),
            HostName(self.names[0]),
        )  # fmt: skip
        joining.keep(daemon.state / "fleet", joined, seed=self.hub.seeds[name])
        machine = Machine(name, daemon, proxy, self.remotes / f"work-{name}")
        self.machines.append(machine)
        return machine

    # --- the play ---------------------------------------------------------------------------------------

    def play(self) -> None:
        """Submit items, then have faults come and go; heal all, and wait until each item is done."""
        wait_for(self._has_all_items, timeout_s=PATIENCE_S, what="all items in the hub")
        wait_for(lambda: len(self._holders()) > 1, timeout_s=PATIENCE_S, what="two machines with an item")
        ends_at, fault_at = time.monotonic() + self.pace.play_s, 0.0
        while (now := time.monotonic()) < ends_at:
            if now >= fault_at:
                self._fault(now)
                fault_at = now + self.rng.uniform(0.3, 1.7) * self.pace.fault_s
            self._heal(now)
            time.sleep(0.03)
        while self._heals:
            self._heal(float("inf"))
        self._settle()

    def _has_all_items(self) -> bool:
        return len(self.items) == self.pace.items or (self._submit() and False)

    def _holders(self) -> list[Machine]:
        """Return the machines that have items, as far as one knows that is up."""
        up = next((each for each in self.machines if each.is_up and not each.is_cut), None)
        reply = up.ask("GET", "/v1/fleet") if up else None
        names = {each["holder"] for each in reply.body["items"]} if reply and reply.status == 200 else set()
        return [each for each in self.machines if each.name in names]

    def _submit(self) -> bool:
        up = [each for each in self.machines if each.is_up]
        if not up:
            return False
        bare = self.rng.choice(self.bares)
        body = {"repo": str(self.url(bare)), "max_tries": 100}
        reply = self.rng.choice(up).ask("POST", "/v1/fleet/items", body)
        if reply is None or reply.status != 201:
            return False
        self.items.append(reply.body["item"]["id"])
        return True

    def _heal(self, now: float) -> None:
        due = sorted(each for each in self._heals if each.at <= now)
        self._heals = [each for each in self._heals if each.at > now]
        for each in due:
            each.act()

    def _fault(self, now: float) -> None:
        """Begin a fault, more often of a machine that has an item."""
        holders = self._holders() if self.rng.random() < 0.7 else []
        what, machine = self.rng.choice(FAULTS), self.rng.choice(holders or self.machines)
        lasts_s = self.rng.choice((1.0, 3.0, 8.0, 8.0)) * self.rng.uniform(0.7, 1.3)
        heal = getattr(self, f"_{what}")(machine)
        if heal is not None:
            self.faults[what] += 1
            self._heals.append(Heal(now + lasts_s, heal))

    def _cut(self, machine: Machine) -> Callable[[], None] | None:
        if machine.is_cut:
            return None
        machine.is_cut = True
        machine.proxy.hold(is_on=True)

        def heal() -> None:
            machine.is_cut = False
            machine.proxy.hold(is_on=False)

        return heal

    def _freeze(self, machine: Machine) -> Callable[[], None] | None:
        if not machine.is_up:
            return None
        machine.is_frozen = True
        machine.daemon.send(signal.SIGSTOP)

        def heal() -> None:
            machine.is_frozen = False
            if not machine.is_dead:
                machine.daemon.send(signal.SIGCONT)

        return heal

    def _kill(self, machine: Machine) -> Callable[[], None] | None:
        if not machine.is_up:
            return None
        machine.is_dead = True
        machine.daemon.kill()

        def heal() -> None:
            machine.is_dead = False
            machine.daemon.start(wait=False)

        return heal

    def _die(self, machine: Machine) -> Callable[[], None] | None:
        if (heal := self._kill(machine)) is not None:
            for pid in machine.daemon.pids_of_runs():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return heal

    def _kill_hub(self, machine: Machine) -> Callable[[], None] | None:
        if self._is_hub_down:
            return None
        self._is_hub_down = True
        self.hub.kill()

        def heal() -> None:
            self._is_hub_down = False
            self.hub.start()

        return heal

    def _wipe_hub(self, machine: Machine) -> Callable[[], None] | None:
        if (heal := self._kill_hub(machine)) is not None:
            self.hub.wipe()
        return heal

    def _rewind_hub(self, machine: Machine) -> Callable[[], None] | None:
        if (heal := self._kill_hub(machine)) is not None:
            self.hub.rewind()
        return heal

    def _drain(self, machine: Machine) -> Callable[[], None] | None:
        return (lambda: self._undrain(machine)) if self._set_draining(machine, "drain") else None

    def _undrain(self, machine: Machine) -> None:
        if machine.is_up and not self._set_draining(machine, "undrain"):  # its daemon just starts
            self._heals.append(Heal(time.monotonic() + 0.5, lambda: self._undrain(machine)))

    def _set_draining(self, machine: Machine, verb: str) -> bool:
        if not machine.is_up or not is_alive(machine.daemon.pid):
            return False
        reply = machine.ask("POST", f"/v1/fleet/hosts/{machine.name}/{verb}", {})
        return reply is not None and reply.status == 202

    def _lose_git(self, machine: Machine) -> Callable[[], None] | None:
        bare = self.rng.choice(self.bares)
        link = self.url(bare)
        if not link.is_symlink():
            return None
        link.unlink()
        return lambda: link.symlink_to(bare)

    # --- the end ----------------------------------------------------------------------------------------

    def views(self) -> dict[str, View]:
        """Return the items as the first machine that answers knows them."""
        for machine in self.machines:
            reply = machine.ask("GET", "/v1/fleet")
            if reply is not None and reply.status == 200:
                return {each["id"]: each for each in reply.body["items"]}
        return {}

    def _settle(self) -> None:
        for machine in self.machines:
            wait_for(lambda m=machine: m.ask("GET", "/v1/ready") is not None, timeout_s=PATIENCE_S)  # type: ignore[misc]
            wait_for(lambda m=machine: self._set_draining(m, "undrain"), timeout_s=PATIENCE_S)  # type: ignore[misc]
        with suppress(AssertionError):
            wait_for(self._is_settled, timeout_s=SETTLE_S, what="an end of all items")

    def _is_settled(self) -> bool:
        views = self.views()
        for item, view in views.items():
            if view["state"] in ("held", "failed"):
                self.held.append(f"{item}: {view['why']}")
                self.machines[0].ask("POST", f"/v1/fleet/items/{item}/retry", {})
        time.sleep(0.2)
        return set(self.items) <= set(views) and all(each["state"] == "done" for each in views.values())
