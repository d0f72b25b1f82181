"""The Regent's inbox: what is posted is never lost, and nothing waits for itself."""

import asyncio
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Baseline, Boundary, GateRun, Position, RunTests
from ralphd.core.supervision.events import Committed, Event
from ralphd.core.supervision.model import RunId
from ralphd.daemon import regent as regents
from ralphd.daemon.regent import Regent
from tests.daemon.test_regent_view import a_regent
from tests.helpers import eventually

RUN = RunId("r000001-3fa9c1d2")


async def test_a_full_inbox_loses_no_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regents, "INBOX_BOUND", 2)
    regent, events = await a_regent(tmp_path)
    seen: list[Event] = []

    async def note(_: Regent, event: Event, by: object = None) -> None:
        seen.append(event)

    monkeypatch.setattr(Regent, "_handle", note)
    facts = [Committed(float(number), RUN, 1) for number in range(9)]
    for fact in facts:
        regent.post(fact)
    asked = asyncio.create_task(regent.request(Committed(99.0, RUN, 1)))
    supervising = asyncio.create_task(regent.supervise())

    await asked
    await eventually(lambda: len(seen) == len(facts) + 1)

    assert sorted(fact.at for fact in seen) == [*map(float, range(9)), 99.0]
    supervising.cancel()
    await asyncio.gather(supervising, return_exceptions=True)
    await events.close()


async def test_a_gate_run_that_nobody_waits_for_is_not_opened(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    here = Position("a" * 40, "main")
    run = GateRun(Boundary(here, here), Baseline.GREEN, here.head, RunTests())
    asked = asyncio.create_task(regent.request(None, run))
    await eventually(lambda: not regent._inbox.empty())
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    supervising = asyncio.create_task(regent.supervise())

    await regent.request(None)

    assert not regent.gate.is_busy
    assert not regent.account.files.gate_file.exists()
    supervising.cancel()
    await asyncio.gather(supervising, return_exceptions=True)
    await events.close()
