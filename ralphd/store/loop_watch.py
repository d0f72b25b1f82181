"""What the built-in loop of one ralph keeps, as far as others are shown it; read only when it was written."""

from pathlib import Path
from typing import Any, NamedTuple

from ralphd.core.ledger import Memory
from ralphd.core.model import Moment
from ralphd.core.pool import changes_at, pool_view
from ralphd.store.checkpoint_file import CheckpointWatch, Signature, Summary, signature_of
from ralphd.store.memory_json import MEMORY_FILE, look_into


class _Shown(NamedTuple):
    """A view of a pool, and how long it is so."""

    memory: Memory
    made_at: Moment
    until: Moment
    view: dict[str, Any] | None


class LoopWatch:
    """The checkpoint and the pool of agents in a ralph's home. Only ``look`` looks there; it blocks."""

    def __init__(self, home: Path) -> None:
        self._checkpoint = CheckpointWatch(home)
        self._path = home / MEMORY_FILE
        self._signature: Signature = None
        self._memory: Memory | None = None
        self._shown: _Shown | None = None

    @property
    def checkpoint(self) -> Summary | None:
        """What the loop would go on from."""
        return self._checkpoint.summary

    def look(self) -> None:
        """Know what was written since; it costs two stats."""
        self._checkpoint.look()
        signature = signature_of(self._path)
        if signature != self._signature:
            self._signature = signature
            self._memory = None if signature is None else look_into(self._path)

    def pool(self, at: Moment) -> dict[str, Any] | None:
        """Who may be asked at that moment, as ``pool_view`` has it: the same object as long as it is so."""
        memory, shown = self._memory, self._shown
        if memory is None:
            return None
        if shown is None or shown.memory is not memory or not shown.made_at <= at < shown.until:
            self._shown = shown = _Shown(memory, at, changes_at(memory, at), pool_view(memory, at))
        return shown.view
