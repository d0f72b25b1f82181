"""An idle landing queue starts no process, and one that waits asks git only after a change (M1)."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ralphd.core.landing.model import LandingCandidate, LandingQueue, Standing, Target
from ralphd.core.landing.step import RED_TARGET
from ralphd.daemon.landing.worker import QueueWorker
from ralphd.store.shared.landing import LandingFiles
from tests.daemon.ralph.test_live_run import NOON, HeldClock
from tests.git.landing.test_merge_and_target import Place

LANDED = LandingCandidate(
    1, "a", "refs/heads/ralph/a", "a" * 40, NOON, Standing.LANDED, commit="c" * 40, ended_at=NOON
)


class Bench:
    """A worker of a real repository, and the number of git processes that it starts."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.place, self.clock, self.calls = Place(tmp_path), HeldClock(), 0
        common = self.place.path / ".git"
        queue = LandingQueue(str(common), str(self.place.path), Target("main"), last_id=1)
        files = LandingFiles.of(tmp_path / "state", common)
        files.create()
        self.worker = QueueWorker(
            files,
            replace(queue, candidates=(LANDED,), **changes),
            cast(Any, SimpleNamespace(clock=self.clock, state_directory=tmp_path / "state")),
            busy=set,
            tell_end=cast(Any, None),
            pin=cast(Any, None),
        )
        bench = self

        start: Any = subprocess.Popen.__init__

        def counted(*words: Any, **more: Any) -> None:
            bench.calls += 1
            start(*words, **more)

        monkeypatch.setattr(subprocess.Popen, "__init__", counted)

    def look(self) -> int:
        """The number of processes that one look starts."""
        before = self.calls
        asyncio.run(self.worker._advance())
        return self.calls - before


def test_an_idle_queue_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.clock.wall += 3600
    assert bench.look() == 0
    assert not bench.worker._nudged.is_set()  # its loop rests


def test_a_blocked_queue_asks_git_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch)
    tip = bench.place("rev-parse", "main")
    bench.worker.queue = replace(bench.worker.queue, blocked=RED_TARGET, blocked_at=tip)
    assert bench.look() > 0
    assert bench.look() == 0
    assert bench.worker.queue.blocked
    bench.place.commit("fixed", fixed="1\n")
    assert bench.look() > 0
    assert not bench.worker.queue.blocked


def test_a_blocked_queue_asks_its_remote_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.place("init", "-q", "--bare", "../origin")
    bench.place("push", "-q", "../origin", "main")
    target, tip = Target("main", "origin", str(tmp_path / "origin")), bench.place("rev-parse", "main")
    bench.worker.queue = replace(bench.worker.queue, target=target)
    assert bench.look() == 0
    bench.worker.queue = replace(bench.worker.queue, blocked=RED_TARGET, blocked_at=tip)
    assert bench.look() > 0
    bench.place.commit("fixed", fixed="1\n")
    bench.place("push", "-q", "../origin", "main")
    bench.clock.wall += 59
    assert bench.look() == 0
    bench.clock.wall += 1
    assert bench.look() > 0
    assert not bench.worker.queue.blocked


def test_a_landing_that_waits_follows_a_clean_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    place, tip = bench.place, bench.place("rev-parse", "main")
    head = place.branch("a", a="1\n").head
    place("branch", "ralph/landed", head)
    waiting = replace(LANDED, commit=head, why="on ralph/landed: there are changes that are not committed")
    bench.worker.queue = replace(bench.worker.queue, candidates=(waiting,))
    shared = (place.path / "shared").read_text()
    (place.path / "shared").write_text("mine\n")
    assert bench.look() > 0
    assert bench.look() == 0
    (place.path / "shared").write_text(shared)  # no ref and no index changes: noticed within a minute
    assert place("rev-parse", "main") == tip
    bench.clock.wall += 60
    assert bench.look() > 0
    assert place("log", "-1", "--format=%s", "main") == "a"
    assert bench.worker.queue.candidates[0].why == ""
    assert bench.look() == 0
