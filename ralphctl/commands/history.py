"""events and explain: what happened to a ralph, and why."""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import suggest
from ralphctl.cli.click_ext import end_if_json, ralph_command, the_client, the_ralph, time_option, wants_json
from ralphctl.client.client import EVENTS, FLEET_EVENTS, Client
from ralphctl.client.discovery import check_name, here
from ralphctl.format import explanation, state_text
from ralphctl.format.event_text import words_of
from ralphctl.format.humanize import cut, moment
from ralphctl.format.output import clean, columns, has_colour, message
from ralphd.errors import DaemonNotRunning, UnknownRalph, UsageError
from ralphd.wire import EVENT_TYPES

_MOST = 10_000
_NAME_WIDTH = 12
_MOST_STATE = 100


@ralph_command()
@click.option("-f", "--follow", is_flag=True, help="Wait for new events, across restarts of the daemon.")
@click.option("-n", "--tail", type=click.IntRange(0, _MOST), metavar="N",
              help="Show the last N events (20; all with --since; 0 with -f).")  # fmt: skip
@time_option("--since", "Show events from TIME on: 10m, 07:00, 2026-11-21T20:00Z.")
@click.option("--type", "kind", metavar="TYPE", help="Show only TYPE: ralph.paused, 'commit.*'.")
def events(name: str | None, follow: bool, tail: int | None, since: float | None, kind: str | None) -> None:
    """List events of NAME, or of all ralphs and the daemon, one per line.

    Without a daemon, the events that are kept on disk are listed.
    """
    if name is not None:
        check_name(name)
    if kind is not None and not any(fnmatchcase(each, kind) for each in EVENT_TYPES):
        near = f"did you mean {suggest.event_type_for(kind, EVENT_TYPES)}?"
        raise UsageError(f"no event has the type {kind!r}, {near}", mend="ralphctl events --type 'commit.*'")
    show_events(name, follow=follow, tail=tail, since=since, kind=kind)


def show_events(
    name: str | None, *, follow: bool, tail: int | None, since: float | None, kind: str | None,
    path: str = EVENTS,
) -> None:  # fmt: skip
    """Print events of a ralph or of all. Of a fleet (``path``) ``name`` is a machine, or ``HOST/NAME``."""
    client = the_client()

    def is_asked(event: dict[str, Any]) -> bool:
        names = (None, event.get("host"), _who(event)) if path == FLEET_EVENTS else (None, event["ralph"])
        fits = name in names and (kind is None or fnmatchcase(event["type"], kind))
        return fits and (since is None or (moment(event["at"]) or 0.0) >= since)

    tail = (0 if follow else 20 if since is None else _MOST) if tail is None else tail
    # The daemon keeps one history for all ralphs, so the last N of one are picked from many.
    is_filtered = (name, kind, since) != (None, None, None)
    past = _past(client, name, _MOST if is_filtered else max(1, tail), path, follow=follow)
    shown = [event for event in past if is_asked(event)][-tail:] if tail else []
    width = max([_NAME_WIDTH, *(len(_who(event)) for event in shown)])
    coming: Iterator[dict[str, Any]] = iter(())
    if follow:
        from ralphctl.client import streams

        coming = streams.events(client, past[-1]["id"] if past else 0, path=path)
    for event in itertools.chain(shown, filter(is_asked, coming)):
        print(json.dumps(event) if wants_json() else _line(event, width), flush=True)


def _past(client: Client, name: str | None, number: int, path: str, *, follow: bool) -> list[dict[str, Any]]:
    try:
        past = list(client.past_events(number, path))
        if name is not None and path == EVENTS and all(event["ralph"] != name for event in past):
            client.ralph(name)  # raises UnknownRalph; a removed ralph has events still
        return past
    except DaemonNotRunning:
        from ralphctl.offline import log as offline_log

        kept = None if follow or path != EVENTS else offline_log.events(here(), name, number)
        if kept is None:
            raise
        message("no daemon is running; events kept on disk:")
        return kept


def _line(event: dict[str, Any], width: int) -> str:
    at = moment(event["at"])
    when = "?" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"
    return f"{when}  {_who(event):<{width}}  {event['type']:<18}  {clean(words_of(event))}".rstrip()


def _who(event: dict[str, Any]) -> str:
    who = event["ralph"] or "ralphd"
    return f"{clean(event['host'])}/{who}" if "host" in event else str(who)


@ralph_command()
@click.option("--run", type=click.IntRange(1), metavar="N", help="Explain the end of run N.")
@click.option("--attempt", metavar="RUN:N", help="Explain a hung attempt, as named by --list.")
@click.option("--list", "lists", is_flag=True, help="List the explanations that are kept, newest first.")
def explain(name: str | None, run: int | None, attempt: str | None, lists: bool) -> None:
    """Show why the supervisor last acted on NAME, or how it judges the current run, with the evidence.

    For a run or an attempt that hung, also the processes and the last lines that were saved before the kill.
    Every hang stays readable: --list names them, --run and --attempt show one. None of these needs a daemon.
    HOST/NAME is a ralph on another machine of the fleet.
    """
    now = time.time()
    if name is not None and "/" in name and (run or attempt or lists):
        what = "--list, --run and --attempt read files of this machine"
        raise UsageError(what, mend=f"ralphctl explain {name}")
    if sum((run is not None, attempt is not None, lists)) > 1:
        raise UsageError("--list, --run and --attempt exclude one another", mend="ralphctl explain --list")
    try:
        client, name = the_ralph(name, in_fleet=True)
        reply = client.explain(name)
        view = client.ralph(name).value if reply.value.get("run_id") else {}
    except (DaemonNotRunning, UnknownRalph):
        if name is not None and "/" in name:
            raise
        known, kept = _kept(name)
        if known is None or not (kept or lists or run or attempt):
            raise
        what, newest = "explanations kept on disk", max(known[1].glob("runs/r*-*"), default=known[1]).name
        if kept and not (lists or run or attempt) and kept[0]["run_id"] != newest:
            what = f"nothing explains run {newest} yet; the one before"
        message(f"no daemon supervises it; {what}:")
        name, shown, state = known[0], kept[0] if kept else {}, ""
    else:
        _, kept = _kept(name)
        shown, state = reply.value, cut(state_text.state_words(view, now), _MOST_STATE) if view else ""
    if lists:
        as_json, line = wants_json(), explanation.kept_line
        lines = [json.dumps(each) if as_json else line(each, name, now) for each in kept]
        if lines or not as_json:
            click.echo("\n".join(lines or [f"no explanation is kept for {name} yet"]))
        return
    if run is not None or attempt is not None:
        which = str(run) if attempt is None else attempt
        if not (found := [each for each in kept if each["which"] == which]):
            raise UsageError(f"no explanation is kept for {which!r}", mend=f"ralphctl explain {name} --list")
        shown, state = found[0], ""
    end_if_json(shown)
    width, colour = columns(sys.stdout), has_colour(sys.stdout)
    click.echo(explanation.page(name, shown, now, state=state, columns=width, colour=colour))
    hung = next((each for each in kept if each.get("rule") in explanation.HANGS), None)
    if hung is not None and hung.get("at") != shown.get("at"):
        click.echo(f"\n  last kill {explanation.kept_line(hung, name, now)}")


def _kept(name: str | None) -> tuple[tuple[str, Path] | None, list[dict[str, Any]]]:
    from ralphctl.offline import log as offline_log

    known = None if name is not None and "/" in name else offline_log.find(here(), name)
    return known, [] if known is None else offline_log.explanations(known[1])
