"""classify: classify the end of an agent's attempt from its raw output, without a daemon."""

import contextlib
import os
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, wants_json
from ralphctl.client.discovery import here
from ralphctl.format.output import clean
from ralphd.errors import UsageError

_HIGHEST = 255


@click.command(cls=CommonCommand)
@click.argument("file", metavar="FILE|-", shell_complete=completers.files)
@click.option("--agent", metavar="NAME", shell_complete=completers.agents,
              help="Whose output it is; else guessed from its first lines.")  # fmt: skip
@click.option("--exit", "code", type=int, metavar="N",
              help="Its exit status, or minus the signal; else it failed.")  # fmt: skip
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True,
              help="Which of its streams this is.")  # fmt: skip
def classify(file: str, agent: str | None, code: int | None, stream: str) -> None:
    """Say what an agent's attempt ended as, by which rule, and until when a limit lasts.

    FILE holds the raw output of the agent, not a log of ralphd's; - reads it from stdin.
    """
    if code is not None and not -64 <= code <= _HIGHEST:
        raise UsageError(f"{code} is no exit status", why=f"0 to {_HIGHEST}, or -1 to -64 for a signal")
    now = time.time()
    with _opened(file) as log:
        from ralphctl.offline import classify as local

        code = local.FAILED if code is None else code
        environ, directory = dict(os.environ), Path(here())
        finding = local.judged(
            log, agent=agent, code=code, stream=stream, now=now, environ=environ, directory=directory
        )
    if wants_json():
        click.echo(local.json_of(finding, now))
    else:
        click.echo("\n".join(clean(line) for line in local.text_of(finding, now).splitlines()))


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    mend = "name a file with an agent's raw output, or - for stdin"
    if Path(file).is_dir():
        raise UsageError(f"{file} is a directory", mend=mend)
    try:
        return Path(file).open("rb")
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise UsageError(f"{file} cannot be read", why=why, mend=mend) from fault
