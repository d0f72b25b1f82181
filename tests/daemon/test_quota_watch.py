"""What has changed at the accounts is read, also where the first try could not be made."""

import errno
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ralphd.daemon.services import QuotaWatch
from ralphd.store.shared.quota import quota_directory
from tests.daemon.test_regent_view import a_regent


async def test_a_change_that_could_not_be_read_is_read_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regent, events = await a_regent(tmp_path)
    look = AsyncMock(side_effect=[OSError(errno.EMFILE, "too many open files"), None])
    monkeypatch.setattr(type(regent._services), "look_at_clocks", look)
    watch: Any = QuotaWatch(regent._services)
    (quota_directory(tmp_path)).mkdir(parents=True, exist_ok=True)
    (quota_directory(tmp_path) / "claude.json").write_text("{}")

    with pytest.raises(OSError, match="too many"):
        await watch._look()
    await watch._look()
    await watch._look()

    assert look.call_count == 2
    await events.close()
