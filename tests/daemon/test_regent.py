"""The Regent's inbox: what is posted is never lost, and nothing waits for itself."""

import asyncio
import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ralphd.core.gate.verdict import Baseline, Boundary, GateRun, Position, RunTests
from ralphd.core.limits import RunLimits
from ralphd.core.supervision import reports
from ralphd.core.supervision.events import Committed, Event
from ralphd.core.supervision.model import Goal, RunId, Running, State, Supervision, Tally
from ralphd.core.supervision.start_order import Applicant
from ralphd.daemon import regent as regents
from ralphd.daemon.lifecycle import Roster
from ralphd.daemon.ralph.lock import DirectoryClaim
from ralphd.daemon.regent import Regent
from ralphd.errors import InternalError
from ralphd.plain_files import append_whole
from ralphd.process.lock import DirectoryLock
from ralphd.process.rundir import ExitRecord
from ralphd.store.files import remove_leftovers
from tests.daemon.test_regent_view import a_regent
from tests.helpers import eventually

if TYPE_CHECKING:
    from ralphd.daemon.ralph.live_run import LiveRun

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


async def test_a_report_that_comes_before_its_start_is_in_the_state_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its commits would get no verdict."""
    regent, events = await a_regent(tmp_path)
    seen: list[State] = []

    async def note(_: reports.Reported) -> None:
        seen.append(regent.account.supervision.state)

    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(regent.gate, "on_report", note)
    monkeypatch.setattr(regent.gate, "restore_history", nothing)
    monkeypatch.setattr(regent, "request", nothing)
    async with regent.alone:  # as while a run is started
        reported = asyncio.create_task(regent.report(RUN, "one", "digest", reports.IterationFinished()))
        for _ in range(20):
            await asyncio.sleep(0)
        regent.account._supervision = Supervision(Goal.RUNNING, Running(RUN))
    await reported

    assert seen == [Running(RUN)]
    regent._let_go()
    await events.close()


@pytest.mark.parametrize(("reported_usd", "entered"), [(0.5, []), (0.0, [f"{RUN}/seen"])])
async def test_a_start_before_the_output_is_counted_decides_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported_usd: float, entered: list[str]
) -> None:
    regent, events = await a_regent(tmp_path)
    account = regent.account

    def spend(usd: float) -> None:
        account._supervision = replace(account.supervision, tally=Tally(cost_usd=usd))

    async def ended() -> ExitRecord:
        return ExitRecord(RUN, 0, None, 1.0, 2.0)

    async def count(limit_bytes: int) -> None:
        spend(0.5 - reported_usd)  # the ralph was started again meanwhile

    monkeypatch.setattr(regents, "STRANGERS_AFTER_S", 0)
    account.files.home.mkdir(parents=True)
    spend(reported_usd)
    output = SimpleNamespace(count=count, seen={"cost_usd": 0.11})
    live = cast(
        "LiveRun",
        SimpleNamespace(run=SimpleNamespace(ended=ended, close=lambda: None), output=output, run_id=RUN),
    )

    await regent._await_end(live, asyncio.create_task(asyncio.sleep(600)))

    costs = [each["key"] for each in account.history.backwards() if each["kind"] == "cost"]
    assert costs[::-1] == entered
    regent._let_go()
    await events.close()


async def test_a_run_that_is_not_adopted_yet_takes_a_place(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    services, waits = regent._services, Applicant("next", 0.0, limits=RunLimits(max_running=1))
    services.unadopted = lambda: int(regent.is_unadopted)
    assert services.start_order(waits) == {"next": None}

    regent.account._supervision = Supervision(Goal.RUNNING, Running(RUN))

    hold = services.start_order(waits)["next"]
    assert hold is not None
    assert hold.why.startswith("1 of 1 ralphs are running")
    await events.close()


async def test_a_ralph_is_forgotten_after_a_look_at_its_directory(tmp_path: Path) -> None:
    """Locks that the look takes afterwards would be held until the daemon ends."""
    regent, events = await a_regent(tmp_path)
    directory = tmp_path / "project"
    directory.mkdir()
    regent.holds = DirectoryClaim(directory, regent._services)
    roster = Roster(tmp_path)
    async with regent.alone:
        drop = asyncio.create_task(roster.drop(regent))
        await asyncio.sleep(0)
        await asyncio.to_thread(regent.holds.settle, supervised=True, living=False)
    await drop

    assert regent.holds.lock is None
    assert not (directory / ".ralph" / "lock").exists()
    DirectoryLock.acquire(directory).release()
    await events.close()


async def test_a_removal_that_is_cut_off_leaves_no_ralph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its runs alone the next daemon would rebuild the ralph, and start it."""
    regent, events = await a_regent(tmp_path)
    regent.account.files.create()
    await regent.account.save()
    home = regent.account.files.home
    with monkeypatch.context() as cut_off:
        cut_off.setattr("shutil.rmtree", lambda *_, **__: None)
        await Roster(home.parent).drop(regent)
    assert not home.exists()

    remove_leftovers(home.parent.parent)
    assert not [each for each in home.parent.parent.iterdir() if home.name in each.name]
    await events.close()


