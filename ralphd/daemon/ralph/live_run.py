"""A live run: its process handle, its stall monitor, how it is spawned and what its end was."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ralphd.agents.streams import EventCounter
from ralphd.core.explanation import NOT_WATCHED, Explanation
from ralphd.core.plan import PROMISE_LINES, is_complete, is_promised
from ralphd.core.quota.model import SKIPPED
from ralphd.core.sandbox import SandboxChoice
from ralphd.core.stall_detector import StallFinding
from ralphd.core.supervision import model
from ralphd.core.supervision.events import Event, FellSilent, Overran
from ralphd.core.supervision.exit_policy import TRY_AGAIN_LATER
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.builtin import command_of
from ralphd.git.diagnostics import left_uncommitted
from ralphd.git.facts import run_setting
from ralphd.git.remote import unpushed
from ralphd.git.repo import ReflogMark, Repository, Signature
from ralphd.git.worktree_scan import WorkTree
from ralphd.loop.workdir_files import read_plan
from ralphd.process.activity.monitor import StallMonitor, Subject
from ralphd.process.activity.probe import Observer, RunTree
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import BLOCK_BYTES, Cursor, LogQuery, LogRecord
from ralphd.process.log.rendered import Rendering
from ralphd.process.machine import Clock, local_zone
from ralphd.process.rundir import ExitRecord, RunDirectory, RunRecord
from ralphd.process.sandbox.box import WORDS
from ralphd.process.shim import WRITABLE
from ralphd.process.spawn import Run, RunSpec
from ralphd.process.tree import age_s
from ralphd.store.checkpoint import Pause
from ralphd.store.history import save_evidence

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services


# The watch over one run: findings of ``process/activity/monitor`` reach the Regent as events.

LAST_LINES = 20
OVERDUE = {StallFinding.STALL: model.Overdue.STALL, StallFinding.TOO_LONG: model.Overdue.TIMEOUT}


Post: TypeAlias = Callable[[Event], None]


# What the output of a run shows of agents that the run started itself.

COUNTED_BYTES, COUNTED_AT_END_BYTES = 4 << 20, 16 << 20
"""The most output, in bytes, that is read in one poll, and once after the end of the run."""


class OutputCounter:
    """Counts the agents' events in the output of one run, from its beginning, piece by piece."""

    def __init__(self, log: RalphLog, run_id: model.RunId, *, is_on: bool) -> None:
        self.seen: dict[str, Any] | None = None
        self._log, self._run_id, self._is_on = log, run_id, is_on
        self._cursor, self._counted_at = Cursor.start_of(run_id), 0.0
        self._counter = EventCounter(local_zone())
        self._rendering = Rendering(self._counter.line)
        self._alone = asyncio.Lock()

    def is_due(self, printed_at: Moment) -> bool:
        """Return whether lines were printed that may be events; others are passed over at once.

        ``printed_at`` is when the run last printed, as far as known; 0 if it has not.
        """
        if not self._is_on or printed_at == self._counted_at:
            return False
        self._cursor, is_all = self._log.after_plain(self._cursor)
        self._counted_at = printed_at if is_all else 0.0
        return not is_all

    async def count(self, limit_bytes: int = COUNTED_BYTES) -> None:
        """Count what was printed since the last call, at most ``limit_bytes``; the rest comes next time."""
        async with self._alone:
            printed_at = self._log.last_output_at(self._run_id) or 0.0
            if self.is_due(printed_at):
                is_all = await asyncio.to_thread(self._count, limit_bytes)
                self._counted_at, self.seen = printed_at if is_all else 0.0, self._counter.seen

    def _count(self, left: int) -> bool:
        """Return whether everything that was there is counted."""
        query = LogQuery(cursor=self._cursor, as_text=True, whole_events=True, only_events=True)
        for item in self._log.read(query):
            if item.cursor.run_id != self._run_id or left <= 0:
                return left > 0
            self._cursor = item.cursor
            deque(self._rendering((item,)), maxlen=0)
            left -= len(item.text) if isinstance(item, LogRecord) else BLOCK_BYTES
        return True


