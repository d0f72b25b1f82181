"""Who hears of an attempt while it runs."""

from typing import Protocol

from ralphd.core.classify import OurDoing
from ralphd.core.signs import RetryingItself


class News(Protocol):
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
