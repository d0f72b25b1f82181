"""The fleet for people and programs: hosts, items, why nobody takes an item. Times are RFC 3339."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ralphd.core.fleet.fit import Limits, defers_to, misfits, waits_for
from ralphd.core.fleet.model import HAS_HOLDER, LEASE_S, HostName, HostRecord, Item, ItemState
from ralphd.core.fleet.names import normalized_url
from ralphd.core.fleet.quota import OPEN, limit_view
from ralphd.core.text import first_names, short_sha
from ralphd.core.time import Moment, in_minutes, rfc3339

SILENT_S: Final = LEASE_S
"""A host without a new record for this time is silent."""
Ages = Mapping[HostName, float]
"""How many seconds ago this host saw a new record of each, by its own clock."""


def fleet_view(
    hosts: Sequence[HostRecord], items: Sequence[Item], limits: Limits, ages: Ages, now: Moment
) -> dict[str, Any]:
    """Return what ``fleet status`` shows: hosts by name, items, limited accounts."""
    return {
        "hosts": [host_view(each, ages, now) for each in sorted(hosts, key=lambda each: each.name)],
        "items": items_view(items, ages, now),
        "limits": [
            limit_view(each)
            for each in sorted(limits.values(), key=lambda each: (each.agent, each.account))
            if each.state != OPEN
        ],
    }


def is_silent(name: HostName, ages: Ages) -> bool:
    """Whether a host has shown no sign of life for long, or none at all."""
    return ages.get(name, SILENT_S) >= SILENT_S


def host_view(host: HostRecord, ages: Ages, now: Moment) -> dict[str, Any]:
    """Return one host. ``seen_at`` is by the clock of the host that is asked."""
    age_s = ages.get(host.name)
    state = "silent" if is_silent(host.name, ages) else "draining" if host.draining else "up"
    return {
        "host": host.name, "state": state, "seen_at": None if age_s is None else rfc3339(now - age_s),
        "version": host.version, "labels": list(host.labels), "slots": host.slots, "used": host.used,
        "logins": [
            {"agent": each.agent, "account": each.account, "limited_until": _time(each.limited_until)}
            for each in host.logins
        ],
        "ralphs": list(host.ralphs),
    }  # fmt: skip


def items_view(items: Sequence[Item], ages: Ages, now: Moment) -> list[dict[str, Any]]:
    """Return the items: those that have not ended, as they are claimed; then the ended ones, newest first."""
    ended = [each for each in items if each.ended_at is not None]
    others = [each for each in items if each.ended_at is None]
    others.sort(key=lambda each: (-each.priority, each.at, each.id))
    ended.sort(key=lambda each: -(each.ended_at or 0.0))
    return [item_view(each, ages, now) for each in (*others, *ended)]


def item_view(item: Item, ages: Ages, now: Moment) -> dict[str, Any]:
    """Return one item, with what comes next."""
    last = item.last
    return {
        "id": item.id, "state": item.state.value, "goal": item.goal, "holder": item.holder, "why": item.why,
        "landed": short_sha(last.commit) if last and item.finished and item.state is ItemState.DONE else None,
        "next": next_words(item, ages, now),
        "repo": normalized_url(item.repo), "base": item.base, "branch": item.branch,
        "priority": item.priority, "tries": item.tries, "max_tries": item.max_tries,
        "last": last and {"host": last.host, "why": last.why, "commit": short_sha(last.commit)},
        "by": item.by, "submitted_at": rfc3339(item.at), "ended_at": _time(item.ended_at),
    }  # fmt: skip


def next_words(item: Item, ages: Ages, now: Moment) -> str:
    """Return what comes next for an item, for people."""
    match item.state:
        case ItemState.OPEN:
            return waits_for(item, now) or f"waits for a host: ralphctl fleet explain {item.id}"
        case ItemState.HELD:
            return f"needs you: ralphctl fleet release {item.id}, or cancel"
        case ItemState.FAILED:
            return f"ralphctl fleet retry {item.id}"
        case state if state in HAS_HOLDER and item.holder is not None and is_silent(item.holder, ages):
            return f"{item.holder} is silent{_ago(item.holder, ages)}; taken over if its lease does not move"
        case state if state in HAS_HOLDER and item.goal == "stopped":
            return f"{item.holder} stops it, then it needs you"
        case ItemState.LANDING:
            return item.why or f"lands on {item.base} if the tests pass"
        case _:
            return ""


def explain(
    item: Item, hosts: Sequence[HostRecord], limits: Limits, ages: Ages, now: Moment
) -> dict[str, Any]:
    """Return why nobody takes an item: its own reason, and for each host each need that it does not meet."""
    heard = [each for each in hosts if not is_silent(each.name, ages)]
    rows = []
    for host in sorted(hosts, key=lambda each: each.name):
        whys = list(misfits(item, host, limits, now))
        if is_silent(host.name, ages):
            whys.insert(0, f"it is silent{_ago(host.name, ages)}")
        whys += [f"could not begin: {each.why}" for each in host.declines if each.item == item.id]
        if others := defers_to(item, host, heard, limits, now):
            whys.append(f"had it already; first {first_names(others)}")
        rows.append({"host": host.name, "fits": not whys, "misfits": whys})
    return {"item": item_view(item, ages, now), "waits_for": waits_for(item, now) or None, "hosts": rows}


def _ago(name: HostName, ages: Ages) -> str:
    return f" for {in_minutes(ages[name])}" if name in ages else ""


def _time(moment: Moment | None) -> str | None:
    return None if moment is None else rfc3339(moment)
