"""A host that keeps its ralphs in memory, over a real event store, hub and log."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from ralphd import __version__
from ralphd.config.configuration import Difference
from ralphd.core.delivery import StoredEvent
from ralphd.core.explanation import NOTHING_YET
from ralphd.core.loop.inbox import Inbox
from ralphd.core.supervision import events
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import RunId
from ralphd.core.supervision.reports import Report
from ralphd.core.time import rfc3339
from ralphd.daemon.metrics import Sample, metrics_text
from ralphd.daemon.registration import Registration
from ralphd.errors import AlreadyRunning, ConfigFaults, NotUndone, StaleReport, UnknownRalph
from ralphd.notify.hub import Hub
from ralphd.process.log.log import RalphLog
from ralphd.process.peer_run import Peer
from ralphd.store.events import EventStore

Runs = Literal["finish", "leave", "now"]
ACTS: dict[type[Event], str] = {
    events.StopRequested: "stop",
    events.RestartRequested: "restart",
    events.PauseRequested: "pause",
    events.ResumeRequested: "resume",
    events.SkipWaitRequested: "skip-wait",
}
PAST: dict[str, dict[str, Any]] = {
    "runs": {"run_id": "r000001-aaaaaaaa", "code": 0},
    "iterations": {"iteration": 1, "attempts": []},
    "verdicts": {"iteration": 1, "verdict": "kept", "undone": False},
    "repairs": {"number": 1, "undone": False},
}


class MemoryCallers:
    """Takes every process for one of the run that lives; ``refused`` and ``recorded`` hold what was noted."""

    def __init__(self) -> None:
        self.run_id = RunId("r000001-aaaaaaaa")
        self.may = True
        self.refused: list[RequestedAction] = []
        self.recorded: list[RequestedAction] = []

    def caller(self, peer: Peer) -> Caller:
        return Caller(peer.pid, peer.uid, self.run_id, "alice")

    def permits(self, caller: Caller, asked: RequestedAction) -> bool:
        return self.may

    async def refuse(self, caller: Caller, asked: RequestedAction) -> None:
        self.refused.append(asked)

    async def record(self, caller: Caller, asked: RequestedAction) -> None:
        self.recorded.append(asked)


class MemoryHost:
    """Answers like the daemon's host; ``asked`` holds what was asked of it."""

    def __init__(self, directory: Path, events: EventStore) -> None:
        self._directory = directory
        self._ralphs: dict[str, dict[str, Any]] = {}
        self._status: bytes | None = None
        self.events = events
        self.hub = Hub()
        self.stopping = asyncio.Event()
        self.is_over = False
        self.ready = True
        self.asked: list[tuple[object, ...]] = []
        self.reloaded: tuple[Difference, ...] | ConfigFaults = ()
        self.measured: list[Sample] = []
        self.inbox = Inbox()
        self.callers = MemoryCallers()
        self.accounts: list[dict[str, Any]] = []

    def quota_views(self) -> list[dict[str, Any]]:
        return self.accounts

    def daemon_view(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "started_at": rfc3339(0),
            "state_directory": str(self._directory),
            "socket": str(self._directory / "ralphd.sock"),
            "status": "ok",
            "problems": [],
            "tree_means": "subreaper",
            "ralphs": len(self._ralphs),
        }

    async def status_bytes(self, *, resources: bool = False) -> bytes:
        self.asked.append(("status", resources))
        if self._status is None:
            status = {
                "version": __version__,
                "daemon": self.daemon_view(),
                "ralphs": list(self._ralphs.values()),
            }
            self._status = json.dumps(status).encode()
        return self._status

    def forget_status(self) -> None:
        self._status = None

    def regents(self) -> list[SimpleNamespace]:
        views = [json.dumps(view).encode() for view in self._ralphs.values()]
        return [SimpleNamespace(view_bytes=lambda view=view: view) for view in views]

    async def view_bytes(self, name: str, *, resources: bool = False) -> bytes:
        self.asked.append(("view", name, resources))
        return json.dumps(self._ralph(name)).encode()

    async def register(self, registration: Registration) -> bytes:
        self.asked.append(("register", registration))
        if registration.name == "broken":
            raise RuntimeError("a bug, on purpose")
        name = registration.name or Path(registration.directory).name
        if self._ralphs.get(name, {}).get("state") == "running":
            raise AlreadyRunning(f"{name} runs already", mend=f"ralphctl stop {name}")
        return self.add(name, registration.directory, registration.command)

    def add(self, name: str, directory: str = "/tmp", command: list[str] | None = None) -> bytes:
        self._ralphs[name] = a_view(name, directory, command or ["./loop.sh"])
        self._status = None
        return json.dumps(self._ralphs[name]).encode()

    async def start(
        self, name: str, flags: dict[str, object], environment: dict[str, str], *, resume: bool | None = None
    ) -> bytes:
        more = [*([environment] if environment else []), *([] if resume is None else [resume])]
        return self._told("start", name, flags, *more)

    async def ask(self, name: str, kind: type[Event], **how: bool) -> bytes:
        return self._told(ACTS[kind], name, *how.values())

    async def reload_ralph(self, name: str) -> tuple[bytes, tuple[Difference, ...], str]:
        view = self._told("reload", name)
        return view, (Difference("regent.max_retries", "3", "5", "ralph.toml:2"),), "next_run"

    def reload(self) -> tuple[Difference, ...] | ConfigFaults:
        self.asked.append(("reload",))
        return self.reloaded

    def metrics(self) -> bytes:
        return metrics_text(self.measured)

    async def forget(self, name: str) -> None:
        self._told("forget", name)
        del self._ralphs[name]

    def ended(self, name: str) -> Callable[[], bool]:
        return lambda: self.is_over

    def log(self, name: str) -> RalphLog:
        self._ralph(name)
        return RalphLog(self.runs_directory(name))

    def runs_directory(self, name: str) -> Path:
        runs = self._directory / "ralphs" / name / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        return runs

    async def past(self, name: str, what: str, limit: int) -> list[dict[str, Any]]:
        self._told(what, name, limit)
        return [PAST[what]]

    async def undo(self, name: str, iteration: int | None, repair: int | None) -> dict[str, Any]:
        self._told("undo", name, iteration if repair is None else f"repair {repair}")
        if iteration == 404:
            raise NotUndone("there is nothing to put back", why="iteration 404 was not judged")
        return {"iteration": iteration, "commits": [], "made": [], "ralph": self._ralph(name)}

    async def send(self, name: str, change: Callable[[Inbox, float], Inbox]) -> bytes:
        self._told("send", name)
        self.inbox = change(self.inbox, 0.0)
        tasks, notes = ([asdict(each) for each in sent] for sent in (self.inbox.tasks, self.inbox.notes))
        return json.dumps({"tasks": tasks, "notes": notes}).encode()

    async def report(
        self, name: str, run_id: RunId, report_id: str, digest: str, report: Report
    ) -> dict[str, Any]:
        if self._ralph(name)["run_id"] != run_id:
            raise StaleReport("the report was not acted upon", why=f"{run_id} is over")
        self._told("report", name, run_id, report_id, digest, report)
        return {"id": report_id, "next": "continue", "verdict": None}

    async def acknowledge(self, name: str) -> bytes:
        return self._told("ack", name)

    async def explain(self, name: str) -> dict[str, Any]:
        self._told("explain", name)
        return {"run_id": None, "living": False, **asdict(NOTHING_YET), "evidence": None}

    async def shutdown(self, runs: Runs) -> None:
        self.asked.append(("shutdown", runs))

    async def tell(self, type: str, number: int = 0) -> StoredEvent:
        """Keep an event and publish it, as the daemon does."""
        event = await self.events.append(type, time.time(), "alice", None, {"number": number})
        assert event is not None
        self.hub.publish(event)
        return event

    def _told(self, *what: object) -> bytes:
        view = self._ralph(str(what[1]))
        self.asked.append(what)
        return json.dumps(view).encode()

    def _ralph(self, name: str) -> dict[str, Any]:
        if name not in self._ralphs:
            raise UnknownRalph(f"no ralph is called {name}", mend="ralphctl status")
        return self._ralphs[name]


def a_view(name: str, directory: str, command: list[str]) -> dict[str, Any]:
    """A ralph that runs, with every key that a view has."""
    return {
        "ralph_pid": 4242,
        "iteration": 3,
        "consecutive_errors": 0,
        "last_output_at": rfc3339(1_763_755_200),
        "last_commit": "abc1234",
        "total_cost_usd": 0.0,
        "version": 1,
        "name": name,
        "state": "running",
        "goal": "running",
        "mode": "loop",
        "branch": "main",
        "started_at": rfc3339(1_763_755_100),
        "finished_at": None,
        "passed": None,
        "agent": None,
        "pool": None,
        "tasks": None,
        "task": None,
        "wait": None,
        "restarts": 0,
        "reverts": 0,
        "last_exit": None,
        "pause_reason": None,
        "run_id": "r000001-aaaaaaaa",
        "directory": directory,
        "command": command,
        "tree_means": "subreaper",
        "checkpoint": None,
        "drift": [],
        "guard": None,
        "notes": [],
        "seen": None,
        "landing": None,
        "sandbox": {"level": "signals", "means": "landlock", "reason": None},
        "message": None,
        "last_change": None,
        "incident": None,
    }
