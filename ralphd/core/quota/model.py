"""The quota clock of one account: its limit, its probe, who works, who waits, and its windows (Q1 to Q6).

One clock serves every ralph of the host. Names of ralphs are ``NAME.TOKEN``: two of them may share a name.
"""

import re
from collections.abc import Collection
from dataclasses import field, replace
from enum import StrEnum

from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

PROBE_S = 60.0
"""A probe without an answer after this time leaves its place to the next ralph (Q3)."""
SLOT_LOOK_S = 600.0
"""A wait for a slot has no known end: the ralph asks again after this time at the latest."""
FRESH_S = 900.0
"""A pace is that of the present for so long: a working agent reports its windows with each request."""
LONGEST_LIMIT_S = 31 * 24 * 3600.0
"""No limit takes longer to reset: a damaged or invented file cannot hold anybody for good."""
MOST_WINDOWS = 8
SKIPPED = "skipped"
"""As ``RALPH_QUEUED_AT``: a person does not want the first attempt to wait."""
SAME_RESET_S = 120.0
"""Two reports of one window may name resets that differ by this much."""
WINDOWS = {"five_hour": ("5-hour", 5), "seven_day": ("weekly", 168), "seven_day_opus": ("weekly Opus", 168)}
"""The vendors' names of their windows: as people call them, and their length in hours."""
_LIMIT_NAME = re.compile(
    r"\b(?:(?:\d{1,2}|five)[- ]hour|session|daily|weekly|monthly|opus|sonnet|haiku)(?: \w+){0,2}? limit", re.I
)


class HoldKind(StrEnum):
    """Why an attempt has to wait for its account."""

    LIMIT = "limit"
    PROBE = "probe"
    RESERVED = "reserved"
    SLOTS = "slots"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why an attempt cannot start, and until when at the latest. ``brief``: it is a matter of minutes."""

    kind: HoldKind
    until: Moment
    why: str
    brief: bool = True

    def is_same(self, other: "Hold | None") -> bool:
        """Return whether nothing has changed for a ralph that waits; the end for a slot is not known."""
        if other is None or self.kind is not other.kind:
            return False
        return self.kind is HoldKind.SLOTS or abs(self.until - other.until) < 1.0


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """A limit that an attempt met. ``until`` is the reset with its margin; ``source`` is the ralph.

    ``guessed``: the service named no reset. ``brief``: a rate limit, not a usage limit. ``host``: the fleet
    reported it, where that host met it.
    """

    until: Moment
    since: Moment
    window: str = ""
    source: str = ""
    guessed: bool = False
    brief: bool = False
    host: str = ""

    @property
    def met_by(self) -> str:
        """Return the ralph that met it, or the host, for people."""
        return f"host {self.host}" if self.host else self.source.rpartition(".")[0] or self.source

    @property
    def name(self) -> str:
        """Return the limit's name in the vendor's words, ``5-hour limit``, else what kind of limit it is."""
        named = _LIMIT_NAME.search(self.window)
        return named[0] if named else "rate limit" if self.brief else "usage limit"


@dataclass(frozen=True, slots=True)
class AccountUser:
    """A ralph that probes, works or waits, and since when. ``priority``: larger goes first (Q6)."""

    by: str
    since: Moment
    priority: int = 0


@dataclass(frozen=True, slots=True)
class FleetTurn:
    """Another host of the fleet may probe, and nobody here: for PROBE_S after the reset and ``since``.

    ``by`` is the daemon, which renews it while it is connected; ``who`` tries first, for people.
    """

    by: str
    since: Moment
    who: str


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """What a CLI reported of one window: the used share, and its reset (Q4).

    ``first_used`` and ``first_at`` are the first report of the same window: the pace follows from both.
    """

    name: str
    used: float
    seen_at: Moment
    resets_at: Moment | None = None
    first_used: float | None = None
    first_at: Moment | None = None

    @property
    def limit(self) -> str:
        """The name of its limit, for people."""
        return f"{WINDOWS.get(self.name, (self.name.replace('_', ' '),))[0]} limit"

    def after(self, before: "QuotaWindow | None") -> "QuotaWindow":
        """Return this report with the beginning of its window, if ``before`` is of the same one."""
        own = replace(self, first_used=self.used, first_at=self.seen_at)
        if before is None or before.first_used is None or before.first_at is None:
            return own
        is_same = abs((self.resets_at or 0.0) - (before.resets_at or 0.0)) <= SAME_RESET_S
        if not is_same or self.used < before.used or self.seen_at < before.first_at:
            return own
        return replace(self, first_used=before.first_used, first_at=before.first_at)

    def pace(self) -> float | None:
        """Return the share that is used a second; None if it does not grow, or is unknown."""
        if self.first_used is None or self.first_at is None or self.seen_at <= self.first_at:
            return None
        return max(self.used - self.first_used, 0.0) / (self.seen_at - self.first_at) or None

    def ends_at(self) -> Moment | None:
        """Return when the window is used up at the present pace; None if it resets before, or is unknown."""
        pace = self.pace()
        if pace is None or self.used >= 1:
            return None
        ends_at = self.seen_at + (1 - self.used) / pace
        return None if self.resets_at is not None and ends_at >= self.resets_at else ends_at


@dataclass(frozen=True, slots=True)
class AccountRules:
    """``[accounts.NAME]``: attempts at once (0: no limit), and the share that is left for a person."""

    slots: int = 0
    keep_free: float = 0.0


@dataclass(frozen=True, slots=True)
class QuotaClock:
    """``STATE/quota/ACCOUNT.json``. No ``limit``: the account is open.

    ``rules`` are those of the ralph that asked last, for readers without the configuration. ``opened_at`` is
    when a probe ended the last limit. ``is_stable``: other machines give this account the same name.
    """

    account: str
    agent: str = ""
    limit: QuotaLimit | None = None
    opened_at: Moment | None = None
    probe: AccountUser | None = None
    working: tuple[AccountUser, ...] = ()
    waiting: tuple[AccountUser, ...] = ()
    windows: tuple[QuotaWindow, ...] = ()
    rules: AccountRules = field(default_factory=AccountRules)
    is_stable: bool = False
    fleet_turn: FleetTurn | None = None

    def without(self, gone: Collection[str]) -> "QuotaClock":
        """Return the clock without ralphs that have died or moved on."""
        if not gone:
            return self
        probe = None if self.probe is not None and self.probe.by in gone else self.probe
        working = tuple(each for each in self.working if each.by not in gone)
        waiting = tuple(each for each in self.waiting if each.by not in gone)
        turn = None if self.fleet_turn is not None and self.fleet_turn.by in gone else self.fleet_turn
        return replace(self, probe=probe, working=working, waiting=waiting, fleet_turn=turn)

    def users(self) -> frozenset[str]:
        """Return all ralphs in it."""
        single = (each for each in (self.probe, self.fleet_turn) if each is not None)
        return frozenset(each.by for each in (*single, *self.working, *self.waiting))
