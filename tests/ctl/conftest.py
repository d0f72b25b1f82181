"""What tests of ralphctl share: a fake daemon, the real command in a process of its own, golden files."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ctl.fake import FakeDaemon
from tests.ctl.golden_files import Golden, typed
from tests.template import CLOCK, ralphctl

Ctl = Callable[..., subprocess.CompletedProcess[str]]
SEVEN = 1_795_244_400.0
"""2026-11-21 07:00:00 UTC, twelve seconds after the last output of ``view()``."""


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC, and no variable says how wide the terminal is."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        patched.delenv("COLUMNS", raising=False)
        time.tzset()
        yield
    time.tzset()


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
def now(request: pytest.FixtureRequest) -> float:
    """Where the clock of ``ctl`` stands: at ``NOW`` of the module, else at seven."""
    return float(getattr(request.module, "NOW", SEVEN))


@pytest.fixture
def ctl(environment: dict[str, str], tmp_path: Path, now: float) -> Ctl:
    """Run ``ralphctl`` with words, in ``cwd``, at ``now``; ``more`` is added to the environment."""

    def run(
        *words: str, cwd: Path | None = None, more: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        directory = cwd or tmp_path
        reply = ralphctl(words, environment | {CLOCK: str(now)} | (more or {}), directory, 20)
        reply.args = typed(words, more, os.path.relpath(directory, tmp_path))
        return reply

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path, now: float) -> Golden:
    """What a test shows, compared with its section of a golden file."""
    return Golden(request, tmp_path, now)
