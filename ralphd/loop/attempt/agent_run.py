"""One process of an agent, from its start to the sweep of its tree (L5 to L7).

The agent's output, the watch over its silence and its time limit each may ask for its end; the checkpoint and
the evidence are saved before the first signal is sent.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from ralphd.agents.agent import Agent, LaunchSpec
from ralphd.core.failures.agent_events import Figures, WindowUsed
from ralphd.core.failures.classify import Evidence, OurDoing
from ralphd.core.stall_detector import SilenceLimits, StallFinding
from ralphd.core.stall_report import agent_named
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.errors import in_one_line
from ralphd.git.repo import Repository
from ralphd.git.worktree_scan import WorkTree
from ralphd.loop.attempt import termination
from ralphd.loop.attempt.output import AgentObserver, AgentOutput, Pump
from ralphd.loop.attempt.termination import Termination, TerminationRequest, supervise, terminate
from ralphd.process.activity.monitor import StallMonitor, Subject
from ralphd.process.activity.probe import Observer
from ralphd.process.agent_process import AgentCommand, AgentNotStarted, AgentProcess, SweepResult, start
from ralphd.process.machine import Clock
from ralphd.store.files import make_private_folders
from ralphd.store.history import save_evidence

logger = logging.getLogger(__name__)

LAST_LINES: Final = 20
BEFORE_KILL_S: Final = 10.0
SAVED_BEFORE: Final = (OurDoing.TIMEOUT, OurDoing.STALL, OurDoing.CRASH_PATTERN, OurDoing.LOST_CONNECTION)
OURS: Final = {StallFinding.STALL: OurDoing.STALL, StallFinding.TOO_LONG: OurDoing.TIMEOUT}


@dataclass(frozen=True, slots=True)
class AgentRunSpec:
    """What to run, and how long to wait for it.

    ``id`` plus a random suffix becomes ``RALPH_ATTEMPT_ID`` in the environment; by that and by descent the
    tree is found (L5). ``keep`` is a directory for the end of its raw output and for evidence. ``timeout_s``
    0: no limit; ``limits.max_run_s`` is ignored. ``environment`` overrides the loop's own, and the agent's
    launch overrides both. ``on_quota`` gets the used shares that it reports, and None for its first output.
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
    lost_grace_s: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_quota: Callable[[WindowUsed | None], None] = lambda news: None


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The end of an agent's process, whose tree is gone.

    ``lines`` are the last 50 that it showed: its words and tool uses, or its plain stdout. ``worked``: there
    was a text, a tool use or a commit, so that its session is worth resuming. ``swept`` are the processes
    that were left and killed. ``phase``: the phase of the attempt, if it has phases. ``was_started`` False:
    there was no process.
    """

    evidence: Evidence
    started_at: Moment
    ended_at: Moment
    figures: Figures
    session: str | None = None
    model: str | None = None
    worked: bool = False
    lines: tuple[str, ...] = ()
    last_message: str = ""
    swept: tuple[str, ...] = ()
    phase: str | None = None
    was_started: bool = True


class AgentRun:
    """One process of an agent."""

    def __init__(self, spec: AgentRunSpec, observer: AgentObserver) -> None:
        self._spec, self._observer, self._clock = spec, observer, Clock()
        self._termination = Termination(exit_grace_s=spec.exit_grace_s, crash_grace_s=spec.crash_grace_s)
        self._output = AgentOutput(spec, observer, self._termination, self._clock)
        self._done: TerminationRequest | None = None

    async def run(self) -> AgentResult:
        """Start it, follow it, end it where that is due; return when nothing of its tree is left.

        To be called once, in the main thread. Raises nothing for what the agent does. Cancelled, it ends the
        tree first.
        """
        spec, output, began_at = self._spec, self._output, self._clock.now()
        if (request := self._termination.request) is not None:
            return self._not_started(began_at, Evidence(ours=request.ours, printed=False))
        launch, repository = spec.agent.launch(spec.order), Repository.find(spec.directory)
        mark = None if repository is None else repository.mark()
        environment = {**os.environ, **spec.environment, **launch.environment}
        has_stdin = launch.stdin is not None
        command = AgentCommand(spec.id, launch.argv, spec.directory, environment, has_stdin=has_stdin)
        try:
            process = await start(command)
        except AgentNotStarted as fault:
            evidence = Evidence(code=fault.code, printed=False, not_started=in_one_line(fault))
            return self._not_started(began_at, evidence)
        except OSError as fault:  # a lack of the machine passes: it is not the command's fault
            complaint = f"{launch.argv[0]} was not started: {fault.strerror or fault}"
            return self._not_started(began_at, Evidence(own_lines=(complaint,), printed=False))
        pump = Pump(process.pipes, launch.stdin or b"", out=output.out, err=output.err)
        _, swept = await supervise(process, pump, self._termination, self._until_ended(process, began_at))
        if swept.survivors:
            listed = ", ".join(f"{name} (pid {pid})" for pid, name in swept.survivors.items())
            self._observer.warn(f"still alive {termination.SWEEP_S:g} s after SIGKILL: {listed}")
        await asyncio.to_thread(pump.keep, spec.keep)
        if repository is not None and mark is not None:  # by the reflog: git is not called
            commits = repository.commits_made(mark)
            output.worked |= commits is not None and commits.made > 0
        return self._result(began_at, self._evidence(process), swept)

    @property
    def session(self) -> str | None:
        """Return the agent's session once it is worth resuming."""
        return self._output.session if self._output.worked else None

    def end(self, ours: OurDoing = OurDoing.ASKED) -> None:
        """End it now; ``run`` then returns."""
        self._termination.end(TerminationRequest(ours, "asked to"))

    async def _until_ended(self, process: AgentProcess, began_at: Moment) -> None:
        """Wait until it has exited, or was terminated and its grace period is over."""
        with suppress(OSError):
            make_private_folders(self._spec.keep)
        monitor = self._monitor(process, began_at)
        watcher = asyncio.create_task(monitor.run())
        ending = asyncio.create_task(self._termination.wait(process))
        try:
            await asyncio.wait({ending, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if watcher.done():
                watcher.result()  # nothing may run unwatched: a bug in the watch is raised here
            if (request := await ending) is not None:
                await self._terminate(process, request, monitor)
        finally:
            watcher.cancel()
            ending.cancel()
            await asyncio.gather(watcher, ending, return_exceptions=True)

    def _monitor(self, process: AgentProcess, began_at: Moment) -> StallMonitor:
        spec, output, who = self._spec, self._output, agent_named(self._spec.agent.name)
        subject = Subject(
            id=spec.id,
            began_at=began_at,
            age_s=0.0,
            limits=replace(spec.limits, max_run_s=spec.timeout_s),
            observer=lambda since: Observer(process, WorkTree(spec.directory, since=since)),
            last_output=lambda: output.last_life_at,
            last_lines=lambda: tuple(output.lines)[-LAST_LINES:],
            keep=lambda sighting: save_evidence(spec.keep, sighting),
            warn=self._observer.warn,
            end=self._hung,
            who=who,
        )
        monitor, limits = StallMonitor(subject, self._clock), subject.limits
        if grace_s := min(spec.lost_grace_s, limits.hang_timeout_s):
            hasty = replace(limits, hang_timeout_s=grace_s, startup_grace_s=0.0)
            impatient = replace(who, hang_key="a lost connection, transient_pattern_grace_seconds")
            output.on_lost = lambda: monitor.judge_by(
                *((limits, who) if output.lost_line is None else (hasty, impatient))
            )
        return monitor

    def _hung(self, finding: StallFinding, title: str) -> None:
        line = self._output.lost_line
        ours = OurDoing.LOST_CONNECTION if line and finding is StallFinding.STALL else OURS[finding]
        self._termination.end(TerminationRequest(ours, title, line=line))

    async def _terminate(
        self, process: AgentProcess, request: TerminationRequest, monitor: StallMonitor
    ) -> None:
        if request.evidence is not None:
            await monitor.save(request.evidence)
        if request.ours in SAVED_BEFORE:
            try:
                async with asyncio.timeout(BEFORE_KILL_S):
                    await self._observer.before_kill(request.ours, request.why)
            except (OSError, TimeoutError) as fault:  # a checkpoint that cannot be saved saves no hung agent
                logger.warning("attempt %s is ended unsaved: %s", self._spec.id, fault or "no answer in time")
        if not process.has_exited:  # else it ended by itself in between
            self._done = request
            await terminate(process, request)

    def _evidence(self, process: AgentProcess) -> Evidence:
        code, output, done = termination.exit_code(process), self._output, self._done
        return Evidence(
            ours=None if done is None else done.ours,
            code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            verdict=output.verdict,
            limited=output.limited,
            own_lines=tuple(output.parser.own_lines()),
            crash_line=None if done is None else done.line,
            printed=output.printed,
            retrying=output.retrying,
        )

    def _not_started(self, began_at: Moment, evidence: Evidence) -> AgentResult:
        return replace(self._result(began_at, evidence), was_started=False)

    def _result(self, began_at: Moment, evidence: Evidence, swept: SweepResult | None = None) -> AgentResult:
        output = self._output
        return AgentResult(
            evidence=evidence,
            started_at=began_at,
            ended_at=self._clock.now(),
            figures=output.figures,
            session=output.session,
            model=output.model,
            worked=output.worked,
            lines=tuple(output.lines),
            last_message=output.parser.last_message(),
            swept=() if swept is None else tuple(f"{name} (pid {pid})" for pid, name in swept.ended.items()),
        )
