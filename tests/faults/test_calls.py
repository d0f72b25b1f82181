"""Calls of the daemon that fail: no room, a broken disk, no descriptors, no memory, no threads."""

import errno
import os
import random

import pytest

from tests.faults.stage import FaultyDaemon, nothing_is_lost
from tests.helpers import wait_for
from tests.whole.witnesses import Witness

WRITTEN = (
    "history.jsonl",
    "regent-state.json",
    "events.db",
    "explanation.json",
    "/runs/",
    "intent.json",
    "shim.err",
    "/ends/.ralph",
    "ralphd.log",
    "/state/",
)
"""What the daemon writes at the end of a run and the start of the next."""
WHOLE = (errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE)
PLACES = ("/state/", "/runs/", "/home/ends", "/proc/", "/")
HANDLED_S = 20.0


def cases(every: list[tuple[int, str]]) -> list[object]:
    """All of them for ``make faults``, else the one that the seed chooses."""
    if os.environ.get("FAULTS") != "1":
        every = random.Random(int(os.environ.get("SEED", "1"))).sample(every, 1)
    return [pytest.param(*each, id=f"{errno.errorcode[each[0]]}-{each[1]}") for each in every]


def is_handled(daemon: FaultyDaemon, ends: Witness) -> bool:
    """Whether the end was handled, or is a problem, or waits for what is lacking."""
    view = daemon.view("ends")
    return (
        len(ends.starts()) > 1 or bool(daemon.problems()) or (view["wait"] or {}).get("reason") == "resources"
    )


@pytest.mark.parametrize(
    ("number", "part"),
    cases([(n, part) for n in (errno.ENOSPC, errno.EIO, errno.EROFS) for part in WRITTEN]),
)
def test_a_file_that_cannot_be_written_costs_nothing(
    faulty: FaultyDaemon, ends: Witness, stays: Witness, number: int, part: str
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        faulty.break_(f"write {number} {part}")
        ends.end(3)
        wait_for(lambda: is_handled(faulty, ends), timeout_s=HANDLED_S, what="what became of the end")


@pytest.mark.parametrize(("number", "part"), cases([(n, part) for n in WHOLE for part in PLACES]))
def test_files_that_cannot_be_used_cost_nothing(
    faulty: FaultyDaemon, ends: Witness, stays: Witness, number: int, part: str
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        faulty.break_(f"use {number} {part}")
        ends.end(3)
        wait_for(lambda: is_handled(faulty, ends), timeout_s=HANDLED_S, what="what became of the end")


def test_no_thread_can_be_started(faulty: FaultyDaemon, ends: Witness, stays: Witness) -> None:
    with nothing_is_lost(faulty, ends, stays):
        faulty.break_(f"thread {errno.EAGAIN} -")
        ends.end(3)
        wait_for(lambda: is_handled(faulty, ends), timeout_s=HANDLED_S, what="what became of the end")
