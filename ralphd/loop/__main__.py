"""``python -m ralphd.loop``: the built-in loop, started by a Regent or by hand in a working directory."""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from ralphd.errors import RalphdError
from ralphd.loop.console import Console
from ralphd.loop.runner import LoopRunner
from ralphd.loop.settings import LoopSettings, by_hand, supervised
from ralphd.loop.store import LoopStore
from ralphd.process.lock import DirectoryLock

CONFIGURATION = 78
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str] | None = None) -> int:
    """Run the loop; the exit code is that of docs/signals.md."""
    given = _parser().parse_args(arguments)
    try:
        settings = _settings(given)
        lock = None if settings.is_supervised else DirectoryLock.acquire(settings.directory)
        try:
            return asyncio.run(_run(settings, resume=not given.no_resume))
        finally:
            if lock is not None:
                lock.release()
    except RalphdError as fault:
        print(f"ralph: {fault}", file=sys.stderr, flush=True)  # noqa: T201 - nobody else would say it
        return CONFIGURATION


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ralphd.loop", description=__doc__)
    parser.add_argument("directory", nargs="?", default=".", help="the working directory (default: this one)")
    parser.add_argument("--home", help="the ralph's own directory; a Regent gives it")
    parser.add_argument(
        "--pause-when-exhausted", action="store_true", help="end with 75 when no agent is left before a reset"
    )
    parser.add_argument("--no-resume", action="store_true", help="put a checkpoint aside and begin anew")
    return parser


def _settings(given: argparse.Namespace) -> LoopSettings:
    directory = Path(given.directory).resolve()
    if given.home is None:
        return by_hand(directory, os.environ)
    return supervised(Path(given.home), directory, os.environ, pause=given.pause_when_exhausted)


async def _run(settings: LoopSettings, *, resume: bool) -> int:
    ralph = LoopRunner(settings, Console(time.time), LoopStore(settings))
    loop = asyncio.get_running_loop()
    for number in HEARD:
        loop.add_signal_handler(number, ralph.hear, number)
    return await ralph.run(resume=resume)


if __name__ == "__main__":
    sys.exit(main())
