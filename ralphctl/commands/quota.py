"""quota: the limits of the agents' accounts, how much of each window is used, and who waits."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ralphctl.cli.click_ext import CommonCommand, end_if_json, socket_given, the_client
from ralphctl.format.humanize import minute, moment, until, wrapped
from ralphctl.format.output import GREEN, RED, clean, columns, has_colour, paint
from ralphd.errors import DaemonNotRunning

_BAR_CHARS = 10
_LEAST_WORDS = 20
_MOST_NAMED = 5
_NONE_YET = "No account is known: the built-in loop notes one when its first attempt starts."


@click.command(cls=CommonCommand)
def quota() -> None:
    """Show each account: what is used, when it resets, who works and who waits.

    All ralphs of an account share its limit: when one meets it, the others start nothing until the reset,
    and then one tries first. Name accounts by [accounts.NAME] in your own file. Works without a daemon.

    \b
      claude@work  ███████▒░░  72 %  5-hour limit resets 15:00; works: api; waits: web
    """
    try:
        accounts = the_client().quota().value["accounts"]
    except DaemonNotRunning:
        if socket_given():
            raise
        from ralphctl.offline.state import quota_views

        accounts = quota_views(os.environ, time.time())
    end_if_json({"accounts": accounts}, ensure_ascii=False)
    width = max((len(clean(each["account"])) for each in accounts), default=0)
    now, colour, room = time.time(), has_colour(sys.stdout), columns(sys.stdout)
    lines = (_account(each, width, now, room, colour=colour) for each in accounts)
    click.echo("\n".join(lines) or _NONE_YET)


def _account(account: Mapping[str, Any], width: int, now: float, room: int | None, *, colour: bool) -> str:
    """Return the line of an account; on a narrow terminal it continues below its words."""
    fullest = max(account["windows"], key=lambda window: window["used"], default=None)
    is_limited = account["state"] != "open"
    used = 1.0 if is_limited else None if fullest is None else float(fullest["used"])
    share = " " * 5 if used is None else f"{100 * used:3.0f} %"
    bar = paint(_bar(used or 0.0, account["keep_free"]), RED if is_limited else GREEN, on=colour)
    before = f"{clean(account['account']):{width}}  "
    indent = len(before) + _BAR_CHARS + len(f" {share}  ")
    words = "; ".join(_words(account, fullest, now))
    lines = wrapped(words, room - indent) if room and room - indent > _LEAST_WORDS else [words]
    text = f"\n{' ' * indent}".join(lines)
    return f"{before}{bar} {share}  {text}".rstrip()


def _bar(used: float, keep_free: float) -> str:
    """Return ten cells: used, free, and what is left for a person."""
    full = min(round(used * _BAR_CHARS), _BAR_CHARS)
    kept = min(round(keep_free * _BAR_CHARS), _BAR_CHARS - full)
    return "█" * full + "░" * (_BAR_CHARS - full - kept) + "▒" * kept


def _words(account: Mapping[str, Any], fullest: Mapping[str, Any] | None, now: float) -> Iterator[str]:
    if account["state"] == "probing":
        yield f"limit over, {clean(account['probing'])} tries it first"
    elif account["state"] == "limited":
        resets = "next try" if account["guessed"] else "resets"
        name, source = clean(account["limit"] or "limit"), clean(account["source"] or "?")
        yield f"{name} (met by {source}), {resets} {until(account['until'], now) or 'now'}"
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


def _window_words(window: Mapping[str, Any], now: float) -> str:
    """Return ``5-hour limit resets 15:00, at this pace used up 14:20``."""
    resets, ends = moment(window["resets_at"]), moment(window["ends_at"])
    words = clean(window["limit"])
    words += "" if resets is None else f" resets {minute(resets, now)}"
    return words + ("" if ends is None else f", at this pace used up {minute(ends, now)}")
