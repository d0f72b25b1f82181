"""What every row is given: a directory, the peer where it is there, and how much is asked for."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.table import Line


@dataclass(frozen=True, slots=True)
class Bench:
    """``rounds`` is how often the daemon is killed; ``root`` is empty at first and removed at the end."""

    root: Path
    has_peer: bool
    full: bool
    rounds: int
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def place(self, *, in_memory: bool = False) -> Path:
        """A new directory for a daemon; ``in_memory`` on tmpfs, where there is one."""
        memory = Path("/dev/shm")
        if in_memory and memory.is_dir():
            return Path(tempfile.mkdtemp(prefix=f"{self.root.name}-", dir=memory))
        place = self.root / str(next(self._numbers))
        place.mkdir()
        return place


@dataclass(frozen=True, slots=True)
class Row:
    """Something that is measured; gives one line or more. It may take ``limit_s`` seconds."""

    name: str
    measure: Callable[[Bench], Sequence[Line]]
    limit_s: float
    gates: bool = False
