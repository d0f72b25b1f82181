"""The tests of one ralph, run through the shim in run directories of their own (S9, R3).

A run outlives the daemon: the next one finds it by its id, waits for it, or reads how it ended.
"""

import asyncio
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ralphd import diagnostics
from ralphd.core.gate.verdict import Result
from ralphd.core.gate.weakened import COUNTED_LINES, TestCounts, counts_of
from ralphd.core.sandbox import SandboxChoice
from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.errors import CommandNotStartable, RalphdError
from ralphd.process.log.log import RalphLog
from ralphd.process.rundir import ExitRecord, RunDirectory, next_run_directory
from ralphd.process.spawn import Run, RunSpec, read_ended

if TYPE_CHECKING:
    from ralphd.daemon.ralph.run_source import RunSource
    from ralphd.daemon.services import Services

KEPT: Final = 20
LOG_BYTES: Final = 4 << 20
"""What is kept of one run's output: with the 20 that are kept, about as much as a run of Ralph's own."""
TAIL_LINES: Final = 50
TAIL_BYTES: Final = 16 << 10
READ_BYTES: Final = 1 << 20
CANNOT_RUN: Final = (126, 127)
FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Nobody's fault who wrote the tests; any other signal is a crash of what they test, and that is red."""


@dataclass(frozen=True, slots=True)
class GateTestResult:
    """The result of a run of the tests; None: it was cut off. ``how`` is its end in words."""

    run_id: RunId
    result: Result | None
    took_s: float = 0.0
    how: str = ""
    tail: str = ""
    counts: TestCounts | None = None


class GateTests:
    """Runs the tests of one ralph, or of a landing queue, one run at a time."""

    def __init__(self, account: "RunSource", services: "Services", *, home: Path | None = None) -> None:
        self._account, self._services = account, services
        self._home = home or account.files.tests
        self._log = RalphLog(self._home)
        self._living: Run | None = None
        self.is_cut = False
        self.since: Moment | None = None
        """Since when the tests run that run now."""

    def cut(self) -> None:
        """Kill the tests under way, and start none until ``allow``."""
        self.is_cut = True
        if self._living is not None:
            self._living.kill_tree()

    def allow(self) -> None:
        self.is_cut = False

    def next_id(self) -> RunId:
        """Create the directory of the next run, and delete old ones. Blocks. Raise OSError."""
        with suppress(FileNotFoundError):
            for old in sorted(self._home.iterdir())[: -(KEPT - 1)]:
                shutil.rmtree(old, ignore_errors=True)
        return next_run_directory(self._home).run_id

    async def run(self, run_id: RunId, directory: Path, *, is_bare: bool = False) -> GateTestResult:
        """Run the tests in ``directory``, or wait for that run. Cancelled, it leaves them alone.

        ``is_bare``: without the sandbox that ``auto`` chooses.
        """
        if self.is_cut:
            await self.end(run_id)
            return GateTestResult(run_id, None)
        place = RunDirectory(self._home / run_id)
        try:
            run = Run.adopt(place)
            # The daemon may have died between the order and the spawn: then there was no process.
            if run is None and not (place.run_file.exists() or place.exit_record() is not None):
                sandbox = await self._services.sandbox_for(self._account, directory, is_bare=is_bare)
                spec = await asyncio.to_thread(self._spec, run_id, directory, sandbox)
                run = await Run.spawn(place, spec, None)
        except CommandNotStartable as fault:
            return GateTestResult(run_id, Result.CANNOT_RUN, how=f"{fault.what}: {fault.why}")
        except OSError as fault:
            return GateTestResult(run_id, Result.ENDED, how=fault.strerror or str(fault))
        diagnostics.reach("gate.tests_run")
        if run is None:
            return await self._told(await asyncio.to_thread(read_ended, place), timed_out=False)
        return await self._awaited(run)

    async def end(self, run_id: RunId) -> None:
        """Kill a run of the tests that an earlier daemon has left."""
        if (run := Run.adopt(RunDirectory(self._home / run_id))) is not None:
            await run.ready()
            run.kill_tree()
            await run.ended()

    async def _awaited(self, run: Run) -> GateTestResult:
        self._living = run
        if self.is_cut:
            run.kill_tree()
        born = await run.ready()
        self.since = time.time() if born is None else born.started_at
        limit_s = self._account.configuration.regent.test_timeout_seconds
        left_s = limit_s - (0.0 if born is None else max(time.time() - born.started_at, 0.0))
        try:
            async with asyncio.timeout(max(left_s, 0.0) if limit_s else None):
                return await self._told(await run.ended(), timed_out=False)
        except TimeoutError:
            run.kill_tree()
            return await self._told(await run.ended(), timed_out=True)
        finally:
            self._living = self.since = None

    async def _told(self, record: ExitRecord, *, timed_out: bool) -> GateTestResult:
        took_s = 0.0 if record.started_at is None else round(max(record.ended_at - record.started_at, 0.0), 3)
        if self.is_cut:
            return GateTestResult(record.run_id, None, took_s)
        result, how = judged(record, timed_out=timed_out)
        if result is Result.GREEN:
            counts = await asyncio.to_thread(self._counts, record.run_id)
            return GateTestResult(record.run_id, result, took_s, how, counts=counts)
        tail = await asyncio.to_thread(self._tail, record.run_id)
        return GateTestResult(record.run_id, result, took_s, how, tail)

    def _counts(self, run_id: RunId) -> TestCounts | None:
        lines = self._last_lines(run_id, COUNTED_LINES)
        return counts_of(lines, is_cut=len(lines) == COUNTED_LINES or sum(map(len, lines)) > READ_BYTES // 2)

    def _last_lines(self, run_id: RunId, count: int) -> list[str]:
        try:
            return self._log.last_lines(run_id, count, stream=None, limit_bytes=READ_BYTES)
        except (OSError, RalphdError):
            return []

    def _tail(self, run_id: RunId) -> str:
        text = "\n".join(self._last_lines(run_id, TAIL_LINES))
        return text.encode(errors="replace")[-TAIL_BYTES:].decode(errors="ignore")

    def _command(self) -> str:
        return self._account.configuration.regent.test_command

    def _spec(self, run_id: RunId, directory: Path, sandbox: SandboxChoice) -> RunSpec:
        spec = self._account.spec(run_id, directory, sandbox, ("/bin/sh", "-c", self._command()))
        # A revert within the second in which a file was written leaves Python's bytecode of it valid.
        environment = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return replace(spec, environment=environment, run_bytes=min(LOG_BYTES, spec.run_bytes))


class SetupRuns(GateTests):
    """Runs ``[ralph] setup`` as the gate runs the tests: through a shim, logged, with a time limit (W3)."""

    def __init__(self, account: "RunSource", services: "Services") -> None:
        super().__init__(account, services, home=account.files.home / "setup")

    def _command(self) -> str:
        return self._account.configuration.ralph.setup


def judged(record: ExitRecord, *, timed_out: bool) -> tuple[Result, str]:
    """Return what the end of the tests says of the tree, and that end in words (R3)."""
    if timed_out:
        return Result.TIMED_OUT, "not over in time"
    if record.fault is not None:
        return Result.CANNOT_RUN, record.fault.text
    if record.signal is not None:
        result = Result.ENDED if record.signal in FROM_OUTSIDE or record.oom else Result.RED
        return result, f"ended by signal {record.signal}"
    if record.code is None:
        return Result.ENDED, "lost: nobody saw how they ended"
    if record.code in CANNOT_RUN:
        return Result.CANNOT_RUN, f"exit {record.code}"
    return (Result.RED if record.code else Result.GREEN), f"exit {record.code}"
