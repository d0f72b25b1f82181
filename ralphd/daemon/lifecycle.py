"""From the first look at the disk to the last run: what all Regents go through together."""

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ralphd import wire
from ralphd.core.supervision.events import DaemonStarted, DaemonStopping, Event, StopRequested
from ralphd.core.supervision.model import SETTLED, Paused
from ralphd.core.time import parse_rfc3339
from ralphd.daemon import recovery
from ralphd.daemon.ralph.announcer import ESCALATION
from ralphd.daemon.recovery import Recovered
from ralphd.daemon.regent import Regent
from ralphd.daemon.reload import DriftWatch
from ralphd.daemon.services import Services
from ralphd.errors import RalphdError, UnknownRalph, UnusableState
from ralphd.process.log.log import prune
from ralphd.store.events import EventStore
from ralphd.store.state import RalphFiles

# Which Regents there are: one task each, by the ralph's name.


class Roster:
    """All Regents of a daemon. ``unusable`` holds, by name, why a ralph cannot be supervised."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.unusable: dict[str, UnusableState] = {}
        self._regents: dict[str, Regent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._revivals: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Regent]:
        """Every Regent, by name; the roster may change meanwhile."""
        return iter([regent for _, regent in sorted(self._regents.items())])

    def __len__(self) -> int:
        return len(self._regents)

    def directories(self) -> dict[str, Path]:
        """Where each ralph works."""
        return {name: regent.account.definition.directory for name, regent in self._regents.items()}

    def find(self, name: str) -> Regent | None:
        """The Regent of that name, if there is one. Raises UnusableState for one that cannot be used."""
        if (fault := self.unusable.get(name)) is not None:
            raise fault.with_traceback(None)
        return self._regents.get(name)

    def get(self, name: str) -> Regent:
        """The Regent of that name. Raises UnknownRalph, UnusableState."""
        if (regent := self.find(name)) is None:
            raise UnknownRalph(f"there is no ralph {name!r}", mend="ralphctl status")
        return regent

    def take_in(self, regent: Regent) -> None:
        """Have ``regent`` supervise from now on."""
        self._regents[regent.name] = regent
        self._tasks[regent.name] = asyncio.get_running_loop().create_task(
            regent.supervise(), name=f"regent {regent.name}"
        )

    def revive(self, regent: Regent, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have ``work`` done for a Regent; it ends with it at the latest."""
        task = asyncio.get_running_loop().create_task(work, name=f"revival {regent.name}")
        self._revivals[regent.name] = task
        return task

    async def drop(self, regent: Regent) -> None:
        """Forget a ralph and what is kept of it; its working directory stays as it is."""
        regent.holds.release()
        self._regents.pop(regent.name, None)
        await self._end(self._revivals.pop(regent.name, None))
        await self._end(self._tasks.pop(regent.name))
        await asyncio.to_thread(shutil.rmtree, regent.account.files.home, ignore_errors=True)

    async def tell_all(self, event: Event) -> None:
        """Have every Regent answer ``event``; what one cannot do it has written down itself."""
        await asyncio.gather(*(feed(regent, event) for regent in self))

    def busy(self) -> list[Regent]:
        """Those that have a run."""
        return [regent for regent in self if regent.has_a_run]

    async def close(self) -> None:
        """End all supervision; the runs go on."""
        await asyncio.gather(*map(self._end, [*self._revivals.values(), *self._tasks.values()]))

    async def _end(self, task: "asyncio.Task[None] | None") -> None:
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def feed(regent: Regent, event: Event) -> None:
    """Have ``event`` answered where nobody waits to hear that it could not be done."""
    with suppress(RalphdError):
        await regent.request(event)


logger = logging.getLogger(__name__)

LOOK_ROUND_S = 8.0
"""A deleted ``.ralph`` is back within 10 s."""
ESCALATIONS_LOOKED_AT = 200
ESCALATION_STANDS_S = 3 * 24 * 3600.0
"""About as long as a delivery is tried."""
START_LIMIT_S = 5.0
"""No ralph holds up the daemon's start longer than this; what is left to do is done in the background."""
ANSWER_LIMIT_S = 3.0
"""A run that has not answered by then is told as a trouble, until it does."""
KILL_LIMIT_S = 20.0

