"""Requests by the daemon's own OpenAPI document, sent to a real daemon, and what has to hold after them."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.fuzz.relay import Harmless, Traffic, relay
from tests.git.work_tree import WorkTree
from tests.helpers import wait_for
from tests.notify.receiver import receiving
from tests.players import player
from tests.whole.harness import Daemon, daemon_in

NAMES = ("one", "two", "three", "four", "five", "six")
REPORTER = "reporter"
MOST_GROWTH_BYTES = 96 << 20
MOST_DESCRIPTORS = 24
MOST_PIDFDS = 128
"""That of an ended run is closed with its object, which Python's collector of cycles frees now and then."""
MOST_LINE = 4000
PATIENCE_S = 180.0
"""All of this runs with the lowest priority, perhaps on a busy machine."""
SLOWEST_STATUS_S = 1.0
CONFIGURATION = """
[limits]
max_running = 4
[notify]
allow_private = true
[logs]
run_bytes = "2 MiB"
total_bytes = "32 MiB"
"""
SCHEMATHESIS = """
[checks]
# Every body is turned into another one (relay.py), and a well-formed request may be refused.
positive_data_acceptance.enabled = false
use_after_free.enabled = false
ensure_resource_availability.enabled = false
# The door asks the kernel who calls, and no header.
ignored_auth.enabled = false
object_level_authorization.enabled = false
[[operations]]
# With POST these paths are those of a verb, which is refused as an unknown one.
include-operation-id = ["explain_item", "explain_fleet_ralph", "read_fleet_log"]
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
"""
RALPH_TOML = """
[ralph]
command = ["sh", "-c", "echo working; git commit -q --allow-empty -m more; sleep 1"]
restart = "always"
[regent]
test_command = "true"
rollback_on_test_failure = true
retry_backoff_seconds = 0.2
stop_timeout_seconds = 1
[git]
repair = "abort"
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the daemon needs: bytes, open descriptors, and the seconds for an answer to ``status``."""

    rss_bytes: int
    descriptors: int
    pidfds: int
    status_s: float

    @classmethod
    def of(cls, daemon: Daemon) -> "Measured":
        pages = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1])
        took = []
        for _ in range(15):
            began = time.monotonic()
            daemon.status()
            took.append(time.monotonic() - began)
        links = [_link(f"/proc/{daemon.pid}/fd/{each}") for each in os.listdir(f"/proc/{daemon.pid}/fd")]
        pidfds = sum("pidfd" in link for link in links)
        return cls(pages * os.sysconf("SC_PAGESIZE"), len(links) - pidfds, pidfds, statistics.median(took))

    def __str__(self) -> str:
        held = f"{self.descriptors} descriptors, {self.pidfds} pidfds"
        return f"{self.rss_bytes >> 20} MiB, {held}, status in {self.status_s:.3f} s"


