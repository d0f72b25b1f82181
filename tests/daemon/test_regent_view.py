"""What a ralph looks like to the API."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ralphd import wire
from ralphd.api.schemas import RalphView
from ralphd.config.configuration import Configuration
from ralphd.core.supervision.model import RunId, Supervision
from ralphd.core.time import rfc3339
from ralphd.daemon.ralph.live_run import LiveRun
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.daemon.services import EventPublisher, Services
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.state import Definition, RalphFiles, RegentState
from tests.daemon.ralph.test_live_run import NOON, HeldClock


async def a_regent(place: Path) -> tuple[Regent, EventStore]:
    events = await EventStore.open(place / "events.db")
    services = Services(
        state_directory=place,
        socket_path=place / "ralphd.sock",
        umask=0o022,
        clock=Clock(),
        news=EventPublisher(events, Hub(), Clock()),
    )
    definition = Definition("demo", place, ("true",), Configuration().pinned(), 0.0)
    files = RalphFiles(place / "ralphs" / "demo")
    account = RalphRecord(files, definition, RegentState(Supervision()), services)
    return Regent(account, services), events


async def test_a_view_keeps_its_letters_and_can_be_sent_with_what_is_none(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    regent.account.notes = ["caf\u00e9", os.fsdecode(b"\xff.x")]
    assert '"caf\u00e9", "?.x"' in regent.view_bytes().decode()
    await events.close()


async def test_a_view_has_the_keys_that_its_schema_promises(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)

    assert set(json.loads(regent.view_bytes())) | {"resources"} == set(RalphView.model_fields)
    RalphView.model_validate_json(regent.view_bytes())
    await events.close()


async def test_a_view_has_the_keys_of_the_table_in_its_order(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)

    view = json.loads(regent.view_bytes())

    assert list(view)[: len(wire.STATE_KEYS)] == list(wire.STATE_KEYS)
    assert view.keys() == wire.VIEW_KEYS.keys() - {"resources"}
    assert [key for key, value in view.items() if not wire.fits(value, wire.VIEW_KEYS[key])] == []
    await events.close()


async def test_a_view_is_serialised_anew_only_when_something_has_changed(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    before = regent.view_bytes()

    assert regent.view_bytes() is before

    regent.account.notes = ["news"]
    assert json.loads(regent.view_bytes())["notes"] == ["news"]
    regent._services.landing_of = {regent.name: {"state": "landed"}}.get
    assert json.loads(regent.view_bytes())["landing"] == {"state": "landed"}
    regent._services.why_unqueued = {regent.name: "the branch is not queued"}.__getitem__
    assert json.loads(regent.view_bytes())["notes"] == ["news", "the branch is not queued"]
    await events.close()


async def test_a_limit_in_the_output_leaves_the_view_when_its_reset_is_past(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    regent._services.clock = clock = HeldClock()
    limit = {"agent": "claude", "name": "", "resets_at": rfc3339(NOON + 60)}
    output = SimpleNamespace(seen={"agent": "claude", "limit": limit})
    regent._past = cast("LiveRun", SimpleNamespace(output=output))
    assert json.loads(regent.view_bytes())["seen"]["limit"] == limit
    clock.run_for(60)
    assert json.loads(regent.view_bytes())["seen"]["limit"] is None
    await events.close()


async def test_a_poll_does_not_wait_for_the_output_to_be_counted(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    began, is_over = [], asyncio.Event()

    async def count() -> None:
        began.append(1)
        await is_over.wait()

    noted: list[int] = []
    output, run = (
        SimpleNamespace(count=count, is_due=lambda printed_at: True),
        SimpleNamespace(is_kept=lambda: False, keep=lambda: noted.append(1)),
    )
    live = SimpleNamespace(output=output, run=run, run_id=RunId("r000001-0badcafe"))
    regent._live = cast("LiveRun", live)
    async with asyncio.timeout(20):
        for _ in range(2):
            await regent.look_round()
            await asyncio.sleep(0)
            assert len(began) == 1
        assert len(noted) == 2
        is_over.set()
        await asyncio.gather(*regent._tasks)
        await regent.look_round()
        await asyncio.gather(*regent._tasks)
    assert len(began) == 2
    regent._let_go()
    await events.close()


async def test_a_poll_survives_the_end_of_a_run(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    kept: list[int] = []

    def ends() -> None:
        regent._live = None

        kept.append(1)

    run = SimpleNamespace(is_kept=lambda: False, keep=ends)
    live = SimpleNamespace(run=run, run_id=RunId("r000001-0badcafe"))
    regent._live = cast("LiveRun", live)
    await regent.look_round()
    assert kept == [1]
    await events.close()


async def test_the_first_output_is_not_before_the_start(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    regent.account._facts = replace(regent.account.facts, started_at=NOON)

    regent.account.note_output(NOON - 0.004)

    assert regent.account.facts.last_output_at == NOON
    await events.close()
