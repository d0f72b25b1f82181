"""What an agent shows of itself while it runs: the small set that the event streams of all CLIs come down to.

``ralphd/agents`` reads each CLI's own lines into these; ``core/classify`` and the loop know nothing else of
an agent's output.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ralphd.core.model import Moment


@dataclass(frozen=True, slots=True)
class Started:
    """The agent's session has begun. ``session`` is what resumes it."""

    session: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life without content: a partial message, a heartbeat."""


@dataclass(frozen=True, slots=True)
class Text:
    """The agent's own words: prose, never evidence of a failure (K2)."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool was used. ``about`` is a short text for people: a command, a file."""

    name: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """Output that is no progress: an empty step, 0 tokens (L6)."""


@dataclass(frozen=True, slots=True)
class RetryingItself:
    """The agent has met an error and tries again by itself; no end, and no sign of life for ever (L6)."""

    reason: str = ""
    status: int | None = None
    attempt: int | None = None
    most: int | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limited:
    """The vendor has told of a limit that is reached now (claude's ``rate_limit_event``, ``rejected``)."""

    resets_at: Moment | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used. ``total``: of the attempt so far, replacing what was told before; else to be added.

    ``cost_usd`` is None where the CLI tells no price.
    """

    cost_usd: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    total: bool = True


@dataclass(frozen=True, slots=True)
class Warned:
    """The agent complains of something, on its own account, and goes on: shown, never a verdict."""

    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The structured final event: what the agent says of its own end. The last one counts.

    ``message`` is the failure's text (or the final answer of a good end). ``status`` is an HTTP status,
    ``code`` the CLI's or vendor's name for the failure (``usage_limit_reached``), ``headers`` those of the
    vendor's answer in lower case, ``body`` its text: each only where the CLI tells it.
    """

    good: bool
    message: str = ""
    status: int | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


Sign: TypeAlias = (
    Started | Alive | Text | ToolUse | Empty | RetryingItself | Limited | Spent | Warned | Verdict
)

PROGRESS = (Started, Text, ToolUse, Spent, Verdict)
"""Signs that something was got on with; the others are no life to a watch that has lost its patience (L6)."""