@dataclass(slots=True)
class Stage:
    """A daemon with a few harmless ralphs, two of them in git, and one that passes reports on."""

    daemon: Daemon
    folder: Path
    harmless: Harmless
    run_ids: list[str] = field(default_factory=list)

    @classmethod
    def new(cls, daemon: Daemon, webhook: str) -> "Stage":
        folder = daemon.root / "work"
        for name in NAMES:
            (folder / name).mkdir(parents=True)
        for name in NAMES[:3]:
            (folder / name).rmdir()
            tree = WorkTree.new(folder / name)
            (tree.path / "ralph.toml").write_text(RALPH_TOML)
            (tree.path / "tasks.md").write_text("- [ ] one thing\n- [x] another\n")
            tree.git("add", "-A")
            tree.git("commit", "-q", "-m", "begin")
        harmless = Harmless(
            names=NAMES,
            directories=[folder / name for name in NAMES],
            commands=[
                player("sleeper"),
                player("exits", 0),
                player("exits", 3),
                player("exits", -15),
                player("says", "out:one\\ntwo\\n", "err:three\\n", "wait:1", "out:half"),
                player("hearer"),
                [],
            ],
            flags=[
                {"regent.retry_backoff_seconds": 0.1},
                {"ralph.max_iterations": 2},
                {"mode": "iteration"},
                {"ralph.schedule": "00:00-23:59"},
                {"regent.max_retries": 1, "ralph.restart": "always"},
                {"ralph.mode": "iteration", "landing.mode": "auto"},
                {"regent.hang_timeout_seconds": 5},
            ],
            webhook=webhook,
            reporter=REPORTER,
            port_file=daemon.root / "port",
        )
        return cls(daemon, folder, harmless)

    def populate(self) -> None:
        """Register the ralphs that requests meet at first, and the one that sends reports."""
        for name in NAMES[:4]:
            body = {"directory": str(self.folder / name), "command": list(player("sleeper")), "name": name}
            self.daemon.ask("POST", "/v1/ralphs", body)
        self.report_again()

    def report_again(self) -> None:
        """Start a run that passes reports on, if none lives."""
        (place := self.daemon.root / "reporter").mkdir(exist_ok=True)
        pump = Path(__file__).with_name("pump.py")
        port_file = self.harmless.port_file
        port_file.unlink(missing_ok=True)
        body = {
            "directory": str(place),
            "name": REPORTER,
            "command": [
                sys.executable,
                "-u",
                "-S",
                str(pump),
                str(self.daemon.state / "ralphd.sock"),
                str(port_file),
            ],
            "flags": {
                "regent.retry_backoff_seconds": 0.1,
                "regent.max_retries": 1000,
                "regent.max_restarts_per_hour": 100000,
                "ralph.restart": "always",
            },
        }
        self.daemon.ask("POST", "/v1/ralphs", body)
        wait_for(port_file.exists, timeout_s=PATIENCE_S, what="the port of the run that reports")
        self.run_ids.append(self.daemon.view(REPORTER)["run_id"])

    def keep_reporting(self) -> None:
        """Have a run report whatever the reports before asked for."""
        view = self.daemon.view(REPORTER)
        if view["run_id"] not in (None, self.run_ids[-1]):
            self.run_ids.append(view["run_id"])
        if view["ralph_pid"] is None and view["state"] in ("stopped", "failed", "done", "paused", "idle"):
            self.daemon.api("POST", f"/v1/ralphs/{REPORTER}/start", {})

    def stop_all(self) -> None:
        """Stop every ralph and wait until none runs."""
        for view in self.daemon.status()["ralphs"]:
            self.daemon.api("POST", f"/v1/ralphs/{view['name']}/stop", {"now": True})
        wait_for(
            lambda: not any(view["ralph_pid"] for view in self.daemon.status()["ralphs"]),
            timeout_s=PATIENCE_S,
            what="an end of all runs",
        )


def command_of(url: str, seconds: int, seed: int, report: Path) -> list[str]:
    """Return the command line of schemathesis: all phases, all inputs, every operation but the shutdown."""
    return [
        str(Path(sys.executable).with_name("st")),
        "--config-file",
        str(report.with_name("st.toml")),
        "run",
        f"{url}/openapi.json",
        "--max-time",
        str(seconds),
        "--seed",
        str(seed),
        "--continue-on-failure",
        "--exclude-operation-id",
        "shut_down",
        "--request-timeout",
        "60",
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--no-color",
        "--report",
        "json",
        "--report-json-path",
        str(report),
        "--output-sanitize",
        "false",
        "--generation-database",
        "none",
    ]


@contextmanager
def staged(root: Path) -> Iterator[Stage]:
    """A daemon that runs, with its ralphs and a receiver for webhooks; nothing is left of it."""
    with receiving() as receiver, daemon_in(root / "one") as daemon:
        daemon.configure(CONFIGURATION)
        stage = Stage.new(daemon, receiver.url)
        daemon.start(as_child=True, wait=False)
        wait_for(daemon._is_up, timeout_s=PATIENCE_S, what="an answer of the daemon")
        stage.populate()
        yield stage
        stage.stop_all()


