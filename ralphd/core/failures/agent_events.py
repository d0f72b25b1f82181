"""The events of an agent, the same for all CLIs, and whether it makes progress by them (L6).

Output without progress is not life: empty steps, and the agent's own retries beyond a patience, are
distinguished from work. Times are seconds of a clock that nobody can set.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Final, TypeAlias, get_args

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.text import plain, plain_lines
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

# The events of an agent while it runs: the small set that the streams of all CLIs come down to.


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
class WindowUsed:
    """The vendor reports the used share of a window of the plan, from 0 to 1, and its reset (Q4)."""

    name: str
    used: float
    resets_at: Moment | None = None


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


_Progress: TypeAlias = Started | AgentText | ToolUse | Spent | FinalEvent
AgentEvent: TypeAlias = _Progress | Alive | Empty | RetryingItself | Limited | WindowUsed | Warned

PROGRESS: Final = get_args(_Progress)

RETRY_PATIENCE_S: Final = 300.0
"""How long an agent's own retries, with nothing in between, are a sign of life; at least the timeout."""
FEWEST: Final = 3
GAP_SHARE: Final = 0.5
"""Empty steps further apart than this share of the timeout are not a streak; a tool may be running."""


@dataclass(frozen=True, slots=True)
class Idling:
    """An unbroken streak of events without progress, ``retries`` among them; ``count`` 0: there is none."""

    began_s: float = 0.0
    last_s: float = 0.0
    count: int = 0
    retries: int = 0


NOT_IDLING: Final = Idling()


@dataclass(frozen=True, slots=True)
class Traits:
    """The events of one line, taken together.

    ``works``: it continues, ``judges``: a final event, ``is_told``: people are shown words, ``beats``: a bare
    sign of life.
    """

    progresses: bool
    idles: bool
    beats: bool
    works: bool
    judges: bool
    is_told: bool
    is_more_than_empty: bool


def shown_lines(event: AgentEvent) -> Iterator[str]:
    """Yield the lines that people see of a text or of a tool use; of any other event none."""
    match event:
        case AgentText(text=text):
            yield from plain_lines(text)
        case ToolUse(name=name, about=about):
            yield plain(f"[{name}] {about.partition(chr(10))[0]}".rstrip())


def traits_of(signs: Sequence[AgentEvent]) -> Traits:
    # Called for each line, and most lines have one event.
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
    """Return the streak after a line's events. A bare sign of life neither breaks it nor adds to it."""
    for sign in signs:
        if isinstance(sign, PROGRESS):
            idling = NOT_IDLING
        elif isinstance(sign, Empty | RetryingItself):
            is_retry = isinstance(sign, RetryingItself)
            if not _continues(idling, at_s, hang_timeout_s, is_retry=is_retry):
                idling = Idling(at_s)
            idling = replace(idling, last_s=at_s, count=idling.count + 1, retries=idling.retries + is_retry)
    return idling


def _continues(idling: Idling, at_s: float, hang_timeout_s: float, *, is_retry: bool) -> bool:
    longest_s = _patience_s(hang_timeout_s) if is_retry and idling.retries else GAP_SHARE * hang_timeout_s
    return idling.count > 0 and at_s - idling.last_s <= longest_s


def is_life(signs: Sequence[AgentEvent], idling: Idling, at_s: float, hang_timeout_s: float) -> bool:
    """Whether the events of a line are life; ``idling`` is the streak with them.

    In a streak of empty steps their starts are not.
    """
    if any(isinstance(sign, PROGRESS) for sign in signs):
        return True
    if any(isinstance(sign, Alive) for sign in signs):
        return idling.count < FEWEST or not _continues(idling, at_s, hang_timeout_s, is_retry=False)
    if not any(isinstance(sign, RetryingItself) for sign in signs):
        return False
    return at_s - idling.began_s < _patience_s(hang_timeout_s)


def is_stuck(idling: Idling, hang_timeout_s: float) -> bool:
    """Whether it has idled too long, whatever its process tree does; never without a timeout."""
    if hang_timeout_s <= 0 or idling.count < FEWEST:
        return False
    return idling.last_s - idling.began_s >= limit_s(idling, hang_timeout_s)


def limit_s(idling: Idling, hang_timeout_s: float) -> float:
    """Return how long it may idle: the timeout, which for retries begins when they are no longer life."""
    return hang_timeout_s + (_patience_s(hang_timeout_s) if idling.retries else 0.0)


def _patience_s(hang_timeout_s: float) -> float:
    return max(RETRY_PATIENCE_S, hang_timeout_s)


def explain_stuck(name: str, idling: Idling, hang_timeout_s: float) -> Explanation:
    lasted = in_seconds(idling.last_s - idling.began_s)
    does = "only retried" if idling.retries else "only printed empty steps"
    title = f"{name} {does} for {lasted} — killing its processes"
    because = f"output without progress is not a sign of life: hang_timeout_seconds = {hang_timeout_s:g}"
    because += f", after {in_seconds(_patience_s(hang_timeout_s))} of retries" if idling.retries else ""
    figures = (
        Figure("without progress", lasted, f"ended at {in_seconds(limit_s(idling, hang_timeout_s))}"),
        Figure("empty steps", str(idling.count - idling.retries)),
        Figure("retries by itself", str(idling.retries)),
    )
    missing, done = ("a text", "a tool use", "tokens"), "all its processes are killed (stall)"
    return Explanation("L6", title, because, figures, missing, done)
