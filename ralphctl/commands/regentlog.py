"""regent logs: the daemon's own log, read from its file, so that it can be read when no daemon runs."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO

import click

from ralphctl.grammar import Command, the_client
from ralphctl.terminal import neutralise
from ralphd import wire
from ralphd.errors import NotFound, RalphdError

_LOOK_S = 0.1


@click.command(cls=Command)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=0), metavar="N", default=50, help="The last N lines (50)."
)
def logs(follow: bool, tail: int) -> None:
    """The daemon's own log: what it did, and why it did not start."""
    path = _state_directory() / "ralphd.log"
    try:
        log = path.open("rb")
    except FileNotFoundError as fault:
        raise NotFound("there is no daemon log yet", why=str(path), mend="ralphctl regent start") from fault
    with log:
        for line in deque(log, maxlen=tail):
            _print(line)
        if follow:
            _follow(path, log)


def _state_directory() -> Path:
    try:
        return Path(the_client().status().value["daemon"]["state_directory"])
    except RalphdError:  # a daemon that does not answer is why people look here
        return Path(wire.state_directory(os.environ))


def _print(line: bytes) -> None:
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(line)
    else:
        sys.stdout.write(neutralise(line.decode("utf-8", "replace").rstrip("\n")) + "\n")
    sys.stdout.flush()


def _follow(path: Path, log: IO[bytes]) -> None:
    while True:
        _print_rest(log)
        if _is_replaced(path, log):
            _print_rest(log)  # what came between the last look and the rotation
            log.close()
            log = path.open("rb")
        else:
            time.sleep(_LOOK_S)


def _print_rest(log: IO[bytes]) -> None:
    for line in log:
        _print(line)


def _is_replaced(path: Path, log: IO[bytes]) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(log.fileno()))
    except FileNotFoundError:  # between the two steps of a rotation
        return False
