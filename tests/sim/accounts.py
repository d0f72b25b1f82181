"""The accounts that the ralph of a night shares with others, and these others, in a few lines each.

Real are the quota clock and who may start. Made up: the lock around a change, and what the others work at.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from ralphd.core.loop.pool import FIRST_PROBE_S
from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Force
from ralphd.core.quota.model import AccountRules, Hold, QuotaClock, QuotaLimit
from ralphd.core.time import Moment
from ralphd.loop.runner import LONGEST_SLEEP_S, LOOK_S
from tests.sim.agents import Trouble
from tests.sim.faults import AGENTS, What
from tests.sim.world import Due

if TYPE_CHECKING:
    from tests.sim.night import Night

LIMITS: Final = (What.USAGE_LIMIT, What.RATE_LIMIT)
FIRST_OUTPUT_S: Final = 1.5
FIRST_HOUR_S: Final = 3600.0
T = TypeVar("T")


class Accounts:
    """One quota clock for each agent, on the disk: it survives all of its users."""

    def __init__(self, night: Night) -> None:
        setting = night.script.setting
        self._night, self.rules = night, AccountRules(setting.slots)
        self._is_looked_at = False
        self.is_shared = setting.neighbours > 0
        self.clocks: dict[str, QuotaClock] = {}
        self.members: set[str] = set()
        self.others = [Neighbour(night, self, number) for number in range(setting.neighbours)]

    def change(self, account: str, decide: Callable[[QuotaClock], tuple[QuotaClock, T]]) -> T:
        """As ``QuotaMember.change``; all who wait look at it soon."""
        before = self.clocks.get(account) or QuotaClock(account)
        after, answer = decide(before.without(before.users() - self.members))
        if after != before:
            self.clocks[account] = after
            if (news := quota.news_of(after)) is not None and after.limit is not None:
                self._night.checks.limit_is_news(account, after.limit.until, news[1])
            self._changed()
        return answer

    def peek(self, account: str) -> QuotaClock:
        """As ``QuotaFiles.peek``."""
        clock = self.clocks.get(account) or QuotaClock(account)
        return clock.without(clock.users() - self.members)

    def _changed(self) -> None:
        """Who waits looks twice a second."""
        if not self._is_looked_at:
            self._is_looked_at = True
            self._night.agenda.after(LOOK_S, self._looks)

    def _looks(self) -> None:
        self._is_looked_at, night = False, self._night
        for other in self.others:
            other.looks()
        if night.loop is not None:
            night.loop.look_at_accounts()
        if night.daemon is not None:
            night.daemon.retries_start()

    def ask(self, account: str, by: str, at: Moment, *, priority: int = 0, force: Force = Force.NOTHING,
            queued_at: Moment | None = None) -> Hold | None:  # fmt: skip
        """Ask for the permit of an attempt."""
        checks, steps = self._night.checks, self._night.steps

        def decide(clock: QuotaClock) -> tuple[QuotaClock, Hold | None]:
            asked = steps.ask(clock, by, at, self.rules, priority=priority, force=force, queued_at=queued_at)
            return asked.clock, asked.hold

        hold = self.change(account, decide)
        if hold is None:
            checks.begins_with_account(account, by, forced=force is Force.ALL)
        else:
            checks.waits_for_account(account, by, priority, at if queued_at is None else min(at, queued_at))
        return hold

    def holds(self, account: str, by: str, at: Moment, priority: int = 0) -> Hold | None:
        """What holds it back now."""
        return quota.hold_of(self.peek(account), by, at, self.rules, priority=priority)

    def meets(self, account: str, by: str, limit: QuotaLimit, priority: int = 0) -> Hold | None:
        """An attempt has ended with a limit; its ralph waits with all others."""
        checks, steps, at = self._night.checks, self._night.steps, limit.since
        checks.meets_account_limit(account, by, limit.until, named=not limit.guessed)
        checks.leaves_account(account, by)

        def decide(clock: QuotaClock) -> tuple[QuotaClock, Hold | None]:
            clock = quota.ended(steps.limit_met(clock, limit), by)
            asked = steps.ask(clock, by, at, self.rules, priority=priority)
            return asked.clock, asked.hold

        hold = self.change(account, decide)
        if hold is not None:
            checks.waits_for_account(account, by, priority, at)
        return hold

    def answers(self, account: str, by: str) -> None:
        """A model has said its first word."""
        now = self._night.clock.wall()
        self._night.checks.account_answers(account, by)
        self.change(account, lambda clock: (self._night.steps.answered(clock, by, now), None))

    def ends(self, account: str, by: str, *, answered: bool) -> None:
        """An attempt has ended without a limit."""
        if answered:
            self.answers(account, by)
        self._night.checks.leaves_account(account, by)
        self.change(account, lambda clock: (quota.ended(clock, by), None))

    def withdraws(self, account: str, by: str) -> None:
        """It works elsewhere now."""
        self._night.checks.leaves_account(account, by, died=True)
        self.change(account, lambda clock: (clock.without({by}), None))

    def is_gone(self, by: str) -> None:
        """Its process is over, and the kernel has freed its lock."""
        self.members.discard(by)
        for account in tuple(self.clocks):
            self._night.checks.leaves_account(account, by, died=True)
        self._changed()


class Neighbour:
    """Another ralph of this machine, as its accounts see it: it asks, works, meets limits, and may die."""

    def __init__(self, night: Night, accounts: Accounts, number: int) -> None:
        self._night, self._accounts, self._number = night, accounts, number
        self._dice = Random(night.script.seed * 31 + number)
        self._account = AGENTS[min(self._dice.choice((0, 0, 0, 1, 2)), night.script.setting.agents - 1)]
        self._priority = self._dice.choice((0, 0, 1))
        self._by, self._lives = "", 0
        self._left = self._dice.randint(2, 6)
        self._hold: Hold | None = None
        self._due: Due | None = None
        self._probes = 0
        night.agenda.after(FIRST_HOUR_S * self._dice.random() ** 2, self._begins)
        if self._dice.random() < 0.4:
            night.agenda.after(2 * FIRST_HOUR_S * self._dice.random(), self.dies)

    def _begins(self) -> None:
        if not self._night.is_dawn:
            self._lives += 1
            self._by = f"other{self._number}.{self._lives}"
            self._accounts.members.add(self._by)
            self._asks()

    def dies(self) -> None:
        """It is killed, in the middle of whatever; another one begins later."""
        if self._by:
            self._leaves()
            self._night.tell("another", "dies")
            self._night.agenda.after(2000.0 * self._dice.random(), self._begins)

    def _leaves(self) -> None:
        by, self._by, self._hold = self._by, "", None
        if self._due is not None:
            self._due.call_off()
        self._accounts.is_gone(by)

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._due is not None:
            self._due.call_off()
        self._due = self._night.agenda.after(delay_s, act)

    def _asks(self) -> None:
        now = self._night.clock.wall()
        if self._night.is_dawn or not self._left:
            self._leaves()
            return
        self._hold = self._accounts.ask(self._account, self._by, now, priority=self._priority)
        if self._hold is not None:
            self._waits(self._hold)
            return
        self._left -= 1
        self._night.tell("another", f"begins to work with {self._account}")
        trouble = self._night.services.of(self._account, self._night.clock.true())
        if trouble is not None:
            self._after(2.0, lambda: self._fails(trouble))
        else:
            self._after(FIRST_OUTPUT_S, self._first_word)

    def _waits(self, hold: Hold) -> None:
        left_s = hold.until - self._night.clock.wall()
        self._after(left_s, self._asks)

    def clock_jumped(self) -> None:
        """Its wait is by the clock on the wall, at which it looks every 30 s."""
        if self._hold is not None and self._by:
            self._after(LONGEST_SLEEP_S, self._asks)

    def looks(self) -> None:
        """Whether what holds it back has changed."""
        if self._hold is None or not self._by:
            return
        hold = self._accounts.holds(self._account, self._by, self._night.clock.wall(), self._priority)
        if not self._hold.is_same(hold):
            self._asks()

    def _first_word(self) -> None:
        self._probes = 0
        self._accounts.answers(self._account, self._by)
        self._after(60.0 + 1500.0 * self._dice.random() ** 2, self._ends)

    def _ends(self) -> None:
        trouble = self._night.services.of(self._account, self._night.clock.true())
        if trouble is not None and self._dice.random() < 0.6:  # else it had its last answer before
            self._fails(trouble)
            return
        self._accounts.ends(self._account, self._by, answered=True)
        self._after(self._dice.choice((1.0, 1.0, 300.0)), self._asks)

    def _fails(self, trouble: Trouble) -> None:
        if trouble.what not in LIMITS:
            self._accounts.ends(self._account, self._by, answered=False)
            self._after(60.0 + 600.0 * self._dice.random(), self._asks)
            return
        now, margin_s = self._night.clock.wall(), self._night.loop_policy.reset_margin_s
        brief, named = trouble.what is What.RATE_LIMIT, trouble.told and trouble.until > now
        guess_s = self._night.loop_policy.rate_limit_s if brief else FIRST_PROBE_S * 2.0**self._probes
        until = trouble.until + margin_s * (not brief) if named else now + guess_s
        self._probes = min(self._probes + (not named), 4)
        if named:
            self._night.checks.reset_is_named(trouble.until)
        limit = QuotaLimit(until, now, "simulated", self._by, not named, brief)
        self._night.tell("another", f"meets a limit of {self._account}, until {self._night.local(until)}")
        self._hold = self._accounts.meets(self._account, self._by, limit, self._priority)
        if self._hold is not None:
            self._waits(self._hold)
        else:
            self._asks()
