"""Which host takes which item: needs against what a host has, then a delay by how well it fits.

Every host decides for itself, with the same functions; the first to win the compare-and-swap has the item.
Each misfit is one line that names the need and what the host has, for ``fleet explain``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from ralphd.core.fleet.model import AccountLimit, HostRecord, Item, ItemState, Login
from ralphd.core.fleet.names import account_key, is_allowed, normalized_url, repo_id
from ralphd.core.fleet.quota import is_limited
from ralphd.core.time import Moment, rfc3339

Limits: TypeAlias = Mapping[str, AccountLimit]
"""The limits of the fleet by ``account_key``."""
LONGEST_DELAY_S: Final = 3.0
RANDOM_DELAY_S: Final = 0.5
_GIB: Final = 2**30
_CACHE, _FREE, _PREFERRED, _HEADROOM = 0.4, 0.3, 0.2, 0.1


def waits_for(item: Item, now: Moment) -> str:
    """Return why no host takes the item now, whatever the hosts have; empty if one may."""
    if item.state is not ItemState.OPEN:
        return f"it is {item.state}" + (f": {item.why}" if item.why else "")
    if item.goal != "running":
        return item.why or f"it is {item.goal}"
    if item.not_before is not None and now < item.not_before:
        return f"not before {rfc3339(item.not_before)}"
    return ""


def misfits(item: Item, host: HostRecord, limits: Limits, now: Moment) -> tuple[str, ...]:
    """Return each need that a host does not meet now; empty if it fits."""
    need, known = item.need, ", ".join(host.labels) or "none"
    missing = ", ".join(label for label in need.labels if label not in host.labels)
    unmet = {
        "it is draining": host.draining,
        f"its fleet.allow_repos does not allow {normalized_url(item.repo)}": not is_allowed(
            item.repo, host.allow_repos
        ),
        f"needs label {missing}; it has {known}": missing,
        f"needs a free slot; {host.used} of {host.slots} are in use": host.used >= host.slots,
        f"needs {need.cpus} CPUs; it has {host.cpus}": need.cpus > host.cpus,
        **_too_little("memory", need.memory_bytes, host.memory_free_bytes),
        **_too_little("disk", need.disk_bytes, host.disk_free_bytes),
    }
    return (*(why for why, is_unmet in unmet.items() if is_unmet), *_login_misfits(item, host, limits, now))


def _too_little(what: str, need_bytes: int, free_bytes: int) -> dict[str, bool]:
    words = f"needs {need_bytes / _GIB:.1f} GiB of {what}; {free_bytes / _GIB:.1f} GiB are free"
    return {words: need_bytes > free_bytes}


def _login_misfits(item: Item, host: HostRecord, limits: Limits, now: Moment) -> tuple[str, ...]:
    agents, logins = agents_of(item), _logins(item, host)
    if not logins and not agents:
        return ()  # the repository may run a command of its own
    if not logins:
        has = ", ".join(sorted({each.agent for each in host.logins})) or "none"
        return (f"needs a login of {' or '.join(agents)}; it has {has}",)
    ends = [_limited_until(each, limits, now) for each in logins]
    if 0.0 in ends:
        return ()
    names = ", ".join(f"{each.agent} {each.account}".strip() for each in logins)
    return (f"needs a login that is not limited; {names} is, until {rfc3339(min(ends))}",)


def agents_of(item: Item) -> tuple[str, ...]:
    """Return the agents of which one is needed: those that the ralph may use come first."""
    return item.flags.agents or item.need.agents


def _logins(item: Item, host: HostRecord) -> list[Login]:
    """Return the logins of a host that suit an item, which names agents as ``claude`` or ``claude@work``."""
    names = {*agents_of(item)}
    return [each for each in host.logins if not names or names & {each.agent, f"{each.agent}@{each.account}"}]


def _limited_until(login: Login, limits: Limits, now: Moment) -> Moment:
    """Return the end of a login's limit, on the host or, for a named account, in the fleet; else 0."""
    ends = [login.limited_until or 0.0]
    limit = limits.get(account_key(login.agent, login.account)) if login.account else None
    if limit is not None and is_limited(limit, now):
        ends.append(limit.until or 0.0)
    until = max(ends)
    return until if until > now else 0.0


def score(item: Item, host: HostRecord, limits: Limits, now: Moment) -> float:
    """Return how well a host that fits suits an item, 0 to 1: clone, free share, preferred, headroom."""
    logins = _logins(item, host)
    usable = sum(not _limited_until(each, limits, now) for each in logins)
    return (
        _CACHE * (repo_id(item.repo) in host.clones)
        + _FREE * max(host.slots - host.used, 0) / max(host.slots, 1)
        + _PREFERRED * (host.name in item.prefer)
        + _HEADROOM * usable / max(len(logins), 1)
    )


def claim_delay_s(score: float, chance: float) -> float:
    """Return how long a host waits before its claim, so that the best one is first. ``chance``: 0 to 1."""
    return (1 - min(max(score, 0.0), 1.0)) * LONGEST_DELAY_S + chance * RANDOM_DELAY_S


def choose(
    items: Iterable[Item], host: HostRecord, hosts: Sequence[HostRecord], limits: Limits, now: Moment
) -> Item | None:
    """Return the item that a host should claim: the largest priority, then the oldest.

    ``hosts`` are those that are heard of now. A host that had the item takes it only when each other
    host that fits had it too.
    """
    fitting = (
        each
        for each in items
        if not waits_for(each, now)
        and not misfits(each, host, limits, now)
        and not defers_to(each, host, hosts, limits, now)
    )
    return min(fitting, key=lambda each: (-each.priority, each.at, each.id), default=None)


def defers_to(
    item: Item, host: HostRecord, hosts: Sequence[HostRecord], limits: Limits, now: Moment
) -> tuple[str, ...]:
    """Return the hosts that fit and have not had an item, where this one had it."""
    if host.name not in item.tried:
        return ()
    others = (each for each in hosts if each.name not in item.tried)
    return tuple(each.name for each in others if not misfits(item, each, limits, now))