def run(scratch: Path, seconds: int, seed: int) -> int:
    """Send requests for so long. Print what was found; return the exit code."""
    print(f"contracts: {seconds} s, SEED={seed}", flush=True)
    with staged(scratch) as stage:
        daemon = stage.daemon
        wait_for(lambda: _has_document(daemon), timeout_s=PATIENCE_S, what="the document")
        before = Measured.of(daemon)
        with relay(daemon.state, stage.harmless, stage.run_ids) as server:
            port = server.server_address[1]
            report = scratch / "report.json"
            report.with_name("st.toml").write_text(SCHEMATHESIS)
            words = command_of(f"http://127.0.0.1:{port}", seconds, seed, report)
            with (
                (scratch / "printed").open("wb") as printed,
                subprocess.Popen(words, cwd=scratch, env=_environment(), stdout=printed) as sender,
            ):
                while sender.poll() is None:
                    with suppress(AssertionError, OSError):
                        stage.keep_reporting()
                    with suppress(subprocess.TimeoutExpired):
                        sender.wait(1.0)
            traffic = server.traffic
        for line in (scratch / "printed").read_text(errors="replace").splitlines():
            print(line[:MOST_LINE])
        faults = [*traffic.errors, *after(stage, before, traffic)]
        if sender.returncode:
            faults.append(f"schemathesis ended with {sender.returncode}: see above")
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


def after(stage: Stage, before: Measured, traffic: Traffic) -> list[str]:
    """Return what does not hold after the requests."""
    daemon, faults = stage.daemon, []
    with suppress(AssertionError, OSError):
        daemon.status()
        stage.stop_all()
    try:
        wait_for(lambda: _is_quiet(daemon), timeout_s=PATIENCE_S, what="closed streams")
        now = Measured.of(daemon)
    except (AssertionError, OSError) as gone:
        return [f"the daemon does not answer: {gone}: {daemon.words()[-4000:]}"]
    _print(before, now, traffic)
    if now.rss_bytes - before.rss_bytes > MOST_GROWTH_BYTES:
        faults.append(f"the daemon grew: {before} → {now}")
    if now.descriptors - before.descriptors > MOST_DESCRIPTORS:
        faults.append(f"descriptors stay open: {before} → {now}")
    if now.pidfds > MOST_PIDFDS:
        faults.append(f"pidfds of ended runs stay open: {before} → {now}")
    if now.status_s > SLOWEST_STATUS_S:
        faults.append(f"status takes long: {before} → {now}")
    return faults + tracebacks(daemon)


def tracebacks(daemon: Daemon) -> list[str]:
    """Return what the daemon logged of its own mistakes."""
    log = daemon.words() + (daemon.state / "ralphd.log").read_text(errors="replace")
    parts = log.split("Traceback (most recent call last)")
    found = [f"a traceback in the log: …{before[-200:]}{part[:2500]}" for before, part in pairwise(parts)]
    return found[:5] + [f"{len(found)} tracebacks"] * bool(found)


def _link(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def _has_document(daemon: Daemon) -> bool:
    """Ask for the document, which is made at the first request."""
    with suppress(OSError):
        return daemon.api("GET", "/openapi.json").status == 200
    return False


def _is_quiet(daemon: Daemon) -> bool:
    return len(os.listdir(f"/proc/{daemon.pid}/fd")) < 200


def _environment() -> dict[str, str]:
    return os.environ | {"COLUMNS": "120"}


def _print(before: Measured, now: Measured, traffic: Traffic) -> None:
    kinds = Counter[str]()
    for (_, status), count in traffic.statuses.items():
        kinds[f"{status // 100}xx"] += count
    routes = sorted({asked for asked, _ in traffic.statuses})
    print(f"{sum(kinds.values())} requests: {json.dumps(dict(sorted(kinds.items())))}")
    for asked in routes:
        counts = {status: count for (of, status), count in sorted(traffic.statuses.items()) if of == asked}
        if sum(counts.values()) > 20:
            print(f"  {asked}: " + ", ".join(f"{status} × {count}" for status, count in counts.items()))
    print(f"slowest: {traffic.slowest[1]} in {traffic.slowest[0]:.2f} s")
    print(f"the daemon: {before} → {now}", flush=True)
