"""What is written down of a ralph, and in which order."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

from ralphd.core.supervision.events import StopRequested
from ralphd.core.supervision.model import Goal, Policy, Reason, Supervision, Waiting
from ralphd.core.supervision.step import step
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.store.state import Definition, RalphFiles, RegentState
from tests.daemon.test_regent_view import a_regent
from tests.helpers import eventually

WAITING = Supervision(Goal.RUNNING, Waiting(Reason.CRASH, 0.0, 30.0))


class SlowOnce(RalphFiles):
    """Files on a disk that takes its time with the first state."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def save_record(self, record: RegentState, definition: Definition, *, durable: bool = True) -> None:
        """Wait until told to go on, the first time."""
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(20)
        super().save_record(record, definition, durable=durable)


async def test_a_look_round_never_writes_an_older_state_over_a_newer_one(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    files = SlowOnce(tmp_path / "ralphs" / "demo")
    files.create()
    whole = regent.account
    account = RalphRecord(files, whole.definition, RegentState(WAITING), whole._services)

    looking = asyncio.create_task(account.freshen())
    await eventually(files.begun.is_set)
    stopping = StopRequested(1.0)
    deciding = asyncio.create_task(account.write_down(stopping, step(WAITING, stopping, Policy())))
    await asyncio.wait({deciding}, timeout=0.2)  # it may overtake, if nothing holds it back
    files.go_on.set()
    await asyncio.gather(looking, deciding)

    assert account.supervision.state.kind == "stopped"
    assert json.loads(files.state_file.read_bytes())["state"] == "stopped"
    await events.close()


async def test_a_definition_that_changes_during_a_save_is_saved_next(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    files = SlowOnce(tmp_path / "ralphs" / "demo")
    files.create()
    whole = regent.account
    account = RalphRecord(files, whole.definition, RegentState(WAITING), whole._services)

    first = asyncio.create_task(account.save())
    await eventually(files.begun.is_set)
    account.redefine(replace(account.definition, command=("new",)))
    second = asyncio.create_task(account.save())
    files.go_on.set()
    await asyncio.gather(first, second)

    assert (loaded := files.load_definition()) is not None and loaded.command == ("new",)
    await events.close()
