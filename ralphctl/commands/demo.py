"""demo: ralphd's main features, shown with a private daemon, a badly behaved loop and the built-in one."""

import sys
import time

import click

from ralphctl.cli.click_ext import CommonCommand
from ralphctl.format.output import has_colour, message
from ralphd.errors import RalphdError


@click.command(cls=CommonCommand)
def demo() -> int:
    """Show the main features in half a minute, with scripted agents.

    A private daemon supervises a small scripted loop that crashes, ignores SIGTERM and leaves a server
    behind; in between the daemon is killed. Then the built-in loop does five tasks with two scripted agents
    that meet limits and crash. The demo works in a directory of its own below $TMPDIR, which it removes at
    the end, and uses no agent, no key and no network. Exits with 1 if a check failed.
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
                why = "\n".join([fault.why, *log]).strip()
                raise DemoFailed(f"the demo failed: {fault.what}", why=why) from fault
        printer.check(not sandbox.home.exists(), f"{sandbox.home} is removed", f"{sandbox.home} still exists")
        printer.say(f"All checks passed, in {time.monotonic() - began:.0f} s. Now with your own loop:")
        printer.say("    ralphctl start ~/your/project -- ./loop.sh")
        printer.say("or, with the built-in loop, in your project:")
        printer.say("    ralphctl init && ralphctl start")
    except DemoInterrupted as interruption:
        message("interrupted; the processes of the demo were ended, its directory was removed")
        return 128 + int(interruption.args[0])
    return 0
