"""Where nothing has changed, a round does nothing; whatever has changed is seen (decision 0043)."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ralphd.core.supervision.model import RunId
from ralphd.daemon import lifecycle
from ralphd.daemon import regent as regents
from ralphd.daemon.lifecycle import Roster
from ralphd.daemon.ralph import custody
from ralphd.daemon.ralph.live_run import LiveRun
from ralphd.daemon.ralph.record import OUTPUT_SAVED_WITHIN_S
from ralphd.daemon.regent import Regent
from ralphd.daemon.reload import DriftWatch
from ralphd.process.rundir import ExitRecord
from ralphd.store.state import RegentState
from tests.daemon.test_regent_view import a_regent

RUN = RunId("r000001-0badcafe")
NOON = 1_800_000_000.0


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[Regent]:
    state, directory = tmp_path / "state", tmp_path / "work"
    state.mkdir()
    directory.mkdir()
    regent, events = await a_regent(state)
    account = regent.account
    account.definition = replace(account.definition, directory=directory)
    account.in_force = replace(account.in_force, definition=account.definition)
    account.files.create()
    account._unsaved = True
    await account.save()
    regent.holds = type(regent.holds)(directory, regent._services)
    yield regent
    regent._let_go()
    await events.close()


def lives(regent: Regent, **facts: Any) -> bool:
    """Give it a run that is kept and has printed nothing, but for ``facts``."""
    kept, due = facts.get("is_kept", True), facts.get("is_due", False)
    run, output = (
        SimpleNamespace(is_kept=lambda: kept),
        SimpleNamespace(is_due=lambda printed_at: due, seen=None),
    )
    regent._live = cast("LiveRun", SimpleNamespace(run=run, output=output, run_id=RUN))
    return True


async def test_nothing_has_changed(quiet: Regent) -> None:
    assert not quiet.has_news() and not quiet.directory_has_news()

    lives(quiet)

    assert not quiet.has_news() and not quiet.directory_has_news()


@pytest.mark.parametrize(
    "change",
    [
        lambda regent: regent.account.files.definition_file.unlink(),
        lambda regent: setattr(regent.account, "_unsaved", True),
        lambda regent: setattr(regent.account, "_stale", True),
        lambda regent: setattr(regent.account.history, "degraded", "a full disk"),
        lambda regent: setattr(regent, "_strangers", [SimpleNamespace(pid=1, command="vite")]),
        lambda regent: setattr(regent, "_deleted", ("its directory is gone",)),
        lambda regent: lives(regent, is_kept=False),
        lambda regent: lives(regent, is_due=True),
    ],
)
async def test_what_changed_in_the_state_directory_is_news(
    quiet: Regent, change: Callable[[Regent], None]
) -> None:
    change(quiet)

    assert quiet.has_news()


@pytest.mark.parametrize(
    "change",
    [
        lambda regent, place: (place / ".ralph" / "regent-state.json").unlink(),
        lambda regent, place: regent.holds.take(),
        lambda regent, place: lives(regent) and (place / ".git").mkdir(),
        lambda regent, place: lives(regent) and place.rename(place.with_name("elsewhere")),
    ],
)
async def test_what_changed_in_the_working_directory_is_news(
    quiet: Regent, change: Callable[[Regent, Path], object]
) -> None:
    change(quiet, quiet.account.definition.directory)

    assert quiet.directory_has_news()


async def test_a_lock_file_that_is_deleted_is_news_while_something_runs(quiet: Regent) -> None:
    place = quiet.account.definition.directory
    assert not quiet.holds.is_settled(supervised=True, living=False), "nothing is held yet"
    assert quiet.holds.settle(supervised=True, living=False)
    assert quiet.holds.is_settled(supervised=True, living=False)

    (place / ".ralph" / "lock").unlink()

    assert not quiet.holds.is_settled(supervised=True, living=False)
    assert quiet.holds.settle(supervised=True, living=False) and (place / ".ralph" / "lock").exists()


async def test_the_time_of_the_last_output_is_on_disk_within_five_minutes(quiet: Regent) -> None:
    account = quiet.account
    account.note_output(NOON - 20)
    assert quiet.has_news(), "the first: without a daemon it would be unknown"
    await account.freshen()
    account.note_output(NOON)

    assert not quiet.has_news(), "not for each line"
    account._output_since = time.monotonic() - OUTPUT_SAVED_WITHIN_S
    assert quiet.has_news()
    await account.freshen()

    saved = cast(RegentState, account.files.load_record())
    assert saved.facts.last_output_at == NOON and not quiet.has_news()


async def test_one_directory_that_hangs_makes_news_of_itself_and_of_those_after_it(
    quiet: Regent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LATE_S", 0.2)
    roster, drift = Roster(quiet.account.files.home.parent), DriftWatch()
    waits, hung = os.pipe()
    named = [(name, SimpleNamespace(name=name, account=quiet.account)) for name in ("a", "b", "c")]
    for name, each in named:
        each.has_news = lambda: False
        each.directory_has_news = (lambda: os.read(waits, 1)) if name == "b" else (lambda: False)
        roster._regents[name] = cast("Regent", each)
    monkeypatch.setattr(drift, "is_new", lambda account: False)
    try:
        assert await lifecycle._changed(roster, drift) == {"b", "c"}
    finally:
        os.write(hung, b"x")
    roster.looks["b"] = cast(Any, None)
    assert await lifecycle._changed(roster, drift) == {"b"}, "the others are looked at without it"
    os.close(waits)
    os.close(hung)


@pytest.mark.parametrize(("within_s", "looks"), [(30.0, [11.0]), (0.0, [11.0, 22.0, 33.0])])
async def test_of_runs_that_end_one_after_another_the_last_look_for_strangers_serves_all(
    quiet: Regent, monkeypatch: pytest.MonkeyPatch, within_s: float, looks: list[float]
) -> None:
    asked: list[float] = []

    def strangers(directory: Path, since: float, run_ids: object) -> list[Any]:
        asked.append(since)
        return []

    monkeypatch.setattr(regents, "strangers", strangers)
    monkeypatch.setattr(regents, "STRANGERS_AFTER_S", 0.3)
    monkeypatch.setattr(regents, "STRANGERS_WITHIN_S", within_s)
    finds = []
    for began_at in (11.0, 22.0, 33.0):
        find = asyncio.create_task(quiet._find_strangers(ExitRecord(RUN, 1, None, began_at, began_at + 1)))
        finds.append(find)
        if within_s:
            await asyncio.sleep(0)
        else:
            await find

    await asyncio.gather(*finds)

    assert asked == looks and quiet._suspects is None


async def test_a_first_copy_of_a_repository_is_told_of_only_where_it_takes_long(quiet: Regent) -> None:
    quiet.custody._first_since = time.monotonic()
    assert custody.COPYING not in quiet.view()["notes"]

    quiet.custody._first_since -= custody.SHOWN_AFTER_S + 1

    assert custody.COPYING in quiet.view()["notes"]
    assert custody.COPYING.encode() in quiet.view_bytes()
