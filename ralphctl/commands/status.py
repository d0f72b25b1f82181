"""status, when it has words that the short road does not know: ``-w``, ``--help``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time

import click

from ralphctl import fast
from ralphctl.grammar import Command, ralph_argument, socket_given, wants_json
from ralphctl.words import count
from ralphd.errors import DaemonBusy, DaemonNotRunning

_CLEAR, _CLEAR_BELOW, _HOME, _CLEAR_LINE = "\x1b[2J", "\x1b[J", "\x1b[H", "\x1b[K"
_WRAP, _DO_NOT_WRAP = "\x1b[?7h", "\x1b[?7l"


@click.command(cls=Command)
@ralph_argument
@click.option("-a", "--all", "every", is_flag=True, help="All ralphs, also inside a ralph's directory.")
@click.option("--resources", is_flag=True, help="With processor and memory use.")
@click.option("-w", "--watch", is_flag=True, help="Show it anew every second, until Ctrl-C.")
def status(name: str | None, every: bool, resources: bool, watch: bool) -> int:
    """How NAME is, or the ralph of this directory, or all of them.

    Exits with 1 when one has failed, else 75 when one is paused, else 0. Without a daemon it tells what is
    last known in this directory; 3 only where there is nothing to read.
    """
    asked = fast.Asked(
        name=name, socket=socket_given(), as_json=wants_json(), every=every, resources=resources
    )  # fmt: skip
    return _watch(asked) if watch else fast.answer(asked)


def _watch(asked: fast.Asked) -> int:
    on_terminal, shown = sys.stdout.isatty(), ""
    while True:
        text = _page(asked)
        if on_terminal:
            click.echo(("" if shown else _CLEAR) + _frame(text), nl=False, color=True)
        elif text != shown:
            click.echo(text)
        shown = text
        time.sleep(1.0)


def _frame(text: str) -> str:
    """``text`` over what is on the screen; a line or a page that does not fit must not make it scroll."""
    lines, rows = text.splitlines(), os.get_terminal_size(sys.stdout.fileno()).lines
    if rows and len(lines) >= rows:
        left_out = len(lines) - rows + 2
        lines = [*lines[:-left_out], f"… and {count(left_out, 'line')} more: ralphctl status"]
    shown = "".join(f"{_CLEAR_LINE}{line}\n" for line in lines)
    return f"{_DO_NOT_WRAP}{_HOME}{shown}{_CLEAR_BELOW}{_WRAP}"


class _Page(io.StringIO):
    """Collects what ``status`` prints, and says of itself what is true of the real stdout."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()

    def fileno(self) -> int:
        return super().fileno() if sys.__stdout__ is None else sys.__stdout__.fileno()


def _page(asked: fast.Asked) -> str:
    page = _Page()
    try:
        with contextlib.redirect_stdout(page), contextlib.redirect_stderr(page):
            fast.answer(asked)
    except (DaemonNotRunning, DaemonBusy) as away:
        page.write(f"{away}\n")
    return page.getvalue().rstrip("\n")
