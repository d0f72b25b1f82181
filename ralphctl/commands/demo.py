"""demo: ralphd's main features, shown with a private daemon, a badly behaved loop and the built-in one."""

from __future__ import annotations

import sys
import time

import click

from ralphctl.cli.click_ext import CommonCommand
from ralphctl.format.output import has_colour, message
from ralphd.errors import RalphdError


@click.command(cls=CommonCommand)
def demo() -> int:
    """Show what ralphd does, in half a minute.

    A private daemon supervises a small scripted loop that crashes, ignores SIGTERM and leaves a server
    behind, and the daemon is killed in the middle. Then the built-in loop does five tasks with two scripted
    agents that meet limits and crash. Everything happens in a directory of its own under
    $TMPDIR, which is removed at the end; no agent, no key and no network is used. Exits with 1 when
    something did not hold.
    """
    from ralphctl.demo.printer import DemoPrinter
    from ralphctl.demo.sandbox import DemoFailed, DemoInterrupted, Sandbox
    from ralphctl.demo.scenes import Demo

    printer = DemoPrinter(sys.stdout, colour=has_colour(sys.stdout))
    began = time.monotonic()
    try:
        with Sandbox.open() as sandbox:
            try:
                Demo(sandbox, printer).play()
            except RalphdError as fault:
                log = sandbox.lines(sandbox.state_directory / "ralphd.log")[-12:]
                raise DemoFailed(
                    f"the demo did not hold: {fault.what}", why="\n".join([fault.why, *log]).strip()
                ) from fault
        printer.check(not sandbox.home.exists(), f"{sandbox.home} is removed", "it is still there")
        printer.say(f"All of it held, in {time.monotonic() - began:.0f} s. Now with a loop of your own:")
        printer.say("    ralphctl start ~/your/project -- ./loop.sh")
        printer.say("or with the built-in one, and a PROMPT.md:")
        printer.say("    ralphctl start ~/your/project")
    except DemoInterrupted as interruption:
        message("interrupted; what the demo had started is ended, its directory is removed")
        return 128 + int(interruption.args[0])
    return 0
