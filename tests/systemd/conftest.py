"""What the tests of the service start from: a place with a short path, and a daemon in it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.playing import Manager, Service, manager_at


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name; pytest's own may be longer than an address."""
    with tempfile.TemporaryDirectory(prefix="rd-") as place:
        yield Path(place)


@pytest.fixture
def service(short: Path) -> Iterator[Service]:
    """A daemon, to be started as a service; nothing is left of it afterwards."""
    service = Service(short / "one")
    try:
        yield service
    finally:
        service.clean_up()


@pytest.fixture
def manager(short: Path) -> Iterator[Manager]:
    """What plays systemd."""
    with manager_at(str(short / "notify")) as manager:
        yield manager
