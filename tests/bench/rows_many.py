"""Many ralphs on one repository: a landing's own time, what a batch costs, a new worktree, a limit's way."""

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.model import AccountLimit, HostName
from ralphd.core.fleet.names import account_key
from ralphd.core.time import parse_rfc3339
from ralphd.daemon.fleet.picture import Picture
from ralphd.fleet.fabric import Bucket
from ralphd.process.machine import raise_own_limit
from tests.bench.bench import Bench
from tests.bench.measure import median, wait_until
from tests.bench.ours import Daemon
from tests.bench.table import Line, Verdict
from tests.players import player

FILES, FEW_FILES = 10_000, 1_000
ROUNDS = 7
GREEN = 8
LOOPS = 8
END_S = 60.0
HOSTS, HOSTS_GOAL_S = 1_000, 0.25
LANDING_GOAL_S, TREE_GOAL_S, LIMIT_GOAL_S = 0.3, 1.0, 1.0
HOW_LANDING = (
    "A repository of so many files and a branch with one commit: from the request to land until main has"
    f" it, without the time of the tests' process (`true`), median of {ROUNDS}. The machine: `git merge` of"
    " such a branch, as a person would type it."
)
HOW_BATCH = f"{GREEN} green branches that wait together: how often the tests ran until all had landed."
HOW_TREE = (
    f"A ralph in a new worktree of {FILES:,} files, without `setup`: from the request until it is made,"
    f" locked and registered, median of {ROUNDS}. The machine: `git worktree add`."
)
HOW_LIMIT = (
    f"{LOOPS} loops of one account, {LOOPS - 1} of them in an attempt, one meets the limit: from that call of"
    " its agent until the account is limited for all, and from the end of the others' attempts until all of"
    " them wait. Calls: how often an agent was called after the limit was met."
)
HOW_HOSTS = (
    f"{HOSTS:,} connections of one process to a real nats-server that syncs each write: from a limit's"
    f" compare-and-swap until all of them know it, median of {ROUNDS}. Not in it: up to 1 s until the daemon"
    " of that host looks at its clocks."
)


