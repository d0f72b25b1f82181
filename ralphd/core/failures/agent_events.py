"""The events of an agent while it runs: the small set that the streams of all CLIs come down to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ralphd.core.time import Moment


@dataclass(frozen=True, slots=True)
class Started:
    """The agent's session has begun; ``session`` resumes it."""

    session: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life without content: a partial message, a heartbeat."""


@dataclass(frozen=True, slots=True)
class AgentText:
    """The agent's own words: prose, never evidence of a failure (K2)."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool was used. ``about`` is a short text for people: a command, a file."""

    name: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """An empty step, 0 tokens: output without progress (L6)."""


@dataclass(frozen=True, slots=True)
class RetryingItself:
    """The agent retries after an error: not its end, and a sign of life for a limited time only (L6)."""

    reason: str = ""
    status: int | None = None
    attempt: int | None = None
    most: int | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limited:
    """The vendor reports that a limit is reached (claude's ``rate_limit_event``, ``rejected``)."""

    resets_at: Moment | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """What an attempt used. ``cost_usd`` is None where the CLI reports no price."""

    cost_usd: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """Figures of the attempt so far, which replace earlier ones; without ``total`` they are to be added."""

    figures: Figures
    total: bool = True

    def after(self, before: Figures) -> Figures:
        """Return the attempt's figures, which were ``before`` until this event."""
        new, cost_usd = self.figures, before.cost_usd
        if new.cost_usd is not None:
            cost_usd = new.cost_usd + (0.0 if self.total else cost_usd or 0.0)
        if self.total:
            return replace(new, cost_usd=cost_usd)
        return Figures(cost_usd, before.tokens_in + new.tokens_in, before.tokens_out + new.tokens_out)


@dataclass(frozen=True, slots=True)
class Warned:
    """The agent complains and continues: shown, never a verdict."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalEvent:
    """The structured final event: the agent's own verdict. The last one counts.

    ``message`` is the failure's text (or the final answer of a good end). ``status`` is an HTTP status,
    ``code`` the CLI's or vendor's name for the failure (``usage_limit_reached``), ``headers`` those of the
    vendor's answer in lower case, ``body`` its text: each only where the CLI reports it.
    """

    good: bool
    message: str = ""
    status: int | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


AgentEvent: TypeAlias = (
    Started | Alive | AgentText | ToolUse | Empty | RetryingItself | Limited | Spent | Warned | FinalEvent
)
