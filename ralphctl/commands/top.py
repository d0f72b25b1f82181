"""top: all ralphs on one screen, with keys; or the same picture once, as text or JSON."""

import os
import sys
import time

import click

from ralphctl.cli import click_ext
from ralphctl.cli.click_ext import CommonCommand, the_client, wants_json
from ralphctl.format.humanize import last_evening
from ralphctl.format.output import PLAIN_COLUMNS, columns, has_colour
from ralphd import wire
from ralphd.errors import UsageError


@click.command(cls=CommonCommand)
@click.option("--once", is_flag=True, help="Print the picture once, as text.")
def top(*, once: bool) -> int | None:
    """Show all ralphs on one screen, those that need you first, until q.

    Below the table is the selected ralph: its night, state, task, and the last lines of its log. The keys: up
    and down select, Enter attaches, l shows the logs, e explains, p pauses or resumes, s skips a wait, S
    stops, ? lists the keys, q leaves. Finished ralphs are only counted.

    \b
      ralphctl top
      ralphctl top --once | mail -s ralphs me

    It needs the extra `tui` (textual); --once and --json need none.
    """
    from ralphctl.top import feed, model, page

    now, client, colour = time.time(), the_client(), has_colour(sys.stdout)
    utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
    if not once and not wants_json():
        _check()
    shown = model.gathered(client, last_evening(now))
    if once or wants_json():  # else a thread reads them, after the first picture
        shown.read_elsewhere(client)
        shown.read_nights(shown.views, now)
    click_ext.end_if_json(shown.document(now), ensure_ascii=False)
    if not once:
        from ralphctl.top.app import TopApp

        words = [f"--socket={socket}"] if (socket := click_ext.socket_given()) else []
        following = feed.TopFeed(client.without_notices(), shown, client.last_event(), colour=colour)
        app = TopApp(following, colour=colour, utf8=utf8, words=words)
        code = app.run(mouse=False)
        return app.return_code or wire.EXIT_INTERRUPTED if code is None else code
    selected = next((row.name for row in page.shown_rows(shown)), "")
    log = feed.last_lines(client, selected, colour=colour) if selected else ()
    width = columns(sys.stdout) or PLAIN_COLUMNS
    screen = page.TopScreen(width, selected=selected, log=log, colour=colour, utf8=utf8)
    click.echo("\n".join(page.page(shown, screen, now)), color=colour)
    return wire.EXIT_OK


def _check() -> None:
    """Raise ExtraMissing, and UsageError where no picture can be drawn."""
    try:
        import textual  # noqa: F401
    except ImportError as missing:
        what, once = "ralphctl top needs a package", "ralphctl top --once"
        raise click_ext.ExtraMissing(what, "tui", "textual>=8,<9", missing, once) from missing
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        what = "this terminal cannot move its cursor (TERM=dumb)" if is_terminal else "top needs a terminal"
        raise UsageError(what, mend="ralphctl top --once")