HowToEnd = Literal["finish", "leave", "now"]

_TOLD_FIRST = sorted(wire.STATES, key=("running", "failed", "paused", *wire.STATES).index)


async def recover(roster: Roster, services: Services, events: EventStore) -> None:
    """Load every ralph, adopt the runs that live, go on with what was wanted (P1, G2)."""
    recovered: list[Recovered] = []
    regents = [
        regent for home in _homes(roster.home) if (regent := await _load(home, roster, services, recovered))
    ]
    await _tell(recovered, services)
    if events.recovered:
        await services.news.tell("state.recovered", {"file": "events.db", "kept_as": events.recovered})
        for regent in regents:
            await _escalate_again(regent, services)
    for regent in regents:
        roster.take_in(regent)
    revivals = [roster.revive(regent, _revive(regent, services)) for regent in regents]
    if revivals:
        await asyncio.wait(revivals, timeout=START_LIMIT_S if services.tied is None else KILL_LIMIT_S)
    if services.tied is not None and not await _none_left(roster, KILL_LIMIT_S):
        logger.error("runs of an earlier build do not end: %s", [each.name for each in roster.busy()])


async def _tell(recovered: list[Recovered], services: Services) -> None:
    for found in recovered:
        logger.warning("recovered %s of %s from %s", found.file, found.ralph, found.rebuilt_from)
        data = {"file": found.file, "kept_as": found.kept_as, "rebuilt_from": found.rebuilt_from}
        await services.news.tell("state.recovered", data, ralph=found.ralph)


def _homes(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.is_dir()) if home.exists() else []


async def _load(home: Path, roster: Roster, services: Services, recovered: list[Recovered]) -> Regent | None:
    """The Regent of a ralph; None when it cannot be used, which costs no other one its Regent."""
    try:
        account = await asyncio.to_thread(recovery.load, RalphFiles(home), services, recovered)
        return None if account is None else Regent(account, services)
    except UnusableState as fault:
        unusable = fault
    except Exception as fault:
        logger.exception("a ralph cannot be loaded", extra={"ralph": home.name})
        unusable = UnusableState(
            f"{home.name} cannot be used",
            why=f"{type(fault).__name__}: {fault}; the daemon's log has the traceback",
            mend="ralphctl regent logs",
        )
    roster.unusable[home.name] = unusable
    services.trouble(f"ralph {home.name}", str(unusable))
    return None


async def _escalate_again(regent: Regent, services: Services) -> None:
    """The outbox was lost: what may not have been sent yet is sent again, under the same id."""
    account = regent.account
    oldest = services.clock.now() - ESCALATION_STANDS_S
    for entry in reversed(await asyncio.to_thread(account.history.newest, ESCALATIONS_LOOKED_AT)):
        if entry.get("kind") == ESCALATION and parse_rfc3339(entry["at"]) > oldest:
            await services.news.tell(
                "ralph.escalated",
                entry["data"],
                ralph=regent.name,
                run_id=entry["run_id"],
                at=parse_rfc3339(entry["at"]),
                key=entry["key"],
                destinations=account.configuration.destinations(),
            )


async def _revive(regent: Regent, services: Services) -> None:
    """Tell a Regent what happened while nobody watched, and go on; a bug costs no other ralph its own."""
    topic, now = f"ralph {regent.name}", services.clock.now
    late = asyncio.get_running_loop().call_later(ANSWER_LIMIT_S, _tell_late, regent, services, topic)
    try:
        recovered: list[Recovered] = []
        if services.tied is not None:  # whatever ran was ended with who it was tied to
            await _stop(regent, services)
        async for missed in recovery.catch_up(regent, now(), recovered):
            await feed(regent, missed)
        late.cancel()
        services.trouble(topic, None)
        await _tell(recovered, services)
        if services.tied is None or not _is_at_rest(regent):
            await feed(regent, DaemonStarted(now(), regent.living))
        if services.tied is not None:
            await _stop(regent, services)
    except Exception as fault:
        logger.exception("a bug in the recovery of a ralph", extra={"ralph": regent.name})
        services.trouble(topic, None)
        services.trouble(topic, f"it is not watched: {type(fault).__name__}: {fault}")
    finally:
        late.cancel()


