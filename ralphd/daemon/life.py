"""One run, as the daemon that supervises it holds it: its processes, and the watch over its silence."""

import signal

from ralphd.core.actions import Action, KillTree, PassOn, Terminate, Wish
from ralphd.core.explain import NOT_WATCHED, Explanation
from ralphd.core.model import RunId
from ralphd.daemon.account import Account
from ralphd.daemon.watching import Tell, WatchedRun, watching
from ralphd.git.worktree import WorkTree
from ralphd.process.clock import Clock
from ralphd.process.output import Log
from ralphd.process.spawn import Run, RunRecord
from ralphd.process.tree import age_s
from ralphd.process.watch import Observer, RunTree

SIGNALS = {Wish.PAUSE: signal.SIGUSR1, Wish.SKIP_WAIT: signal.SIGUSR2}


class Life:
    """A run that lives. Unsupervised (P6), it is not watched."""

    def __init__(
        self, run: Run, record: RunRecord, account: Account, *, log: Log, clock: Clock, tell: Tell
    ) -> None:
        self.run = run
        self.record = record
        self._account = account
        self._reports = 0
        self._supervised = account.policy.supervised
        self.watching = watching(self._watched(log, tell), clock)

    @property
    def run_id(self) -> RunId:
        """Which run it is."""
        return self.record.run_id

    def _watched(self, log: Log, tell: Tell) -> WatchedRun:
        directory = self._account.definition.directory
        return WatchedRun(
            record=self.record,
            age_s=age_s(self.record.start_ticks),
            directory=self.run.directory.path,
            log=log,
            observer=lambda since: Observer(RunTree(self.record), WorkTree(directory, since=since)),
            limits=self._account.configuration.limits(),
            said=lambda: self._account.supervision.said,
            heard=lambda: self._reports,
            tell=tell,
        )

    async def watch(self) -> None:
        """Watch over its silence, until cancelled or until there is nothing more to say."""
        if self._supervised:
            await self.watching.run()

    def obey(self, action: Action) -> None:
        """Carry out an order that is about this run's processes."""
        match action:
            case Terminate():
                self.run.terminate()
            case PassOn(wish=wish):
                self.run.pass_on(SIGNALS[wish])
            case KillTree():
                self.run.kill_tree()
            case _:
                raise AssertionError(f"{action} is no order to a run")

    def hear(self) -> None:
        """It has reported something: that is a sign of life, and may change how it is watched."""
        self._reports += 1
        self.watching.hurry()

    def explanation(self) -> Explanation:
        """What is thought of it now."""
        return self.watching.explanation() if self._supervised else NOT_WATCHED

    def silence(self) -> Explanation | None:
        """What was thought of its silence, where it was silent for so long that it was looked at."""
        return self.watching.silence() if self._supervised else None
