"""The watch over one run: what ``process/watching`` finds of its silence reaches its Regent as a letter."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ralphd.core.events import Event, FellSilent, Overran
from ralphd.core.model import Moment, Overdue, Said
from ralphd.core.watch import Finding, Limits
from ralphd.process.clock import Clock
from ralphd.process.output import Log
from ralphd.process.spawn import RunRecord
from ralphd.process.watch import Observer
from ralphd.process.watching import Subject, Watching
from ralphd.store.evidence import save

LAST_LINES = 20
OVERDUE = {Finding.STALL: Overdue.STALL, Finding.TOO_LONG: Overdue.TIMEOUT}


Tell: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """A run that is watched; ``directory`` is its own. For the rest see Subject."""

    record: RunRecord
    age_s: float
    directory: Path
    log: Log
    observer: Callable[[Moment], Observer]
    limits: Limits
    said: Callable[[], Said]
    heard: Callable[[], int]
    tell: Tell


def watching(run: WatchedRun, clock: Clock) -> Watching:
    """The watch over a run, by its log and its reports. Nothing is looked at before its ``run``."""
    run_id = run.record.run_id
    return Watching(
        Subject(
            id=run_id,
            began_at=run.record.started_at,
            age_s=run.age_s,
            limits=run.limits,
            observer=run.observer,
            last_output=lambda: run.log.last_output_at(run_id),
            last_lines=lambda: run.log.last_lines(run_id, LAST_LINES, stream=None),
            keep=lambda sighting: save(run.directory, sighting),
            warn=lambda text: run.tell(FellSilent(clock.now(), run_id, text)),
            end=lambda found, title: run.tell(Overran(clock.now(), run_id, OVERDUE[found], title)),
            said=run.said,
            heard=run.heard,
        ),
        clock,
    )
