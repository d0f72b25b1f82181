"""What the guard takes besides the tests, in a repository that is not small."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ralphd.core.gate.step import begin, step
from ralphd.core.gate.verdict import (
    Baseline,
    CarriedOut,
    GateEvent,
    GatePolicy,
    Position,
    Ran,
    Result,
    RunTests,
    Say,
    VerdictKind,
)
from ralphd.daemon.gate.git_effects import GitEffects
from tests.bench.bench import Bench
from tests.bench.measure import median
from tests.bench.table import Line, Verdict

FILES = COMMITS = 10_000
ROUNDS = 7
GOAL_S = 0.3
HOW = (
    f"A repository of {FILES:,} files and {COMMITS:,} commits, and an iteration's commit in it that is kept,"
    " is reverted, and is reverted while a tracked file has changes that are not committed, which are set"
    " aside and put back: all that git does for the verdict, from the boundary on, without the tests, median"
    f" of {ROUNDS}. The goal is for each."
    " The machine: `git status` and `git revert` there, as a person would type them."
)


def judgements(bench: Bench) -> Sequence[Line]:
    """A commit is kept; one is reverted; one is reverted with other work in the tree."""
    place = bench.place() / "tree"
    _repository(place)
    kept, reverted, aside, least = [], [], [], []
    for number in range(ROUNDS):
        kept.append(_judged(place, f"kept {number}", (Result.GREEN,)))
        reverted.append(_judged(place, f"bad {number}", (Result.RED, Result.GREEN)))
        (place / "d0/f1").write_text(f"work {number}")
        aside.append(_judged(place, f"bad with work {number}", (Result.RED, Result.RED, Result.GREEN)))
        _git(place, "checkout", "-q", "d0/f1")
        least.append(_by_hand(place, number))
    figures = [median(each) for each in (kept, reverted, aside)]
    return [
        Line(
            f"the guard's own time, {FILES:,} files and commits: kept / reverted / with work set aside",
            "<= 300 ms", " / ".join(f"{figure * 1e3:.0f}" for figure in figures) + " ms",
            Verdict.of(max(figures) <= GOAL_S), HOW,
            limit=f"{median(least) * 1e3:.0f} ms",
        )
    ]  # fmt: skip


def _judged(place: Path, subject: str, results: Sequence[Result]) -> float:
    """Seconds from the boundary to the verdict, where the tests have these results at once."""
    hands = GitEffects(place, dict)
    before, left = _committed(place, hands, subject), iter(results)
    begun = time.perf_counter()
    judgement = begin(hands.boundary(before), Baseline.GREEN)
    while not isinstance(order := judgement.order, Say):
        event: GateEvent
        if isinstance(order, RunTests):
            hands.root()
            event = Ran(next(left))
            hands.position()
        else:
            event = hands.carry_out(order, judgement, f"bench/{subject.replace(' ', '-')}")
            assert isinstance(event, CarriedOut), event
        judgement = step(judgement, event, GatePolicy(test_retries=0))
    took_s = time.perf_counter() - begun
    expected = VerdictKind.KEPT if len(results) == 1 else VerdictKind.REVERTED
    assert order.verdict.kind is expected, order.verdict
    return took_s


def _committed(place: Path, hands: GitEffects, subject: str) -> Position:
    """Commit a change of one file; where HEAD was before."""
    before = hands.position()
    (place / "d7/f7").write_text(subject)
    _git(place, "commit", "-q", "-m", subject, "d7/f7")
    return before


def _by_hand(place: Path, number: int) -> float:
    _committed(place, GitEffects(place, dict), f"by hand {number}")
    begun = time.perf_counter()
    _git(place, "status", "--porcelain")
    _git(place, "revert", "--no-edit", "HEAD")
    return time.perf_counter() - begun


def _repository(place: Path) -> None:
    place.mkdir()
    _git(place, "init", "-q", "-b", "main")
    _git(place, "config", "gc.auto", "0")
    _git(place, "fast-import", "--quiet", given="".join(_history()).encode())
    _git(place, "reset", "-q", "--hard", "main")


def _history() -> Iterator[str]:
    """All files in the first commit; each of the others changes one."""
    files = [f"d{number % 100}/f{number // 100}" for number in range(FILES)]
    for number in range(COMMITS):
        someone = f"Ralph <ralph@example.invalid> {1_700_000_000 + number} +0000"
        yield f"commit refs/heads/main\ncommitter {someone}\ndata 1\nx\n"
        for name in files if number == 0 else [files[number]]:
            content = f"{name} {number}\n"
            yield f"M 100644 inline {name}\ndata {len(content)}\n{content}\n"


def _git(place: Path, *words: str, given: bytes = b"") -> None:
    someone = ("-c", "user.name=Ralph", "-c", "user.email=ralph@example.invalid")
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", *someone, *words],
        cwd=place,
        input=given,
        env=os.environ | quiet,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
