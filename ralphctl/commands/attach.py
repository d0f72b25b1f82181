"""attach: the live view of a ralph that a daemon supervises; leaving the view changes nothing."""

import time
from typing import Any

import click

from ralphctl.cli.click_ext import ralph_command, the_ralph
from ralphctl.client.waiting import is_settled
from ralphctl.commands.control import next_step
from ralphctl.format import state_text
from ralphctl.live.foreground import Attached, AttachEnd
from ralphctl.live.keys import Keyboard, Waker
from ralphctl.live.screen import let_go_of_stderr, say
from ralphd import wire
from ralphd.errors import UnknownRalph


@ralph_command()
@click.option("-v", "--verbose", is_flag=True, help="Show edits and the results of tools, too.")
@click.option("--raw", is_flag=True, help="Show JSON events of agents as they were printed.")
@click.option("-n", "--tail", type=click.IntRange(0, 10_000), default=20, show_default=True, metavar="N",
              help="Start with the last N lines.")  # fmt: skip
def attach(name: str | None, tail: int, verbose: bool, raw: bool) -> int:
    """Watch NAME: its log, and below the log its state, task, cost, and the present wait.

    \b
      ralphctl attach          this directory's ralph
      ralphctl attach api      q leaves the view; the ralph continues

    JSON events of claude, codex, gemini and opencode are shown as text.

    Keys: p pauses after the iteration, s skips a wait, S stops it, q or Ctrl-C leaves, ? shows all keys.
    The view waits for a daemon that restarts. If stdout is not a terminal, there are plain lines and no keys.

    The view ends when nothing of NAME runs any more, with the exit code of status: 0, 1 failed, 75 paused.
    Left with q: 0; with Ctrl-C: 130.
    """
    client, name = the_ralph(name)
    view, after = client.ralph(name).value, client.last_event()
    with Keyboard(Waker()) as keyboard:
        attached = Attached(client, view, tail, after, keyboard)
        attached.events = "verbose" if verbose else "raw" if raw else "text"
        if keyboard.is_usable and not is_settled(view):
            say(f"{name}: {state_text.state_words(view, time.time())}; ? shows the keys, q leaves")
        end = attached.watch()
    code = _tell_end(attached, name, end)
    let_go_of_stderr()
    return code


def _tell_end(attached: Attached, name: str, end: AttachEnd) -> int:
    match end:
        case AttachEnd.SETTLED:
            say(attached.last_words(_settled_words(attached.view, time.time())))
            return wire.status_exit_code([attached.view["state"]])
        case AttachEnd.UNREAD:
            raise BrokenPipeError
        case AttachEnd.FORGOTTEN:
            raise UnknownRalph(f"{name} was removed", mend="ralphctl status --all")
        case AttachEnd.LEFT | AttachEnd.INTERRUPTED:
            going = attached.controls.going(attached.view)
            say(f"detached: {name} {going}. Reattach: ralphctl attach {name}")
            return wire.EXIT_OK if end is AttachEnd.LEFT else wire.EXIT_INTERRUPTED


def _settled_words(view: dict[str, Any], now: float) -> list[str]:
    """Return what happened, and what to type."""
    does, how = next_step(view)
    did = f": {work}" if view["state"] == "done" and (work := state_text.work_words(view)) else ""
    return [f"{view['name']}: {state_text.state_words(view, now)}{did}", f"next: {how}  ({does})"]
