"""What must hold of an account that several ralphs share: its limit, its probe, its slots, its queue."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ralphd.core.quota.model import PROBE_S
from ralphd.core.time import Moment
from tests.sim.checking import SLACK_S, Checking

if TYPE_CHECKING:
    from tests.sim.night import Night


class AccountChecks(Checking):
    """Who works with an account in truth, who waits for it, and what its service has told."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._users: dict[str, dict[str, bool]] = defaultdict(dict)
        self._queue: dict[str, dict[str, tuple[int, Moment, str]]] = defaultdict(dict)
        self._closed_until: dict[str, Moment] = {}
        self._limited: set[str] = set()
        self._probes: dict[str, tuple[str, float]] = {}
        self._news: dict[tuple[str, Moment], str] = {}

    def waits_for_account(self, account: str, by: str, priority: int, since: Moment) -> None:
        """It has asked, and may not begin yet; the first question gives its place."""
        self._queue[account].setdefault(by, (-priority, since, by))

    def begins_with_account(self, account: str, by: str, *, forced: bool) -> None:
        """An attempt begins: within the slots, in its turn, after the limit, and one alone as its probe."""
        mine = self._queue[account].pop(by, None)
        users, slots = self._users[account], self._night.script.setting.slots
        if forced or self._clock_was_set:
            self._news = {key: each for key, each in self._news.items() if key[0] != account}
            users[by] = True
            self._closed_until.pop(account, None)  # a person has ended it; the attempt may meet it again
            self._probes.pop(account, None)
            return
        if slots and len(users) >= slots and not any(users.values()):
            self.broken("slots are kept", f"{by} begins, and {', '.join(users)} work with {account}")
        before = [each for each in self._queue[account].values() if mine is not None and each < mine]
        if slots and len(before) >= max(slots - len(users), 1) and not any(users.values()):
            self.broken("slots are kept", f"{by} begins with {account} before {before}")
        until = self._closed_until.get(account, 0.0)
        if self._wall < until - SLACK_S:
            words = f"{by} begins with {account}, which is limited until {self._night.local(until)}"
            self.broken("who is out is not asked", words)
        if account in self._limited:
            who, since_s = self._probes.get(account, (by, self._now_s))
            if who != by and self._now_s - since_s < PROBE_S - SLACK_S:
                self.broken("one probe", f"{by} tries {account} while {who} does")
            self._probes[account] = by, self._now_s
        users[by] = False

    def meets_account_limit(self, account: str, by: str, until: Moment, *, named: bool) -> None:
        """Its attempt has met a limit; ``named``: by a service that said until when."""
        self._limited.add(account)
        self._probes.pop(account, None)
        if named:
            self._closed_until[account] = max(until, self._closed_until.get(account, 0.0))

    def account_answers(self, account: str, by: str) -> None:
        """A model has answered: whoever a person has sent there has opened it."""
        if self._users[account].get(by):
            self._closed_until.pop(account, None)
        if self._wall >= self._closed_until.get(account, 0.0):
            self._limited.discard(account)
            self._probes.pop(account, None)

    def leaves_account(self, account: str, by: str, *, died: bool = False) -> None:
        """Its attempt has ended; or all of it has."""
        self._users[account].pop(by, None)
        if died:
            self._queue[account].pop(by, None)
            if self._probes.get(account, ("", 0.0))[0] == by:
                del self._probes[account]

    def limit_is_news(self, account: str, until: Moment, key: str) -> None:
        """People hear of a limit: once, however many attempts meet it."""
        first = self._news.setdefault((account, round(until)), key)
        if first != key and not self._clock_was_set:
            words = f"{account} is limited until {self._night.local(until)}: {first}, {key}"
            self.broken("a person is called once", words)
