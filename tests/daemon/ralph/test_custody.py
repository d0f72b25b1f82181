"""What the keeper of a repository's copy says, and that no surprise in a repository ends a supervision."""

import asyncio
from pathlib import Path

import pytest

from ralphd.core.supervision.model import RunId
from ralphd.daemon.ralph.custody import _repaired
from ralphd.git.restore import Rebuilt
from ralphd.git.vault import Taken, Vault
from tests.daemon.test_regent_view import a_regent
from tests.git.test_vault import _in


def test_a_repair_says_that_submodules_are_missing(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / ".git").mkdir(parents=True)
    taken = Taken(str(top), str(top / ".git"), str(top / ".git"), None, None, "", 1.0)
    assert "submodule" not in (_repaired("it is gone", Rebuilt(top / ".git", None), taken).text or "")
    (top / ".gitmodules").touch()
    assert "git submodule update --init" in (
        _repaired("it is gone", Rebuilt(top / ".git", None), taken).text or ""
    )
    (top / ".git" / "modules").mkdir()
    assert "submodule" not in (_repaired("it is gone", Rebuilt(top / ".git", None), taken).text or "")


async def test_a_copy_that_fails_in_a_way_nobody_foresaw_is_a_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ValueError("not enough values to unpack")

    _in(tmp_path, "init", "-q")
    regent, events = await a_regent(tmp_path)
    await regent.custody.before_run()
    await asyncio.gather(*regent._tasks)
    monkeypatch.setattr(Vault, "take", surprise)

    await regent.custody.after_run(RunId("r000001-3fa9c1d2"), seen=True)

    assert regent._services.problems() == ["vault of demo: not enough values to unpack"]
    await events.close()