async def test_a_deleted_directory_of_a_run_is_reported_once(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    services, place = regent._services, tmp_path / "gone"
    regent.account.definition = replace(regent.account.definition, directory=place)
    regent.holds = DirectoryClaim(place, services)
    await regent._settle()
    assert services.problems() == []
    live = SimpleNamespace(run_id=RUN, record=None, output=SimpleNamespace(seen=None))
    regent._live = cast("LiveRun", live)

    for _ in range(2):
        await regent._settle()

    what = f"{place} is gone or replaced, and its ralph still runs: ralphctl stop demo"
    assert (services.problems(), services._untold) == ([f"directory of demo: {what}"],) * 2
    assert what in regent.view()["notes"] and what in json.loads(regent.view_bytes())["notes"]
    place.mkdir()
    await regent._settle()
    assert services.problems() == [] and what not in regent.view()["notes"]
    await events.close()


async def test_a_directory_that_was_made_again_under_its_run_is_reported(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    (place := tmp_path / "again").mkdir()
    regent.account.definition = replace(regent.account.definition, directory=place)
    regent.account._supervision = Supervision(Goal.RUNNING, Running(RUN))
    regent.holds = DirectoryClaim(place, regent._services)
    regent.holds.take()
    regent._live = cast(
        "LiveRun", SimpleNamespace(run_id=RUN, record=None, output=SimpleNamespace(seen=None))
    )
    await regent._settle()
    assert regent._services.problems() == []

    place.rename(tmp_path / "before")
    place.mkdir()
    assert regent.directory_has_news()
    await regent._settle()

    [problem] = regent._services.problems()
    assert f"{place} is gone or replaced" in problem
    await events.close()


async def test_a_history_has_one_writer_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look round writes what waits; the Regent enters something meanwhile."""
    regent, events = await a_regent(tmp_path)
    account = regent.account
    account.files.create()
    await account.save()
    begun, goes_on, at_once = threading.Event(), threading.Event(), list[int]()

    def full(path: Path, lines: bytes, *, durable: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def slow(path: Path, lines: bytes, *, durable: bool = False) -> None:
        at_once.append(1)
        assert len(at_once) == 1, "two threads write"
        append_whole(path, lines, durable=durable)
        begun.set()
        assert goes_on.wait(30)
        at_once.pop()

    monkeypatch.setattr("ralphd.store.history.append_whole", full)
    for number in range(3):
        await regent.enter_request(f"during/{number}", 1.0, {})
    monkeypatch.setattr("ralphd.store.history.append_whole", slow)
    looking = asyncio.create_task(regent.look_round())
    await eventually(begun.is_set)
    entering = asyncio.create_task(regent.enter_request("after", 2.0, {}))
    await asyncio.sleep(0.05)
    goes_on.set()
    await asyncio.gather(looking, entering)

    lines = account.files.history_file.read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["during/0", "during/1", "during/2", "after"]
    await events.close()


async def test_a_bug_in_the_failing_of_a_ralph_does_not_end_its_supervision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regent, events = await a_regent(tmp_path)
    faults: list[Exception] = [OSError(errno.ENOSPC, "full"), ValueError("another bug")]

    async def fail(_: str) -> None:
        raise faults.pop(0)

    async def handle(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(regent, "_handle", handle)
    monkeypatch.setattr(regent.account, "fail", fail)
    monkeypatch.setattr("ralphd.daemon.services.AGAIN_S", 0.01)
    supervising = asyncio.create_task(regent.supervise())
    for _ in range(2):
        with pytest.raises(InternalError):
            await asyncio.wait_for(regent.request(Committed(1.0, RUN, 1)), 30)
        faults.append(ValueError("a third"))
    assert not supervising.done()
    supervising.cancel()
    await asyncio.gather(supervising, return_exceptions=True)
    await events.close()
