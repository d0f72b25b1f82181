"""Tests of git do not wait for the disk: what they write need not outlive the machine."""

from collections.abc import Iterator

import pytest

from ralphd.git import runner


@pytest.fixture(scope="package", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "FSYNC", "core.fsync=none")
        yield
