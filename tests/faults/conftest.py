"""A daemon whose calls can be made to fail, in a place of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import FaultyDaemon
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness

CHEAP = (
    "test_a_file_that_cannot_be_written",
    "test_a_stolen_lock",
    "test_a_command_that_is_replaced",
    "test_each_fault",
)
"""What ``make test`` runs; ``make faults`` runs all of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is for ``make faults``."""
    for item in items:
        here = Path(__file__).parent in item.path.parents
        if here and os.environ.get("FAULTS") != "1" and not any(name in item.name for name in CHEAP):
            item.add_marker(pytest.mark.skip(reason="make faults"))


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


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon without faults of its own."""
    with daemon_in(tmp_path / "plain") as daemon:
        yield daemon
