"""logs and events: the output of ralphs, and what happened to them."""

from __future__ import annotations

import heapq
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, ralph_command, the_client, the_name, wants_json
from ralphctl.client import transport
from ralphctl.client.discovery import check_name, here, left_by_build
from ralphctl.format import log_text
from ralphctl.format.event_text import event_words
from ralphctl.format.humanize import clock, moment
from ralphctl.format.log_text import iteration_spans
from ralphctl.format.output import clean, has_colour, message
from ralphctl.format.state_text import state_words
from ralphd.errors import DaemonNotRunning, RalphdError, UnknownRalph, UsageError

if TYPE_CHECKING:
    from ralphctl.client.client import Client

_TAIL = "100"
_MOST = 10_000
_NAME_WIDTH = 12


def _tail(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "all" or value.isdigit():
        return value
    raise click.BadParameter(f"{value!r} is not a number of lines; give a number, or all", context, parameter)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    moment = log_text.since(value)
    if moment is None:
        raise UsageError(
            f"{parameter.opts[0]} {value!r} is not a time",
            why="use 10m, 2h, 07:00, '2026-11-21 20:00', RFC 3339, or @seconds since 1970",
            mend=f"{parameter.opts[0]} 10m",
        )
    return moment


@click.command(cls=CommonCommand)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completers.ralphs)
@click.option(
    "-f", "--follow", is_flag=True, help="Print new lines until nothing of the ralph runs any more."
)
@click.option("-n", "--tail", callback=_tail, metavar="N", help=f"The last N lines ({_TAIL}), or all.")
@click.option(
    "--since", callback=_moment, metavar="TIME", help="From TIME on: 10m, 07:00, 2026-11-21T20:00Z."
)
@click.option("--until", callback=_moment, metavar="TIME", help="Lines before TIME.")
@click.option("--iteration", metavar="N", help="Only iteration N, as verdicts numbers it; or RUN:N.")
@click.option("--task", metavar="ID", help="Only the iterations that worked on this task.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "regent"]), help="Only these lines.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain TEXT (case-sensitive, no regex).")
@click.option("-v", "--verbose", is_flag=True, help="Show edits and the results of tools, too.")
@click.option("--raw", is_flag=True, help="Print the stored bytes: JSON events and escape sequences.")
@click.option("-t", "--timestamps", is_flag=True, help="Print the time of each line.")
def logs(
    names: tuple[str, ...], follow: bool, iteration: str | None, task: str | None, verbose: bool, raw: bool,
    timestamps: bool, **query: str | None,
) -> None:  # fmt: skip
    """Show the output of NAME over all its runs, with the supervisor's own messages.

    JSON events of claude, codex, gemini and opencode are shown as text. With several names each line begins
    with the ralph's name.

    \b
      ralphctl logs -f                       follow this directory's ralph
      ralphctl logs api --since 2h --stream regent
      ralphctl logs api --iteration 3        the output of one iteration
      ralphctl logs api web -f
    """
    client = the_client()
    words = {key: word for key, word in query.items() if word is not None}
    words["events"] = "verbose" if verbose else "raw" if raw or wants_json() else "text"
    if (iteration or task) and (follow or {"since", "until"} & {*words}):
        raise UsageError(
            "--iteration and --task select a time by themselves",
            why="they cannot be combined with each other, nor with --follow, --since and --until",
            mend="ralphctl logs --iteration 3",
        )
    if not (iteration or task or {"tail", "since"} & {*words}):
        words["tail"] = _TAIL
    output = LogOutput(is_safe=sys.stdout.isatty() and not raw, timestamps=timestamps)
    try:
        transport.connect(client.paths).close()
        known = [the_name(client, name) for name in dict.fromkeys(names or (None,))]
        views = [client.ralph(name).value for name in known if follow or left_by_build(here()) is not None]
    except (DaemonNotRunning, UnknownRalph) as fault:  # a build's log stays in its directory
        if follow or len(names) > 1 or not _print_kept(fault, names, words, output, iteration, task):
            raise
        return
    if follow:
        _follow(client, {view["name"]: words for view in views}, output)
        return
    queries = [(name, words) for name in known]
    if iteration or task:
        found = {name: client.iterations(name, 1000) for name in known}
        queries = [(name, each) for name in known for each in _parts(found[name], words, iteration, task)]
    if len(known) == 1 and not (timestamps or output.is_safe or wants_json()):
        for name, each in queries:
            output.write(client.log_text(name, each))
        return
    if len(known) == 1:
        output.put(itertools.chain.from_iterable(client.log(*each) for each in queries))
        return
    logs = (_named(name, client.log(name, each)) for name, each in queries)
    output.put(heapq.merge(*logs, key=lambda record: record["at"]))


def _named(name: str, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield records with the ralph's name; a gap gets the time of the line before it."""
    at = ""
    for record in records:
        at = record.get("at", at)
        yield {"at": at, **record, "ralph": name}


def _follow(client: Client, queries: Mapping[str, Mapping[str, str]], output: LogOutput) -> None:
    from ralphctl.client import streams

    batches = streams.logs_until_settled(client, queries)
    single = len(queries) == 1
    output.put(record for name, batch in batches for record in (batch if single else _named(name, batch)))
    for name in queries:
        with suppress(RalphdError):
            message(f"{name}: {state_words(client.ralph(name).value, time.time())}")


def _print_kept(
    fault: RalphdError, names: tuple[str, ...], words: Mapping[str, str], output: LogOutput,
    iteration: str | None, task: str | None,
) -> bool:  # fmt: skip
    """Print what the files of this directory's ralph hold. Return False if they hold nothing of it."""
    from ralphctl.offline import log as offline_log

    name = names[0] if names else None
    queries: Sequence[Mapping[str, str]] = [words]
    if iteration or task:
        queries = _parts(offline_log.iterations(here(), name), words, iteration, task)
    past = [offline_log.records(here(), name, each) for each in queries]
    if None in past:
        return False
    away = "ralphd is not running" if isinstance(fault, DaemonNotRunning) else "no ralphd works here"
    message(f"{away}; this is the log on disk:")
    output.put(itertools.chain.from_iterable(filter(None, past)))
    return True


def _parts(
    found: list[dict[str, Any]], words: Mapping[str, str], iteration: str | None, task: str | None
) -> list[dict[str, str]]:
    """Return the query of each iteration that is wanted, the oldest first. Raise UsageError without any."""
    parts = iteration_spans(found, iteration, task)
    if not parts:
        what = f"iteration {iteration}" if iteration else f"iteration with the task {task}"
        raise UsageError(
            f"no {what} is known",
            why="iterations are known if the ralph reports them, as the built-in loop does",
            mend="ralphctl verdicts, or ralphctl logs --since 2h",
        )
    return [{**words, **part} for part in parts]


@dataclass(frozen=True, slots=True)
class LogOutput:
    """Where a log is printed, and how: ``is_safe`` for a terminal."""

    is_safe: bool
    timestamps: bool

    def write(self, parts: Iterable[bytes]) -> None:
        """Print bytes as they are."""
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()

    def put(self, records: Iterable[dict[str, Any]]) -> None:
        """Print records, each as soon as it comes."""
        if wants_json():
            for record in records:
                print(json.dumps(record), flush=True)
            return
        printer = log_text.LogPrinter(
            sys.stdout.buffer, safe=self.is_safe, timestamps=self.timestamps, colour=has_colour(sys.stdout)
        )
        try:
            for record in records:
                printer.put(record)
                sys.stdout.buffer.flush()
        finally:
            if self.is_safe:
                printer.end()
            sys.stdout.buffer.flush()


@ralph_command()
@click.option("-f", "--follow", is_flag=True, help="Print new events, also after a restart of the daemon.")
@click.option(
    "-n", "--tail", type=click.IntRange(0, _MOST), metavar="N", help="The last N events (20; with -f 0)."
)
def events(name: str | None, follow: bool, tail: int | None) -> None:
    """Show the events of NAME, or those of all ralphs and of the daemon."""
    if name is not None:
        check_name(name)
    client = the_client()
    tail = (0 if follow else 20) if tail is None else tail
    # The daemon keeps one history for all ralphs, so the last N of one are picked from many.
    past = list(client.past_events(max(1, tail if name is None else _MOST)))
    shown = [event for event in past if name in (None, event["ralph"])][-tail:] if tail else []
    width = max([_NAME_WIDTH, *(len(_who(event)) for event in shown)])
    coming: Iterator[dict[str, Any]] = iter(())
    if follow:
        from ralphctl.client import streams

        coming = streams.events(client, past[-1]["id"] if past else 0)
    for event in itertools.chain(shown, (each for each in coming if name in (None, each["ralph"]))):
        print(json.dumps(event) if wants_json() else _line(event, width), flush=True)


def _line(event: dict[str, Any], width: int) -> str:
    at = moment(event["at"])
    when = "?" if at is None else clock(at, time.time())
    text = clean(event_words(event["type"], event["data"]))
    return f"{when}  {_who(event):<{width}}  {event['type']:<18}  {text}".rstrip()


def _who(event: dict[str, Any]) -> str:
    return event["ralph"] or "ralphd"
