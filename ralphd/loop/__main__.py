"""``python -m ralphd.loop``: the built-in loop, started by a Regent or by hand in a working directory."""

import argparse
import asyncio
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from ralphd.errors import RalphdError
from ralphd.loop.console import Console
from ralphd.loop.runner import LoopRunner
from ralphd.loop.settings import LoopSettings, by_hand, supervised
from ralphd.loop.store import LoopStore
from ralphd.process.lock import DirectoryLock
from ralphd.process.machine import share_freed_memory

CONFIGURATION = 78
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str] | None = None) -> int:
    """Run the loop; return an exit code of docs/signals.md."""
    parser = argparse.ArgumentParser(prog="python -m ralphd.loop", description=__doc__)
    parser.add_argument("directory", nargs="?", default=".", help="the working directory (default: this one)")
    parser.add_argument("--home", help="the ralph's own directory; a Regent gives it")
    switch = partial(parser.add_argument, action="store_true")
    switch("--pause-when-exhausted", help="end with 75 when no agent is left before a reset")
    switch("--no-resume", help="set the checkpoint aside and start from the beginning")
    words = parser.parse_args(arguments)
    directory = Path(words.directory).resolve()
    share_freed_memory()
    try:
        if words.home is None:
            settings = by_hand(directory, os.environ)
        else:
            settings = supervised(Path(words.home), directory, os.environ, pause=words.pause_when_exhausted)
        # The Regent of a supervised loop holds the lock of the directory.
        lock = None if settings.is_supervised else DirectoryLock.acquire(settings.directory)
        try:
            return asyncio.run(_run(settings, resume=not words.no_resume))
        finally:
            if lock is not None:
                lock.release()
    except RalphdError as fault:
        print(f"ralph: {fault}", file=sys.stderr, flush=True)  # noqa: T201 - the only report of it
        return CONFIGURATION


async def _run(settings: LoopSettings, *, resume: bool) -> int:
    runner = LoopRunner(settings, Console(time.time), LoopStore(settings))
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, runner.on_signal, number)
    return await runner.run(resume=resume)


if __name__ == "__main__":
    sys.exit(main())
