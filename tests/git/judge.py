"""A judge without a daemon: what ``core/gate/verdict`` orders is carried out by real git and a real shell."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from ralphd.core.gate.verdict import (
    Baseline,
    GatePolicy,
    JudgeEvent,
    Judgement,
    Position,
    Ran,
    Result,
    RunTests,
    Say,
    Verdict,
    begin,
    step,
)
from ralphd.core.supervision.events import JudgementOver
from ralphd.core.supervision.gate_events import over
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
from ralphd.daemon.gate.git_effects import GitEffects, label_of
from ralphd.daemon.gate.judge import moved
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
        judgement = begin(self.hands.boundary(before), self.baseline)
        ran: list[Result] = []
        while not isinstance(judgement.order, Say):
            event = self._carried_out(judgement)
            ran += [event.result] if isinstance(event, Ran) else []
            judgement = step(judgement, event, self.policy)
        return _told(judgement, judgement.order.verdict, tuple(ran))

    def _carried_out(self, judgement: Judgement) -> JudgeEvent:
        if not isinstance(judgement.order, RunTests):
            return self.hands.carry_out(judgement.order, judgement, LABEL)
        result = self._tested()
        return moved(judgement, self.hands.position()) or Ran(result)

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


def _told(judgement: Judgement, verdict: Verdict, tests: tuple[Result, ...]) -> Judged:
    commits = tuple(commit.sha for commit in judgement.boundary.commits)
    event = JudgementOver(
        at=1.0,
        run_id=RUN,
        verdict=verdict,
        commits=tuple(sha[:7] for sha in commits),
        reverted=tuple(sha[:7] for sha in judgement.reverted),
        tests=tuple(result.value for result in tests),
        id="boundary",
    )
    ralph = Supervision(Goal.RUNNING, Waiting(Reason.CRASH, 0.0, 2.0))
    said = over(ralph, event, Policy())
    texts = [action.text for action in said.actions if isinstance(action, Announce) and action.text]
    calls = [action.text for action in said.actions if isinstance(action, Escalate)]
    goes_on = "pauses" if isinstance(said.supervision.state, Paused) else "continues"
    return Judged(
        verdict,
        commits,
        judgement.reverted,
        tests,
        "; ".join(calls or texts),
        goes_on + (", calls" if calls else ""),
    )
