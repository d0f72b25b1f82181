"""What all Regents of a daemon share: clock, events, current problems, timers."""

import asyncio
import logging
import os
import select
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ralphd.config import configuration as config
from ralphd.config.files import user_file
from ralphd.core.delivery import Destination, wanted
from ralphd.core.quota.clock import news_of, short_name, view_of
from ralphd.core.quota.model import PROBE_S, QuotaClock
from ralphd.core.sandbox import BOX, DEVICES, NEEDS_NONE, TEMPORARY, WRITE, SandboxChoice, restricted
from ralphd.core.supervision.events import Event, GraceOver, Woke
from ralphd.core.supervision.model import RunId
from ralphd.core.supervision.start_order import Applicant, StartHold, start_order
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.errors import CommandNotStartable, ConfigFaults
from ralphd.git.repo import Repository
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock, free_memory, local_zone
from ralphd.process.sandbox.probe import SandboxProbe
from ralphd.process.start_errors import is_lack
from ralphd.store.events import EventStore
from ralphd.store.shared.quota import QuotaFiles, quota_directory
from ralphd.systemd import Systemd
from ralphd.wire import EVENTS

if TYPE_CHECKING:
    from ralphd.core.landing.model import Target
    from ralphd.daemon.landing.worker import LandingTurn
    from ralphd.daemon.ralph.run_source import RunSource

logger = logging.getLogger(__name__)

T = TypeVar("T")
AGAIN_S, WELL_S = 1.0, 15.0


@dataclass(eq=False)
class EventPublisher:
    """Stores an event with its deliveries, then gives it to listeners; ``nudge`` starts the deliveries.

    ``always`` are the webhooks of the user's file, ``added`` those added over the API, besides those that a
    ralph is pinned to; ``told`` counts the events by type since the daemon's start. ``own_file`` is the file
    of ``always``, once it was read: what a ralph is pinned to of it does not count then.
    """

    events: EventStore
    hub: Hub
    _clock: Clock
    nudge: Callable[[], None] = lambda: None
    always: tuple[Destination, ...] = ()
    own_file: str | None = None
    added: tuple[Destination, ...] = ()
    on_desktop: bool = False
    told: Counter[str] = field(default_factory=Counter)

    async def tell(
        self, kind: str, data: Mapping[str, Any], *, ralph: str | None = None, run_id: RunId | None = None,
        at: Moment | None = None, key: str | None = None, destinations: Sequence[Destination] = (),
    ) -> bool:  # fmt: skip
        """Store and publish one event. Return False, and do nothing, when ``key`` was published before."""
        at = self._clock.now() if at is None else at
        every = (*self.added, *self.always, *destinations)
        deliver_to = wanted(every, kind, data, is_titled=bool(EVENTS[kind][0]))
        event = await self.events.append(kind, at, ralph, run_id, dict(data), key=key, deliver_to=deliver_to)
        if event is None:
            return False
        self.told[kind] += 1
        self.hub.publish(event)
        if deliver_to:
            self.nudge()
        return True


async def _has_room(name: str, most_bytes: int) -> str:
    return ""


