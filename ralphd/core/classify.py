"""The end of an attempt and its evidence to a failure kind, with the rule and the reason (K1 to K4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum

from ralphd.core.failure import FailureKind
from ralphd.core.limits import Reset
from ralphd.core.model import Moment
from ralphd.core.patterns import Patterns
from ralphd.core.signs import Limited, Verdict


class OurDoing(StrEnum):
    """Why we ended an attempt ourselves; that counts before anything that it printed (K1)."""

    TIMEOUT = "timeout"
    STALL = "stall"
    CRASH_PATTERN = "crash_pattern"  # L7: a crash message on stderr, and no sign of life since
    AFTER_RESULT = "after_result"  # L7: it had told its result, and did not end
    ASKED = "asked"  # a stop, a pause, the Regent


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an attempt that has ended.

    ``code`` is the exit status, ``signal`` the signal that ended it; both None when nobody knows.
    ``own_lines`` are the agent's own lines and nothing else: no tool output, no echoed prompt, no prose of
    one that prints events; the last 50 or so, of stdout and stderr. ``printed`` says whether there was
    anything at all on stdout. ``not_started`` is why the command could not be started.
    """

    ours: OurDoing | None = None
    code: int | None = None
    signal: int | None = None
    verdict: Verdict | None = None
    limited: Limited | None = None
    own_lines: tuple[str, ...] = ()
    crash_line: str | None = None
    printed: bool = True
    not_started: str | None = None


@dataclass(frozen=True, slots=True)
class ExitMeaning:
    """What an exit status means for one CLI, by its exit table."""

    kind: FailureKind
    why: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How one agent's ends are read: its patterns, its exit table, whether it prints a final event.

    ``zone`` is the local time zone, for times that name none.
    """

    agent: str
    patterns: Patterns
    exits: Mapping[int, ExitMeaning] = field(default_factory=dict)
    has_verdict: bool = False
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What an attempt's end was; ``kind`` None: a success. ``rule`` names what decided, ``why`` tells it."""

    kind: FailureKind | None
    rule: str
    why: str
    reset: Reset | None = None
    asked: bool = False


def classify(evidence: Evidence, rules: Rules, *, now: Moment) -> Finding:
    """What the end of an attempt was, in the order of evidence (K1)."""
    raise NotImplementedError
