"""The API over a host in memory, served on a socket of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Whole, serve_host


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Whole]:
    async with serve_host(tmp_path) as whole:
        yield whole