SIGNALS = {model.ControlSignal.PAUSE: signal.SIGUSR1, model.ControlSignal.SKIP_WAIT: signal.SIGUSR2}


class LiveRun:
    """A run that lives. Unsupervised (P6), it is not monitored."""

    def __init__(
        self, run: Run, record: RunRecord, account: "RalphRecord", *, log: RalphLog, clock: Clock, post: Post
    ) -> None:
        self.run, self.record, self.run_id = run, record, record.run_id
        self._account = account
        self._reports = 0
        self._supervised = account.policy.supervised
        self.watching = StallMonitor(self._subject(log, clock, post), clock)
        is_built_in = account.in_force.definition.runs_own_loop  # it reads its agents by itself
        self.output = OutputCounter(log, record.run_id, is_on=not is_built_in)

    def _subject(self, log: RalphLog, clock: Clock, post: Post) -> Subject:
        directory, run_id = self._account.definition.directory, self.run_id
        return Subject(
            id=run_id,
            began_at=self.record.started_at,
            age_s=age_s(self.record.start_ticks),
            limits=self._account.configuration.silence_limits(),
            observer=lambda since: Observer(RunTree(self.record), WorkTree(directory, since=since)),
            last_output=lambda: log.last_output_at(run_id),
            last_lines=lambda: log.last_lines(run_id, LAST_LINES, stream=None),
            keep=lambda sighting: save_evidence(self.run.directory.path, sighting),
            warn=lambda text: post(FellSilent(clock.now(), run_id, text)),
            end=lambda found, title: post(Overran(clock.now(), run_id, OVERDUE[found], title)),
            said=lambda: self._account.supervision.said,
            heard=lambda: self._reports,
        )

    async def watch(self) -> None:
        """Monitor it until cancelled, or until it is overdue."""
        if self._supervised:
            await self.watching.run()

    def on_report(self) -> None:
        """Count a report: a sign of life, which may change how it is monitored."""
        self._reports += 1
        self.watching.hurry()

    def explanation(self) -> Explanation:
        return self.watching.explanation() if self._supervised else NOT_WATCHED

    def silence(self) -> Explanation | None:
        """Explain its silence, if it was silent for long enough to be probed."""
        return self.watching.silence() if self._supervised else None


# A run of a ralph as it is to be started: its command, its place, its environment.


def spec_of(
    account: "RalphRecord", services: "Services", directory: RunDirectory, sandbox: SandboxChoice
) -> RunSpec:
    """Return what to start. Blocks. Raise OSError."""
    definition, variables = account.definition, _variables(account, services, directory)
    command = definition.command or command_of(account.files.home, tied=services.tied is not None)
    spec = account.spec(directory.run_id, definition.directory, sandbox, command)
    box, writable = spec.wrapper, sandbox.writable
    if definition.runs_own_loop and (box or writable):  # it writes its state: its agents are limited
        variables |= {WORDS: json.dumps(box)} if box else {WRITABLE: json.dumps(writable)}
        spec = replace(spec, wrapper=(), sandbox=replace(sandbox, writable=()))
    return replace(spec, environment=variables, definition=definition.to_json())


def _variables(account: "RalphRecord", services: "Services", directory: RunDirectory) -> dict[str, str]:
    own = account.files.load_environment().get("GIT_CONFIG_PARAMETERS", "")
    variables = {
        "RALPH_NAME": account.definition.name,
        "RALPH_RUN_ID": directory.run_id,
        "RALPHD_SOCKET": str(services.socket_path),
        "PYTHONUNBUFFERED": "1",
        "GIT_CONFIG_PARAMETERS": run_setting(own),
    }
    if not account.definition.runs_own_loop:
        return variables
    state, began_at = account.supervision.state, account.supervision.tally.began_at
    if began_at is not None:
        variables["RALPH_BEGAN_AT"] = rfc3339(began_at)  # limits count from there, over all its runs
    skips = isinstance(state, model.Starting) and state.skips
    queued_at = services.begun[account.definition.name][1].queued_at  # its turn in the queue of its account
    return variables | {"RALPH_QUEUED_AT": SKIPPED if skips else rfc3339(queued_at)}


