"""How an item changes: by its holder, by a host that takes it over, by a person.

An item is open, has one holder, has ended, or is held for a person. Who reads it first writes the answer by
compare-and-swap. A holder's function returns None where the item is another's: then nothing is written.
"""

from dataclasses import replace
from typing import Final

from ralphd.core.fleet.model import ENDED, HAS_HOLDER, HostName, Item, ItemState, LastTry
from ralphd.core.text import one_line
from ralphd.core.time import Moment
from ralphd.errors import WrongState

KEPT_S: Final = 30 * 24 * 3600.0
"""How long an item is kept after its end."""
HOST_GONE: Final = "host-gone"
_WHY_CHARS: Final = 300


def is_holder(item: Item, host: HostName, token: int) -> bool:
    """Whether a host has the item with this token."""
    return item.state in HAS_HOLDER and item.holder == host and item.token == token


def is_later(item: Item, other: Item) -> bool:
    """Whether ``other`` is an earlier state of the item: a hub that shows it has forgotten the item's."""
    return (item.token, item.state not in HAS_HOLDER) > (other.token, other.state not in HAS_HOLDER)


def claimed(item: Item, host: HostName, token: int) -> Item | None:
    """Return an open item as claimed. ``token`` is of the lease in git, which the host has already."""
    if item.state is not ItemState.OPEN or item.goal != "running" or token <= item.token:
        return None
    tried = (*(each for each in item.tried if each != host), host)
    return replace(item, state=ItemState.CLAIMED, holder=host, token=token, tried=tried, why="")


def taken_over(item: Item, host: HostName, token: int) -> Item | None:
    """Return the item after a takeover of its lease; held after too many tries, or if a person stopped it.

    A paused item keeps its goal: the new holder waits as the old one did.
    """
    if item.state is ItemState.OPEN:
        return claimed(item, host, token)
    if item.state not in HAS_HOLDER or item.holder is None or token <= item.token:
        return None
    left = released(item, item.holder, item.token, why=HOST_GONE)
    if left is None or left.state is ItemState.HELD:
        return left
    new = claimed(replace(left, goal="running"), host, token)
    return None if new is None else replace(new, goal=item.goal)


def advanced(
    item: Item, host: HostName, token: int, state: ItemState, now: Moment, *, why: str = "", commit: str = ""
) -> Item | None:
    """Return the item as its holder sees it: ``working``, ``landing``, ``done``, ``failed`` or ``held``."""
    if not is_holder(item, host, token) or state in (ItemState.OPEN, ItemState.CLAIMED):
        return None
    if state is ItemState.LANDING:
        return replace(item, state=state, finished=commit, why=_cut(why))
    if state in HAS_HOLDER:
        return replace(item, state=state, finished="", why="" if item.finished else item.why)
    last = _last(item, host, why or state.value, commit)
    ended_at = now if state in ENDED else None
    return replace(item, state=state, holder=None, last=last, why=_cut(why), ended_at=ended_at)


def released(
    item: Item, host: HostName, token: int, *, why: str, commit: str = "", is_try: bool = True
) -> Item | None:
    """Return the item after its holder gave it up. ``is_try``: unlike a drain, it counts."""
    if not is_holder(item, host, token):
        return None
    tries, last = item.tries + is_try, _last(item, host, why, commit)
    item = replace(item, state=ItemState.OPEN, holder=None, tries=tries, last=last)
    if item.goal == "stopped":
        return replace(item, state=ItemState.HELD, why=item.why or "stopped")
    if is_try and tries >= item.max_tries:
        words = f"tried {tries} times, the last on {host}: {last.why}"
        return replace(item, state=ItemState.HELD, why=_cut(words))
    return item


def by_person(item: Item, verb: str, by: str, now: Moment) -> Item:
    """Return the item after a person's verb. Raises WrongState.

    Where a host has the item, ``hold`` and ``stop`` are its goal: the host stops the ralph, and releases.
    """
    why, has_holder = _cut(f"{verb} by {by}"), item.state in HAS_HOLDER
    stopped = replace(item, goal="stopped", why=why)
    later = item if has_holder else replace(item, token=item.token + 1)  # than what an older store shows
    fresh = replace(later, state=ItemState.OPEN, goal="running", tries=0, why="", ended_at=None)
    match verb, item.state:
        case (("hold" | "stop"), _) if has_holder:
            return stopped
        case (("hold" | "stop"), ItemState.OPEN):
            return replace(later, goal="stopped", why=why, state=ItemState.HELD)
        case "release", _ if has_holder and item.goal == "stopped":
            return replace(item, goal="running", why="")
        case "release", ItemState.HELD:
            return fresh
        case "retry", (ItemState.HELD | ItemState.FAILED | ItemState.DONE):
            finished = "" if item.state is ItemState.DONE else item.finished  # else its ralph would not run
            return replace(fresh, tried=(), finished=finished)
        case "cancel", _ if item.state not in ENDED:
            return replace(later, goal="stopped", why=why, state=ItemState.FAILED, holder=None, ended_at=now)
        case "pause", _ if (has_holder or item.state is ItemState.OPEN) and item.goal != "stopped":
            return replace(item, goal="paused", why=why)
        case "resume", _ if item.goal == "paused":
            return replace(item, goal="running", why="")
    raise WrongState(f"{item.id} is {item.state}: {verb} does not apply")


def is_old(item: Item, now: Moment) -> bool:
    """Whether the janitor may remove the item."""
    return item.state in ENDED and item.ended_at is not None and now - item.ended_at > KEPT_S


def _last(item: Item, host: HostName, why: str, commit: str) -> LastTry:
    return LastTry(host, _cut(why), commit or (item.last.commit if item.last else ""))


def _cut(text: str) -> str:
    return one_line(text, _WHY_CHARS)
