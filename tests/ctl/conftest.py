"""What tests of ralphctl share: a fake daemon, and the real command in a process of its own."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ctl.fake import FakeDaemon
from tests.template import ralphctl

Ctl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment of its own: nothing of the user's is read or written."""
    (tmp_path / "state").mkdir()
    (tmp_path / "home").mkdir()
    kept = {
        name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "VIRTUAL_ENV") if name in os.environ
    }
    return kept | {
        "HOME": str(tmp_path / "home"),
        "RALPHD_STATE_DIR": str(tmp_path / "state"),
        "TZ": "UTC",
    }


@pytest.fixture
def daemon(tmp_path: Path, environment: dict[str, str]) -> Iterator[FakeDaemon]:
    """A fake daemon where the environment's is looked for."""
    daemon = FakeDaemon(tmp_path / "state" / "ralphd.sock")
    yield daemon
    daemon.stop()


@pytest.fixture
def ctl(environment: dict[str, str], tmp_path: Path) -> Ctl:
    """Run ``ralphctl`` with words, in ``cwd``; ``more`` is added to the environment."""

    def run(
        *words: str, cwd: Path | None = None, more: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return ralphctl(words, environment | (more or {}), cwd or tmp_path, 20)

    return run
