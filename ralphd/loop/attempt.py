"""One attempt: an agent's process from its start to the sweep of its tree (L5 to L7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ralphd.agents.agent import Agent, Order
from ralphd.core.classify import Evidence, OurDoing
from ralphd.core.model import Moment
from ralphd.core.signs import RetryingItself
from ralphd.core.watch import Limits


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """What is to be run, and how long to be patient with it.

    ``id`` goes into the environment as ``RALPH_ATTEMPT_ID``; by it and by descent its tree is found (L5).
    ``keep`` is a directory for the last of its raw output. ``timeout_s`` 0: no limit.
    """

    id: str
    agent: Agent
    order: Order
    directory: Path
    keep: Path
    timeout_s: float
    limits: Limits
    exit_grace_s: float
    crash_grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """An attempt that has ended, and whose tree is gone.

    ``lines`` are the last 50 of what it showed: the agent's words and tool uses, or its stdout as it was.
    ``worked``: there was a text, a tool use or a commit, so that its session is worth resuming. ``cost_usd``
    None: the agent does not tell. ``swept`` are the processes that were left and were ended.
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


class News(Protocol):
    """Who hears of an attempt while it runs. None of these may block for long."""

    def show(self, line: str) -> None:
        """A line for the log: the agent's words, its tool uses, its complaints."""
        ...

    def warn(self, text: str) -> None:
        """It has been silent for its missed heartbeats, or complained of itself (H1)."""
        ...

    def retrying(self, sign: RetryingItself) -> None:
        """It has met an error and tries again by itself."""
        ...

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """It is about to be ended: the checkpoint is saved first (002-US-004)."""
        ...


class Attempt:
    """One life of an agent's process."""

    def __init__(self, plan: AttemptPlan, news: News) -> None:
        self._plan = plan
        self._news = news

    async def run(self) -> AttemptResult:
        """Start it, follow it, end it where it has to be; returns when nothing of its tree is left.

        Raises nothing for what the agent does. Cancelled, it ends the tree first.
        """
        raise NotImplementedError

    def end(self, ours: OurDoing = OurDoing.ASKED) -> None:
        """Have it ended now; ``run`` then returns."""
        raise NotImplementedError
