"""A judge without a daemon: what ``core/gate/step`` orders is carried out by real git and a real shell."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from ralphd.core.gate.range import attributed
from ralphd.core.gate.step import begin, retaken, step
from ralphd.core.gate.verdict import (
    Baseline,
    GateEvent,
    GatePolicy,
    GateRun,
    Position,
    Ran,
    Result,
    RunTests,
    Say,
    TestRun,
    Verdict,
    label_of,
)
from ralphd.core.supervision.events import VerdictReached
from ralphd.core.supervision.model import (
    Announce,
    Escalate,
    Goal,
    Paused,
    Policy,
    Reason,
    RunId,
    Supervision,
    Waiting,
)
from ralphd.core.supervision.requests import over
from ralphd.daemon.gate.git_effects import GitEffects
from ralphd.daemon.gate.test_runs import judged
from ralphd.process.rundir import ExitRecord

RUN = RunId("r000001")
LABEL = label_of("demo", RUN, "boundary")


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a boundary: the verdict, what was reverted, what is said, and what Ralph does then."""

    verdict: Verdict
    commits: tuple[str, ...]
    reverted: tuple[str, ...]
    tests: tuple[Result, ...]
    said: str
    ralph: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges in ``place``; the tests are a command for /bin/sh, and have ``limit_s`` seconds."""

    place: Path
    tests: str
    limit_s: float = 30.0
    baseline: Baseline = Baseline.GREEN
    policy: GatePolicy = field(default_factory=GatePolicy)

    @property
    def hands(self) -> GitEffects:
        """Those of the daemon."""
        quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return GitEffects(
            self.place, lambda: {"PATH": os.environ["PATH"], "HOME": str(self.place.parent), **quiet}
        )

    def judge(self, before: Position) -> Judged:
        """The verdict on what came since ``before``."""
        boundary = attributed(self.hands.boundary(before), knows_run=False)
        run = begin(boundary, self.baseline, boundary_id="boundary", run_id=RUN)
        while not isinstance(run.order, Say):
            if run.is_stale:
                boundary = attributed(self.hands.boundary(before), knows_run=False)
                run = retaken(run, boundary, self.hands.reverts(LABEL))
                continue
            event = self._carried_out(run)
            if isinstance(event, Ran):
                run = run.tested(TestRun(RUN, event.result, 0.0), "")
            run = step(run, event, self.policy)
        return _told(run)

    def _carried_out(self, run: GateRun) -> GateEvent:
        if not isinstance(run.order, RunTests):
            return self.hands.carry_out(run.order, run, LABEL)
        result = self._tested()
        return run.moved(self.hands.position()) or Ran(result)

    def _tested(self) -> Result:
        """One run of the tests, and what the daemon makes of its end."""
        shell = subprocess.Popen(
            ["/bin/sh", "-c", self.tests],
            cwd=self.hands.root(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        is_late = False
        try:
            shell.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
            os.killpg(shell.pid, signal.SIGKILL)
        code = shell.wait()
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        record = ExitRecord(RUN, exit_code, number, 0.0, time.time(), None, (), (), 0, None, lost=False)
        return judged(record, timed_out=is_late)[0]


def _told(run: GateRun) -> Judged:
    verdict = run.finished(1.0, ())
    event = VerdictReached(verdict)
    ralph = Supervision(Goal.RUNNING, Waiting(Reason.CRASH, 0.0, 2.0))
    said = over(ralph, event, Policy())
    texts = [action.text for action in said.actions if isinstance(action, Announce) and action.text]
    calls = [action.text for action in said.actions if isinstance(action, Escalate)]
    goes_on = "pauses" if isinstance(said.supervision.state, Paused) else "continues"
    return Judged(
        verdict,
        verdict.commits,
        verdict.reverted,
        tuple(ran.result for ran in run.tests),
        "; ".join(calls or texts),
        goes_on + (", calls" if calls else ""),
    )
