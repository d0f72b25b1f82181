"""The quota clocks as one loop uses them: a permit before each attempt, and news for the others (Q2 to Q4).

A clock that cannot be read or written never stops a loop: it then works as if it were the only user of its
accounts, and the log says so once.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ralphd.agents.identity import Account, account_of
from ralphd.core.failures.agent_events import WindowUsed
from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Asked, Force
from ralphd.core.quota.model import SKIPPED, Hold, QuotaClock, QuotaLimit, QuotaWindow
from ralphd.core.time import Moment, parse_rfc3339
from ralphd.dataclass import dataclass
from ralphd.store.shared.quota import FAULTS, QuotaMember, quota_directory

if TYPE_CHECKING:
    from ralphd.loop.settings import LoopSettings

REPEAT_S = 60.0
"""A used share that has not changed is written this often."""
Decide: TypeAlias = Callable[[QuotaClock], tuple[QuotaClock, Hold | None]]


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """What the end of an attempt means for its account. ``until`` None: it met no limit.

    ``answered``: the model did. ``guessed``: the service named no reset. ``brief``: a rate limit.
    """

    agent: str
    answered: bool = False
    why: str = ""
    until: Moment | None = None
    guessed: bool = False
    brief: bool = False


class LoopAccounts:
    """The accounts of one loop's agents. ``say`` logs a line. All methods but ``news`` block."""

    def __init__(self, settings: "LoopSettings", say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        # home: STATE/ralphs/NAME, or STATE/loop/NAME-HASH without a Regent
        self._directory: Path = quota_directory(settings.home.parent.parent)
        self._member = QuotaMember(self._directory, f"{settings.name}.{secrets.token_hex(6)}")
        self._known: dict[str, Account | None] = {}
        self._holds: dict[str, Hold] = {}
        self._queued: tuple[str, ...] = ()
        self._answered = False
        self._fault = ""
        self._windows: dict[str, tuple[WindowUsed | None, Moment]] = {}
        queued, self._queued_at = settings.environment.get("RALPH_QUEUED_AT", ""), None
        with suppress(ValueError):
            self._queued_at = parse_rfc3339(queued)
        self.force = Force.ALL if queued == SKIPPED else Force.NOTHING
        """What a person overrides with the next attempt."""

    def ask(self, agent: str, at: Moment) -> Hold | None:
        """Return what holds the agent's attempt back; None: it has the permit (Q2, Q3, Q6)."""
        force, self.force = self.force, Force.NOTHING
        if (account := self._account(agent)) is None:
            self._withdraw("")
            return None

        def decide(clock: QuotaClock) -> tuple[QuotaClock, Hold | None]:
            asked: Asked = quota.ask(
                clock, self._member.by, at, account.rules,
                priority=self._priority, force=force, queued_at=self._queued_at,
            )  # fmt: skip
            return asked.clock, asked.hold

        if (hold := self._change(account, decide)) is None:
            self._holds.pop(agent, None)
            self._answered, self._queued_at = False, None
            self._withdraw(account.id)
        else:
            self._wait(agent, account, hold)
        return hold

    def _wait(self, agent: str, account: Account, hold: Hold) -> None:
        self._holds[agent] = hold
        self._queued = tuple({*self._queued, account.id})

    def freed(self, at: Moment) -> str | None:
        """Return an agent whose hold has changed since it was noted, or ended: it may ask again."""
        for agent, hold in self._holds.items():
            if (account := self._account(agent)) is None:
                continue
            clock = self._member.peek(account.id)
            current = quota.hold_of(clock, self._member.by, at, account.rules, priority=self._priority)
            if not hold.is_same(current):
                del self._holds[agent]
                return agent
        return None

    @property
    def waits(self) -> bool:
        """Whether an agent is held back, so that its clock is to be looked at."""
        return bool(self._holds)

    def ended(self, end: AttemptEnd) -> None:
        """Note the end of an attempt: its limit for all others (Q2), or its answer; and free its slot."""
        if (account := self._account(end.agent)) is None:
            return
        by, now = self._member.by, time.time()

        def decide(clock: QuotaClock) -> tuple[QuotaClock, Hold | None]:
            if end.until is not None and end.until > now:
                limit = QuotaLimit(end.until, now, end.why, by, end.guessed, end.brief)
                clock = quota.ended(quota.limit_met(clock, limit), by)
                asked = quota.ask(clock, by, now, account.rules, priority=self._priority)  # it waits, too
                return asked.clock, asked.hold
            return quota.ended(quota.answered(clock, by, now) if end.answered else clock, by), None

        if (hold := self._change(account, decide)) is not None:
            self._wait(end.agent, account, hold)

    def news(self, agent: str, news: WindowUsed | None) -> None:
        """Take what a running agent reports: a used share (Q4), or None for its first output (Q3)."""
        account = self._account(agent)
        if account is None or (news is None and self._answered):
            return
        by, now = self._member.by, time.time()
        if news is None:
            self._answered = True
        elif not self._is_new(news, now):
            return

        def decide(clock: QuotaClock) -> tuple[QuotaClock, None]:
            if news is None:
                return quota.answered(clock, by, now), None
            return quota.reported(clock, (QuotaWindow(news.name, news.used, now, news.resets_at),)), None

        asyncio.get_running_loop().run_in_executor(None, self._change, account, decide)

    def _is_new(self, news: WindowUsed, now: Moment) -> bool:
        known, told_at = self._windows.get(news.name, (None, 0.0))
        if known == news and 0 <= now - told_at < REPEAT_S:  # with each request, in a good run
            return False
        self._windows[news.name] = news, now
        return True

    def leave(self) -> None:
        """Free everything that this loop holds."""
        self._member.leave()

    @property
    def _priority(self) -> int:
        return self._settings.configuration.ralph.priority

    def _account(self, agent: str) -> Account | None:
        if agent not in self._known:
            settings = self._settings
            accounts = settings.configuration.accounts.named
            self._known[agent] = account_of(settings.agents[agent], accounts, settings.environment)
        return self._known[agent]

    def _withdraw(self, started: str) -> None:
        """Leave the queues of other accounts: the loop works elsewhere now."""
        by = self._member.by
        for account in self._known.values():
            if account is not None and account.id in self._queued and account.id != started:
                self._change(account, lambda clock: (clock.without({by}), None))
        self._queued = ()

    def _change(self, account: Account, decide: Decide) -> Hold | None:
        def with_agent(clock: QuotaClock) -> tuple[QuotaClock, Hold | None]:
            return decide(quota.named(clock, account.agent, is_stable=account.is_stable))

        try:
            answer = self._member.change(account.id, with_agent)
        except FAULTS as fault:
            if str(fault) != self._fault:
                self._fault = str(fault)
                self._say(f"the quota clock of {account.id} is not used: {fault}")
            return None
        self._fault = ""
        return answer
