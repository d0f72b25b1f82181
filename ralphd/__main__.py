"""``ralphd``: arguments, foreground or background, and what a failed start prints."""

import argparse
import asyncio
import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd import __version__, background, diagnostics, systemd, wire
from ralphd.errors import RalphdError

if TYPE_CHECKING:
    from ralphd.app import DaemonSettings


def main() -> None:
    """Entry point of ``ralphd`` and ``python -m ralphd``."""
    given = _parser().parse_args()
    # A file of ours in place of a closed stream (``2>&-``) would get what a library prints.
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if fault := wire.wrong_system():
        sys.exit(f"error: {fault}")
    from ralphd.app import DaemonSettings  # half a second; --help and --version do without

    umask = os.umask(0o077)
    manager = systemd.take_over(os.environ)
    environ = {**os.environ, **({"RALPHD_STATE_DIR": given.state_dir} if given.state_dir else {})}
    settings = DaemonSettings(
        state_directory=Path(wire.state_directory(environ)),
        socket_path=Path(given.socket or wire.socket_path(environ)).absolute(),
        umask=umask | 0o022,  # what a run makes is never for everybody to write
        tied=given.tied,
        undo=given.undo,
        # A daemon in the background or of a client is not a service, whatever its parent is.
        systemd=systemd.Systemd() if given.background or given.tied is not None else manager,
    )
    if given.background:
        sys.exit(background.detach(lambda ready: _run(settings, ready, foreground=False)))
    foreground = given.tied is None and given.undo is None  # else nobody reads what it prints
    sys.exit(background.as_init_where_needed(lambda: _run(settings, lambda: None, foreground=foreground)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ralphd",
        description="The Regent: supervises unattended coding-agent loops. See ralphctl --help.",
    )
    parser.add_argument("--background", action="store_true", help="detach; return when ready, or say why not")
    parser.add_argument("--state-dir", metavar="DIR", help="instead of $RALPHD_STATE_DIR")
    parser.add_argument("--socket", metavar="PATH", help="instead of $RALPHD_SOCKET")
    # From `ralphctl build`: the read end of a pipe, and at its end of file nothing is to be left (P5).
    parser.add_argument("--tied", type=int, metavar="FD", help=argparse.SUPPRESS)
    # From `ralphctl undo` without a daemon: the lock on the state directory keeps any daemon from starting.
    parser.add_argument("--undo", metavar="NAME[:N]", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"ralphd {__version__}")
    return parser


def _run(settings: "DaemonSettings", ready: Callable[[], None], *, foreground: bool) -> int:
    """Run the daemon; return its exit code. A RalphdError is printed without a traceback."""
    from ralphd.app import own, serve

    try:
        faulthandler.enable(2)  # the watchdog's SIGABRT leaves word of where every thread was
        owned = own(settings.state_directory)
        diagnostics.start_logging(settings.state_directory / "ralphd.log", foreground=foreground)
        try:
            asyncio.run(serve(settings, owned, ready))
        finally:
            owned.release()
    except RalphdError as fault:
        print(f"ralphd: {fault}", file=sys.stderr)  # noqa: T201 - this is its only word
        return fault.exit_code
    return 0


if __name__ == "__main__":
    main()
