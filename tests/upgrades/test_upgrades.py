"""Another version takes over a state directory with its runs; an older one refuses it and changes nothing."""

import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.soak.cast import Member
from tests.upgrades import versions
from tests.upgrades.proof import figures_of
from tests.upgrades.stage import Scene, small_cast
from tests.whole.harness import Daemon, daemon_in
from tests.whole.person import Person

UNUSABLE = 78
OWN = {"lock", "ralphd.log"}
"""What a daemon writes before it knows the version of the state directory: its pid, why it does not start."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versions.Copy]:
    """0.1.0 itself."""
    copy = versions.first_version(tmp_path_factory.mktemp("first") / "copy", compiled=False)
    if copy is None:
        pytest.skip("this clone does not have the commit of 0.1.0")
    yield copy


def start_first(first: versions.Copy, daemon: Daemon) -> "subprocess.Popen[bytes]":
    """Start the daemon of 0.1.0 in the foreground."""
    environment = {name: text for name, text in daemon.environment.items() if name != "PYTHONPATH"}
    with (daemon.root / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            first.command("ralphd"), env=environment, cwd=daemon.root, stdin=subprocess.DEVNULL, stderr=stderr
        )


def contents(state: Path) -> dict[str, object]:
    """Return what each file of a state directory holds; of the log of a run only that it is there."""
    files = [path for path in state.rglob("*") if path.is_file() and path.name not in OWN]
    found: dict[str, object] = {
        str(path.relative_to(state)): path.name.startswith("log.") or path.read_bytes()
        for path in files
        if not path.name.startswith("events.db") and path.suffix != ".tmp"
    }
    return {**found, "events.db": rows(state)}


def rows(state: Path) -> list[object]:
    """Return the version and the rows of the events, from a copy: who reads SQLite's log empties it."""
    with tempfile.TemporaryDirectory() as copies:
        for path in state.glob("events.db*"):
            shutil.copy(path, copies)
        with closing(sqlite3.connect(f"{copies}/events.db")) as events:
            return [
                row
                for query in ("PRAGMA user_version", "SELECT * FROM events", "SELECT * FROM outbox")
                for row in events.execute(query)
            ]


def test_living_runs_of_0_1_0_are_adopted_and_it_refuses_to_take_them_back(
    first: versions.Copy, tmp_path: Path
) -> None:
    members = (
        Member("print-0", (0.05, "print")),
        Member("loop-0", rest_s=0.2),
        Member("op-0", (0.05, "slow", 0.1)),
    )
    with daemon_in(tmp_path / "one") as daemon:
        scene = Scene(daemon, members, random.Random(1))
        old = start_first(first, daemon)
        wait_for(scene.is_ready, timeout_s=30, what="0.1.0 answers")
        for member in members:
            daemon.ask("POST", "/v1/ralphs", member.prepared(daemon))
        wait_for(lambda: len(members[1].calls(daemon)) > 1, timeout_s=30, what="work of the loop of 0.1.0")
        before = {view["name"]: (view["run_id"], view["ralph_pid"]) for view in daemon.status()["ralphs"]}
        old.kill()
        old.wait()

        daemon.start()
        calls = len(members[1].calls(daemon))
        wait_for(lambda: len(members[1].calls(daemon)) > calls + 1, timeout_s=30, what="its loop works on")
        after = {view["name"]: (view["run_id"], view["ralph_pid"]) for view in daemon.status()["ralphs"]}
        assert after == before
        scene.rest()
        figures = figures_of(scene)
        assert figures.problems == []
        assert figures.ends == 3 and figures.iterations > 1 and figures.lines > 1

        daemon.ask("POST", "/v1/ralphs/print-0/start")
        pid = daemon.becomes("print-0", "running")["ralph_pid"]
        daemon.kill()
        untouched = contents(daemon.state)
        with start_first(first, daemon) as old:
            assert old.wait(30) == UNUSABLE
        assert "events.db was written by a newer ralphd (version 2, this one knows 1)" in daemon.words()
        assert contents(daemon.state) == untouched
        assert is_alive(pid)


def test_a_newer_state_directory_is_refused_and_unchanged(tmp_path: Path) -> None:
    member = Member("print-0", (0.05, "print"))
    with daemon_in(tmp_path / "one") as daemon:
        daemon.start()
        daemon.ask("POST", "/v1/ralphs", member.prepared(daemon))
        pid = daemon.becomes("print-0", "running")["ralph_pid"]
        daemon.kill()
        with closing(sqlite3.connect(daemon.state / "events.db")) as events:
            version = events.execute("PRAGMA user_version").fetchone()[0]
            events.execute(f"PRAGMA user_version = {version + 1}")
        untouched = contents(daemon.state)

        daemon.start(wait=False)
        assert daemon.exit_code() == UNUSABLE
        assert (
            f"written by a newer ralphd (version {version + 1}, this one knows {version})" in daemon.words()
        )
        said = Person(daemon)("regent", "start")
        assert said.returncode == UNUSABLE and "install that ralphd again" in said.stderr
        assert contents(daemon.state) == untouched
        assert is_alive(pid)


def test_nothing_is_lost_or_done_twice_in_some_upgrades(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        scene = Scene(daemon, small_cast(), random.Random(3))
        scene.begin(Person(daemon))
        for way in ("restart", "kill", "leave"):
            scene.upgrade(Person(daemon), way)
        scene.rest()
        figures = figures_of(scene)
        assert figures.problems == []
        assert figures.ends >= 4 and figures.commits > 0 and figures.lines > 0
