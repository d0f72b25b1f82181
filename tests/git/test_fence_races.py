"""Races for a lease: a push that read the refs before a takeover, many claims of one branch, chaos (5.4)."""

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ralphd.core.fleet.model import HostName, Lease
from ralphd.git.fence.fence import (
    Claimed,
    ClaimLost,
    Fenced,
    Pushed,
    Rewound,
    SavedAside,
    Unreachable,
    WorkPush,
)
from ralphd.git.fence.lease_ref import Aside, LeaseState, decode_lease
from tests.git.fence_world import BRANCH, HEAD_REF, LEASE_REF, Holder, World, environment, reached, world

SEED = 7
STEPS = 40
ZERO = "0" * 40


@pytest.fixture(params=["file", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def rivals(remote: World) -> tuple[Holder, Holder]:
    """A holder that has pushed a commit and has one more, and a host that has nothing yet."""
    holder, taker = remote.host("h1"), remote.host("h2")
    holder.take(token=1)
    holder.pushes("one")
    holder.commit("stale")
    return holder, taker


def while_paused(push: Callable[[str], WorkPush], pause: Path, meanwhile: Callable[[], None]) -> WorkPush:
    """Push; act between the moment when git has read the refs and the one when the server moves them."""
    pause.mkdir()
    with ThreadPoolExecutor(1) as pool:
        answer: Future[WorkPush] = pool.submit(push, f"pause:{pause}")
        try:
            reached(pause)
            meanwhile()
        finally:
            (pause / "go").touch()
        return answer.result(timeout=60)


# A takeover between the two halves of a push


def test_a_lease_that_does_not_move_fences_nothing(remote: World, rivals: tuple[Holder, Holder]) -> None:
    """Why each push moves the lease: git sends nothing for an unchanged ref, so the server checks nothing."""
    holder, taker = rivals

    def raw(fault: str) -> WorkPush:
        words = ["push", "--quiet", "--atomic", f"--force-with-lease={LEASE_REF}:{holder.mine}"]
        words += [f"--force-with-lease={HEAD_REF}:{holder.last}", remote.url]
        refspecs = [f"HEAD:{HEAD_REF}", f"{holder.mine}:{LEASE_REF}"]
        git = ["git", "-C", str(holder.tree.path)]
        subprocess.run([*git, *words, *refspecs], env=environment(fault), check=True, timeout=60)
        return Pushed(holder.mine, holder.lease)

    while_paused(raw, remote.root / "pause", taker.take_over)

    assert remote.refs()[LEASE_REF] == taker.mine
    assert remote.subjects()[0] == "stale"  # a push by a stale holder, after the takeover


def test_a_lease_that_moves_fences_a_late_push(remote: World, rivals: tuple[Holder, Holder]) -> None:
    holder, taker = rivals

    answer = while_paused(lambda fault: holder.push(fault=fault), remote.root / "pause", taker.take_over)

    assert answer == Fenced(taker.mine, taker.lease)
    assert remote.subjects()[0] == "one"
    assert remote.refs()[LEASE_REF] == taker.mine
    saved = holder.fence.save_aside(Aside.STALE, BRANCH, 1, "HEAD")
    assert saved == SavedAside((f"refs/ralph/stale/{BRANCH}/1",))
    assert remote.subjects(f"refs/ralph/stale/{BRANCH}/1")[0] == "stale"
    taker.pushes("two")


def test_a_bump_while_a_push_travels_breaks_neither(remote: World, rivals: tuple[Holder, Holder]) -> None:
    holder, _ = rivals

    answer = while_paused(
        lambda fault: holder.push(fault=fault), remote.root / "pause", lambda: assert_bumped(holder)
    )

    assert isinstance(answer, Pushed)
    assert remote.subjects()[0] == "stale"
    assert remote.refs()[LEASE_REF] == answer.sha


def assert_bumped(holder: Holder) -> None:
    assert isinstance(holder.bump(), Pushed)


def test_a_takeover_meets_a_push_that_won(remote: World, rivals: tuple[Holder, Holder]) -> None:
    holder, taker = rivals
    seen = taker.state()
    holder.push()

    lost = taker.fence.claim(BRANCH, replace(taker.lease, token=2), seen.sha)

    assert lost == ClaimLost(LeaseState(holder.mine, holder.lease, holder.last))


# Many claims


@pytest.mark.parametrize(("kind", "rounds"), [("file", 40), ("http", 10)])
def test_each_of_many_contests_has_one_winner(tmp_path: Path, kind: str, rounds: int) -> None:
    """150 contests: 50 rounds over three branches, each between two hosts that begin together."""
    with world(tmp_path, kind) as remote, ThreadPoolExecutor(6) as pool:
        hosts = [remote.host(f"h{number}") for number in range(2)]
        branches = [pool.submit(contests, hosts, f"b{number}", rounds, pool) for number in range(3)]
        winners = [winner for each in branches for winner in each.result(timeout=100)]
        moves = [len(log_of(remote, f"refs/ralph/lease/b{number}")) for number in range(3)]

    assert len(winners) == 3 * rounds
    assert moves == [rounds] * 3


def contests(hosts: list[Holder], branch: str, rounds: int, pool: ThreadPoolExecutor) -> list[HostName]:
    expected, winners = "", []
    for token in range(1, rounds + 1):
        together = threading.Barrier(len(hosts))

        def claim(host: Holder, token: int = token, expected: str = expected,
                  together: threading.Barrier = together) -> Claimed | ClaimLost:  # fmt: skip
            together.wait(60)
            answer = host.fence.claim(branch, replace(host.lease, token=token), expected)
            assert isinstance(answer, Claimed | ClaimLost), answer
            return answer

        with ThreadPoolExecutor(len(hosts)) as pair:
            answers = list(pair.map(claim, hosts))
        [winner] = [each for each in answers if isinstance(each, Claimed)]
        [loser] = [each for each in answers if isinstance(each, ClaimLost)]
        assert loser.present == LeaseState(winner.sha, winner.lease)
        expected = winner.sha
        winners.append(winner.lease.host)
    return winners


# Chaos


@dataclass(frozen=True)
class Move:
    """A line of a reflog."""

    old: str
    new: str


def log_of(remote: World, ref: str) -> list[Move]:
    lines = (remote.bare.path / "logs" / ref).read_text().splitlines()
    return [Move(*line.split(" ")[:2]) for line in lines]


@dataclass
class Worker:
    """A host that works on the branch while it has the lease, and takes it over too early."""

    host: Holder
    chance: random.Random
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    seen: tuple[str, int] = ("", 0)
    held: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def work(self, steps: int) -> None:
        for step in range(steps):
            time.sleep(self.chance.choice((0.0, 0.02, 0.05)))
            self.hold(step) if self.held else self.watch()

    def watch(self) -> None:
        """Take the lease once it was seen unmoved twice in a row."""
        state = self.host.state()
        looks = self.seen[1] + 1 if state.sha == self.seen[0] else 0
        self.seen = (state.sha, looks)
        is_free = state.lease is None or not state.lease.host
        if not is_free and looks < 2:
            return
        lease = self.host.lease
        token, pushed = (state.lease.token + 1, state.lease.pushed) if state.lease else (1, "")
        mine = Lease(lease.host, lease.boot, token, pushed=pushed)
        fence = self.host.with_fault(self.fault())
        answer = fence.claim(BRANCH, mine, state.sha)
        self.counts[type(answer).__name__] += 1
        if isinstance(answer, Claimed):
            self.held, self.host.mine, self.host.lease = True, answer.sha, answer.lease
            self.restart()

    def restart(self) -> None:
        """Start from the branch as it is now."""
        tree = self.host.tree
        if self.host.state().tip:
            tree.git("fetch", "--quiet", self.host.fence.url, HEAD_REF)
            tree.git("reset", "--quiet", "--hard", "FETCH_HEAD")
            self.host.last = self.host.head

    def hold(self, step: int) -> None:
        host = self.host
        what = self.chance.random()
        if what < 0.08:
            released = host.with_fault(self.fault()).release(BRANCH, host.lease, host.mine)
            self.counts["released"] += 1
            self.held = isinstance(released, Unreachable)
            return
        if what < 0.2 and host.last:
            host.tree.git("reset", "--quiet", "--hard", f"{host.last}~1")
            self.counts["rewound"] += 1
        host.commit(f"{host.lease.host} {step}")
        if what > 0.9:  # frozen until others have looked three times
            time.sleep(0.3)
        head, answer = host.head, host.push(fault=self.fault())
        self.counts[type(answer).__name__] += 1
        match answer:
            case Pushed():
                self.acknowledged.append((answer.sha, head))
            case Rewound(last):
                host.tree.git("reset", "--quiet", "--hard", last)
            case Fenced():
                saved = host.fence.save_aside(Aside.STALE, BRANCH, host.lease.token, head)
                assert isinstance(saved, SavedAside), saved
                self.held, host.last = False, ""
            case _:
                assert isinstance(answer, Unreachable), answer  # mine and last stay as they were

    def fault(self) -> str:
        once = f"once-{self.chance.random()}"
        return self.chance.choices(("", "after", "before", once), (8, 2, 1, 1))[0]


def test_a_chaos_of_holders_loses_nothing(tmp_path: Path) -> None:
    assert chaos(tmp_path, "file", SEED, STEPS)["Pushed"]


def chaos(directory: Path, kind: str, seed: int, steps: int) -> Counter[str]:
    """Return how often each thing happened."""
    with world(directory, kind) as remote:
        workers = [Worker(remote.host(f"h{number}"), random.Random(seed + number)) for number in range(3)]
        with ThreadPoolExecutor(len(workers)) as pool:
            for each in [pool.submit(worker.work, steps) for worker in workers]:
                each.result()
        check_history(remote, [push for worker in workers for push in worker.acknowledged])
        return sum((worker.counts for worker in workers), Counter())


def check_history(remote: World, acknowledged: list[tuple[str, str]]) -> None:
    """Judge by the repository alone: each push acknowledged, none by a stale token, no token of two hosts."""
    leases = []
    moves = log_of(remote, LEASE_REF)
    for move in moves:
        lease = decode_lease(remote.bare.git("cat-file", "blob", move.new).encode())
        assert lease is not None
        leases.append(lease)
    assert [lease.token for lease in leases] == sorted(lease.token for lease in leases)
    hosts = {(lease.token, lease.boot) for lease in leases}
    assert len(hosts) == len({token for token, _ in hosts})
    steps = log_of(remote, HEAD_REF)
    pushed = [lease.pushed for before, lease in zip([None, *leases], leases, strict=False)
              if lease.pushed and (before is None or before.pushed != lease.pushed)]  # fmt: skip
    assert [step.new for step in steps] == pushed  # each with a lease, of the highest token then
    for step in steps:
        if step.old != ZERO:
            remote.bare.git("merge-base", "--is-ancestor", step.old, step.new)
    history = set(remote.bare.git("rev-list", HEAD_REF).split())
    assert acknowledged
    assert {head for _, head in acknowledged} <= history
    assert {sha for sha, _ in acknowledged} <= {move.new for move in moves}
