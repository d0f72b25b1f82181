"""The daemon dies at each failpoint, and the next one keeps the promises (``make matrix``).

``make test`` runs the place that SEED (1) chooses, and that every failpoint has a row.
"""

import os
import random
from pathlib import Path

import pytest

from tests.matrix.names import ROOT, failpoints
from tests.matrix.rows import ROWS, cases, rows_of
from tests.whole.harness import Daemon


def chosen() -> list[str]:
    every = sorted(cases())
    if os.environ.get("MATRIX") == "1":
        return every
    return random.Random(int(os.environ.get("SEED", "1"))).sample(every, 1)


@pytest.mark.parametrize("failpoint", chosen())
def test_a_daemon_that_dies_there_loses_and_doubles_nothing(daemon: Daemon, failpoint: str) -> None:
    assert cases()[failpoint](daemon, failpoint) >= 1, "the scene does not come there"


def test_each_failpoint_has_a_row_and_each_row_a_failpoint() -> None:
    every = failpoints()
    assert [name for name in every if not rows_of(name)] == []
    assert [row.names for row in ROWS if not any(row.covers(name) for name in every)] == []


def test_the_tests_of_a_row_name_its_failpoints() -> None:
    for row in ROWS:
        texts = "".join(Path(ROOT, path).read_text() for path in row.tests)
        named = [name for name in failpoints() if row.scene is None and row.covers(name)]
        assert [name for name in named if not is_named(name, texts)] == []


def is_named(name: str, texts: str) -> bool:
    """Whether a test kills there. Some leave out the first word; a loop is killed in each phase."""
    family, _, rest = name.partition(".")
    if name.startswith("loop.phases"):
        return "killed_in_any_phase" in texts
    return f'"{name}"' in texts or (family in ("loop", "landing") and f'"{rest}"' in texts) or "*" in name
