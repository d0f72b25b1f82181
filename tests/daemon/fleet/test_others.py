"""The ralphs of other machines as last known: who is asked, what is kept, what others may write into it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from ralphd.core.fleet.checked import write_value
from ralphd.core.fleet.model import HostName, HostRecord
from ralphd.daemon.fleet.picture import Picture
from ralphd.daemon.fleet.sharing import ralphs
from ralphd.daemon.fleet.sharing.ralphs import OtherRalphs
from ralphd.errors import HubSilent, UnknownRalph, WrongState
from ralphd.fleet.fabric import Bucket, Entry

NOW = 1_795_244_400.0


@dataclass
class Machines:
    """What other machines answer. ``passes`` lets time pass for the one that looks."""

    at: float = 1000.0
    views: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    others: OtherRalphs = field(init=False)

    def __post_init__(self) -> None:
        self.picture = Picture(lambda: NOW + self.at, lambda: self.at)
        self.others = OtherRalphs("h1", self.picture, self.read)

    def describes(self, host: str, *names: str) -> None:
        record = HostRecord(HostName(host), "boot", "0.2.0", ralphs=names, at=NOW + self.at)
        self.picture.take(Bucket.HOSTS, Entry(host, write_value(record), 1))

    async def read(self, host: str, name: str) -> dict[str, Any]:
        self.asked.append(f"{host}/{name}")
        answer = self.views[f"{host}/{name}"]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    async def look(self, *, is_connected: bool = True) -> dict[str, Any]:
        views = await self.others.views(is_connected=is_connected)
        return {each["name"]: {key: each[key] for key in each if key != "name"} for each in views}

    def passes(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def machines() -> Machines:
    return Machines()


RUNS = {"name": "api", "state": "running", "iteration": 3}


async def test_a_view_stays_as_last_known(machines: Machines) -> None:
    machines.describes("h1", "own")
    machines.describes("h2", "api")
    machines.views["h2/api"] = RUNS
    assert await machines.look() == {"h2/api": {"state": "running", "iteration": 3}}
    machines.passes(1)
    await machines.look()
    assert machines.asked == ["h2/api"], "who looks again at once gets the same answer"
    machines.passes(600)
    shown = await machines.look(is_connected=False)
    assert shown["h2/api"] == {"state": "running", "iteration": 3, "as_of": "2026-11-21T07:16:40.000000Z"}
    await machines.look()
    assert machines.asked == ["h2/api"], "a machine that is silent is not asked"
    machines.describes("h2")
    assert await machines.look() == {}


async def test_a_machine_that_refuses_is_asked_once(machines: Machines) -> None:
    machines.describes("h2", "api", "web")
    machines.describes("h3", "docs", "gone")
    machines.views |= {"h2/api": WrongState("h2: no"), "h3/docs": RUNS, "h3/gone": UnknownRalph("gone")}
    shown = await machines.look()
    assert {name: each["state"] for name, each in shown.items()} == {
        "h2/api": "unknown", "h2/web": "unknown", "h3/docs": "running", "h3/gone": "unknown",
    }  # fmt: skip
    assert shown["h2/web"]["message"] == "h2: no"
    assert machines.asked == ["h2/api", "h3/docs", "h3/gone"]


async def test_a_look_ends_in_time(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ralphs, "LOOK_S", 0.05)
    machines.describes("h2", "api")
    machines.describes("h3", "docs")
    machines.views["h3/docs"] = RUNS

    async def read(host: str, name: str) -> dict[str, Any]:
        if host == "h2":
            await asyncio.Event().wait()
        return await machines.read(host, name)

    machines.others.read = read
    assert {name: each["state"] for name, each in (await machines.look()).items()} == {
        "h2/api": "unknown",
        "h3/docs": "running",
    }


async def test_what_others_write_has_the_kinds_of_a_view(machines: Machines) -> None:
    machines.describes("h2", "api", "../x", "UP")
    machines.views["h2/api"] = {"name": "h9/other", "state": 7, "iteration": "many", "task": [], "more": 1}
    assert await machines.look() == {"h2/api": {}}
    machines.views["h2/api"] = HubSilent("h2 is silent")
    machines.passes(3)
    assert (await machines.look())["h2/api"].keys() == {"as_of"}
