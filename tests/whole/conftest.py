"""What the tests of the whole start from: a daemon of their own, and a ralph that tells its starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon in a place of its own, to be started; nothing is left of it afterwards."""
    with daemon_in(tmp_path / "one") as daemon:
        yield daemon


@pytest.fixture
def witness(daemon: Daemon) -> Witness:
    """A ralph called ``demo``, to be registered with that daemon."""
    return Witness.of(daemon)
