"""A fleet of machines: memory, the status of a thousand, the time to the first process of an item."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.model import HostName, HostRecord, Login
from ralphd.fleet.fabric import Bucket
from ralphd.fleet.hub import files as hub_files
from ralphd.fleet.hub import joining, keys
from tests.bench import limits
from tests.bench.bench import Bench
from tests.bench.measure import median, percentile, rss_mb, wait_until, whole_process
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.table import Line, Verdict
from tests.fleet.crowd import Crowd, gathered
from tests.fleet.server import NatsServer
from tests.whole.fleet_stage import TortureHub

HOSTS, ROUNDS, ITEMS = 1000, 5, 3
MEMORY_GOAL_MB, STATUS_GOAL_S, FIRST_GOAL_S = 6.0, 0.5, 3.0
CORE_GOAL, HUB_MB_GOAL, REACH_GOAL_S = 0.25, 300.0, 0.25
LEASES_EACH, RENEW_S, CROWD_S = 3, 20.0, 40.0
CONFIGURATION = '[fleet]\nallow_repos = ["{place}/*"]\nwork_directory = "{place}/work"\nslots = 8\n'
SCRIPT = "#!/bin/sh\ndate +%s.%N > {stamp}\n"
HOW_MEMORY = (
    "Resident memory of a daemon that is the only machine of a fleet, connected for some seconds, minus that"
    " of the same daemon before it joined; nats-server has its own."
)
HOW_STATUS = (
    f"`ralphctl fleet status` as a whole process, its output thrown away, median of {ROUNDS}, with the"
    f" records of {HOSTS:,} machines in the hub. The machine: a bare Python that does nothing."
)
HOW_FIRST = (
    f"From `POST /v1/fleet/items` to the first line of the repository's command, on a machine that has a"
    f" clone; the longest of {ITEMS}. In it: the turn that looks for items, and the lease in git."
)
HOW_CROWD = (
    f"{HOSTS:,} hosts in one Python process, a connection each, {LEASES_EACH} leases each, renewed every"
    f" {RENEW_S:g} s for {CROWD_S:g} s: nats-server's CPU and memory, and how long a limit takes to the"
    " last host."
)


def machines(bench: Bench) -> Sequence[Line]:
    """One machine in a fleet, and what it shows of a thousand."""
    place = bench.place()
    daemon = Daemon(place / "home", configuration=CONFIGURATION.format(place=place))
    if path := os.environ.get("PYTHONPATH"):
        daemon.environment["PYTHONPATH"] = path
    hub = TortureHub(place / "hub", ["h1"])
    try:
        daemon.start()
        alone_mb = _settled_mb(daemon)
        daemon.shut()
        hub.start()
        _joins(daemon, hub)
        daemon.start()
        _await_connection(daemon)
        joined_mb = _settled_mb(daemon)
        first_s = _first_processes(daemon, place)
        asyncio.run(_add_records(hub))
        wait_until(lambda: len(_view(daemon)["hosts"]) > HOSTS, limit_s=30.0, what="the records")
        status_s = _status_s(daemon.environment)
    finally:
        hub.kill()
        daemon.close()
    least = median([limits.interpreter_s() for _ in range(ROUNDS)])
    more_mb = joined_mb - alone_mb
    return [
        Line(
            "RSS of a daemon in a fleet, more than outside", f"<= {MEMORY_GOAL_MB:g} MB",
            f"{more_mb:.1f} MB ({alone_mb:.1f} to {joined_mb:.1f})", Verdict.of(more_mb <= MEMORY_GOAL_MB),
            HOW_MEMORY,
        ),
        Line(
            "an item's submit to its first process, with a clone", f"<= {FIRST_GOAL_S:g} s",
            f"{max(first_s):.2f} s", Verdict.of(max(first_s) <= FIRST_GOAL_S), HOW_FIRST,
        ),
        Line(
            f"fleet status of {HOSTS:,} machines", f"<= {STATUS_GOAL_S:g} s", f"{status_s:.2f} s",
            Verdict.of(status_s <= STATUS_GOAL_S), HOW_STATUS, limit=f"{least:.2f} s",
        ),
    ]  # fmt: skip


def crowd(bench: Bench) -> Sequence[Line]:
    """A thousand hosts at one hub."""
    server = NatsServer(bench.place() / "hub")
    server.start()
    try:
        met = asyncio.run(_gathered(server))
    finally:
        server.kill()
    is_met = met.server_cores <= CORE_GOAL and met.server_mb <= HUB_MB_GOAL and met.reached_s <= REACH_GOAL_S
    return [
        Line(
            f"a hub with {HOSTS:,} hosts, {HOSTS * LEASES_EACH:,} leases; a limit to all",
            f"<= {CORE_GOAL:.0%} of a core, {HUB_MB_GOAL:g} MB; {REACH_GOAL_S * 1e3:g} ms",
            f"{met.server_cores:.1%}, {met.server_mb:.0f} MB; {met.reached_s * 1e3:.0f} ms; renewals p50"
            f" {median(met.waits_s) * 1e3:.1f}, p99 {percentile(met.waits_s, 0.99) * 1e3:.0f} ms,"
            f" {met.failed} failed",
            Verdict.of(is_met and not met.failed), HOW_CROWD,
        )
    ]  # fmt: skip


async def _gathered(server: NatsServer) -> Crowd:
    await server.make_buckets()
    return await gathered(server, HOSTS, LEASES_EACH, CROWD_S, RENEW_S)


def _joins(daemon: Daemon, hub: TortureHub) -> None:
    name, authority = HostName("h1"), (hub.directory / "ca.pem").read_text()
    joined = joining.Joined(name, (f"tls://127.0.0.1:{hub.port}",), authority, name)
    joining.keep(daemon.state / "fleet", joined, seed=hub.seeds["h1"])


def _view(daemon: Daemon) -> Mapping[str, list[Mapping[str, object]]]:
    view: Mapping[str, list[Mapping[str, object]]] = daemon.ask("GET", "/v1/fleet")
    return view


def _await_connection(daemon: Daemon) -> None:
    wait_until(lambda: _view(daemon)["hosts"], limit_s=30.0, what="the own record in the hub")


def _settled_mb(daemon: Daemon) -> float:
    time.sleep(3.0)
    return rss_mb(daemon.pid)


def _first_processes(daemon: Daemon, place: Path) -> list[float]:
    """Return the seconds from a submit to the first line of the command, but for the item that clones."""
    stamp, bare, seed = place / "stamp", place / "app.git", place / "seed"
    _git(place, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    _git(place, "clone", "--quiet", str(bare), str(seed))
    (seed / "work.sh").write_text(SCRIPT.format(stamp=stamp))
    (seed / "work.sh").chmod(0o755)
    (seed / "ralph.toml").write_text('[ralph]\ncommand = ["./work.sh"]\n')
    _git(seed, "add", ".")
    _git(seed, "-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "--quiet", "-m", "first")
    _git(seed, "push", "--quiet", "origin", "HEAD:main")
    took_s = []
    for _ in range(ITEMS + 1):
        begun = time.time()
        daemon.ask("POST", "/v1/fleet/items", {"repo": str(bare)})
        wait_until(lambda: stamp.exists() and stamp.read_text().strip(), limit_s=30.0, what="the process")
        took_s.append(float(stamp.read_text()) - begun)
        wait_until(lambda: _are_done(daemon), limit_s=30.0, what="the end of the item")
        stamp.unlink()
    return took_s[1:]


def _are_done(daemon: Daemon) -> bool:
    return all(each["state"] == "done" for each in _view(daemon)["items"])


def _git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(directory), *words], check=True, capture_output=True, timeout=60)


async def _add_records(hub: TortureHub) -> None:
    logins = (Login("claude", "team"), Login("codex"))
    async with keys.connected(
        [f"tls://127.0.0.1:{hub.port}"], ca=(hub.directory / "ca.pem").read_text(), seed=hub.seeds["h1"],
        inbox=hub_files.inbox_of("bench"),
    ) as client:  # fmt: skip
        js = client.jetstream()
        for number in range(HOSTS):
            record = HostRecord(
                HostName(f"m{number}"), "boot", "0.1.0", ("linux", "docker"), logins, ("example.com/team/*",),
                4, 2, 8, ralphs=("one", "two"), at=time.time(),
            )  # fmt: skip
            value = json.dumps(write_value(record)).encode()
            await js.publish(f"$KV.{Bucket.HOSTS}.{record.name}", value)


def _status_s(environment: Mapping[str, str]) -> float:
    took_s = []
    for _ in range(ROUNDS + 1):  # the first one warms the caches
        spent = whole_process([str(RALPHCTL), "fleet", "status"], dict(environment))
        if spent.code:
            raise RuntimeError(f"ralphctl fleet status ended with {spent.code}")
        took_s.append(spent.wall_s)
    return median(took_s[1:])
