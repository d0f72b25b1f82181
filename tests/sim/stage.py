"""The stage of a night: clocks, disk, the daemon and the run that live, and how each of them dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, cast

from ralphd.core.loop.model import TaskState
from ralphd.core.supervision.model import RunId, Starting
from ralphd.core.time import Moment
from ralphd.loop.report_client import RegentReply
from tests.sim.accounts import Accounts
from tests.sim.agents import Services
from tests.sim.checking import Died
from tests.sim.command_hands import CommandHands
from tests.sim.cores import REAL, Steps
from tests.sim.daemon_hands import DaemonHands
from tests.sim.faults import Fault, Script
from tests.sim.invariants import Checks
from tests.sim.landing import LandingWorld
from tests.sim.loop_hands import LoopHands
from tests.sim.mail import Letter
from tests.sim.mutiny import Mutiny
from tests.sim.repository import GateRepository
from tests.sim.world import Agenda, Clock, Disk, Exit, RunRecord, UserList

if TYPE_CHECKING:
    from tests.sim.night import Night

SEEN_S: Final = 0.02


@dataclass(slots=True)
class Fuse:
    """What is killed at the so many-th thing that it does from now on."""

    left: int = 0

    def burns_down(self) -> bool:
        """One more thing was done: whether it is killed now."""
        if self.left == 0:
            return False
        self.left -= 1
        return self.left == 0


class Stage:
    """What the hands of the Regent and of the loop work with."""

    def __init__(
        self,
        script: Script,
        *,
        steps: Steps = REAL,
        teller: Callable[[Moment, str, str], None] | None = None,
    ) -> None:
        self.script, self.steps = script, steps
        self.policy, self.loop_policy = script.setting.policy(), script.setting.loop_policy()
        self._teller = teller
        self._dice = Random(script.seed ^ 0x5EED)
        self.clock = Clock()
        self.agenda = Agenda(self.clock)
        self.disk = Disk()
        self.list = UserList(script.setting.tasks)
        self.services = Services()
        self.waiting: deque[Fault] = deque()
        self.daemon: DaemonHands | None = None
        self.loop: LoopHands | None = None
        self.commits = 0
        self._work = self.review_fails = 0
        self.added_done: set[str] = set()
        self._daemon_fuse, self._loop_fuse = Fuse(), Fuse()
        self._lacks_until_s = -1.0
        self._down_for_s = 0.0
        self.checks = Checks(cast("Night", self))
        self.repository = GateRepository()
        self.tests_end_s = self.person_committed_at = 0.0
        self.landing = LandingWorld(cast("Night", self))
        self.mutiny = Mutiny(cast("Night", self))
        self.accounts = Accounts(cast("Night", self))

    def _do(self, act: Callable[[], None]) -> None:
        with suppress(Died):
            act()

    is_dawn = False

    def noise(self) -> float:
        """A number from 0 to 1."""
        return self._dice.random()

    def tell(self, who: str, what: str) -> None:
        """For the story, where one is told."""
        if self._teller is not None:
            self._teller(self.clock.wall(), who, what)

    def local(self, moment: Moment) -> str:
        """A moment as the people of this night read it."""
        return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")

    @property
    def is_work_done(self) -> bool:
        """Whether nothing is left, of what people added neither."""
        return self.is_list_done and not self.added_open

    @property
    def is_list_done(self) -> bool:
        """Whether the list is done; without one, whether there was enough work."""
        return not self.list.open if self.list.titles else self._work >= self.script.setting.work

    @property
    def added_open(self) -> list[str]:
        """What people added, and no loop has noted as done."""
        records = ((task.id, self.disk.ledger.get(task.id)) for task in self.disk.inbox.tasks)
        return [id_ for id_, each in records if each is None or each.state is not TaskState.COMPLETE]

    def tick(self, task: str, agent: str) -> None:
        """An agent did a piece of work."""
        self._work += 1
        if self.list.titles:
            self.tell(agent, f"ticks {task} off")
        if self.script.setting.gate:
            self.repository.work(task)
            self.list_follows_repository()
        else:
            self.list.tick(task)

    def list_follows_repository(self) -> None:
        """What is ticked is what the commits in effect have ticked."""
        self.list.follow({each.ticks for each in self.repository.in_effect()})

    def somebody_commits(self, *, breaks: bool) -> None:
        """A person works in the same directory."""
        self.commits += 1
        self.person_committed_at = self.clock.wall()
        self.repository.commit(by_run=False, breaks=breaks)

    # the processes

    @property
    def knows_heartbeats(self) -> bool:
        """Whether the daemon has heard that this run beats."""
        return self.daemon is not None and self.daemon.supervision.said.beats

    @property
    def lacks_resources(self) -> bool:
        """Whether nothing can be started now."""
        return self.clock.awake_s < self._lacks_until_s

    def intend_run(self) -> RunRecord:
        """A directory for the next run."""
        number = len(self.disk.runs) + 1
        run = RunRecord(RunId(f"r{number:06}-00000000"), self.clock.wall(), commits_before=self.commits)
        self.disk.runs.append(run)
        return run

    def bear(self, run: RunRecord, began_at: Moment | None, starting: Starting | None) -> None:
        """The loop's process."""
        self.checks.run_begins(run)
        run.born_at = run.last_output_at = self.clock.wall()
        run.lives = True
        if self.script.setting.command:
            self.loop = CommandHands(cast("Night", self), run)
        else:
            self.loop = LoopHands(cast("Night", self), run, began_at, starting)

    def run_exits(self, run: RunRecord, *, code: int | None = None, signal: int | None = None) -> None:
        """The run is over, with all that it had started; with neither it is lost (S6)."""
        hands = self.loop
        assert hands is not None and hands.run is run
        if code is not None or signal is not None:
            run.exit = Exit(self.clock.wall(), code, signal)
        if not hands.is_hung:
            run.last_output_at = self.clock.wall()
        run.lives = False
        hands.mail.drop()
        if hands.attempt is not None:
            hands.attempt.dies()
        self.loop = None
        self.accounts.is_gone(hands.by)
        self._loop_fuse.left = 0
        how = (
            f"with {code}" if code is not None else f"by signal {signal}" if signal else "and nobody saw how"
        )
        self.tell("the run", f"is over {how}")
        if self.daemon is not None:
            self.agenda.after(SEEN_S, partial(self._end_is_seen, self.daemon, run))

    def _end_is_seen(self, daemon: DaemonHands, run: RunRecord) -> None:
        if daemon is self.daemon:
            daemon.run_is_over(run)

    def loop_may_die(self, where: str) -> None:
        """The loop has written or done something; raises Died where it is killed then."""
        if self._loop_fuse.burns_down() and self.loop is not None:
            self.tell("the night", f"the loop is killed, {where}")
            self.run_exits(self.loop.run, signal=9)
            raise Died

    def daemon_may_die(self, where: str) -> None:
        """The same of the daemon."""
        if self._daemon_fuse.burns_down():
            self.tell("the night", f"the daemon is killed, {where}")
            self._daemon_dies(self._down_for_s)
            raise Died

    def report(self, run_id: RunId, letter: Letter) -> RegentReply | None:
        """A report reaches the daemon, or nobody; None also where its answer waits for a verdict."""
        if self.daemon is None:
            return None
        try:
            return self.daemon.hear(run_id, letter)
        except Died:
            return None

    def _daemon_starts(self) -> None:
        if self.daemon is not None:
            return
        self.tell("the daemon", "starts")
        self.daemon = DaemonHands(cast("Night", self))
        self._do(self.daemon.starts)
        if self.loop is not None and self.daemon is not None:
            self.loop.mail.daemon_is_back()

    def _daemon_dies(self, down_s: float) -> None:
        if self.daemon is None:
            return
        self._daemon_fuse.left = 0
        if isinstance(self.disk.supervision.state, Starting):  # counted, and born later
            self.checks.start_is_put_off()
        self.daemon.dies()
        self.daemon = None
        self.agenda.after(down_s, self._daemon_starts)

    def daemon_is_gone(self, words: str) -> None:
        """It has ended as requested."""
        self.tell("the daemon", words)
        self._daemon_dies(self._down_for_s)
