"""The record of one ralph as its Regent keeps it: ``history.jsonl`` and, made from it, ``progress.md``."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import explain_verdict, undo_key, verdicts
from ralphd.core.record import entry_of, happened_at, iterations
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    Event,
    JudgementOver,
    LeftBehind,
    RunEnded,
)
from ralphd.core.supervision.exit_policy import failure_kind
from ralphd.core.supervision.gate_events import data_of, restored_data
from ralphd.core.supervision.model import ExitFacts, LastWord, Outcome
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.services import Services
from ralphd.process.rundir import ExitRecord
from ralphd.store.history import History, ProgressFile
from ralphd.store.state import Facts, LastExit, RalphFiles


class Journal:
    """What happened to one ralph, entered once. Used by its Regent alone."""

    def __init__(self, files: RalphFiles, history: History, services: Services, name: str) -> None:
        self.history = history
        self._progress = ProgressFile(files.progress_file, history.newest)
        self._services = services
        self._topic = f"history of {name}"

    async def enter(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> None:
        """Enter a fact, once."""
        await asyncio.to_thread(self._enter, kind, key, at, data)
        self._services.trouble(self._topic, self.history.degraded)

    def _enter(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> None:
        is_new = self.history.append(kind, key, at, data)
        if kind == "attempt":
            self._progress.follow(entered=is_new)

    async def enter_report(self, fact: Reported) -> bool:
        """Enter what a run reported; of what is no entry, such as heartbeats, False."""
        if (entry := entry_of(fact)) is None:
            return False
        kind, data = entry
        await self.enter(kind, f"{fact.run_id}/{fact.id}", happened_at(fact), {"run_id": fact.run_id, **data})
        return True

    async def enter_verdict(self, fact: JudgementOver) -> bool:
        """Enter what became of an iteration's commits; False where there were none."""
        if not fact.commits and fact.verdict.kind is VerdictKind.KEPT:
            return False
        more = {"tests_s": list(fact.tests_s), "baseline": fact.verdict.baseline.value, "tail": fact.tail}
        data = {"run_id": fact.run_id, **dict(data_of(fact)), **more}
        await self.enter("verdict", f"{fact.id}/verdict", fact.at, data)
        return True

    async def enter_undo(self, fact: CommitsRestored) -> None:
        """Enter that what a verdict had reverted is back."""
        data = {"run_id": fact.run_id, **dict(restored_data(fact))}
        await self.enter("undo", undo_key(fact.id), fact.at, data)

    async def heal(self) -> None:
        """Write what a full disk has not taken."""
        if self.history.degraded:
            await asyncio.to_thread(self.history.heal)
            self._services.trouble(self._topic, self.history.degraded)
        if self._progress.degraded:
            await asyncio.to_thread(self._progress.follow)

    def runs(self, limit: int) -> list[dict[str, Any]]:
        """The last runs that are over, newest first. Blocks."""
        ended = (entry for entry in self.history.backwards() if entry.get("kind") == "run")
        return list(islice(ended, limit))

    def iterations(self, limit: int) -> list[dict[str, Any]]:
        """The last iterations with their attempts, newest first. Blocks."""
        return iterations(self.history.backwards(), limit)

    def verdicts(self, limit: int) -> list[dict[str, Any]]:
        """The last verdicts, newest first. Blocks."""
        return verdicts(self.history.backwards(), limit)

    def explained(self) -> dict[str, Any] | None:
        """Why the last verdict was said; None where there is none. Blocks."""
        if not (last := self.verdicts(1)):
            return None
        return {"at": last[0]["at"], **asdict(explain_verdict(last[0], is_undone=last[0]["undone"]))}


def end_data(
    ending: ExitFacts,
    meant: Outcome,
    *,
    record: ExitRecord | None,
    commit: str | None,
    word: LastWord | None,
) -> dict[str, Any]:
    """What the history keeps of the end of a run. ``word``: what the run itself said of it."""
    swept = () if record is None else record.swept
    return {
        "run_id": ending.run_id,
        "started_at": None if ending.started_at is None else rfc3339(ending.started_at),
        "duration_s": None if ending.started_at is None else round(ending.at - ending.started_at, 3),
        "last_sign_at": None if ending.last_sign_at is None else rfc3339(ending.last_sign_at),
        "code": ending.code,
        "signal": ending.signal,
        "outcome": meant.value,
        "failure_kind": failure_kind(meant),
        "reason": None if word is None else word.reason,
        "why": None if word is None else word.why or None,
        "oom": None if record is None else record.oom,
        "commit": commit,
        "swept": [{"pid": each.pid, "command": each.command} for each in swept],
        "dropped_bytes": 0 if record is None else record.dropped_bytes,
    }


def event_key(kind: str, fact: Event, facts: Facts) -> str | None:
    """By what an event is known again, when a daemon that died before it was written down tells it anew."""
    if isinstance(fact, Reported):
        return f"{fact.run_id}/{fact.id}/{kind}"
    if isinstance(fact, JudgementOver | BaselineTested):
        return f"{fact.id}/{kind}"
    if isinstance(fact, CommitsRestored):
        return f"{undo_key(fact.id)}/{kind}"
    if isinstance(fact, LeftBehind):
        return f"{fact.run_id}/left/{kind}"
    return f"{facts.run_id}/{kind}" if isinstance(fact, RunEnded) or kind == "ralph.started" else None


def news_of_end(ending: ExitFacts, meant: Outcome) -> dict[str, Any]:
    """What becomes known of a ralph when its run has ended, by the names of ``Facts``."""
    return {
        "ralph_pid": None,
        "finished_at": ending.at,
        "last_output_at": ending.last_sign_at,
        "last_exit": LastExit(ending.run_id, ending.code, ending.signal, meant.value, ending.at),
    }