class Project:
    """A repository on main under a daemon."""

    def __init__(self, bench: Bench, configuration: str, *, files: int = FILES) -> None:
        self.daemon = Daemon(bench.place())
        self.main = self.daemon.home / "project"
        self.main.mkdir()
        (self.daemon.home / ".gitconfig").write_text("[user]\nname = bench\nemail = bench@localhost\n")
        self.git("init", "--quiet", "--initial-branch", "main")
        for number in range(files):
            place = self.main / f"d{number % 100}"
            place.mkdir(exist_ok=True)
            (place / f"f{number}").write_text(f"{number}\n")
        (self.main / "ralph.toml").write_text(configuration)
        (self.main / "PROMPT.md").write_text("Do the next task.\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "begun")

    def git(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=at or self.main, env=self.daemon.environment, check=True, timeout=60,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    def ralph(self, name: str) -> Path:
        """Register a ralph, not started, in a worktree of its own with a commit."""
        place = self.daemon.home / name
        self.git("worktree", "add", "--quiet", "-b", f"ralph/{name}", str(place), "main")
        self.change(place, name)
        body = {
            "directory": str(place), "name": name, "command": ["true"], "start": False,
            "environment": self.daemon.environment,
        }  # fmt: skip
        self.daemon.ask("POST", "/v1/ralphs", body)
        return place

    def change(self, place: Path, name: str) -> None:
        (place / f"{name}.txt").write_text(f"{time.time()}\n")
        self.git("add", ".", at=place)
        self.git("commit", "--quiet", "--message", name, at=place)

    def landed(self, *numbers: int) -> None:
        """Wait until these candidates have landed."""

        def is_so() -> bool:
            candidates = self.daemon.ask("GET", "/v1/landing")["queues"][0]["candidates"]
            return {each["number"] for each in candidates if each["state"] == "landed"} >= {*numbers}

        wait_until(is_so, limit_s=END_S, what=f"landings {numbers}", pause_s=0.005)

    def test_runs(self) -> list[Path]:
        return list(self.daemon.state.glob("landing/*/tests/r*"))


def landings(bench: Bench) -> Sequence[Line]:
    """In a small repository, and in a large one."""
    return [*_landings(bench, FEW_FILES), *_landings(bench, FILES)]


def _landings(bench: Bench, files: int) -> Sequence[Line]:
    """One after the other, then several at once."""
    project = Project(bench, '[regent]\ntest_command = "true"\n', files=files)
    daemon, took, least = project.daemon, [], []
    try:
        daemon.start()
        place = project.ralph("one")
        for number in range(1, ROUNDS + 2):
            before = {*project.test_runs()}
            begun = time.perf_counter()
            daemon.ask("POST", "/v1/landing", {"ralph": "one"})
            project.landed(number)
            whole_s = time.perf_counter() - begun
            took.append(whole_s - sum(_length_s(run) for run in {*project.test_runs()} - before))
            project.change(place, "one")
        for number in range(ROUNDS):
            least.append(_merge_s(project, number))
        names = [f"r{number}" for number in range(GREEN)]
        for name in names:
            project.ralph(name)
        runs = _together(project, names, first=ROUNDS + 2)
    finally:
        daemon.close()
    own_s = median(took[1:])  # the first makes the queue's work tree
    figure = f"{own_s * 1e3:.0f} ms, first {took[0] * 1e3:.0f}"
    line = Line(
        f"a landing's own time, {files:,} files", "<= 300 ms", figure,
        Verdict.of(own_s <= LANDING_GOAL_S), HOW_LANDING, limit=f"{median(least) * 1e3:.0f} ms",
    )  # fmt: skip
    if files != FEW_FILES:
        return [line]
    what = f"{GREEN} green branches that wait: test runs"
    return [line, Line(what, "1", str(runs), Verdict.of(runs == 1), HOW_BATCH, limit="1")]


def _length_s(run: Path) -> float:
    ended = json.loads((run / "exit.json").read_text())
    return parse_rfc3339(ended["ended_at"]) - parse_rfc3339(ended["started_at"])


def _merge_s(project: Project, number: int) -> float:
    project.git("switch", "--quiet", "-c", f"by-hand-{number}", "main")
    project.change(project.main, f"h{number}")
    project.git("switch", "--quiet", "main")
    begun = time.perf_counter()
    project.git("merge", "--no-ff", "--no-edit", f"by-hand-{number}")
    return time.perf_counter() - begun


def _together(project: Project, names: Sequence[str], *, first: int) -> int:
    """Land branches that came while another one was tested; how often the tests ran for them."""
    daemon = project.daemon
    project.git("commit", "--quiet", "--allow-empty", "--message", "so that nothing is known to be green")
    blocker = daemon.home / "wait"
    blocker.touch()
    toml = f'[regent]\ntest_command = "while test -e {blocker}; do sleep 0.02; done"\n'
    (project.main / "ralph.toml").write_text(toml)
    project.git("commit", "--quiet", "--all", "--message", "tests that wait")
    daemon.ask("POST", "/v1/landing", {"ralph": "one"})
    wait_until(
        lambda: _doing(project) == "testing", limit_s=END_S, what="the tests of the first", pause_s=0.01
    )
    for name in names:
        daemon.ask("POST", "/v1/landing", {"ralph": name})
    before = len(project.test_runs())
    blocker.unlink()
    project.landed(*range(first, first + 1 + len(names)))
    return len(project.test_runs()) - before


def _doing(project: Project) -> str:
    batch = project.daemon.ask("GET", "/v1/landing")["queues"][0]["batch"]
    return str(batch["doing"]) if batch else ""


def worktrees(bench: Bench) -> Sequence[Line]:
    """One after the other, each for a ralph that ends at once."""
    project = Project(bench, "")
    daemon, took, least = project.daemon, [], []
    try:
        daemon.start()
        for number in range(ROUNDS):
            body = {
                "directory": str(project.main), "command": ["true"], "start": False,
                "environment": daemon.environment, "name": f"w{number}",
            }  # fmt: skip
            begun = time.perf_counter()
            daemon.ask("POST", "/v1/trees", body)
            took.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            project.git("worktree", "add", "--quiet", "-b", f"h{number}", str(daemon.home / f"h{number}"))
            least.append(time.perf_counter() - begun)
    finally:
        daemon.close()
    tree_s = median(took)
    return [
        Line(
            f"a worktree of {FILES:,} files, ready", "<= 1 s", f"{tree_s:.2f} s, at most {max(took):.2f}",
            Verdict.of(tree_s <= TREE_GOAL_S), HOW_TREE, limit=f"{median(least):.2f} s",
        )
    ]  # fmt: skip


def limits(bench: Bench) -> Sequence[Line]:
    """One meets the limit while the others are in an attempt."""
    account = bench.place()
    command = json.dumps(list(player("quota_agent", account)))
    daemon = Daemon(
        bench.place(),
        configuration=f'[agents]\nprimary = "moody@work"\n[agents.moody]\ncommand = {command}\n'
        '[accounts.work]\nagent = "moody"\nenv = { WHO = "work" }\n',
    )
    calls = account / "calls"
    (account / "hold").touch()
    try:
        daemon.start()
        for number in range(1, LOOPS):
            _loop(daemon, f"r{number}")
        wait_until(lambda: _count(calls) == LOOPS - 1, limit_s=END_S, what="attempts", pause_s=0.01)
        (account / "until").write_text(str(time.time() + 3600))
        _loop(daemon, "last")
        wait_until(
            lambda: _account(daemon)["state"] == "limited", limit_s=END_S, what="the limit", pause_s=0.005
        )
        known_s = time.time() - float(calls.read_text().splitlines()[-1].split()[0])
        begun = time.perf_counter()
        (account / "go").touch()
        wait_until(
            lambda: len(_account(daemon)["waiting"]) == LOOPS,
            limit_s=END_S,
            what="all to wait",
            pause_s=0.005,
        )
        all_s = time.perf_counter() - begun
        more = _count(calls) - LOOPS
    finally:
        daemon.close()
    return [
        Line(
            f"a limit known to {LOOPS} loops", "<= 1 s, 0 calls",
            f"{known_s:.2f} s; all wait {all_s:.2f} s; {more} calls",
            Verdict.of(max(known_s, all_s) <= LIMIT_GOAL_S and more == 0), HOW_LIMIT,
        )
    ]  # fmt: skip


def _loop(daemon: Daemon, name: str) -> None:
    directory = daemon.home / name
    directory.mkdir()
    (directory / "PROMPT.md").write_text("Do the next task.\n")
    (directory / "TASKS.md").write_text("- [ ] one\n- [ ] two\n")
    body = {"directory": str(directory), "name": name, "command": [], "environment": daemon.environment}
    daemon.ask("POST", "/v1/ralphs", body)


def _count(calls: Path) -> int:
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def _account(daemon: Daemon) -> dict[str, Any]:
    accounts = daemon.ask("GET", "/v1/quota")["accounts"]
    return dict(accounts[0]) if accounts else {"state": "", "waiting": []}


def fleet_limits(bench: Bench) -> Sequence[Line]:
    """One host meets a limit, and all others of its fleet have to know it."""
    took = asyncio.run(_told_to_all(bench.place()))
    told_s = median(took)
    return [
        Line(
            f"a limit known to {HOSTS:,} hosts", "<= 250 ms",
            f"{1000 * told_s:.0f} ms, at most {1000 * max(took):.0f}",
            Verdict.of(told_s <= HOSTS_GOAL_S), HOW_HOSTS,
        )
    ]  # fmt: skip


async def _told_to_all(directory: Path) -> list[float]:
    from ralphd.fleet.nats import NatsFabric  # with its client, which only this row needs
    from tests.fleet.server import NatsServer

    raise_own_limit()
    server, key = NatsServer(directory / "hub"), account_key("claude", "work")
    server.start()
    fabrics = [NatsFabric(server.settings(f"h{number}")) for number in range(HOSTS)]
    pictures = [Picture(time.time) for _ in fabrics]

    async def follow(fabric: NatsFabric, picture: Picture) -> None:
        async for entry in fabric.watch(Bucket.QUOTA):
            picture.take(Bucket.QUOTA, entry)

    async def known(revision: int) -> None:
        async with asyncio.timeout(END_S):
            for each in pictures:
                while (seen := each.known(Bucket.QUOTA, key)) is None or seen.revision < revision:
                    await asyncio.sleep(0.001)

    tasks: list[asyncio.Task[None]] = []
    try:
        await server.make_buckets()
        await asyncio.gather(*(each.connect() for each in fabrics))
        tasks += [asyncio.create_task(follow(*each)) for each in zip(fabrics, pictures, strict=True)]
        limit = AccountLimit("claude", "work", "limited", time.time() + 3600, by=HostName("h0"))
        revision = await fabrics[0].create(Bucket.QUOTA, key, write_value(limit))
        await known(revision)
        took = []
        for number in range(ROUNDS):
            begun = time.perf_counter()
            later = write_value(replace(limit, until=time.time() + 7200 + number))
            revision = await fabrics[number].update(Bucket.QUOTA, key, later, revision=revision)
            await known(revision)
            took.append(time.perf_counter() - begun)
        return took
    finally:
        await asyncio.gather(*(each.close() for each in fabrics))
        server.kill()
        await asyncio.gather(*tasks)
