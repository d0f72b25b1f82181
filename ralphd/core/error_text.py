"""What a text says that is known to be an error's: its HTTP status first, then the phrases of the vendors.

Nothing here is for other texts: the same words in prose or in a tool's output mean nothing (K2).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ralphd.core.failure import FailureKind
from ralphd.core.patterns import Pattern, folded

LONGEST_TEXT: Final = 16_000
"""As much of an error's text as is read; the reason stands at its beginning."""

_RATE, _USAGE = FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT
_FATAL, _CONTEXT, _TRANSIENT = FailureKind.FATAL, FailureKind.CONTEXT, FailureKind.TRANSIENT


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text was taken for, by which rule, and the words that decided; ``vague`` as the phrase is."""

    kind: FailureKind
    rule: str
    words: str
    vague: bool = False


@dataclass(frozen=True, slots=True)
class _StatusRule:
    """What a status means, and which kinds the text beside it may make of it."""

    kind: FailureKind
    unless: frozenset[FailureKind] = frozenset()


_REFUSED = _StatusRule(_FATAL, frozenset({_CONTEXT, _USAGE}))
_FAILED_THERE = _StatusRule(_TRANSIENT)
_STATUSES: Final[Mapping[int, _StatusRule]] = {
    401: _StatusRule(_FATAL),
    402: _StatusRule(_FATAL, frozenset({_USAGE})),
    403: _StatusRule(_FATAL, frozenset({_USAGE, _RATE})),
    408: _FAILED_THERE,
    409: _FAILED_THERE,
    413: _StatusRule(_CONTEXT),
    425: _FAILED_THERE,
    429: _StatusRule(_RATE, frozenset({_USAGE, _FATAL, _RATE})),
}

# A status stands at the beginning, or after a word that introduces one: "code":429, status 503, error (429),
# HTTP/2 429, rejected (429). Any other number is a length, a port or a line.
_STATUS = re.compile(
    r"(?:^\W{0,3}"
    r"|\b(?:\w{0,20}status(?:[ _]?code)?|\w{0,20}error|code|failed|failure|rejected|returned|responded with"
    r"|https?(?:/[\d.]+)?)\b\W{1,6}(?:code\W{1,3}|status\W{1,3})?"
    r"|\b(?:failed|error)\b.{0,80}: (?=\d{3}\W*$))"
    r"([45]\d\d)(?![\w.,]*\d)",
    re.IGNORECASE,
)


def read_error(text: str, phrases: Sequence[Pattern], *, status: int | None = None) -> Reading | None:
    """What an error's text says, with its ``status`` where that is known; None where it says nothing."""
    plain = folded_text(text)
    if status is None and (found := _STATUS.search(plain)):
        status = int(found[1])
    if status is not None and 400 <= status <= 599:
        return _by_status(status, plain, phrases)
    return _by_phrase(plain, phrases)


def folded_text(text: str) -> str:
    """A text of several lines as one, as patterns see it."""
    pieces = (folded(line) for line in text[:LONGEST_TEXT].replace("\\n", "\n").splitlines())
    return " ".join(" ".join(pieces).split())


def _by_status(status: int, plain: str, phrases: Sequence[Pattern]) -> Reading:
    rule = _STATUSES.get(status, _REFUSED if status < 500 else _FAILED_THERE)
    said = _by_phrase(plain, [phrase for phrase in phrases if phrase.kind in rule.unless])
    if said is not None and said.kind is not rule.kind:
        return Reading(said.kind, f"status {status}, {said.rule}", said.words)
    return Reading(rule.kind, f"status {status}", plain)


def _by_phrase(plain: str, phrases: Sequence[Pattern]) -> Reading | None:
    for phrase in phrases:
        if found := phrase.expression.search(plain):
            return Reading(phrase.kind, f"phrase {phrase.name}", found[0].strip(), phrase.vague)
    return None
