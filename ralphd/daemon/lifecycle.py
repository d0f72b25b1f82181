"""Start, poll and end all Regents together.

A start loads every ralph before any Regent runs, so that names and directories are known; then each Regent
catches up in a task of its own, and the daemon answers after START_LIMIT_S at the latest: a ralph whose
commits are being judged holds up no other one. A tied daemon stops first what an earlier one left.

An end keeps the goals: with ``finish`` and ``now`` the runs end, and the next daemon starts them again;
``leave`` keeps the runs for the next daemon to adopt. What does not end in time is killed.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ralphd import wire
from ralphd.core.supervision.events import DaemonStarted, DaemonStopping, Event, StopRequested
from ralphd.core.supervision.model import SETTLED, Paused
from ralphd.core.supervision.start_order import Applicant
from ralphd.core.time import parse_rfc3339
from ralphd.daemon import recovery
from ralphd.daemon.ralph.announcer import ESCALATION
from ralphd.daemon.regent import Regent
from ralphd.daemon.reload import DriftWatch
from ralphd.errors import DirectoryUnusable, RalphdError, UnknownRalph, UnusableState
from ralphd.git import vault
from ralphd.plain_files import reason
from ralphd.process.log.log import prune
from ralphd.process.machine import wait_at_most
from ralphd.process.start_errors import is_lack
from ralphd.store.files import remove_folder
from ralphd.store.state import RalphFiles

if TYPE_CHECKING:
    from ralphd.daemon.recovery import Recovered
    from ralphd.daemon.services import Services
    from ralphd.store.events import EventStore


class Roster:
    """All Regents of a daemon, one task each. ``unusable``: by name, why a ralph cannot be supervised.

    ``looks`` are those at a ralph that have not ended in time.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.unusable: dict[str, UnusableState] = {}
        self._regents: dict[str, Regent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._revivals: dict[str, asyncio.Task[None]] = {}
        self.looks: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Regent]:
        """Iterate over a copy, by name: the roster may change during an await."""
        return iter([regent for _, regent in sorted(self._regents.items())])

    def __len__(self) -> int:
        return len(self._regents)

    def directories(self) -> dict[str, Path]:
        return {name: regent.account.definition.directory for name, regent in self._regents.items()}

    def find(self, name: str) -> Regent | None:
        """Return the Regent of that name, or None. Raises UnusableState for one that cannot be used."""
        if (fault := self.unusable.get(name)) is not None:
            raise fault.with_traceback(None)
        return self._regents.get(name)

    def get(self, name: str) -> Regent:
        """Return the Regent of that name. Raises UnknownRalph, UnusableState."""
        if (regent := self.find(name)) is None:
            raise UnknownRalph(f"there is no ralph {name!r}", mend="ralphctl status")
        return regent

    def take_in(self, regent: Regent) -> None:
        """Start the supervision of ``regent``, which outlives the request for it."""
        self._regents[regent.name] = regent
        name = f"regent {regent.name}"
        self._tasks[regent.name] = asyncio.create_task(regent.supervise(), name=name, context=Context())

    def revive(self, regent: Regent, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start ``work`` for a Regent; it is cancelled with it at the latest."""
        task = asyncio.create_task(work, name=f"revival {regent.name}")
        self._revivals[regent.name] = task
        return task

    async def drop(self, regent: Regent) -> None:
        """Forget a ralph and its files in the state directory; its working directory stays as it is.

        Raises WrongState where anything of it runs.
        """
        async with regent.alone:  # it may be starting, or a look at the directory may be taking the locks
            regent.refuse_unless_at_rest("only a ralph that is stopped can be forgotten")
            await asyncio.to_thread(regent.holds.release)
            self._regents.pop(regent.name, None)
            await self._end(self._revivals.pop(regent.name, None))
            await self._end(self._tasks.pop(regent.name, None))
        regent.refuse_what_waits()
        # In parts, the next daemon would rebuild the ralph from its runs, and start it.
        await asyncio.to_thread(remove_folder, regent.account.files.home, self.home.parent)

    def busy(self) -> list[Regent]:
        return [regent for regent in self if regent.has_a_run]

    def applicants(self) -> list[Applicant]:
        """Return those that wait for a start."""
        return [each for regent in self if (each := regent.applicant) is not None]

    def unadopted(self) -> int:
        """Return how many ralphs may have a run of an earlier daemon that is not adopted yet."""
        return sum(regent.is_unadopted for regent in self)

    async def close(self) -> None:
        """End all supervision; the runs live on."""
        await asyncio.gather(*map(self._end, [*self._revivals.values(), *self._tasks.values()]))

    async def _end(self, task: "asyncio.Task[None] | None") -> None:
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def feed(regent: Regent, event: Event) -> None:
    """Have ``event`` handled; a refusal is dropped, since no client waits for it."""
    with suppress(RalphdError):
        await regent.request(event)


logger = logging.getLogger(__name__)

LOOK_ROUND_S, RETRY_STARTS_S = 8.0, 5.0
"""A deleted ``.ralph`` is back within 10 s."""
LATE_S = 2.0
"""A look at a ralph that takes longer goes on beside those at the others."""
ESCALATIONS_LOOKED_AT = 200
ESCALATION_STANDS_S = 3 * 24 * 3600.0
"""About as long as a delivery is tried."""
START_LIMIT_S = 5.0
"""No ralph holds up the daemon's start longer than this; what is left to do is done in the background."""
ANSWER_LIMIT_S = 3.0
"""After it, a run that has not answered is reported as a problem of the daemon, until it does."""
KILL_LIMIT_S = 20.0
LEAST_FREE_BYTES = 50 << 20

HowToEnd = Literal["finish", "leave", "now"]

_STATE_ORDER = sorted(wire.STATES, key=("running", "failed", "paused", *wire.STATES).index)


async def recover(roster: Roster, services: "Services", events: "EventStore") -> None:
    """Load every ralph, adopt the runs that live, resume what was requested (P1, G2)."""
    regents = [regent for home in _homes_in(roster.home) if (regent := await load(home, roster, services))]
    if events.recovered or (events.file.is_new and regents):
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


def _homes_in(home: Path) -> list[Path]:
    """Return the folders of all ralphs. Raises DirectoryUnusable: without them their runs go unsupervised."""
    try:
        return sorted(path for path in home.iterdir() if path.is_dir()) if os.path.lexists(home) else []
    except OSError as fault:
        what = f"the ralphs in {home} cannot be read"
        mend = f"mount what it leads to, or start without ralphs: mv {home} {home}.old"
        raise DirectoryUnusable(what, why=reason(fault), mend=mend) from fault


async def _publish(recovered: list["Recovered"], services: "Services") -> None:
    for one in recovered:
        logger.warning("recovered %s of %s from %s", one.file, one.ralph, one.rebuilt_from)
        data = {"file": one.file, "kept_as": one.kept_as, "rebuilt_from": one.rebuilt_from}
        await services.news.tell("state.recovered", data, ralph=one.ralph)


async def load(home: Path, roster: Roster, services: "Services") -> Regent | None:
    """Return the Regent of a home; its fault, or a bug in its recovery, must not stop those of others."""
    recovered: list[Recovered] = []
    try:
        account = await asyncio.to_thread(recovery.load, RalphFiles(home), services, recovered)
        roster.unusable.pop(home.name, None)
        services.trouble(f"ralph {home.name}", None)
        await _publish(recovered, services)
        return None if account is None else Regent(account, services)
    except UnusableState as fault:
        unusable = fault
    except Exception as fault:
        why = f"{type(fault).__name__}: {fault}; the daemon's log has the traceback"
        unusable = UnusableState(f"{home.name} cannot be used", why=why, mend="ralphctl regent logs")
        if not is_lack(fault):
            logger.exception("a ralph cannot be loaded", extra={"ralph": home.name})
        elif home.name not in roster.unusable:
            roster.looks[home.name] = asyncio.create_task(_load_late(home, roster, services))
    roster.unusable[home.name] = unusable
    services.trouble(f"ralph {home.name}", str(unusable))
    return None


async def _load_late(home: Path, roster: Roster, services: "Services") -> None:
    """Load a ralph whose files could not be read, as soon as they can be."""
    while home.name in roster.unusable:
        await asyncio.sleep(RETRY_STARTS_S)
        if (regent := await load(home, roster, services)) is not None:
            roster.take_in(regent)
            await _revive(regent, services)


async def _escalate_again(regent: Regent, services: "Services") -> None:
    # The outbox was lost: what may not have been delivered is queued again, under the same message id.
    account = regent.account
    oldest = services.clock.now() - ESCALATION_STANDS_S
    for entry in reversed(await asyncio.to_thread(account.history.newest, ESCALATIONS_LOOKED_AT)):
        if entry.get("kind") == ESCALATION and (at := parse_rfc3339(entry["at"])) > oldest:
            again = partial(services.news.tell, destinations=account.told().destinations, key=entry["key"])
            await again("ralph.escalated", entry["data"], ralph=regent.name, run_id=entry["run_id"], at=at)


async def _revive(regent: Regent, services: "Services") -> None:
    # One ralph's bug must not stop the recovery of the others.
    topic, now = f"ralph {regent.name}", services.clock.now

    def note_late() -> None:
        if not regent.gate.is_busy:  # its end may be known, and its commits are being judged: that takes time
            services.trouble(topic, "its last run does not answer")

    late = asyncio.get_running_loop().call_later(ANSWER_LIMIT_S, note_late)
    try:
        recovered: list[Recovered] = []
        if services.tied is not None:  # what ran ended with the client that it was tied to
            await _stop(regent, services)
        await services.endure(f"recovery of {regent.name}", lambda: _catch_up(regent, recovered))
        late.cancel()
        services.trouble(topic, None)
        await _publish(recovered, services)
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


async def _catch_up(regent: Regent, recovered: list["Recovered"]) -> None:
    await regent.account.look_at_loop_files()
    async for missed in recovery.catch_up(regent, recovered):
        await feed(regent, missed)


def _is_at_rest(regent: Regent) -> bool:
    return isinstance(regent.account.supervision.state, (*SETTLED, Paused))


async def _stop(regent: Regent, services: "Services", *, kill: bool = True) -> None:
    # Goals do not outlive a tied daemon: it stops what another daemon would leave (P5).
    if not _is_at_rest(regent):
        await feed(regent, StopRequested(services.clock.now(), kill))


async def look_round(roster: Roster, services: "Services", events: "EventStore") -> None:
    """Poll every few seconds, until cancelled: mirrors, locks, drift, and writes that a full disk refused.

    Only a pass that has ended pings systemd's watchdog, so that a hanging pass is noticed.
    """
    drift = DriftWatch()
    every_s = min(LOOK_ROUND_S, services.systemd.ping_every_s or LOOK_ROUND_S)
    looks = roster.looks
    while True:
        await asyncio.sleep(every_s)
        drift.begin(roster.directories())
        changed = await _changed(roster, drift)
        for regent in roster:
            look, limit_s = looks.pop(regent.name, None), 0.0
            if look is None and regent.name in changed:
                look, limit_s = asyncio.create_task(_look_at(regent, roster, drift)), LATE_S
            if look is not None:
                await asyncio.wait([look], timeout=limit_s)
                if not look.done():
                    looks[regent.name] = look
            regent.account.files.hangs = look is not None and not look.done()
            services.trouble(f"a look at {regent.name}", None if look is None else _late(regent, look))
        if events.degraded or events.file.is_gone:
            await events.heal()
        services.trouble("events", events.degraded)
        services.trouble("disk", await asyncio.to_thread(disk_trouble, services.state_directory))
        await services.tell_troubles()
        services.systemd.passed(in_words(roster))


async def _changed(roster: Roster, drift: DriftWatch) -> set[str]:
    """Return the ralphs at which something has changed, or whose directory does not answer.

    One thread looks at all directories: a thread for each would be most of what an idle daemon costs.
    """
    regents, quiet = list[Regent](), set[str]()
    for each in roster:
        with suppress(Exception):  # the look at this ralph reports it
            if each.name not in roster.looks and not each.has_news():
                regents.append(each)

    def find_quiet() -> None:
        for each in regents:
            with suppress(Exception):  # as above
                if not each.directory_has_news() and not drift.is_new(each.account):
                    quiet.add(each.name)

    await asyncio.wait([asyncio.create_task(asyncio.to_thread(find_quiet))], timeout=LATE_S)
    return {each.name for each in roster} - quiet


async def _look_at(regent: Regent, roster: Roster, drift: DriftWatch) -> None:
    if roster.find(regent.name) is regent:  # else it was removed during this pass
        await regent.account.restore_home()
    await regent.look_round()
    await drift.look(regent.account)


def _late(regent: Regent, look: "asyncio.Task[None]") -> str | None:
    """Return what is wrong with a look at a ralph. It must not stop the supervision of others."""
    if not look.done():
        directory = regent.account.definition.directory
        return f"{directory} does not answer; its supervision continues when it does: df {directory}"
    if (fault := look.exception()) is None:
        return None
    if not is_lack(fault):
        logger.error("polling a ralph failed", exc_info=fault, extra={"ralph": regent.name})
    return f"{type(fault).__name__}: {fault}"


async def retry_starts(roster: Roster, services: "Services") -> None:
    """Start whose turn it is (A11): when a run ends, and every few seconds, until the daemon ends."""
    while True:
        await wait_at_most(RETRY_STARTS_S, services.freed)
        if services.stopping.is_set():
            return
        services.freed.clear()
        applicants = services.applicants()
        if not applicants and not services.holds:
            continue
        if any(each.accounts for each in applicants):
            await services.look_at_clocks()  # a ralph that was killed frees its slot without a word
        for name, hold in services.start_order().items():
            roster.get(name).retry_start(hold)


def disk_trouble(directory: Path) -> str | None:
    """Return why the disk of ``directory`` counts as full; None while it does not. Blocks."""
    disk = os.statvfs(directory)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    text = f"only {free >> 20} MiB are free for {directory}; what is not saved is written when there is room"
    return text if free < min(LEAST_FREE_BYTES, total // 100) else None


def in_words(roster: Roster) -> str:
    """Return how many ralphs are in which state, for ``systemctl status``: ``3 running, 1 paused``."""
    states: Counter[str] = Counter(regent.account.supervision.state.kind for regent in roster)
    counts = [f"{states[state]} {state.replace('_', ' ')}" for state in _STATE_ORDER if states[state]]
    if roster.unusable:
        counts.append(f"{len(roster.unusable)} unusable")
    return ", ".join(counts) or "no ralphs"


def longest_deadline_s(roster: Roster) -> float:
    """Return the longest ``stop_deadline_seconds`` of what runs now."""
    deadlines = (each.account.configuration.regent.stop_deadline_seconds for each in roster.busy())
    return max(deadlines, default=0.0)


async def prune_all(roster: Roster, *, total_bytes: int) -> None:
    """Delete the oldest runs and output beyond the configured size (F5)."""
    living = [regent.living for regent in roster if regent.living is not None]
    every = [regent.account.files.runs for regent in roster]
    with suppress(OSError):
        await asyncio.to_thread(prune, every, total_bytes=total_bytes, living=living)


async def prune_vaults(roster: Roster, services: "Services") -> None:
    """Delete the vaults of ralphs that were removed 30 days ago (A7)."""
    if roster.unusable:  # whose vault is theirs is not known
        return
    directories = [*roster.directories().values()]
    try:
        home, now = services.state_directory / "vaults", services.clock.now()
        await asyncio.to_thread(vault.remove_unused, home, directories, now)
        services.trouble("vaults", None)
    except OSError as fault:
        services.trouble("vaults", f"unused ones cannot be removed: {fault}")


async def end_runs(roster: Roster, services: "Services", how: HowToEnd) -> None:
    """End the runs of a daemon that ends (docs/signals.md); return when none is left.

    What lives after the longest ``stop_deadline_seconds`` is killed.
    """
    if how == "leave" and services.tied is None:
        return
    await ask_all_to_end(roster, services, kill=how == "now")
    if await _none_left(roster, longest_deadline_s(roster)):
        return
    await ask_all_to_end(roster, services, kill=True)
    if not await _none_left(roster, KILL_LIMIT_S):
        logger.error("runs that cannot be ended are left: %s", [each.name for each in roster.busy()])


async def ask_all_to_end(roster: Roster, services: "Services", *, kill: bool) -> None:
    """Ask every run to end, or kill its tree; the goals stay, except those of a tied daemon."""
    if services.tied is None:
        event = DaemonStopping(services.clock.now(), kill)
        await asyncio.gather(*(feed(regent, event) for regent in roster))
    else:
        await asyncio.gather(*(_stop(regent, services, kill=kill) for regent in roster))


async def _none_left(roster: Roster, limit_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while roster.busy():  # noqa: ASYNC110 - short, and at the daemon's very end
                await asyncio.sleep(0.02)
    return not roster.busy()
