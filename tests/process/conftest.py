"""Fixtures of the tests that start runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.runs import Stage, stage_in


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place to start runs in."""
    with stage_in(tmp_path) as stage:
        yield stage


@pytest.fixture(params=[True, False], ids=["cgroup", "subreaper"])
def allow_cgroup(request: pytest.FixtureRequest) -> bool:
    """Both ways to find a tree; where no control group is writable, both are the subreaper's."""
    return bool(request.param)
