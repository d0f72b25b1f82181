"""What every row is given: a directory, the peers that are there, and how much is asked for."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tests.bench.measure import RowTooLong, median
from tests.bench.peers.peer import Peer, Program
from tests.bench.table import NOT_INSTALLED, Line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bench:
    """``kills`` is how often the daemon is killed; ``root`` is empty at first and removed at the end.

    ``peers`` are those that are installed, ``absent`` the names of the others.
    """

    root: Path
    peers: Sequence[type[Peer]]
    absent: Sequence[str]
    kills: int
    faults: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def place(self, *, in_memory: bool = False) -> Path:
        """A new directory for a daemon; ``in_memory`` on tmpfs, where there is one."""
        memory = Path("/dev/shm")
        if in_memory and memory.is_dir():
            return Path(tempfile.mkdtemp(prefix=f"{self.root.name}-", dir=memory))
        place = self.root / str(next(self._numbers))
        place.mkdir()
        return place

    def peer(self, kind: type[Peer], *programs: Program) -> Peer:
        """One of the peers in a directory of its own; not started."""
        return kind(self.place() / "peer", programs)


@dataclass(frozen=True, slots=True)
class Row:
    """Something that is measured; gives one line or more. It may take ``limit_s`` seconds."""

    name: str
    measure: Callable[[Bench], Sequence[Line]]
    limit_s: float
    gates: bool = False


class Rounds(Generic[T]):
    """What each peer reached in ``what``, round by round; one that breaks is told so, and not asked again."""

    def __init__(self, bench: Bench, what: str) -> None:
        self._bench, self._what = bench, what
        self.found: dict[str, list[T]] = {}
        self._broken: set[str] = set()

    def take(self, measure: Callable[[type[Peer]], T]) -> None:
        """One round: every peer once."""
        for kind in self._bench.peers:
            if kind.name in self._broken:
                continue
            try:
                self.found.setdefault(kind.name, []).append(measure(kind))
            except RowTooLong:
                raise
            except Exception as fault:
                self._broken.add(kind.name)
                self._bench.faults.append(f"{self._what}: {kind.name}: {type(fault).__name__}: {fault}")

    def texts(self, tell: Callable[[Sequence[T]], str]) -> dict[str, str]:
        """Each peer's cell: what ``tell`` makes of its rounds, or why there is nothing to tell."""
        told = {name: tell(values) for name, values in self.found.items() if values}
        told |= dict.fromkeys(self._broken, "failed (see below)")
        return told | dict.fromkeys(self._bench.absent, NOT_INSTALLED)

    def ratios(self, ours: float, value: Callable[[T], float]) -> dict[str, float]:
        """Ours by the median of each peer that went through all rounds."""
        medians = {
            name: median([value(each) for each in values])
            for name, values in self.found.items()
            if values and name not in self._broken
        }
        return {name: ours / theirs for name, theirs in medians.items() if theirs > 0}
