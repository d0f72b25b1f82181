"""status with options that the fast path does not know."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time

import click

from ralphctl.cli import fast_status
from ralphctl.cli.click_ext import ralph_command, socket_given, wants_json
from ralphctl.format.humanize import count
from ralphd.errors import DaemonBusy, DaemonNotRunning

_CLEAR, _CLEAR_BELOW, _HOME, _CLEAR_LINE = "\x1b[2J", "\x1b[J", "\x1b[H", "\x1b[K"
_WRAP, _DO_NOT_WRAP = "\x1b[?7h", "\x1b[?7l"


@ralph_command()
@click.option("-a", "--all", "every", is_flag=True, help="All ralphs, also inside a ralph's directory.")
@click.option("--resources", is_flag=True, help="With processor and memory use.")
@click.option("-w", "--watch", is_flag=True, help="Show it anew every second, until Ctrl-C.")
def status(name: str | None, every: bool, resources: bool, watch: bool) -> int:
    """How NAME is, or the ralph of this directory, or all of them.

    Exits with 1 when one has failed, else 75 when one is paused, else 0. Without a daemon it tells what is
    last known in this directory; 3 only where there is nothing to read.
    """
    query = fast_status.StatusQuery()
    query.name, query.socket, query.as_json = name, socket_given(), wants_json()
    query.every, query.resources = every, resources
    return _watch(query) if watch else fast_status.answer(query)


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
