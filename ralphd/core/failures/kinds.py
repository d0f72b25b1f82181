"""Failure kinds: what the end of an attempt can mean, and what each kind leads to (K1 to K4).

A successful attempt has no kind. ``core/failures/classify`` reads the evidence; ``core/loop/step`` acts on
the kind.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from ralphd.dataclass import dataclass


class FailureKind(StrEnum):
    RATE_LIMIT = "rate_limit"
    USAGE_LIMIT = "usage_limit"
    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    STALL = "stall"
    AGENT_CRASH = "agent_crash"
    AGENT_INCOMPLETE = "agent_incomplete"
    FATAL = "fatal"
    CONTEXT = "context"
    UNKNOWN = "unknown"


class Category(StrEnum):
    TRANSIENT = "transient"
    USAGE_LIMIT = "usage_limit"
    FATAL = "fatal"
    TIMEOUT = "timeout"


class Hint(StrEnum):
    """What to do about a failure; reports and events carry these words."""

    RETRY_NOW = "RetryNow"
    RETRY_AFTER = "RetryAfter"
    WAIT_FOR_USER = "WaitForUser"
    STOP_EXECUTION = "StopExecution"
    RESUME_FROM_CHECKPOINT = "ResumeFromCheckpoint"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a kind leads to: whether it counts toward the next agent, and against the task."""

    category: Category
    toward_fallback: bool
    for_the_task: bool
    hint: Hint


_MEANINGS: Final[Mapping[FailureKind, Meaning]] = {
    FailureKind.RATE_LIMIT: Meaning(Category.TRANSIENT, False, False, Hint.RETRY_AFTER),
    FailureKind.USAGE_LIMIT: Meaning(Category.USAGE_LIMIT, False, False, Hint.RESUME_FROM_CHECKPOINT),
    FailureKind.TRANSIENT: Meaning(Category.TRANSIENT, True, False, Hint.RETRY_AFTER),
    FailureKind.TIMEOUT: Meaning(Category.TIMEOUT, True, True, Hint.RESUME_FROM_CHECKPOINT),
    FailureKind.STALL: Meaning(Category.TIMEOUT, True, True, Hint.RESUME_FROM_CHECKPOINT),
    FailureKind.AGENT_CRASH: Meaning(Category.TRANSIENT, True, True, Hint.RETRY_AFTER),
    FailureKind.AGENT_INCOMPLETE: Meaning(Category.TRANSIENT, True, True, Hint.RETRY_NOW),
    FailureKind.FATAL: Meaning(Category.FATAL, True, False, Hint.STOP_EXECUTION),
    FailureKind.CONTEXT: Meaning(Category.TRANSIENT, True, True, Hint.RETRY_NOW),
    FailureKind.UNKNOWN: Meaning(Category.TRANSIENT, True, True, Hint.RETRY_AFTER),
}


def meaning(kind: FailureKind) -> Meaning:
    return _MEANINGS[kind]


def kind_of(word: str | None) -> FailureKind | None:
    """Return the kind that a report names; None for any other word."""
    return FailureKind(word) if word in tuple(FailureKind) else None


def hint(kind: FailureKind, *, reset_known: bool) -> Hint:
    """Return what to do. Where a usage limit does not report its length, a person has to know it."""
    if kind is FailureKind.USAGE_LIMIT and not reset_known:
        return Hint.WAIT_FOR_USER
    return _MEANINGS[kind].hint


@dataclass(frozen=True, slots=True)
class ExitMeaning:
    """What an exit status means."""

    kind: FailureKind
    why: str


_SHARED: Final[Mapping[int, ExitMeaning]] = {
    124: ExitMeaning(FailureKind.TIMEOUT, "a time limit around it ran out"),
    126: ExitMeaning(FailureKind.FATAL, "the command was found, and cannot be executed"),
    127: ExitMeaning(FailureKind.FATAL, "the command was not found: it is not installed"),
}
_SIGNALS: Final[Mapping[int, str]] = {
    2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS",
}  # fmt: skip
_OFTEN: Final = {6: ": it gave up", 9: "; often memory ran out", 11: ": a crash of the program"}
_BY_SIGNAL: Final = range(129, 160)
"""A shell's exit statuses for a killed process; a CLI's own table precedes them (gemini's 173)."""


def meaning_of_exit(
    code: int | None, signal: int | None, table: Mapping[int, ExitMeaning]
) -> tuple[str, ExitMeaning] | None:
    """Return rule and meaning of an end, by the CLI's own table first; None where it explains nothing."""
    if signal is not None:
        return _signalled(signal)
    if code is None or code == 0:
        return None
    if (known := table.get(code) or _SHARED.get(code)) is not None:
        return f"exit status {code}", known
    return _signalled(code - 128) if code in _BY_SIGNAL else None


def ended_with(code: int | None, signal: int | None) -> str:
    """Return an end in words: ``exit status 1``, ``SIGTERM``."""
    if signal is not None:
        return _SIGNALS.get(signal, f"signal {signal}")
    return "an unknown exit status" if code is None else f"exit status {code}"


def _signalled(number: int) -> tuple[str, ExitMeaning]:
    name = ended_with(None, number)
    why = f"it was ended by {name}, and not by ralphd{_OFTEN.get(number, '')}"
    return name, ExitMeaning(FailureKind.AGENT_CRASH, why)
