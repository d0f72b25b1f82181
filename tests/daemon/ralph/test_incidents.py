"""What is done about an incident between two facts, and what a call says of the agents."""

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ralphd.agents.known import KNOWN, is_no_login, login_command
from ralphd.core.supervision.events import RunEnded
from ralphd.core.supervision.model import (
    ExitFacts,
    Failed,
    Goal,
    LastWord,
    Policy,
    RunId,
    Running,
    RunReports,
    Step,
    Supervision,
)
from ralphd.core.supervision.step import step
from ralphd.daemon.regent import Regent
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.state import RegentState
from tests.daemon.test_regent_view import a_regent
from tests.helpers import eventually

RUN = RunId("r000001-3fa9c1d2")
LIVES = Supervision(Goal.RUNNING, Running(RUN))
ENDED = RunEnded(ExitFacts(RUN, 100.0, code=1))


@dataclass
class SetClock(Clock):
    """A wall clock that a test sets."""

    at: float = field(default_factory=time.time)

    def now(self) -> float:
        """What it was set to."""
        return self.at


async def a_failed_one(place: Path, said: RunReports | None = None) -> tuple[Regent, EventStore, SetClock]:
    """A ralph whose run has just failed for good, and called."""
    regent, events = await a_regent(place)
    clock = regent.incidents._services.clock = SetClock()
    account = regent.account
    account.files.create()
    lives = replace(LIVES, said=said or RunReports())
    await account.write_down(ENDED, Step(lives))
    await account.write_down(ENDED, step(lives, ENDED, Policy(max_retries=1)))
    return regent, events, clock


async def called(events: EventStore) -> list[dict[str, object]]:
    """The data of all calls."""
    return [dict(event.data) for event in await events.since(0) if event.type == "ralph.escalated"]


async def test_a_missing_login_is_told_with_the_agents_own_command(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    account, lives = (
        regent.account,
        replace(LIVES, said=RunReports(last_word=LastWord(1, "no_agent", "claude: x"))),
    )
    account.files.create()
    account.note_gone()
    account._facts = replace(account.facts, run_id=RUN)
    attempts = [
        ("claude", "fatal", "claude-login", "Not logged in", RUN),
        ("codex", "fatal", "codex-billing", "no credit", RUN),
        ("opencode", "rate_limit", "login", "x", RUN),
        ("gemini", "fatal", "gemini-login", "x", "r000000"),
    ]
    for n, (agent, kind, rule, why, run_id) in enumerate(attempts):
        data = {"agent": agent, "failure_kind": kind, "rule": rule, "why": why, "run_id": run_id}
        account.history.append("attempt", str(n), 1.0, data)

    await account.write_down(ENDED, Step(lives))
    await account.write_down(ENDED, step(lives, ENDED, Policy()))

    [told] = await called(events)
    assert told["do"] == "claude auth login && ralphctl start demo"
    assert told["message"] == "Ralph gave up: claude: x. Fix that, then start it again"
    shown = json.loads(regent.view_bytes())["incident"]
    assert (shown["do"], shown["needs"]) == (told["do"], told["needs"])
    await events.close()


@pytest.mark.parametrize("name", KNOWN)
def test_the_login_command_of_an_agent_begins_with_its_program(name: str) -> None:
    command = login_command(name)
    assert command is None or name.split("-")[0] in command


def test_an_agent_of_the_users_own_has_no_login_that_we_know_of() -> None:
    assert login_command("my-agent") is None
    assert is_no_login("claude-login", "") and is_no_login("exit 41", "it is not logged in")
    assert not is_no_login("codex-billing", "no credit is left")


async def test_what_is_open_is_in_the_state_for_the_next_daemon(tmp_path: Path) -> None:
    regent, events, clock = await a_failed_one(tmp_path)
    files, definition = regent.account.files, regent.account.definition

    record = files.load_record()

    assert record is not None and record.facts.incident == regent.account.facts.incident is not None
    assert RegentState.from_json(json.loads(json.dumps(record.to_json(definition)))) == record
    assert clock.at > 0
    await events.close()


async def test_a_held_back_call_is_told_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    regent, events, clock = await a_failed_one(tmp_path)
    incident = regent.account.facts.incident
    assert incident is not None
    await regent.account.note_incident(replace(incident, held_back=1, due_at=clock.at + 60))
    watching = asyncio.create_task(regent.incidents.watch())

    regent.incidents.heed()
    await eventually(lambda: not regent.incidents._news.is_set())
    assert len(await called(events)) == 1

    clock.at += 61
    regent.incidents.heed()
    await eventually(lambda: regent.account.facts.incident != incident and not _due(regent))
    [_, again] = await called(events)
    assert (again["reminder"], again["held_back"]) == (1, 1)

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await events.close()


def _due(regent: Regent) -> bool:
    incident = regent.account.facts.incident
    return incident is not None and incident.due_at is not None


async def test_a_run_that_tells_nothing_ends_it_by_working_for_long(tmp_path: Path) -> None:
    regent, events, clock = await a_failed_one(tmp_path)
    account = regent.account
    account._supervision = LIVES
    account._facts = replace(account.facts, started_at=clock.at, last_output_at=clock.at + 601)
    watching = asyncio.create_task(regent.incidents.watch())

    regent.incidents.heed()
    await eventually(lambda: account.facts.incident is None)

    [over] = [event for event in await events.since(0) if event.type == "incident.closed"]
    assert over.data["why"] == "works"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await events.close()


async def test_a_bug_of_ours_calls_a_person_too(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    regent.account.files.create()

    await regent.account.fail("a bug in ralphd: its log has the traceback")

    [told] = await called(events)
    assert told["do"] == "ralphctl regent logs"
    assert isinstance(regent.account.supervision.state, Failed)
    assert regent.account.facts.incident is not None
    await events.close()
