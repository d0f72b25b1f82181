"""demo: what ralphd does, shown with a private daemon, a badly behaved loop, and the built-in one."""

from __future__ import annotations

import sys
import time

import click

from ralphctl.grammar import Command
from ralphctl.tell import has_colour, message
from ralphd.errors import RalphdError


@click.command(cls=Command)
def demo() -> int:
    """Show what ralphd does, in half a minute.

    A private daemon supervises a small scripted loop that crashes, ignores SIGTERM and leaves a server
    behind, and the daemon is killed in the middle. Then the built-in loop does five tasks with two scripted
    agents that meet limits and crash. Everything happens in a directory of its own under
    $TMPDIR, which is removed at the end; no agent, no key and no network is used. Exits with 1 when
    something did not hold.
    """
    from ralphctl.demo.stage import Interrupted, interruptible

    try:
        with interruptible():
            _play()
    except Interrupted as interruption:
        message("interrupted; what the demo had started is ended, its directory is removed")
        return 128 + interruption.number
    return 0


def _play() -> None:
    from ralphctl.demo.scenes import Demo
    from ralphctl.demo.stage import DemoFailed, Stage
    from ralphctl.demo.telling import Teller

    teller = Teller(sys.stdout, colour=has_colour(sys.stdout))
    began = time.monotonic()
    with Stage.open() as stage:
        try:
            Demo(stage, teller).play()
        except RalphdError as fault:
            raise DemoFailed(
                f"the demo did not hold: {fault.what}", why=f"{fault.why}\n{stage.last_words()}".strip()
            ) from fault
    teller.holds(not stage.home.exists(), f"{stage.home} is removed", f"{stage.home} is still there")
    teller.say(f"All of it held, in {time.monotonic() - began:.0f} s. Now with a loop of your own:")
    teller.say("    ralphctl start ~/your/project -- ./loop.sh")
    teller.say("or with the built-in one, and a PROMPT.md:")
    teller.say("    ralphctl start ~/your/project")
