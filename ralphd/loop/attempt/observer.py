"""Who hears of an attempt while it runs: the log, and the checkpoint before an end of our doing."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from ralphd.core.failures.agent_events import RetryingItself
from ralphd.core.failures.classify import OurDoing
from ralphd.core.loop.state import PauseReason
from ralphd.loop.console import Console, span

# Who hears of an attempt while it runs.


class AttemptObserver(Protocol):
    """Who hears of an attempt while it runs. None of these may block for long."""

    def show(self, line: str) -> None:
        """A line for the log: the agent's words, its tool uses, its complaints."""
        ...

    def warn(self, text: str) -> None:
        """It has been silent for its missed heartbeats (H1)."""
        ...

    def retrying(self, sign: RetryingItself) -> None:
        """It has met an error and tries again by itself."""
        ...

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """It is about to be ended: the checkpoint is saved first (002-US-004)."""
        ...


_REASONS = {OurDoing.TIMEOUT: PauseReason.TIMEOUT, OurDoing.STALL: PauseReason.STALL}


class ConsoleObserver:
    """Hears of one attempt by ``agent``. ``save`` writes the checkpoint."""

    def __init__(
        self, console: Console, agent: str, save: Callable[[PauseReason, str], Awaitable[None]]
    ) -> None:
        self._console = console
        self._agent = agent
        self._save = save

    def show(self, line: str) -> None:
        """A line of the agent's."""
        self._console.show(line)

    def warn(self, text: str) -> None:
        """It has been silent for long."""
        self._console.say(text)

    def retrying(self, sign: RetryingItself) -> None:
        """It has met an error and tries again by itself."""
        count = f" ({sign.attempt} of {sign.most})" if sign.attempt and sign.most else ""
        soon = f", in {span(sign.delay_s)}" if sign.delay_s else ""
        why = f": {sign.reason}" if sign.reason else ""
        self._console.say(f"{self._agent} tries again by itself{count}{soon}{why}")

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """It is about to be ended: the checkpoint is saved first (002-US-004)."""
        if ours is OurDoing.ASKED:
            return
        self._console.say(why)
        if ours in _REASONS:
            await self._save(_REASONS[ours], why)
            self._console.say("the checkpoint is saved; the agent and all that it started are ended now")
