"""Times and money of a report in words. What is not known is said to be unknown, and is never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphctl.tell import clean
from ralphctl.words import duration, wait_words

if TYPE_CHECKING:
    from ralphd.core.night_model import Money, Night, Share

MOST_OF_A_TITLE = 60
_MICRO = 1_000_000
_DOING = {
    "tests": "the guard's tests",
    "hang": "hung, or out of time",
    "failure": "failures",
    "undone": "work that was undone",
    "work": "work",
    "between": "the loop itself",
    "person": "waited for you",
    "off": "nothing ran",
}
_WAITS = {
    "usage_limit": "wait: usage limit",
    "rate_limit": "wait: rate limit",
    "outage": "wait: no service",
    "retry": "wait: to try again",
    "crash": "wait: to start again",
    "restart_limit": "wait: too many restarts",
    "iteration_pause": "wait: between iterations",
    "transient": "wait: to try again",
    "resources": "wait: the machine",
    "restart": "wait: to start again",
    "paused": "paused",
}


def usd(micro_usd: int) -> str:
    """``$4.20``; less than a cent is not 0."""
    return (
        f"${micro_usd / _MICRO:,.2f}" if micro_usd == 0 or micro_usd >= _MICRO // 200 else "less than $0.01"
    )


def money_words(money: Money, *, brief: bool = False) -> str:
    """What was spent, and what nobody knows: ``$4.20, and 3 attempts of unknown cost``."""
    if not money.attempts and not money.micro_usd:
        return "nothing was spent"
    if money.unknown and not money.micro_usd and money.unknown >= money.attempts:
        return "cost unknown" if brief else "unknown: no attempt told its cost"
    said = usd(money.micro_usd)
    if money.estimated:
        said += " (estimated)" if money.estimated >= money.attempts - money.unknown else " (partly estimated)"
    if not money.unknown:
        return said
    attempts = "1 attempt" if money.unknown == 1 else f"{money.unknown} attempts"
    return f"{said} + {money.unknown} unknown" if brief else f"{said}, and {attempts} of unknown cost"


def task_words(id_: str | None, title: str) -> str:
    """``US-1 Parse the list``."""
    if id_ is None:
        return "no task named"
    name, said = clean(id_), clean(title)
    said = name if said in ("", name) else f"{name} {said}"
    return said if len(said) <= MOST_OF_A_TITLE else said[: MOST_OF_A_TITLE - 1] + "…"


def share_rows(night: Night) -> tuple[tuple[str, ...], ...]:
    """What the time went to: the name, how long, what part of it."""
    whole = sum(share.us for share in night.shares)
    return tuple((share_name(share), _took(share.us), _part(share.us, whole)) for share in night.shares)


def _took(us: int) -> str:
    return duration(us / _MICRO) if us >= _MICRO else "under 1s"


def share_name(share: Share) -> str:
    """What it went to."""
    if share.doing.value != "wait":
        return _DOING[share.doing.value]
    reason = str(share.reason)
    known = _WAITS.get(reason)
    if known is not None:
        return known
    return clean(f"wait: {reason}" if " " in reason else f"wait {wait_words(reason)}")


def _part(us: int, whole: int) -> str:
    percent = 100 * us / whole if whole else 0
    return "under 1 %" if percent < 1 else f"{percent:.0f} %"
