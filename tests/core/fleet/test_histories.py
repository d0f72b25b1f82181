"""Two hosts, one git, one hub that forgets: any order of faults, and what must hold after each."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ralphd.core.fleet.model import ENDED, HAS_HOLDER, HostName, ItemState
from tests.core.fleet.world import FleetHost, Git, HubData, is_settled

HOSTS = st.integers(0, 1)
FATES = st.sampled_from(["ok", "ok", "ok", "ok", "lost", "applied", "late"])
HEAL_STEPS = 400


class Fleets(RuleBasedStateMachine):
    """Any order of work, lost answers, late pushes, crashes, sleeps, partitions and forgotten writes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.git = Git()
        self.hub = [HubData()]
        self.hosts = [FleetHost(HostName(name), self.git, self.hub) for name in ("a", "b")]
        self.hosts[0].peer, self.hosts[1].peer = self.hosts[1], self.hosts[0]

    def awake(self) -> list[FleetHost]:
        return [host for host in self.hosts if host.is_up and not host.is_asleep]

    def one(self, n: int) -> FleetHost | None:
        return self.hosts[n] if self.hosts[n] in self.awake() else None

    @rule(seconds=st.sampled_from([1, 11, 21, 61, 61, 250]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        for host in self.hosts:
            host.now = self.now
            host.slept_s += seconds if host.is_asleep else 0
        for host in self.awake():
            host.tick()

    @rule(n=HOSTS, index=st.integers(0, 3), fate=FATES)
    def an_order_is_carried_out(self, n: int, index: int, fate: str) -> None:
        host = self.one(n)
        if host is not None and host.orders:
            host.carry_out(index, fate)

    @rule(n=HOSTS)
    def a_host_does_all_it_wants(self, n: int) -> None:
        host = self.one(n)
        if host is not None:
            self.busy_round(host, is_done=False)

    def busy_round(self, host: FleetHost, *, is_done: bool) -> None:
        host.look()
        for _ in range(20):
            if host.orders:
                host.carry_out(0, "ok")
        host.note(is_done=is_done)

    @rule(n=HOSTS)
    def a_host_looks_for_work(self, n: int) -> None:
        if host := self.one(n):
            host.look()

    @rule(n=HOSTS)
    def a_host_works(self, n: int) -> None:
        if host := self.one(n):
            host.work()

    @rule(n=HOSTS, is_done=st.sampled_from([False, False, True]))
    def a_host_notes(self, n: int, is_done: bool) -> None:
        if host := self.one(n):
            host.note(is_done=is_done)

    @rule(n=HOSTS, index=st.integers(0, 3))
    def what_was_late_arrives(self, n: int, index: int) -> None:
        late = self.hosts[n].late
        if late:
            self.hosts[n].apply(late.pop(index % len(late)))

    @rule(n=HOSTS)
    def a_host_crashes_or_is_back(self, n: int) -> None:
        host = self.hosts[n]
        if host.is_up:
            host.crash()
        else:
            host.restart()

    @rule(n=HOSTS)
    def a_laptop_is_closed_or_opened(self, n: int) -> None:
        self.hosts[n].is_asleep = not self.hosts[n].is_asleep

    @rule(n=HOSTS, hub=st.booleans())
    def a_cable_is_pulled_or_put_in(self, n: int, hub: bool) -> None:
        host = self.hosts[n]
        if hub:
            host.has_hub = not host.has_hub
            host.connected_since = host.at
        else:
            host.has_git = not host.has_git

    @precondition(lambda self: len(self.hub) > 1)
    @rule(back=st.integers(1, 4))
    def the_hub_forgets(self, back: int) -> None:
        """What it had acknowledged is gone, and its revisions are given out again."""
        del self.hub[max(len(self.hub) - back, 1) :]

    @rule()
    def the_hub_is_wiped(self) -> None:
        self.hub[:] = [HubData(item=None, item_revision=0, last=0)]

    @rule()
    def a_person_deletes_the_ref(self) -> None:
        """With the hub's data gone too, nobody knows the last token: only the blobs are still unlike."""
        self.git.sha = ""
        self.git.holders.clear()

    @invariant()
    def no_token_was_held_by_two_hosts(self) -> None:
        assert all(len(hosts) == 1 for hosts in self.git.holders.values()), self.git.holders

    @invariant()
    def no_stale_push_was_accepted(self) -> None:
        assert self.git.stale == []

    @invariant()
    def acknowledged_commits_stay(self) -> None:
        for host in self.hosts:
            assert all(self.git.is_ancestor(each, self.git.tip) for each in host.acknowledged)

    @invariant()
    def the_item_is_somewhere(self) -> None:
        item = self.hub[-1].item
        for each in [host.copy for host in self.hosts] + ([item] if item else []):
            has_holder = each.holder is not None
            assert has_holder == (each.state in HAS_HOLDER)
            assert each.state in (ItemState.OPEN, ItemState.HELD, *HAS_HOLDER, *ENDED)

    def teardown(self) -> None:
        """Heal everything: somebody finishes the item, or a person has it."""
        for host in self.hosts:
            host.is_asleep = False
            host.late.clear()
            host.has_git = host.has_hub = True
            host.connected_since = host.at
            if not host.is_up:
                host.restart()
        for _ in range(HEAL_STEPS):
            self.time_passes(10)
            for host in self.hosts:
                self.busy_round(host, is_done=True)
                host.work()
            if is_settled(self.hub[-1].item) and not any(host.hold for host in self.hosts):
                return
        raise AssertionError(f"the item is stuck: {self.hub[-1].item}, {[h.hold for h in self.hosts]}")


TestFleets = Fleets.TestCase
TestFleets.settings = settings(stateful_step_count=60)
