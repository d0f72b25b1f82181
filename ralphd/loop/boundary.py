"""A boundary of the loop: report the iteration, wait for the verdict, push (L9, R9)."""

import asyncio
from collections.abc import Callable

from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.loop.model import FinishIteration
from ralphd.core.supervision.model import Next
from ralphd.git.remote import pull_rebase, push
from ralphd.loop.console import Console
from ralphd.loop.report_client import RegentReply, Reports
from ralphd.loop.reporter import Reporter
from ralphd.loop.settings import LoopSettings

# Pull before an iteration, push after its verdict, where the configuration wants it (L9).


class Remote:
    """The upstream of the working directory's branch."""

    def __init__(self, settings: LoopSettings, console: Console) -> None:
        self._settings = settings
        self._console = console

    async def pull(self) -> None:
        if self._settings.configuration.git.auto_pull_rebase:
            pulled = await asyncio.to_thread(pull_rebase, self._settings.directory)
            self._console.say(f"pull: {pulled.words}")

    async def push(self, *, failed: bool) -> None:
        """Push the iteration's commits; those of a failed one wait for the next."""
        if self._settings.configuration.git.auto_push and not failed:
            pushed = await asyncio.to_thread(push, self._settings.directory)
            self._console.say(f"push: {pushed.words}")


ANSWER_PATIENCE_S = 60.0
AWAY_PATIENCE_S = 1.0
LOOK_S = 0.5


class BoundaryClient:
    """Asks the Regent what to do after an iteration. Without a gate the loop does not wait for a daemon."""

    def __init__(
        self, settings: LoopSettings, console: Console, scribe: Reporter, reports: Reports, remote: Remote
    ) -> None:
        self._settings = settings
        self._console = console
        self._scribe = scribe
        self._reports = reports
        self._remote = remote
        self._is_given_up = False
        self.is_waiting = False

    def give_up(self) -> None:
        """Wait no longer: the loop ends now, and the next one reads the verdict."""
        self._is_given_up = True

    async def answer(self, order: FinishIteration, late: Callable[[Next], None]) -> RegentReply | None:
        """Return what to do next: continue, where nobody answers in time; then ``late`` gets the answer.

        None: there is a verdict to come that the loop does not wait for any longer.
        """
        report = self._scribe.iteration_finished(order)
        answer = asyncio.wrap_future(report)
        self.is_waiting = True
        try:
            found = await self._patiently(answer)
        finally:
            self.is_waiting = False
        if found is None and self._settings.has_gate:
            report.cancel()
            return None
        if found is None:
            answer.add_done_callback(lambda done: None if done.cancelled() else late(done.result().next))
            found = RegentReply()
        if found.verdict is not None:
            self._console.say(found.verdict.words)
        if _may_be_pushed(found):
            await self._remote.push(failed=order.failed)
        return found

    async def _patiently(self, answer: "asyncio.Future[RegentReply]") -> RegentReply | None:
        """Return the answer; with a gate however long it takes (L9), else None after a limit."""
        waited_s, told = 0.0, ""
        while not answer.done() and not self._is_given_up:
            patience_s = AWAY_PATIENCE_S if self._reports.is_away else ANSWER_PATIENCE_S
            if waited_s >= patience_s and not self._settings.has_gate:
                return None
            waits = self._wait_words() if waited_s and self._settings.has_gate else ""
            if waits and waits != told:
                told = waits
                self._console.say(waits)
            await asyncio.wait([answer], timeout=LOOK_S)
            waited_s += LOOK_S
        return answer.result() if answer.done() and not answer.cancelled() else None

    def _wait_words(self) -> str:
        if self._reports.is_away:
            return "waits for the daemon: with the tests' gate on nothing goes on without it"
        return "waits for the verdict: the tests run"


def _may_be_pushed(found: RegentReply) -> bool:
    """Not what was reverted, and nothing that a person has to look at first."""
    if found.verdict is None:
        return True
    is_paused = found.next is Next.PAUSE and found.verdict.kind is VerdictKind.UNTESTED
    return found.verdict.kind is not VerdictKind.REVERTED and not is_paused
