"""By the files of a repository: the guard's own time, the watch over a silent agent, a new worktree."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ralphd.core.gate.step import begin, step
from ralphd.core.gate.verdict import Baseline, GateEvent, GatePolicy, Position, Ran, Result, RunTests, Say
from ralphd.daemon.gate.git_effects import GitEffects
from ralphd.git.worktree_scan import WorkTree
from tests.bench.ours import Daemon
from tests.growth.curve import FLAT, LINEAR, Series, Table

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS: Final = 3
LOOKS: Final = 10
GIT_S: Final = 900.0
HOW = (
    "A repository with as many files, in folders of 100. The guard judges an iteration's commit, kept and"
    " reverted, all that git takes from the boundary to the verdict included, the tests not. The watch looks"
    " at the files of a silent agent: the first look, with git's list of the files, and each later one. A"
    " worktree is made for a new ralph by the daemon."
)


def measured(root: Path, sizes: Sequence[int] = SIZES) -> Series:
    """Make a repository of each size."""
    table = Table()
    for size in sizes:
        place = root / f"files-{size}"
        repository(place, size)
        _guard(table, place, size)
        _watch(table, place, size)
        _worktrees(table, root / f"trees-{size}", place, size)
    return Series("files", "By the files of a repository", "files", HOW, table.curves())


def _spent_ms() -> float:
    """The CPU milliseconds of this process and of its children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both) * 1e3


def _guard(table: Table, place: Path, size: int) -> None:
    for number in range(ROUNDS):
        for what, results in (("kept", (Result.GREEN,)), ("reverted", (Result.RED, Result.GREEN))):
            spent = _judged(place, f"{what} {number}", results)
            table.add(f"guard, {what}", "ms CPU", LINEAR, size, spent)
        git(place, "checkout", "-q", "-f", "main")
        begun = _spent_ms()
        git(place, "status", "--porcelain")
        table.add("git status, to compare", "ms CPU", LINEAR, size, _spent_ms() - begun)


def _judged(place: Path, subject: str, results: Sequence[Result]) -> float:
    hands = GitEffects(place, dict)
    before, left = hands.position(), iter(results)
    (place / "d0/f0").write_text(subject)
    git(place, "commit", "-q", "-m", subject, "d0/f0")
    begun = _spent_ms()
    _carried_out(hands, before, left, f"growth/{subject.replace(' ', '-')}")
    return _spent_ms() - begun


def _carried_out(hands: GitEffects, before: Position, results: Iterator[Result], boundary: str) -> None:
    judgement = begin(hands.boundary(before), Baseline.GREEN)
    while not isinstance(order := judgement.order, Say):
        event: GateEvent
        if isinstance(order, RunTests):
            hands.root()
            event = Ran(next(results))
            hands.position()
        else:
            event = hands.carry_out(order, judgement, boundary)
        judgement = step(judgement, event, GatePolicy(test_retries=0))


def _watch(table: Table, place: Path, size: int) -> None:
    tree, begun = WorkTree(place), _spent_ms()
    while tree._beginning is not None:  # a look stops in the middle: the next one continues
        tree.changes()
    table.add("watch, until all files are known", "ms CPU", LINEAR, size, _spent_ms() - begun)
    for _ in range(LOOKS):
        begun = _spent_ms()
        tree.changes()
        table.add("watch, one look", "ms CPU", FLAT, size, _spent_ms() - begun)
    tree.close()


def _worktrees(table: Table, home: Path, place: Path, size: int) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        body = {
            "directory": str(place), "command": ["true"], "start": False, "name": "one",
            "environment": daemon.environment,
        }  # fmt: skip
        before = _tree_ms(daemon)
        begun = time.perf_counter()
        daemon.ask("POST", "/v1/trees", body, limit_s=GIT_S)
        table.add("a worktree by the daemon", "ms", LINEAR, size, (time.perf_counter() - begun) * 1e3)
        table.add("the same, its CPU", "ms CPU", LINEAR, size, _tree_ms(daemon) - before)
        daemon.ask("DELETE", "/v1/ralphs/one")
    finally:
        daemon.close()


def _tree_ms(daemon: Daemon) -> float:
    """The CPU milliseconds of a daemon and of its children that ended (proc(5), stat)."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1e3 / os.sysconf("SC_CLK_TCK")


def repository(place: Path, files: int) -> None:
    """Make a repository on main whose only commit has so many files, checked out."""
    place.mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    for key, value in (("gc.auto", "0"), ("user.name", "growth"), ("user.email", "growth@example.invalid")):
        git(place, "config", key, value)
    stream = [b"commit refs/heads/main\ncommitter g <g@example.invalid> 1700000000 +0000\ndata 1\nx\n"]
    for number in range(files):
        stream.append(b"M 100644 inline d%d/f%d\ndata 8\n%07d\n\n" % (number // 100, number, number))
    git(place, "fast-import", "--quiet", given=b"".join(stream))
    git(place, "reset", "-q", "--hard", "main")


def git(place: Path, *words: str, given: bytes = b"") -> None:
    """Run git there, with nobody's configuration."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", *words], cwd=place, input=given, env=environment, stdout=subprocess.DEVNULL, check=True,
        timeout=GIT_S,
    )  # fmt: skip
