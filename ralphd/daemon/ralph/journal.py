"""The history of one ralph as its Regent writes it: ``history.jsonl``, and ``progress.md`` made from it."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from ralphd.core.gate.git_repair import repair_number, repair_of, repairs
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import explain_verdict, undo_key, verdicts
from ralphd.core.record import entry_of, happened_at, iterations
from ralphd.core.supervision import events
from ralphd.core.supervision.exit_policy import failure_kind, last_word
from ralphd.core.supervision.model import ExitFacts, LastWord, Outcome, RunReports, Supervision
from ralphd.core.supervision.reports import Reported, is_known
from ralphd.core.supervision.requests import data_of, restored_data, rewritten_data, rewritten_text
from ralphd.core.time import Moment, rfc3339
from ralphd.process.rundir import ExitRecord
from ralphd.store.history import History, ProgressFile
from ralphd.store.state import Facts, RalphFiles

if TYPE_CHECKING:
    from ralphd.daemon.services import Services


_ENTRIES_LOOKED_AT = 200


class Journal:
    """What happened to one ralph, each fact entered once, by its key. One thread writes at a time."""

    def __init__(self, files: RalphFiles, history: History, services: "Services", name: str) -> None:
        self.history = history
        self._progress = ProgressFile(files.progress_file, history.newest)
        self._services, self._alone = services, asyncio.Lock()
        self._exits: dict[str, ExitRecord] = {}
        self._topic = f"history of {name}"

    async def enter(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> None:
        async with self._alone:
            await asyncio.to_thread(self._enter, kind, key, at, data)
        self._services.trouble(self._topic, self.history.degraded)

    def _enter(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> None:
        is_new = self.history.append(kind, key, at, data)
        if kind == "attempt":
            self._progress.follow(entered=is_new)

    def note_exit(self, record: ExitRecord) -> None:
        """Keep how a run ended until its end is entered."""
        self._exits[record.run_id] = record

    async def enter_end(
        self, ending: ExitFacts, meaning: Outcome, said: RunReports, commit: str | None
    ) -> None:
        """Enter the end of a run. ``said`` are its reports, ``commit`` is where it has left HEAD."""
        record, word = self._exits.pop(ending.run_id, None), last_word(ending, said)
        data = end_data(ending, meaning, record=record, commit=commit, word=word)
        await self.enter("run", ending.run_id, ending.at, data)

    async def enter_seen(self, run_id: str, at: Moment, seen: Mapping[str, Any]) -> None:
        """Enter the cost that the output of an ended run showed, which the run did not report itself."""
        if usd := seen.get("cost_usd"):
            data = {"run_id": run_id, "usd": usd, "source": "seen in output"}
            await self.enter("cost", f"{run_id}/seen", at, data)

    async def enter_fact(self, fact: events.Event, before: Supervision) -> bool:
        """Enter a report, a verdict, an undo or a repair. Return whether there was anything to enter."""
        match fact:
            case Reported() if (
                not is_known(before, fact) and (entry := entry_of(fact, before.said)) is not None
            ):
                kind, data = entry
                key, data = f"{fact.run_id}/{fact.id}", {"run_id": fact.run_id, **data}
                await self.enter(kind, key, happened_at(fact), data)
            case events.VerdictReached(verdict=verdict) if (
                verdict.commits or verdict.kind is not VerdictKind.KEPT
            ):
                data = {
                    "run_id": verdict.run_id, **dict(data_of(verdict)), "tests_s": list(verdict.tests_s),
                    "baseline": verdict.baseline.value, "tail": verdict.tail,
                    "weakened": verdict.weakened.value,
                }  # fmt: skip
                await self.enter("verdict", f"{verdict.boundary_id}/verdict", verdict.at, data)
            case events.CommitsRestored():
                data = {"run_id": fact.run_id, **dict(restored_data(fact))}
                await self.enter("undo", undo_key(fact.id), fact.at, data)
            case events.HistoryRewritten():
                data = {**dict(rewritten_data(fact)), "message": rewritten_text(fact)}
                await self.enter_repair(f"{fact.id}/repair", fact.at, fact.run_id, data)
            case _:
                return False
        return True

    async def enter_repair(self, key: str, at: Moment, run_id: str | None, data: Mapping[str, Any]) -> None:
        await self.enter("repair", key, at, {"run_id": run_id, **repair_of(data)})

    def repair_number(self, key: str) -> int:
        """Return the number of the repair with this key, else that of the next. Blocks."""
        return repair_number(self.history.backwards(), key)

    @property
    def is_behind(self) -> bool:
        """Whether ``heal`` has something to write."""
        return bool(self.history.degraded or self._progress.degraded)

    async def heal(self) -> None:
        """Write what a full disk did not take."""
        async with self._alone:
            if self.history.degraded:
                await asyncio.to_thread(self.history.heal)
                self._services.trouble(self._topic, self.history.degraded)
            if self._progress.degraded:
                await asyncio.to_thread(self._progress.follow)

    def runs(self, limit: int) -> list[dict[str, Any]]:
        """Return the last ended runs, newest first. Blocks."""
        ended = (entry for entry in self.history.backwards() if entry.get("kind") == "run")
        return list(islice(ended, limit))

    def iterations(self, limit: int) -> list[dict[str, Any]]:
        return iterations(self.history.backwards(), limit)

    def verdicts(self, limit: int) -> list[dict[str, Any]]:
        return verdicts(self.history.backwards(), limit)

    def repairs(self, limit: int) -> list[dict[str, Any]]:
        return repairs(self.history.backwards(), limit)

    def last_repair(self) -> dict[str, Any] | None:
        """Return the last repair, if it is among the newest entries. Blocks."""
        return next(iter(repairs(islice(self.history.backwards(), _ENTRIES_LOOKED_AT), 1)), None)

    def last_request(self) -> dict[str, Any] | None:
        """Return the last request that was carried out, if it is among the newest entries. Blocks."""
        newest = islice(self.history.backwards(), _ENTRIES_LOOKED_AT)
        return next((entry for entry in newest if entry.get("kind") == "request"), None)

    def explained(self) -> dict[str, Any] | None:
        """Explain the last verdict, if it is among the newest entries. Blocks."""
        if not (last := verdicts(islice(self.history.backwards(), _ENTRIES_LOOKED_AT), 1)):
            return None
        return {"at": last[0]["at"], **asdict(explain_verdict(last[0], is_undone=last[0]["undone"]))}


def end_data(
    ending: ExitFacts, meant: Outcome, *, record: ExitRecord | None, commit: str | None, word: LastWord | None
) -> dict[str, Any]:
    """Return the history entry of a run's end. ``word`` is what the run announced of it."""
    swept = () if record is None else record.swept
    return {
        "run_id": ending.run_id,
        "started_at": None if ending.started_at is None else rfc3339(ending.started_at),
        "duration_s": None if ending.started_at is None else round(ending.at - ending.started_at, 3),
        "last_sign_at": None if ending.last_sign_at is None else rfc3339(ending.last_sign_at),
        "code": ending.code, "signal": ending.signal,
        "outcome": meant.value, "failure_kind": failure_kind(meant),
        "reason": None if word is None else word.reason, "why": None if word is None else word.why or None,
        "oom": None if record is None else record.oom,
        "unverified": record is not None and record.unverified, "commit": commit,
        "swept": [{"pid": each.pid, "command": each.command} for each in swept],
        "dropped_bytes": 0 if record is None else record.dropped_bytes,
    }  # fmt: skip


def event_key(kind: str, fact: events.Event, facts: Facts) -> str | None:
    """Return the key of an event that a later daemon may announce again, or None."""
    if isinstance(fact, Reported):
        return f"{fact.run_id}/{fact.id}/{kind}"
    if isinstance(fact, events.VerdictReached):
        return f"{fact.verdict.boundary_id}/{kind}"
    if isinstance(fact, events.BaselineTested):
        return f"{fact.id}/{kind}"
    if isinstance(fact, events.CommitsRestored):
        return f"{undo_key(fact.id)}/{kind}"
    if isinstance(fact, events.LeftBehind):
        return f"{fact.run_id}/left/{kind}"
    if isinstance(fact, events.HistoryRewritten):
        return f"{fact.id}/repair/{kind}"
    return f"{facts.run_id}/{kind}" if isinstance(fact, events.RunEnded) or kind == "ralph.started" else None
