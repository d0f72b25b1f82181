"""One attempt: an agent's process from its start to the sweep of its tree (L5 to L7)."""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ralphd.agents.agent import Agent, Launch, LaunchSpec
from ralphd.core.failures.classify import Evidence, OurDoing
from ralphd.core.stall_detector import SilenceLimits, StallFinding
from ralphd.core.stall_report import agent_named
from ralphd.core.time import Moment
from ralphd.errors import in_one_line
from ralphd.git.repo import ReflogMark, Repository
from ralphd.git.worktree_scan import WorkTree
from ralphd.loop.attempt import termination as ends
from ralphd.loop.attempt.observer import AttemptObserver
from ralphd.loop.attempt.output import AgentOutput, Pump
from ralphd.loop.attempt.termination import Termination, TerminationRequest, ask, over
from ralphd.process.activity.monitor import StallMonitor, Subject
from ralphd.process.activity.probe import Observer
from ralphd.process.agent_process import AgentCommand, AgentNotStarted, AgentProcess, SweepResult, start
from ralphd.process.machine import Clock
from ralphd.store.files import write_whole
from ralphd.store.history import save

# The watch over an attempt's silence and its length, as the loop judges its agents (H1 to H6, L6).

LAST_LINES = 20
OURS: Mapping[StallFinding, OurDoing] = {
    StallFinding.STALL: OurDoing.STALL,
    StallFinding.TOO_LONG: OurDoing.TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Watched:
    """An attempt that is watched: who it is, where it works, how long to be patient (``timeout_s`` 0: for
    ever), and where its evidence goes."""

    id: str
    agent: str
    directory: Path
    keep: Path
    limits: SilenceLimits
    timeout_s: float
    began_at: Moment


def watching(
    watched: Watched,
    process: AgentProcess,
    hearing: AgentOutput,
    endings: Termination,
    *,
    news: AttemptObserver,
    clock: Clock,
) -> StallMonitor:
    """The watch, which orders the end; nothing is looked at before its ``run``."""
    return StallMonitor(
        Subject(
            id=watched.id,
            began_at=watched.began_at,
            age_s=0.0,
            limits=replace(watched.limits, max_run_s=watched.timeout_s),
            observer=lambda since: Observer(process, WorkTree(watched.directory, since=since)),
            last_output=lambda: hearing.last_life_at,
            last_lines=lambda: tuple(hearing.lines)[-LAST_LINES:],
            keep=lambda sighting: save(watched.keep, sighting),
            warn=news.warn,
            end=lambda found, title: endings.end(TerminationRequest(OURS[found], title)),
            who=agent_named(watched.agent),
        ),
        clock,
    )


logger = logging.getLogger(__name__)

BEFORE_KILL_S: Final = 10.0
SWEEP_S: Final = 10.0
DRAIN_S: Final = 2.0
ASKED_GRACE_S: Final = 2.0
"""How long an agent has after SIGTERM, to save its session; then its tree is killed."""
SHORT_GRACE_S: Final = 0.5
GRACES: Final = {OurDoing.CRASH_PATTERN: SHORT_GRACE_S, OurDoing.ASKED: SHORT_GRACE_S}
TOLD_BEFORE: Final = (OurDoing.TIMEOUT, OurDoing.STALL, OurDoing.CRASH_PATTERN)


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """What is to be run, and how long to be patient with it.

    ``id`` goes into the environment as ``RALPH_ATTEMPT_ID``, with something random after it; by that and by
    descent its tree is found (L5).
    ``keep`` is a directory for the last of its raw output. ``timeout_s`` 0: no limit; ``limits.max_run_s``
    is not looked at. ``environment`` is over the loop's own, and the agent's launch over that.
    """

    id: str
    agent: Agent
    order: LaunchSpec
    directory: Path
    keep: Path
    timeout_s: float
    limits: SilenceLimits
    exit_grace_s: float
    crash_grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """An attempt that has ended, and whose tree is gone.

    ``lines`` are the last 50 of what it showed: the agent's words and tool uses, or its stdout as it was.
    ``worked``: there was a text, a tool use or a commit, so that its session is worth resuming. ``cost_usd``
    None: the agent does not tell. ``swept`` are the processes that were left and were ended. ``phase``: which
    one of an attempt it was; None without phases. Not ``was_started``: there was no process.
    """

    evidence: Evidence
    started_at: Moment
    ended_at: Moment
    cost_usd: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    session: str | None = None
    model: str | None = None
    worked: bool = False
    lines: tuple[str, ...] = ()
    last_message: str = ""
    swept: tuple[str, ...] = ()
    phase: str | None = None
    was_started: bool = True


class AgentRun:
    """One life of an agent's process."""

    def __init__(self, plan: AttemptPlan, news: AttemptObserver) -> None:
        self._plan = plan
        self._news = news
        self._clock = Clock()
        self._endings = Termination(exit_grace_s=plan.exit_grace_s, crash_grace_s=plan.crash_grace_s)
        self._hearing = AgentOutput(
            plan.agent,
            news,
            self._endings,
            clock=self._clock,
            hang_timeout_s=plan.limits.hang_timeout_s,
            at_once=plan.crash_grace_s == 0,
        )
        self._done: ends.TerminationRequest | None = None

    async def run(self) -> AttemptResult:
        """Start it, follow it, end it where it has to be; returns when nothing of its tree is left.

        To be called once, in the main thread. Raises nothing for what the agent does. Cancelled, it ends the
        tree first.
        """
        began_at = self._clock.now()
        if self._endings.order is not None:
            return self._unborn(began_at, Evidence(ours=self._endings.order.ours, printed=False))
        launch, commits = self._plan.agent.launch(self._plan.order), _Commits(self._plan.directory)
        try:
            process = await start(self._command(launch))
        except AgentNotStarted as fault:
            evidence = Evidence(code=fault.code, printed=False, not_started=in_one_line(fault))
            return self._unborn(began_at, evidence)
        except OSError as fault:  # what the machine lacks comes back by itself: no fault of the command's
            complaint = f"{launch.argv[0]} was not started: {fault.strerror or fault}"
            return self._unborn(began_at, Evidence(own_lines=(complaint,), printed=False))
        swept = await self._lived(process, launch, began_at)
        self._hearing.worked = self._hearing.worked or commits.made()
        return self._result(began_at, self._evidence(process), swept)

    def end(self, ours: OurDoing = OurDoing.ASKED) -> None:
        """Have it ended now; ``run`` then returns."""
        self._endings.end(ends.TerminationRequest(ours, "asked to"))

    def _command(self, launch: Launch) -> AgentCommand:
        return AgentCommand(
            attempt=self._plan.id,
            argv=launch.argv,
            directory=self._plan.directory,
            environment={**os.environ, **self._plan.environment, **launch.environment},
            has_stdin=launch.stdin is not None,
        )

    # while it lives

    async def _lived(self, process: AgentProcess, launch: Launch, began_at: Moment) -> SweepResult:
        """From its start until nothing of its tree is left."""
        heard = self._hearing
        pump = Pump(process.pipes, launch.stdin or b"", out=heard.out, err=heard.err)
        try:
            with suppress(OSError):
                self._plan.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._follow(process, began_at)
            swept = await asyncio.to_thread(process.end, SWEEP_S)
            await pump.drained(DRAIN_S)
        finally:
            process.end(SWEEP_S)  # at once where it is done; one that is cancelled leaves nothing either
            pump.close()
            process.close()
            self._endings.close()
        if swept.survivors:
            listed = ", ".join(f"{name} (pid {pid})" for pid, name in swept.survivors.items())
            self._news.warn(f"still there after {SWEEP_S:g} s of SIGKILL: {listed}")
        await asyncio.to_thread(self._keep_output, pump)
        return swept

    async def _follow(self, process: AgentProcess, began_at: Moment) -> None:
        """Until it has ended by itself, or has been asked to and had the time for it."""
        watch = self._watching(process, began_at)
        watcher = asyncio.create_task(watch.run())
        ending = asyncio.create_task(over(process, self._endings))
        try:
            await asyncio.wait({ending, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if watcher.done():
                watcher.result()  # nobody is to run unwatched: what broke the watch is raised here
            order = await ending
            if order is not None:
                await self._end(process, order, watch)
        finally:
            watcher.cancel()
            ending.cancel()
            await asyncio.gather(watcher, ending, return_exceptions=True)

    def _watching(self, process: AgentProcess, began_at: Moment) -> StallMonitor:
        plan = self._plan
        watched = Watched(
            plan.id, plan.agent.name, plan.directory, plan.keep, plan.limits, plan.timeout_s, began_at
        )
        return watching(watched, process, self._hearing, self._endings, news=self._news, clock=self._clock)

    async def _end(self, process: AgentProcess, order: ends.TerminationRequest, watch: StallMonitor) -> None:
        """Save what is to be saved, then ask it; what does not go in time the sweep ends."""
        if order.evidence is not None:
            await watch.save(order.evidence)
        if order.ours in TOLD_BEFORE:
            await self._tell_before(order)
        if process.has_exited:
            return
        self._done = order
        await ask(process, GRACES.get(order.ours, ASKED_GRACE_S))

    async def _tell_before(self, order: ends.TerminationRequest) -> None:
        try:
            async with asyncio.timeout(BEFORE_KILL_S):
                await self._news.before_kill(order.ours, order.why)
        except (OSError, TimeoutError) as fault:  # a checkpoint that cannot be saved saves no hung agent
            logger.warning("attempt %s is ended unsaved: %s", self._plan.id, fault or "no answer in time")

    # afterwards

    def _keep_output(self, pump: Pump) -> None:
        """The last of what it printed, as it was, for ``ralphctl classify``; a full disk costs only that."""
        for name, reader in (("stdout", pump.out), ("stderr", pump.err)):
            try:
                write_whole(self._plan.keep / name, reader.tail.data(), durable=False)
            except OSError as fault:
                logger.warning("the %s of attempt %s cannot be kept: %s", name, self._plan.id, fault)

    def _evidence(self, process: AgentProcess) -> Evidence:
        code = None if process.status is None else os.waitstatus_to_exitcode(process.status)
        return Evidence(
            ours=None if self._done is None else self._done.ours,
            code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            verdict=self._hearing.verdict,
            limited=self._hearing.limited,
            own_lines=tuple(self._hearing.parser.own_lines()),
            crash_line=None if self._done is None else self._done.line,
            printed=self._hearing.printed,
            retrying=self._hearing.retrying,
        )

    def _unborn(self, began_at: Moment, evidence: Evidence) -> AttemptResult:
        return replace(self._result(began_at, evidence), was_started=False)

    def _result(
        self, began_at: Moment, evidence: Evidence, swept: SweepResult | None = None
    ) -> AttemptResult:
        heard = self._hearing
        return AttemptResult(
            evidence=evidence,
            started_at=began_at,
            ended_at=self._clock.now(),
            cost_usd=heard.cost_usd,
            tokens_in=heard.tokens_in,
            tokens_out=heard.tokens_out,
            session=heard.session,
            model=heard.model,
            worked=heard.worked,
            lines=tuple(heard.lines),
            last_message=heard.parser.last_message(),
            swept=() if swept is None else tuple(f"{name} (pid {pid})" for pid, name in swept.ended.items()),
        )


class _Commits:
    """Whether commits are made from now on, by the reflog; no git is called."""

    def __init__(self, directory: Path) -> None:
        self._repository = Repository.find(directory)
        self._mark: ReflogMark | None = None if self._repository is None else self._repository.mark()

    def made(self) -> bool:
        if self._repository is None or self._mark is None:
            return False
        commits = self._repository.commits_made(self._mark)
        return commits is not None and commits.made > 0
