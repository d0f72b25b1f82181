"""Open incidents, the pool of agents and their accounts, in words. Any text may be somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from ralphctl.format import humanize
from ralphctl.format.humanize import View, ago, clock, count, cut, duration, moment, part, wrapped
from ralphctl.format.output import GREEN, RED, clean, paint

_AT_REST = frozenset({"failed", "paused"})


def incident_rows(view: View, now: float, *, daemon: bool = True) -> list[tuple[str, str]]:
    """Return since when a person is called, whether that is acknowledged, and what is needed.

    Without a ``daemon`` nothing can be acknowledged.
    """
    if not (incident := part(view, "incident")):
        return []
    at_rest = view.get("state") in _AT_REST
    ack = f": ralphctl ack {clean(view.get('name') or '')}" if daemon else ""
    rows = [("alert", _called(incident, ack, now, at_rest=at_rest))]
    if not at_rest and view.get("state") != "stopped" and incident.get("message"):
        rows.append(("", f"for: {clean(incident['message'])}"))
    needs = clean(incident.get("needs") or "")
    return [*rows, ("needs", needs)] if needs and at_rest else rows


def _called(incident: View, ack: str, now: float, *, at_rest: bool) -> str:
    parts = [ago(incident.get("opened_at"), now), *held_back(incident)]
    if reminders := incident.get("reminders"):
        parts.append(f"reminded {count(reminders, 'time')}")
    if (known := moment(incident.get("acknowledged_at"))) is not None:
        parts.append(f"acknowledged {duration(now - known)} ago")
    elif at_rest:
        parts.append(f"not acknowledged{ack}")
    else:
        parts.append("closes when an iteration succeeds")
    return ", ".join(parts)


def held_back(incident: View) -> list[str]:
    """Return ``2 more calls held back``, as a list of one or none."""
    number = incident.get("held_back")
    return [f"{count(number, 'more alert')} held back"] if isinstance(number, int) and number > 0 else []


_POOL_COLUMNS = 65
"""Next to the label, of a terminal with 80."""
_STRATEGIES = {"rotate": "rotation", "fallback": "in this order"}
_MOST_NAME_CHARS, _MOST_REASON_CHARS = 30, 120


def pool_rows(pool: View, now: float) -> list[str]:
    """Return the pool in lines. An agent whose time out has passed is in."""
    texts = [_agent(agent, now) for agent in pool["agents"] if isinstance(agent, dict)]
    head = _STRATEGIES.get(str(pool.get("strategy")), "")
    if head and len(texts) > 1:
        texts[0] = f"{head}: {texts[0]}"
    return wrapped(" · ".join(texts), _POOL_COLUMNS)


def _agent(agent: View, now: float) -> str:
    name = cut(clean(agent.get("name") or "?"), _MOST_NAME_CHARS)
    ends = moment(agent.get("until"))
    if agent.get("in") is False and (ends is None or ends > now):
        when = "until you act" if ends is None else f"until {clock(ends, now)}"
        reason = cut(clean(agent.get("reason") or ""), _MOST_REASON_CHARS)
        return f"{name} out {when}" + (f" ({reason})" if reason else "")
    return f"{name} in" + (", used last" if agent.get("last") is True else "")


_BAR_CHARS = 10
_LEAST_WORDS = 20
_MOST_NAMED = 5


def account_line(account: View, width: int, now: float, room: int | None, *, colour: bool) -> str:
    """Return the line of an account; on a narrow terminal it continues below its words."""
    used, words = account_use(account, now)
    share = " " * 5 if used is None else f"{100 * used:3.0f} %"
    shade = GREEN if account["state"] == "open" else RED
    bar = paint(_bar(used or 0.0, account["keep_free"]), shade, on=colour)
    before = f"{clean(account['account']):{width}}  "
    indent = len(before) + _BAR_CHARS + len(f" {share}  ")
    lines = wrapped(words, room - indent) if room and room - indent > _LEAST_WORDS else [words]
    text = f"\n{' ' * indent}".join(lines)
    return f"{before}{bar} {share}  {text}".rstrip()


def account_use(account: View, now: float) -> tuple[float | None, str]:
    """Return how much of an account is used, from 0 to 1, and in words its limit, who works and who waits."""
    fullest = max(account["windows"], key=lambda window: window["used"], default=None)
    words = "; ".join(_account_words(account, fullest, now))
    if account["state"] != "open":
        return 1.0, words
    return None if fullest is None else float(fullest["used"]), words


def _bar(used: float, keep_free: float) -> str:
    """Return ten cells: used, free, and what is left for a person."""
    full = min(round(used * _BAR_CHARS), _BAR_CHARS)
    kept = min(round(keep_free * _BAR_CHARS), _BAR_CHARS - full)
    return "█" * full + "░" * (_BAR_CHARS - full - kept) + "▒" * kept


def _account_words(account: View, fullest: View | None, now: float) -> Iterator[str]:
    if account["state"] == "probing":
        yield f"limit over, {clean(account['probing'])} tries it first"
    elif account["state"] == "limited":
        resets = "next try" if account["guessed"] else "resets"
        name, source = clean(account["limit"] or "limit"), clean(account["source"] or "?")
        yield f"{name} (met by {source}), {resets} {humanize.until(account['until'], now) or 'now'}"
    else:
        yield "open" if fullest is None else _window_words(fullest, now)
    if account["reserved"]:
        limit = next(each["limit"] for each in account["windows"] if each["name"] == account["reserved"])
        yield f"the rest of the {clean(limit)} is yours (keep_free = {account['keep_free']:g})"
    slots = f" ({len(account['working'])} of {account['slots']} slots)" if account["slots"] else ""
    for word, names in ((f"works{slots}", account["working"]), ("waits", account["waiting"])):
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield f"{word}: {', '.join(map(clean, names[:_MOST_NAMED]))}{more}"


def _window_words(window: View, now: float) -> str:
    """Return ``5-hour limit resets 15:00, at this pace used up 14:20``."""
    resets, ends = moment(window["resets_at"]), moment(window["ends_at"])
    words = clean(window["limit"])
    words += "" if resets is None else f" resets {humanize.minute(resets, now)}"
    return words + ("" if ends is None else f", at this pace used up {humanize.minute(ends, now)}")