@dataclass(slots=True)
class Services:
    """What a Regent needs besides its ralph. Runs create their files under ``umask``.

    ``tied`` is the pipe at whose end of file daemon and runs end (P5); None for a daemon of its own.
    ``living`` are the ralphs that have a run; ``freed`` is set when that changes, ``done`` when a ralph is
    done. ``applicants`` gives those that wait for a start, ``unadopted`` the number of runs to adopt: they
    have a place too. ``begun`` has who was started and when, ``clocks`` the accounts as last read, ``holds``
    the last order of starts. ``follow`` merges what landed into the branch of a ralph between two iterations.
    ``busy`` gives the directories in which a run lives, ``landing_of`` where the branch of a ralph stands in
    its queue, ``why_unqueued`` why the branch of one that is done is not in it. ``turn_of`` gives the turn to
    move a target that a fleet shares.
    """

    state_directory: Path
    socket_path: Path
    umask: int
    clock: Clock
    news: EventPublisher
    refusals: Callable[[], Mapping[str, str]] = dict
    tied: int | None = None
    systemd: Systemd = field(default_factory=Systemd)
    sandbox: SandboxProbe = field(default_factory=SandboxProbe)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    living: set[str] = field(default_factory=set)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    applicants: Callable[[], list[Applicant]] = list
    unadopted: Callable[[], int] = int
    begun: dict[str, tuple[Moment, Applicant]] = field(default_factory=dict)
    no_room: Callable[[str, int], Awaitable[str]] = _has_room
    clocks: Mapping[str, QuotaClock] = field(default_factory=dict)
    holds: dict[str, StartHold | None] = field(default_factory=dict)
    busy: Callable[[], list[Path]] = list
    follow: Callable[..., Awaitable[bool]] | None = None
    landing_of: Callable[[str], dict[str, Any] | None] = lambda _: None
    why_unqueued: Callable[[str], str] = lambda _: ""
    turn_of: "Callable[[Target], LandingTurn | None]" = lambda _: None
    _troubles: dict[str, str] = field(default_factory=dict)
    _untold: list[str] = field(default_factory=list)

    @property
    def commands(self) -> Path:
        """The directory of ``ralphctl`` and ``ralph`` that is on the PATH of every run."""
        return self.state_directory / "bin"

    def start_order(self, *more: Applicant) -> dict[str, StartHold | None]:
        """Return why each ralph that waits for a start, or is in ``more``, still waits; None: it starts."""
        every = {each.name: each for each in (*self.applicants(), *more)}
        running, now = len(self.living - every.keys()) + self.unadopted(), self.clock.now()
        new = self.living - {short_name(user) for clock in self.clocks.values() for user in clock.users()}
        begun = [each for at, each in self.begun.values() if each.name in new and 0 <= now - at < PROBE_S]
        machine = (running, free_memory(), now, local_zone())
        self.holds = start_order(every.values(), *machine, self.clocks, begun)
        return self.holds

    async def look_at_clocks(self) -> None:
        """Read the clocks of all accounts; those that cannot be read hold nobody back."""
        files = QuotaFiles(quota_directory(self.state_directory))
        self.clocks = {each.account: each for each in await asyncio.to_thread(files.clocks)}

    def is_cut_off(self) -> bool:
        """Whether the process that the daemon is tied to is gone: then every run ends by itself (P5)."""
        if self.tied is None:
            return False
        poll = select.poll()
        poll.register(self.tied, select.POLLIN)  # nothing is ever written: what comes is the end of file
        return bool(poll.poll(0))

    def problems(self) -> list[str]:
        """Return the present problems; ``refusals`` are webhooks whose receiver is gone."""
        return [f"{topic}: {what}" for topic, what in self._troubles.items()] + list(self.refusals().values())

    def trouble(self, topic: str, what: str | None) -> None:
        """Record a problem for ``topic``; None clears it (F3)."""
        if what is None:
            if self._troubles.pop(topic, None) is not None:
                logger.info("well again: %s", topic)
        elif topic not in self._troubles:
            logger.warning("degraded: %s: %s", topic, what)
            self._troubles[topic] = what
            self._untold.append(f"{topic}: {what}")

    def forget(self, ralph: str) -> None:
        """Clear the problems of a ralph that is removed, and have its landing queue look."""
        self.done.set()
        for topic in [topic for topic in self._troubles if topic.endswith(f" {ralph}")]:
            self.trouble(topic, None)

    async def endure(self, topic: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return ``work()``. While the machine lacks what it needs, start it again: a problem, not a bug.

        Work that never ends is well again after WELL_S without a fault.
        """
        while True:
            well = asyncio.get_running_loop().call_later(WELL_S, self.trouble, topic, None)
            try:
                answer = await work()
            except Exception as fault:
                if not is_lack(fault):
                    raise
                self.trouble(topic, f"{fault or type(fault).__name__}; it is tried again")
            else:
                self.trouble(topic, None)
                return answer
            finally:
                well.cancel()
            await asyncio.sleep(AGAIN_S)

    async def tell_troubles(self) -> None:
        """Publish each problem that is new since the last call."""
        untold, self._untold = self._untold, []
        for what in untold:
            await self.news.tell("daemon.degraded", {"message": what})

    async def sandbox_for(
        self, account: "RunSource", directory: Path, *, is_bare: bool = False
    ) -> SandboxChoice:
        """Choose the sandbox of what starts in ``directory``. Raise CommandNotStartable without it.

        ``is_bare``: ``auto`` chooses none.
        """
        level = account.configuration.sandbox.level
        if is_bare and level == "auto":
            return SandboxChoice(reason=NEEDS_NONE)
        chosen = await self.sandbox.choose(level)
        if chosen.level in (WRITE, BOX):
            chosen = await asyncio.to_thread(_restricted, chosen, account, directory, self.state_directory)
        if chosen.fault:
            mend = "start in another directory, or with another TMPDIR"
            raise CommandNotStartable(f'level = "{level}" is not possible here', why=chosen.fault, mend=mend)
        return chosen


QUOTA_LOOK_S: Final = 2.0


class QuotaWatch:
    """Publishes when an account meets a limit, and when it is open again (Q5): each change once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._files = QuotaFiles(quota_directory(services.state_directory))
        self._told: dict[str, str] = {}
        self._seen: object = ()

    def views(self) -> list[dict[str, Any]]:
        """Return all accounts as the API shows them, with the ralphs that wait to be started. Blocks."""
        views = [view_of(each, self._services.clock.now()) for each in self._files.clocks()]
        holds = [(name, hold.accounts) for name, hold in self._services.holds.items() if hold]
        for view in views:
            held = [name for name, accounts in holds if view["account"] in accounts]
            view["waiting"] = [*dict.fromkeys(view["waiting"] + held)]
        return views

    async def watch(self) -> None:
        """Look every two seconds, until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(QUOTA_LOOK_S)

    async def _look(self) -> None:
        signature = self._files.signature()
        if signature == self._seen:
            return
        await self._services.look_at_clocks()
        self._seen = signature
        self._services.freed.set()
        for clock in self._services.clocks.values():
            news = news_of(clock)
            if news is not None and self._told.get(clock.account) != news[1]:
                kind, key, data = news
                await self._services.news.tell(kind, data, key=f"{kind} {key}")
                self._told[clock.account] = key


# The user's own configuration file as far as it is the daemon's: its webhooks, its bounds of logs.

TOPIC = "the user's configuration"


class UserConfiguration:
    """The user's configuration as last read without faults; the defaults before that."""

    def __init__(self, services: Services) -> None:
        self.present = config.Configuration()
        self._services = services

    def read(self) -> tuple[config.Difference, ...] | ConfigFaults:
        """Read the file again. Return what has changed; or its faults, which change nothing."""
        try:
            current = config.load(None, environ=os.environ)
        except ConfigFaults as faults:
            self._services.trouble(TOPIC, None)  # it may be about other faults
            self._services.trouble(TOPIC, str(faults))
            return faults
        self._services.trouble(TOPIC, None)
        before, self.present = self.present, current
        self._services.news.always = current.destinations()
        self._services.news.own_file = str(user_file(os.environ, config.home_of(os.environ)))
        self._services.news.on_desktop = current.notify.desktop
        logger.info("read the user's configuration")
        return config.differences(before, current)


# The moments that a Regent is to be told of: the end of a wait, by the wall clock, and that of a grace.

LONGEST_SLEEP_S: Final = 30.0
"""Waits follow the wall clock, which can be set, so it is looked at this often (H5)."""


class Timers:
    """One timer for the end of a wait, by the wall clock, and one for that of a grace."""

    def __init__(self, services: Services, post: Callable[[Event], None]) -> None:
        self._services, self._post = services, post
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def wake_at(self, at: Moment) -> None:
        """Post ``Woke`` at this moment, or earlier to look at the clock."""
        self._set("wait", min(max(at - self._services.clock.now(), 0.0), LONGEST_SLEEP_S), self._wake)

    def kill_after(self, run_id: RunId, delay_s: float) -> None:
        """Post ``GraceOver`` after ``delay_s``."""
        self._set("grace", delay_s, lambda: self._post(GraceOver(self._services.clock.now(), run_id)))

    def _set(self, name: str, delay_s: float, act: Callable[[], None]) -> None:
        if (earlier := self._timers.get(name)) is not None:
            earlier.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay_s, act)

    def cancel(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _wake(self) -> None:
        if not self._services.stopping.is_set():
            self._post(Woke(self._services.clock.now()))


def _restricted(
    chosen: SandboxChoice, account: "RunSource", directory: Path, state_directory: Path
) -> SandboxChoice:
    repository = Repository.find(directory)
    git = () if repository is None else repository.proven()
    if repository is not None and not git:
        return replace(chosen, fault=f"{directory}: .git leads to {repository.git}, which belongs elsewhere")
    if chosen.level == BOX:
        return chosen
    needed = map(str, (directory, *git, account.environment.get("TMPDIR") or TEMPORARY[0]))
    hidden = os.path.realpath(state_directory)
    chosen = restricted(chosen, needed, (*account.writable(), *TEMPORARY, *DEVICES), hidden)
    # Resolved last: a link below a writable directory may be an agent's, and is not among the outermost.
    return chosen if chosen.fault else restricted(chosen, map(os.path.realpath, chosen.writable), (), hidden)
