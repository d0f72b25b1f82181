"""A lease as another host sees it: silent in NATS, its host does not answer, its ref does not move, so taken.

Two witnesses, because a host that lost only NATS still works, and moves its ref. All waits are by the own
monotonic clock, and count only while this host is connected without a break.
"""

from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeAlias

from ralphd.core.fleet import lease_model
from ralphd.core.fleet.lease_model import HostAnswered, KeySeen, LeaseNews, LeaseOrder, LeaseRules, RefSeen
from ralphd.dataclass import dataclass

JITTER: Final = 0.2


class WatchPhase(StrEnum):
    """What the watcher does; ``taking`` is final: the claim is a LeaseHold from then on."""

    QUIET = "quiet"
    ASKING = "asking"
    READING = "reading"
    WAITING = "waiting"
    READING_AGAIN = "reading-again"
    TAKING = "taking"


_READS: Final = (WatchPhase.READING, WatchPhase.READING_AGAIN)


@dataclass(frozen=True, slots=True)
class LeaseWatch:
    """A lease of another host whose item is not done. ``alive_at``: its last sign of life, or the first look.

    ``chance`` (0 to 1) spreads the waits of hosts. ``needs_one``: the holder denied it, or a person decided,
    so one look at the ref is enough.
    """

    key: KeySeen
    alive_at: float
    chance: float
    phase: WatchPhase = WatchPhase.QUIET
    phase_at: float = 0.0
    sha: str = ""
    needs_one: bool = False
    is_reported: bool = False


WatchStep: TypeAlias = tuple[LeaseWatch, lease_model.Orders]


def step(watch: LeaseWatch, fact: lease_model.LeaseFact, rules: LeaseRules, at: float) -> WatchStep:
    """Return the next state and the orders for one fact."""
    match watch.phase, fact:
        case WatchPhase.TAKING, _:
            return watch, ()
        case _, KeySeen(revision=revision):
            return (watch if revision == watch.key.revision else LeaseWatch(fact, at, watch.chance)), ()
        case _, lease_model.Tick():
            return _tick(watch, fact, rules, at)
        case _, LeaseNews.TAKE_NOW:
            return _in(replace(watch, needs_one=True), WatchPhase.READING, at), (LeaseOrder.READ_REF,)
        case WatchPhase.ASKING, HostAnswered(holds=True):
            return _alive(watch, at), ()
        case WatchPhase.ASKING, HostAnswered(holds=holds):
            asked = replace(watch, needs_one=holds is False)
            return _in(asked, WatchPhase.READING, at), (LeaseOrder.READ_REF,)
        case WatchPhase.READING, RefSeen(sha=sha) if not watch.needs_one:
            return replace(_in(watch, WatchPhase.WAITING, at), sha=sha), ()
        case ((WatchPhase.READING | WatchPhase.READING_AGAIN), RefSeen(sha=sha)):
            if watch.needs_one or sha == watch.sha:
                return _in(watch, WatchPhase.TAKING, at), (lease_model.TakeLease(watch.key, fact),)
            return _alive(watch, at), ()
        case phase, LeaseNews.GIT_SILENT if phase in _READS:
            return _alive(watch, at), ()
        case _:
            return watch, ()


def _tick(watch: LeaseWatch, tick: lease_model.Tick, rules: LeaseRules, at: float) -> WatchStep:
    if (since := tick.connected_since) is None:
        return _alive(watch, max(at, watch.alive_at)), ()
    if since > watch.alive_at:
        watch = _alive(watch, since)
    wait_s = rules.takeover_wait_s * (1 + JITTER * (2 * watch.chance - 1))
    match watch.phase:
        case WatchPhase.QUIET if at - watch.alive_at >= rules.lease_s:
            report = () if watch.is_reported else (LeaseOrder.REPORT_SILENT,)
            asking = _in(replace(watch, is_reported=True), WatchPhase.ASKING, at)
            return asking, (*report, LeaseOrder.ASK_HOST)
        case WatchPhase.WAITING if at - watch.phase_at >= wait_s:
            return _in(watch, WatchPhase.READING_AGAIN, at), (LeaseOrder.READ_REF,)
        case _:
            return watch, ()


def _in(watch: LeaseWatch, phase: WatchPhase, at: float) -> LeaseWatch:
    return replace(watch, phase=phase, phase_at=at)


def _alive(watch: LeaseWatch, at: float) -> LeaseWatch:
    """Return the watch as if the holder had shown itself now: look again after ``lease_s``."""
    return replace(watch, phase=WatchPhase.QUIET, alive_at=at)