def _tell_late(regent: Regent, services: Services, topic: str) -> None:
    """Its end may be known, and its commits are being judged: that takes its time."""
    if not regent.gate.is_busy:
        services.trouble(topic, "its last run does not answer")


def _is_at_rest(regent: Regent) -> bool:
    """Whether nothing runs, and nothing has to be asked to stop so that nothing will."""
    return isinstance(regent.account.supervision.state, (*SETTLED, Paused))


async def _stop(regent: Regent, services: Services, *, kill: bool = True) -> None:
    """Of a tied daemon: goals do not outlive it, so it stops what a daemon of its own would leave (P5)."""
    if not _is_at_rest(regent):
        await feed(regent, StopRequested(services.clock.now(), kill))


async def look_round(roster: Roster, services: Services, events: EventStore) -> None:
    """Every few seconds, until cancelled: mirrors, locks, drift, and what a full disk had not taken.

    Only a pass that has come to its end is told to systemd's watchdog: one that hangs is none.
    """
    drift = DriftWatch(services.news)
    every_s = min(LOOK_ROUND_S, services.systemd.ping_every_s or LOOK_ROUND_S)
    while True:
        await asyncio.sleep(every_s)
        for regent in roster:
            try:
                await regent.look_round()
            except Exception:  # what is odd about one ralph's files costs no other one its Regent
                logger.exception("a look round failed", extra={"ralph": regent.name})
        await drift.look(roster)
        if events.degraded:
            await events.heal()
        services.trouble("events", events.degraded)
        await services.tell_troubles()
        services.systemd.passed(in_words(roster))


def in_words(roster: Roster) -> str:
    """How many ralphs are in which state, for ``systemctl status``: ``3 running, 1 paused``."""
    states: Counter[str] = Counter(regent.account.supervision.state.kind for regent in roster)
    counts = [f"{states[state]} {state.replace('_', ' ')}" for state in _TOLD_FIRST if states[state]]
    if roster.unusable:
        counts.append(f"{len(roster.unusable)} unusable")
    return ", ".join(counts) or "no ralphs"


def longest_end_s(roster: Roster) -> float:
    """How long ``end_runs`` may take, with what runs now."""
    deadlines = [each.account.configuration.regent.stop_deadline_seconds for each in roster.busy()]
    return max(deadlines, default=0.0) + KILL_LIMIT_S


async def prune_all(roster: Roster, *, total_bytes: int) -> None:
    """Forget the oldest runs and output where there is more than is kept (F5)."""
    living = [regent.living for regent in roster if regent.living is not None]
    every = [regent.account.files.runs for regent in roster]
    with suppress(OSError):
        await asyncio.to_thread(prune, every, total_bytes=total_bytes, living=living)


async def end_runs(roster: Roster, services: Services, how: HowToEnd) -> None:
    """What a daemon that ends does with its runs (docs/signals.md); returns when none is left.

    After the longest ``stop_deadline_seconds`` what still lives is killed.
    """
    if how == "leave" and services.tied is None:
        return
    await ask_all_to_end(roster, services, kill=how == "now")
    deadlines = [each.account.configuration.regent.stop_deadline_seconds for each in roster.busy()]
    if await _none_left(roster, max(deadlines, default=0.0)):
        return
    await ask_all_to_end(roster, services, kill=True)
    if not await _none_left(roster, KILL_LIMIT_S):
        logger.error("runs that cannot be ended are left: %s", [each.name for each in roster.busy()])


async def ask_all_to_end(roster: Roster, services: Services, *, kill: bool) -> None:
    """Ask every run to end, or kill its tree; the goals stay, but where the daemon is tied to somebody."""
    if services.tied is None:
        await roster.tell_all(DaemonStopping(services.clock.now(), kill))
    else:
        await asyncio.gather(*(_stop(regent, services, kill=kill) for regent in roster))


async def _none_left(roster: Roster, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            while roster.busy():  # noqa: ASYNC110 - short, and at the daemon's very end
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True
