"""status with options that the fast path does not know."""

import contextlib
import io
import json
import os
import sys
import time
from typing import Any

import click

from ralphctl.cli import fast_status
from ralphctl.cli.click_ext import ralph_command, socket_given, the_client, time_option, wants_json
from ralphctl.client.discovery import check_name, here
from ralphctl.format.humanize import count
from ralphctl.format.output import PLAIN_COLUMNS, columns, has_colour
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError, UsageError
from ralphd.wire import status_exit_code

_CLEAR, _CLEAR_BELOW, _HOME, _CLEAR_LINE = "\x1b[2J", "\x1b[J", "\x1b[H", "\x1b[K"
_WRAP, _DO_NOT_WRAP = "\x1b[?7h", "\x1b[?7l"


@ralph_command()
@click.option("-a", "--all", "every", is_flag=True, help="All ralphs: finished ones, and outside DIR too.")
@click.option("--running", is_flag=True, help="Only those that work or wait.")
@click.option("-q", "--quiet", is_flag=True, help="Only names, one per line.")
@click.option("--short", is_flag=True, help="One line for a prompt or a status bar; no errors.")
@click.option("--format", "form", metavar="FORM", help="A line per ralph, such as '{name} {state}'.")
@click.option("--night", is_flag=True, help="The night as a strip of cells, with its totals.")
@time_option("--since", "Where --night begins: 8h, 18:00.  [18:00 yesterday]")
@click.option("--resources", is_flag=True, help="With processor and memory use.")
@click.option("-w", "--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
def status(
    name: str | None, *, night: bool, since: float | None, watch: bool, every: bool, **options: Any
) -> int:
    """Show NAME, or HOST/NAME of the fleet, or the ralph of this directory, or all of them.

    The states are working, testing, limited (by the agent's vendor), waiting, paused, failed, stopped, done.
    The exit code is 1 if a ralph has failed, else 75 if one is paused, else 0. Without a daemon, the last
    known state is shown; 3 if there is none.

    \b
      ralphctl status --format '{name} {state} {tasks} {cost}'
      ralphctl status --night --since 22:00
    """
    if night:
        if watch or any(options.values()):
            raise UsageError("--night goes with --all, --since and --json", mend="ralphctl status --night")
        return _night(name, since, every=every)
    if since is not None:
        raise UsageError("--since needs --night", mend="ralphctl status --night")
    query = fast_status.StatusQuery()
    query.name, query.socket, query.as_json, query.every = name, socket_given(), wants_json(), every
    for option, value in options.items():
        setattr(query, option, value)
    return _watch(query) if watch else fast_status.answer(query)


def _night(name: str | None, since: float | None, *, every: bool) -> int:
    """Print the night, read from the files: with and without a daemon."""
    from ralphctl.format.humanize import last_evening
    from ralphctl.report import night, read

    now = time.time()
    begin = last_evening(now) if since is None else since
    if begin >= now:
        raise UsageError("--since is in the future", mend="ralphctl status --night --since 8h")
    sources = read.choose(None if name is None else check_name(name), here(), os.environ, every=every)
    width = columns(sys.stdout) or PLAIN_COLUMNS
    strips = night.strips(sources, begin, now, width)
    if wants_json():
        daemon = None
        with contextlib.suppress(RalphdError):
            daemon = the_client().status().value["daemon"]
        print(json.dumps({**night.document(strips, begin, now), "daemon": daemon}, ensure_ascii=False))
    else:
        colour, encoding = has_colour(sys.stdout), sys.stdout.encoding
        print(night.page(strips, begin, now, width, encoding=encoding, colour=colour))
    return status_exit_code([strip.row.view["state"] for strip in strips])


def _watch(query: fast_status.StatusQuery) -> int:
    on_terminal, shown = sys.stdout.isatty(), ""
    while True:
        text = _page(query)
        if on_terminal:
            click.echo(("" if shown else _CLEAR) + _frame(text), nl=False, color=True)
        elif text != shown:
            click.echo(text)
        shown = text
        time.sleep(1.0)


def _frame(text: str) -> str:
    """Overwrite the screen with ``text``, cut so that neither a line nor the page makes it scroll."""
    lines, rows = text.splitlines(), os.get_terminal_size(sys.stdout.fileno()).lines
    if rows and len(lines) >= rows:
        left_out = len(lines) - rows + 2
        lines = [*lines[:-left_out], f"… and {count(left_out, 'line')} more: ralphctl status"]
    shown = "".join(f"{_CLEAR_LINE}{line}\n" for line in lines)
    return f"{_DO_NOT_WRAP}{_HOME}{shown}{_CLEAR_BELOW}{_WRAP}"


class _Page(io.StringIO):
    """Collects what ``status`` prints; a terminal of the same width as the real stdout if that is one."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()

    def fileno(self) -> int:
        return super().fileno() if sys.__stdout__ is None else sys.__stdout__.fileno()


def _page(query: fast_status.StatusQuery) -> str:
    page = _Page()
    try:
        with contextlib.redirect_stdout(page), contextlib.redirect_stderr(page):
            fast_status.answer(query)
    except (DaemonNotRunning, DaemonBusy) as away:
        page.write(f"{away}\n")
    return page.getvalue().rstrip("\n")
