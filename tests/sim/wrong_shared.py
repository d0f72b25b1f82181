"""What ralphs share, decided wrong on purpose: the quota clock of an account."""

from dataclasses import replace

from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Asked, Force
from ralphd.core.quota.model import AccountRules, QuotaClock, QuotaLimit
from ralphd.core.time import Moment
from tests.sim.cores import Ask, Steps


def _asks(*, more_slots: int = 0, forgets: str = "") -> Ask:
    """A question that is answered by a changed clock, or by other rules."""

    def ask(
        clock: QuotaClock,
        by: str,
        at: Moment,
        rules: AccountRules,
        *,
        priority: int = 0,
        force: Force = Force.NOTHING,
        queued_at: Moment | None = None,
    ) -> Asked:
        if forgets == "limit":
            clock = replace(clock, limit=None)
        if forgets == "probe":
            clock = replace(clock, probe=None)
        if forgets == "queue":
            clock = replace(clock, waiting=())
        if more_slots and rules.slots:
            rules = replace(rules, slots=rules.slots + more_slots)
        return quota.ask(clock, by, at, rules, priority=priority, force=force, queued_at=queued_at)

    return ask


def _opens_early(clock: QuotaClock, by: str, at: Moment) -> QuotaClock:
    """Whatever attempt is answered, the limit is over."""
    return replace(clock, limit=None, opened_at=at, probe=None)


def _announces_each(clock: QuotaClock, met: QuotaLimit) -> QuotaClock:
    """Several attempts that meet one limit make it news several times."""
    return replace(quota.limit_met(clock, met), limit=met)


SHARED = {
    "the account lets all begin during its limit": (
        Steps(ask=_asks(forgets="limit")),
        ("who is out is not asked",),
    ),
    "the account has two probes": (Steps(ask=_asks(forgets="probe")), ("one probe",)),
    "the account has a slot too many": (Steps(ask=_asks(more_slots=1)), ("slots are kept",)),
    "the account forgets who waited first": (Steps(ask=_asks(forgets="queue")), ("slots are kept",)),
    "the account is open after any answer": (
        Steps(answered=_opens_early),
        ("who is out is not asked", "one probe"),
    ),
    "the account announces one limit twice": (
        Steps(limit_met=_announces_each),
        ("a person is called once",),
    ),
}
"""Each with the rules by which a night may say so."""
