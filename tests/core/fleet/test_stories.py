"""Whole stories of two hosts: who keeps the work, who takes it, and when (plan, section 11)."""

import random

import pytest

from ralphd.core.fleet.model import HostName, ItemState
from tests.core.fleet.test_histories import Fleets
from tests.core.fleet.world import RULES, FleetHost, Git, HubData

STEP_S = 5.0


class Story:
    """Two hosts with quick daemons; the first has the item."""

    def __init__(self) -> None:
        self.git, self.hub, self.now = Git(), [HubData()], 0.0
        self.a, self.b = (FleetHost(HostName(name), self.git, self.hub) for name in ("a", "b"))
        self.a.peer, self.b.peer = self.b, self.a
        self.pass_time(STEP_S)
        assert self.a.hold is not None
        self.a.work()
        self.pass_time(STEP_S)
        assert self.git.tip == "a1.1"

    def pass_time(self, seconds: float, *, asleep: FleetHost | None = None) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.now += STEP_S
            for host in (self.a, self.b):
                host.now = self.now
                host.is_asleep = host is asleep
                host.slept_s += STEP_S if host is asleep else 0.0
                if host.is_up and host is not asleep:
                    host.tick()
                    host.look()
                    while host.orders:
                        host.carry_out(0, "ok")
                    host.note()

    def holder(self) -> str:
        return self.git.blobs[self.git.sha].host

    def cut(self, host: FleetHost) -> None:
        host.has_hub = False

    def heal(self, host: FleetHost) -> None:
        host.has_hub, host.connected_since = True, host.at


def test_a_live_host_keeps_its_work() -> None:
    story = Story()
    story.pass_time(3600)

    assert story.holder() == "a"
    assert story.git.blobs[story.git.sha].n == 2  # one claim, one push: git is left alone
    assert story.b.events == []


def test_a_dead_host_loses_its_work() -> None:
    story = Story()
    story.a.crash()
    story.pass_time(RULES.lease_s + 0.9 * RULES.takeover_wait_s)
    assert story.holder() == "a"

    story.pass_time(0.1 * RULES.takeover_wait_s + 30)

    assert story.holder() == "b"
    item = story.hub[-1].item
    assert item is not None
    assert (item.holder, item.state, item.tries, item.token) == ("b", ItemState.CLAIMED, 1, 2)
    story.b.work()
    story.pass_time(STEP_S)
    assert story.git.tip == "b1.1"
    assert story.git.parents["b1.1"] == "a1.1"


def test_a_host_without_nats_keeps_its_work() -> None:
    story = Story()
    story.cut(story.a)
    story.pass_time(4 * 3600)

    assert story.holder() == "a"
    assert "take" not in story.b.events
    story.heal(story.a)
    story.pass_time(60)
    lease = story.hub[-1].lease
    assert lease is not None
    assert lease.host == "a"


def test_a_host_without_git_keeps_its_lease() -> None:
    story = Story()
    story.a.has_git = False
    story.a.work()
    story.pass_time(3600)
    assert story.b.events == []

    story.a.has_git = True
    story.pass_time(30)

    assert story.git.tip == "a1.2"


@pytest.mark.parametrize("down_s", [10, 100, 24 * 3600])
def test_an_outage_of_the_hub_moves_nothing(down_s: float) -> None:
    story = Story()
    story.cut(story.a)
    story.cut(story.b)
    story.pass_time(down_s)
    story.heal(story.a)
    story.heal(story.b)
    story.pass_time(3600)

    assert story.holder() == "a"
    assert story.b.events == []


def test_a_wiped_hub_is_filled_again() -> None:
    story = Story()
    story.hub[:] = [HubData(item=None, item_revision=0, last=0)]
    story.pass_time(3600)

    lease, item = story.hub[-1].lease, story.hub[-1].item
    assert lease is not None
    assert item is not None
    assert lease.host == item.holder == story.holder() == "a"


def test_a_laptop_that_slept_is_fenced() -> None:
    story = Story()
    story.pass_time(8 * 3600, asleep=story.a)
    assert story.holder() == "b"

    story.a.is_asleep = False
    story.a.tick()  # before any agent may start
    assert story.a.hold is not None
    assert not story.a.hold.may_attempt
    story.pass_time(30)

    assert "fence" in story.a.events
    assert story.holder() == "b"


def test_a_reboot_within_the_time_continues() -> None:
    story = Story()
    story.a.crash()
    story.pass_time(30)
    story.a.restart()
    story.pass_time(600)

    assert story.holder() == "a"
    assert story.a.hold is not None
    assert story.a.hold.lease.token == 1
    assert "take" not in story.b.events


def test_a_taker_without_nats_stops() -> None:
    story = Story()
    story.a.crash()
    story.pass_time(150)
    story.cut(story.b)
    story.pass_time(3600)
    assert story.holder() == "a"

    story.heal(story.b)
    story.pass_time(RULES.lease_s + RULES.takeover_wait_s - 10)
    assert story.holder() == "a"
    story.pass_time(60)

    assert story.holder() == "b"


def test_a_person_who_moves_the_branch_is_called() -> None:
    story = Story()
    story.git.parents["person"] = "a1.1"
    story.git.tip = "person"
    story.a.work()
    story.pass_time(30)

    assert story.git.tip == "person"
    item = story.hub[-1].item
    assert item is not None
    assert item.state is ItemState.HELD


def test_a_deleted_ref_is_set_again() -> None:
    story = Story()
    story.git.sha = ""
    story.a.work()
    story.pass_time(30)
    story.a.work()
    story.pass_time(30)

    assert story.holder() == "a"
    assert story.git.tip == "a1.3"


WEIGHTS = {
    **{"time": 20.0, "order": 40.0, "round": 12.0, "work": 14.0, "note": 8.0, "look": 6.0, "late": 4.0},
    **{"crash": 1.5, "sleep": 1.5, "cable": 3.0, "forget": 1.0, "wipe": 0.4, "delete": 0.4},
}
FATES = (*["ok"] * 8, "lost", "applied", "late")


@pytest.mark.parametrize("seed", range(150))
def test_a_long_history_keeps_the_rules(seed: int) -> None:
    """The rules of test_histories.py, more of them in a row: two faults have to meet."""
    chance, fleet = random.Random(seed), Fleets()
    for word in chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=200):
        n, index = chance.randrange(2), chance.randrange(4)
        match word:
            case "time":
                fleet.time_passes(chance.choice([1, 11, 21, 61, 61, 250]))
            case "order":
                fleet.an_order_is_carried_out(n, index, chance.choice(FATES))
            case "round":
                fleet.a_host_does_all_it_wants(n)
            case "work":
                fleet.a_host_works(n)
            case "note":
                fleet.a_host_notes(n, chance.random() < 0.05)
            case "look":
                fleet.a_host_looks_for_work(n)
            case "late":
                fleet.what_was_late_arrives(n, index)
            case "crash":
                fleet.a_host_crashes_or_is_back(n)
            case "sleep":
                fleet.a_laptop_is_closed_or_opened(n)
            case "cable":
                fleet.a_cable_is_pulled_or_put_in(n, chance.random() < 0.6)
            case "forget" if len(fleet.hub) > 1:
                fleet.the_hub_forgets(1 + index)
            case "wipe":
                fleet.the_hub_is_wiped()
            case "delete":
                fleet.a_person_deletes_the_ref()
        fleet.no_token_was_held_by_two_hosts()
        fleet.no_stale_push_was_accepted()
        fleet.acknowledged_commits_stay()
        fleet.the_item_is_somewhere()
    fleet.teardown()
