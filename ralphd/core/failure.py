"""Failure kinds: what the end of an attempt can mean, and what each kind leads to (FK, K1 to K4).

An attempt that did what it should has no kind. Who reads the evidence is ``core/classify``; who acts on the
kind is ``core/loop``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FailureKind(StrEnum):
    """What went wrong with an attempt [000-T7, 002-US-001, 003]."""

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
    """The four classes that kinds fall into [002-US-001]."""

    TRANSIENT = "transient"
    USAGE_LIMIT = "usage_limit"
    FATAL = "fatal"
    TIMEOUT = "timeout"


class Hint(StrEnum):
    """What is to be done about a failure, in the words of [002-US-001]."""

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
    """What ``kind`` leads to, by the table of failure kinds."""
    return _MEANINGS[kind]


def kind_of(word: str | None) -> FailureKind | None:
    """The kind that a report names; None for a word that is none of ours."""
    return FailureKind(word) if word in tuple(FailureKind) else None


def hint(kind: FailureKind, *, reset_known: bool) -> Hint:
    """What is to be done about it. How long a usage limit lasts, if it does not say so, a person knows."""
    if kind is FailureKind.USAGE_LIMIT and not reset_known:
        return Hint.WAIT_FOR_USER
    return _MEANINGS[kind].hint
