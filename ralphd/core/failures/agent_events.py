"""Whether an agent gets on with something, by its own signs: output that is no progress is no life (L6).

Empty steps, and the agent's own retries beyond a patience, are told apart from work here. Moments are seconds
of a clock that nobody can set.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.time import Moment

# What an agent shows of itself while it runs: the small set that the event streams of all CLIs come down to.


@dataclass(frozen=True, slots=True)
class Started:
    """The agent's session has begun. ``session`` is what resumes it."""

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
class FinalEvent:
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


AgentEvent: TypeAlias = (
    Started | Alive | AgentText | ToolUse | Empty | RetryingItself | Limited | Spent | Warned | FinalEvent
)

PROGRESS = (Started, AgentText, ToolUse, Spent, FinalEvent)
"""Signs that something was got on with; the others are no life to a watch that has lost its patience (L6)."""


RETRY_PATIENCE_S: Final = 300.0
"""How long an agent's own retries are a sign of life, with nothing in between; at least the time-out."""
FEWEST: Final = 3
GAP_SHARE: Final = 0.5
"""Empty steps that are farther apart than this share of the time-out are no row: a tool may be at work."""


@dataclass(frozen=True, slots=True)
class Idling:
    """An unbroken row of signs that are no progress: when it began, its last one, whether with retries.

    ``count`` 0: there is none.
    """

    began_s: float = 0.0
    last_s: float = 0.0
    count: int = 0
    retries: int = 0


NOT_IDLING: Final = Idling()


@dataclass(frozen=True, slots=True)
class Traits:
    """What the signs of one line are, taken together.

    ``works`` is a work that goes on, ``judges`` a final event, ``is_told`` what people are shown in words,
    ``beats`` a bare sign of life.
    """

    progresses: bool
    idles: bool
    beats: bool
    works: bool
    judges: bool
    is_told: bool
    is_more_than_empty: bool


def traits_of(signs: Sequence[AgentEvent]) -> Traits:
    """The traits of the signs of one line; asked for at each line, of which most show one sign."""
    kinds: Iterable[Hashable] = map(type, signs)
    return _traits(*kinds) if len(signs) == 1 else _traits(*{*kinds})


@lru_cache(maxsize=1 << 10)
def _traits(*of: Hashable) -> Traits:
    kinds = {*of}
    return Traits(
        progresses=bool(kinds & {*PROGRESS}),
        idles=bool(kinds & {Empty, RetryingItself}),
        beats=Alive in kinds,
        works=bool(kinds & {Started, AgentText, ToolUse}),
        judges=FinalEvent in kinds,
        is_told=bool(kinds & {AgentText, ToolUse, Warned, RetryingItself}),
        is_more_than_empty=bool(kinds - {Empty}),
    )


def idled(idling: Idling, signs: Sequence[AgentEvent], at_s: float, hang_timeout_s: float) -> Idling:
    """The row after what one line of output showed. A bare sign of life neither breaks it nor adds to it."""
    for sign in signs:
        if isinstance(sign, PROGRESS):
            idling = NOT_IDLING
        elif isinstance(sign, Empty | RetryingItself):
            is_retry = isinstance(sign, RetryingItself)
            if not _goes_on(idling, at_s, hang_timeout_s, is_retry=is_retry):
                idling = Idling(at_s)
            retries = idling.retries + is_retry
            idling = replace(idling, last_s=at_s, count=idling.count + 1, retries=retries)
    return idling


def _goes_on(idling: Idling, at_s: float, hang_timeout_s: float, *, is_retry: bool) -> bool:
    longest_s = _patience_s(hang_timeout_s) if is_retry and idling.retries else GAP_SHARE * hang_timeout_s
    return idling.count > 0 and at_s - idling.last_s <= longest_s


def is_life(signs: Sequence[AgentEvent], idling: Idling, at_s: float, hang_timeout_s: float) -> bool:
    """Whether what a line showed at ``at_s`` is life, ``idling`` being the row with it.

    In a row of empty steps their beginnings are none.
    """
    if any(isinstance(sign, PROGRESS) for sign in signs):
        return True
    if any(isinstance(sign, Alive) for sign in signs):
        return idling.count < FEWEST or not _goes_on(idling, at_s, hang_timeout_s, is_retry=False)
    if not any(isinstance(sign, RetryingItself) for sign in signs):
        return False
    return at_s - idling.began_s < _patience_s(hang_timeout_s)


def is_stuck(idling: Idling, hang_timeout_s: float) -> bool:
    """Whether it has idled for so long that it is ended, whatever its tree does; never without a time-out."""
    if hang_timeout_s <= 0 or idling.count < FEWEST:
        return False
    return idling.last_s - idling.began_s >= limit_s(idling, hang_timeout_s)


def limit_s(idling: Idling, hang_timeout_s: float) -> float:
    """How long it may idle: the time-out, which for retries begins when they are no sign of life any more."""
    return hang_timeout_s + (_patience_s(hang_timeout_s) if idling.retries else 0.0)


def _patience_s(hang_timeout_s: float) -> float:
    return max(RETRY_PATIENCE_S, hang_timeout_s)


def explain_stuck(name: str, idling: Idling, hang_timeout_s: float) -> Explanation:
    """Why an agent is ended that only idles."""
    lasted = in_seconds(idling.last_s - idling.began_s)
    does = "only retries by itself" if idling.retries else "only shows empty steps"
    return Explanation(
        rule="L6",
        title=f"{name} {does} for {lasted} — killing its processes",
        because=f"output that is no progress is no life: hang_timeout_seconds = {hang_timeout_s:g}"
        + (f", after {in_seconds(_patience_s(hang_timeout_s))} of retries" if idling.retries else ""),
        figures=(
            Figure("without progress", lasted, f"ended at {in_seconds(limit_s(idling, hang_timeout_s))}"),
            Figure("empty steps", str(idling.count - idling.retries)),
            Figure("retries by itself", str(idling.retries)),
        ),
        missing=("a text", "a tool use", "tokens"),
        done="its tree is killed (kind stall)",
    )