# The end of a run as the core wants to know it: what its record, its log, its directory and git tell.


async def ending_of(account: "RalphRecord", log: RalphLog, record: ExitRecord) -> model.ExitFacts:
    """Collect the facts of a run's end from its record, log, directory and repository (E1 to E4)."""
    account.records.note_exit(record)
    pause = Pause()
    if record.code == TRY_AGAIN_LATER:
        held = account.in_force.definition
        pause = await asyncio.to_thread(account.files.checkpoint, held.directory, own_loop=held.runs_own_loop)
    may_be_last = record.code == 0 and account.policy.mode is model.Mode.ITERATION
    complete = may_be_last and await asyncio.to_thread(_is_complete, account, log, record)
    since = account.supervision.tally.began_at or record.started_at or record.ended_at
    directory, known = account.definition.directory, account.facts.uncommitted
    left = await asyncio.to_thread(left_uncommitted, directory, since, known)
    return model.ExitFacts(
        run_id=record.run_id,
        at=record.ended_at,
        code=record.code,
        signal=record.signal,
        started_at=record.started_at,
        last_sign_at=log.last_output_at(record.run_id),
        committed=await account.has_moved(),
        complete=complete,
        pause_reason=pause.reason,
        resume_at=pause.resume_at,
        uncommitted=left,
        unpushed=await asyncio.to_thread(unpushed, directory) if account.configuration.git.auto_push else "",
    )


def _is_complete(account: "RalphRecord", log: RalphLog, record: ExitRecord) -> bool:
    """E4: the task list is complete, or the promise was given and no task is open."""
    plan = read_plan(account.definition.directory, account.configuration.ralph.tasks)
    return is_complete(plan, is_promised(log.last_lines(record.run_id, PROMISE_LINES)))


# The commits of a ralph: where HEAD is, and how many commits its run has made (C3).


class CommitWatcher:
    """Counts the commits of a run, every few seconds.

    A poll costs a few stats; git runs, and the reflog is read, only after a change. For one task at a time.
    """

    def __init__(self, account: "RalphRecord") -> None:
        self._account = account
        self._repository: Repository | None = None
        self._signature: Signature | None = None

    @property
    def _directory(self) -> Path:
        return self._account.definition.directory

    async def begin(self) -> None:
        """Start counting: what is there now is not the run's."""
        await self._account.note_start()
        self._repository = await asyncio.to_thread(Repository.find, self._directory)
        self._account.note_reflog(self._mark())

    def has_changed(self) -> bool:
        """Return whether ``commits`` would look for some. Blocks, in a directory that hangs for ever."""
        if self._repository is None:
            return os.path.exists(f"{self._directory}/.git")  # noqa: PTH110 - half as dear, every 8 s
        return self._signature != self._repository.signature()

    async def commits(self) -> int:
        """Return the number of commits since the last call, or since the run began."""
        if (repository := await asyncio.to_thread(self._changed)) is None:
            return 0
        before = self._account.facts.last_commit
        await self._account.note_head()
        return await asyncio.to_thread(self._count, repository, self._account.facts.last_commit != before)

    def _changed(self) -> Repository | None:
        """Return the repository if it has changed since the last call."""
        if self._repository is None and (self._directory / ".git").exists():  # an adopted run, or a new one
            self._repository = Repository.find(self._directory)
        if self._repository is None:
            return None
        before, self._signature = self._signature, self._repository.signature()
        return None if self._signature == before else self._repository

    def _count(self, repository: Repository, moved: bool) -> int:
        mark = self._account.facts.reflog
        found = None if mark is None else repository.commits_made(ReflogMark(*mark))
        if found is None:  # no reflog tells: a move of HEAD counts for one
            self._account.note_reflog(self._mark())
            return int(moved)
        self._account.note_reflog(found.until)
        return found.made

    def _mark(self) -> ReflogMark | None:
        return None if self._repository is None else self._repository.mark()
