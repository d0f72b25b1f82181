"""A boundary: an iteration is reported, its answer awaited, its commits pushed (L9)."""

import asyncio
from collections.abc import Callable

from ralphd.core.loop_model import FinishIteration
from ralphd.core.model import Next
from ralphd.loop.console import Console
from ralphd.loop.link import Reports
from ralphd.loop.remote import Remote
from ralphd.loop.scribe import Scribe
from ralphd.loop.settings import Settings

ANSWER_PATIENCE_S = 60.0
AWAY_PATIENCE_S = 1.0
LOOK_S = 0.5


class Boundary:
    """Asks the Regent what to do after an iteration. Without a gate nobody waits for a daemon."""

    def __init__(
        self, settings: Settings, console: Console, scribe: Scribe, reports: Reports, remote: Remote
    ) -> None:
        self._settings = settings
        self._console = console
        self._scribe = scribe
        self._reports = reports
        self._remote = remote

    async def answer(self, order: FinishIteration, late: Callable[[Next], None]) -> Next:
        """What to do next; to go on, where nobody answers in time: then ``late`` hears the answer."""
        answer = asyncio.wrap_future(self._scribe.iteration_finished(order))
        said = await self._patiently(answer)
        if said is None:
            answer.add_done_callback(lambda done: None if done.cancelled() else late(_next(done.result())))
        await self._remote.push(failed=order.failed)
        return Next.CONTINUE if said is None else _next(said)

    async def _patiently(self, answer: "asyncio.Future[str]") -> str | None:
        waited_s, told = 0.0, False
        while not answer.done():
            patience_s = AWAY_PATIENCE_S if self._reports.is_away else ANSWER_PATIENCE_S
            if waited_s >= patience_s and not self._settings.has_gate:
                return None
            if waited_s >= patience_s and not told:
                told = True
                self._console.say("waits for the daemon: with the tests' gate on nothing goes on without it")
            await asyncio.wait([answer], timeout=LOOK_S)
            waited_s += LOOK_S
        return None if answer.cancelled() else answer.result()


def _next(said: str) -> Next:
    return Next(said) if said in tuple(Next) else Next.CONTINUE
