"""logs: the output of ralphs."""

import heapq
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, the_client, the_name, time_option, wants_json
from ralphctl.client import transport
from ralphctl.client.client import Client
from ralphctl.client.discovery import here, known_views, left_by_build
from ralphctl.format import log_text
from ralphctl.format.output import has_colour, message
from ralphctl.format.state_text import state_words
from ralphd.errors import DaemonNotRunning, UnknownRalph, UsageError

_TAIL = "100"


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _tail(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "all" or value.isdigit():
        return value
    raise click.BadParameter(f"{value!r} is not a number of lines; give a number, or all", context, parameter)


@click.command(cls=CommonCommand)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completers.ralphs)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the ralph has ended.")
@click.option("-n", "--tail", callback=_tail, metavar="N", help=f"The last N lines ({_TAIL}), or all.")
@time_option("--since", "From TIME on: 10m, 07:00, RFC 3339.")
@time_option("--until", "Lines before TIME.")
@click.option("--iteration", metavar="N", help="Only iteration N, as verdicts numbers it; or RUN:N.")
@click.option("--task", metavar="ID", help="Only the iterations of this task (id or title).")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "regent"]), help="Only these lines.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain TEXT (case-sensitive, no regex).")
@click.option("-v", "--verbose", is_flag=True, help="Show edits and the results of tools, too.")
@click.option("--raw", is_flag=True, help="Print the stored bytes: JSON events and escape sequences.")
@click.option("-t", "--timestamps", is_flag=True, help="Print the time of each line.")
def logs(
    names: tuple[str, ...], follow: bool, iteration: str | None, task: str | None, verbose: bool, raw: bool,
    timestamps: bool, **query: Any,
) -> None:  # fmt: skip
    """Show the output of NAME over all its runs, with the supervisor's own messages.

    JSON events of claude, codex, gemini and opencode are shown as text. With several names each line begins
    with the ralph's name. HOST/NAME is a ralph on another machine of the fleet.

    \b
      ralphctl logs -f                       follow this directory's ralph
      ralphctl logs api --since 2h --stream regent
      ralphctl logs api --iteration 3        the output of one iteration
      ralphctl logs api web -f
    """
    if (iteration or task) and (follow or query["since"] or query["until"]):
        raise click.UsageError("--iteration and --task exclude --follow, --since and --until.")
    client = the_client()
    given = {key: word for key, word in query.items() if word is not None}
    words = {key: _rfc3339(word) if isinstance(word, float) else word for key, word in given.items()}
    words["events"] = "verbose" if verbose else "raw" if raw or wants_json() else "text"
    if not (iteration or task or {"tail", "since"} & {*words}):
        words["tail"] = _TAIL
    put = partial(_put, safe=sys.stdout.isatty() and not raw, timestamps=timestamps)
    try:
        transport.connect(client.paths).close()
        known = [the_name(client, name, in_fleet=True) for name in dict.fromkeys(names or (None,))]
        for name in known if follow or left_by_build(here()) or known_views(builds_only=True) else ():
            client.ralph(name)  # an unknown ralph is an error at once, not a wait
    except (DaemonNotRunning, UnknownRalph) as fault:  # a build's log stays in its directory
        if follow or iteration or task or len(names) > 1 or (past := _kept(fault, names, words)) is None:
            raise
        put(past)
        return
    if follow:
        _follow(client, known, words, put)
        return
    queries = [(name, part) for name in known for part in _parts(client, name, words, iteration, task)]
    if len(known) > 1:
        named = (_named(name, client.log(name, each)) for name, each in queries)
        put(heapq.merge(*named, key=lambda record: record["at"]))
    elif timestamps or put.keywords["safe"] or wants_json() or words["events"] != "raw":
        put(record for name, each in queries for record in client.log(name, each))
    else:
        for name, each in queries:
            sys.stdout.buffer.writelines(client.log_text(name, each))
        sys.stdout.buffer.flush()


def _kept(
    fault: DaemonNotRunning | UnknownRalph, names: Sequence[str], words: Mapping[str, str]
) -> Iterator[dict[str, Any]] | None:
    from ralphctl.offline import log as offline_log

    if "/" in "".join(names):
        return None
    if (past := offline_log.records(here(), next(iter(names), None), words)) is not None:
        away = "ralphd is not running" if isinstance(fault, DaemonNotRunning) else "no ralph works here"
        message(f"{away}; this is the log on disk:")
    return past


def _follow(client: Client, names: Sequence[str], words: Mapping[str, str], put: Callable[..., None]) -> None:
    from ralphctl.client import streams

    batches = streams.several_logs(client, names, words)
    put(each for name, batch in batches for each in (_named(name, batch) if len(names) > 1 else batch))
    for name in names:
        message(f"{name}: {state_words(client.ralph(name).value, time.time())}")


def _named(name: str, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield records with the ralph's name; a gap gets the time of the line before it."""
    at = ""
    for record in records:
        at = record.get("at", at)
        yield {"at": at, **record, "ralph": name}


def _parts(
    client: Client, name: str, words: dict[str, str], iteration: str | None, task: str | None
) -> list[dict[str, str]]:
    """Return the query of each iteration that is wanted, the oldest first. Raise UsageError without any."""
    if not (iteration or task):
        return [words]
    if "/" in name:
        what = "--iteration and --task do not reach another machine"
        raise UsageError(what, mend=f"ralphctl logs {name} --since 2h")
    entries = client.iterations(name, 1000).value["iterations"]

    def find(part: Mapping[str, str], line: str) -> str | None:
        words = {"tail": "all", "stream": "stdout", "grep": line, **part}
        records = (each for each in client.log(name, words) if each.get("text", "").startswith(line))
        return next((record["at"] for record in records), None)

    if not (parts := log_text.iteration_spans(entries, iteration, task, find)):
        what = f"iteration {iteration}" if iteration else f"iteration of task {task}"
        why = "iterations are known if the ralph reports them, as the built-in loop does"
        mend = f"ralphctl verdicts {name}, or ralphctl logs {name} --since 2h"
        raise UsageError(f"{name}: no {what} is known", why=why, mend=mend)
    return [{**part, **words} for part in parts]


def _put(records: Iterable[dict[str, Any]], *, safe: bool, timestamps: bool) -> None:
    if wants_json():
        for record in records:
            print(json.dumps(record), flush=True)
        return
    out, colour = sys.stdout.buffer, has_colour(sys.stdout)
    printer = log_text.LogPrinter(out, safe=safe, timestamps=timestamps, colour=colour)
    try:
        for record in records:
            printer.put(record)
            out.flush()
    finally:
        if safe:
            printer.end()
        out.flush()
