"""A daemon whose calls can be made to fail, in a place of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import FaultyDaemon
from tests.whole.witnesses import Witness


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[FaultyDaemon]:
    """It is not started yet; whatever was broken is healed, and nothing is left of it, at the end."""
    daemon = FaultyDaemon(tmp_path / "one")
    try:
        yield daemon
    finally:
        daemon.heal()
        daemon.clean_up()


@pytest.fixture
def ends(faulty: FaultyDaemon) -> Witness:
    """A ralph whose run ends while the fault is there."""
    return Witness.of(faulty, "ends")


@pytest.fixture
def stays(faulty: FaultyDaemon) -> Witness:
    """A ralph that works all the time."""
    return Witness.of(faulty, "stays")
