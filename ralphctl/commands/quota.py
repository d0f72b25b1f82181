"""quota: the limits of the agents' accounts, how much of each window is used, and who waits."""

import os
import sys
import time

import click

from ralphctl.cli.click_ext import CommonCommand, end_if_json, socket_given, the_client
from ralphctl.format import incident_text
from ralphctl.format.output import clean, columns, has_colour
from ralphd.errors import DaemonNotRunning

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
    lines = (incident_text.account_line(each, width, now, room, colour=colour) for each in accounts)
    click.echo("\n".join(lines) or _NONE_YET)
