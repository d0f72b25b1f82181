"""A lease is taken only after silence in NATS, no answer, and a ref that did not move."""

from dataclasses import replace

import pytest

from ralphd.core.fleet.lease_model import (
    HostAnswered,
    KeySeen,
    LeaseFact,
    LeaseNews,
    LeaseOrder,
    LeaseRules,
    Orders,
    RefSeen,
    TakeLease,
    Tick,
)
from ralphd.core.fleet.model import HostName, Lease
from ralphd.core.fleet.takeover import LeaseWatch, WatchPhase, step

RULES = LeaseRules()
LEASE = Lease(HostName("h"), "h-1", 4)
KEY, REF, MOVED = KeySeen(LEASE, 7), RefSeen("b1", LEASE), RefSeen("b2", LEASE)
READ, ASK, REPORT = (LeaseOrder.READ_REF,), LeaseOrder.ASK_HOST, LeaseOrder.REPORT_SILENT
UP = Tick(0.0)
Story = list[tuple[float, LeaseFact, Orders]]

SUSPECT: Story = [(59.0, UP, ()), (60.0, UP, (REPORT, ASK)), (62.0, HostAnswered(None), READ)]
WITNESS: Story = [*SUSPECT, (63.0, REF, ()), (242.0, UP, ()), (243.0, UP, READ)]
STORIES: dict[str, Story] = {
    "a dead host": [*WITNESS, (244.0, REF, (TakeLease(KEY, REF),)), (999.0, UP, ())],
    "its ref moved": [*WITNESS, (244.0, MOVED, ()), (303.0, UP, ()), (304.0, UP, (ASK,))],
    "its ref cannot be read": [*WITNESS, (244.0, LeaseNews.GIT_SILENT, ()), (304.0, UP, (ASK,))],
    "its ref cannot be read at first": [*SUSPECT, (63.0, LeaseNews.GIT_SILENT, ()), (123.0, UP, (ASK,))],
    "it renews": [*WITNESS, (244.0, KeySeen(LEASE, 8), ()), (245.0, REF, ()), (304.0, UP, (REPORT, ASK))],
    "an old revision is no news": [(30.0, KEY, ()), (60.0, UP, (REPORT, ASK))],
    "it answers": [*SUSPECT[:2], (61.0, HostAnswered(True), ()), (120.0, UP, ()), (121.0, UP, (ASK,))],
    "it denies": [*SUSPECT[:2], (61.0, HostAnswered(False), READ), (62.0, REF, (TakeLease(KEY, REF),))],
    "this host was cut off": [
        *WITNESS[:-1],
        (242.5, Tick(None), ()),
        (243.0, Tick(243.0), ()),
        (302.0, Tick(243.0), ()),
        (303.0, Tick(243.0), (ASK,)),
    ],
    "a break between two ticks": [*WITNESS[:-1], (243.0, Tick(242.5), ()), (303.0, Tick(242.5), (ASK,))],
    "cut off at the second look": [*WITNESS, (243.5, Tick(None), ()), (244.0, REF, ())],
    "connected since a moment": [(70.0, Tick(20.0), ()), (80.0, Tick(20.0), (REPORT, ASK))],
    "a person decides": [(1.0, LeaseNews.TAKE_NOW, READ), (2.0, REF, (TakeLease(KEY, REF),))],
    "a late answer": [*SUSPECT, (63.0, REF, ()), (64.0, HostAnswered(True), ()), (243.0, UP, READ)],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_watch_has_its_orders(story: Story) -> None:
    watch = LeaseWatch(KEY, 0.0, 0.5)
    for at, fact, orders in story:
        watch, given = step(watch, fact, RULES, at)
        assert (at, given) == (at, orders)


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 144.0), (0.5, 180.0), (1.0, 216.0)])
def test_hosts_wait_differently_long(chance: float, wait_s: float) -> None:
    watch = LeaseWatch(KEY, 0.0, chance, WatchPhase.WAITING, 0.0, "b1")

    assert step(watch, UP, RULES, wait_s - 0.1)[1] == ()
    assert step(replace(watch), UP, RULES, wait_s + 0.1)[1] == READ
