"""Patterns of an agent's own lines as data: what each means, with lines that it has to match and not (K3)."""

import re
from dataclasses import dataclass
from enum import StrEnum

from ralphd.core.failure import FailureKind


class AfterGoodExit(StrEnum):
    """Whether a line counts although the exit status was 0: some CLIs and many wrappers lose it (K2)."""

    NEVER = "never"
    ALONE = "alone"  # it is all that was printed, but for a line or two
    LAST = "last"  # it begins what was printed last, and nothing before it introduces it as a quotation


@dataclass(frozen=True, slots=True)
class Pattern:
    """One message of one agent. ``expression`` is anchored and matched without regard to case.

    ``examples`` match it; ``counter_examples`` look like it and do not. ``live``: on stderr, followed by
    silence, it means that the agent will not go on (L7). ``read``: the line opens an error's text (its group
    ``text``, else all of it) in which an HTTP status and the phrases say more; ``kind`` is for when they say
    nothing, ``unknown`` for when the line alone proves nothing. ``vague``: it says no more than that
    there was no answer, or that something broke; a line that says why counts before it.
    """

    name: str
    kind: FailureKind
    expression: re.Pattern[str]
    examples: tuple[str, ...] = ()
    counter_examples: tuple[str, ...] = ()
    live: bool = False
    read: bool = False
    vague: bool = False
    after_good_exit: AfterGoodExit = AfterGoodExit.NEVER

    def match(self, line: str) -> re.Match[str] | None:
        """The match of a line as it was printed: glyphs, times and curly quotes do not matter."""
        return self.expression.match(folded(line))


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one agent, in the order in which they are tried. ``version`` is the file's.

    ``phrases`` are looked for anywhere in a text that is known to be an error's, never in other lines.
    """

    agent: str
    version: int
    patterns: tuple[Pattern, ...] = ()
    phrases: tuple[Pattern, ...] = ()

    def first(self, line: str, *, live: bool = False) -> tuple[Pattern, re.Match[str]] | None:
        """The first pattern that a line matches; of the live ones alone with ``live``."""
        plain = folded(line)
        if not plain.strip():
            return None
        for pattern in self.patterns:
            if (pattern.live or not live) and (match := pattern.expression.match(plain)):
                return pattern, match
        return None

    def live(self, line: str, *, at_once: bool = False) -> bool:
        """Whether silence after this line of stderr is the end (L7).

        ``at_once``: no grace is given, as [003] has it, and then its common errors count wherever they stand.
        Agents print those and try again by themselves: with a grace they are no reason to end one.
        """
        return self.first(line, live=True) is not None or (
            at_once and COMMON_CRASHES.search(folded(line)) is not None
        )


COMMON_CRASHES = re.compile(r"no messages returned|\b(?:ECONNRESET|ETIMEDOUT)\b", re.IGNORECASE)

LONGEST_LINE = 4000
"""As much of a line as is looked at; what an error has to say stands at its beginning."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " "})

_GLYPHS = "■□▪✕✖✗✘×⎿●⏺⚠❌⛔❗✋🖐🛑🚫\ufe0f"
_TIME = r"\[?(?:(?:\d\d)?\d\d-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s+-)?\s+"
_TAG = r"\[[a-z][\w.-]{2,20}\]\s+"
PREFIX = rf"\s*(?:[{_GLYPHS}]\s*)*(?:{_TAG})?(?:{_TIME})?"
"""What may stand before a message: white space, a glyph, who passes it on (``[server]``), a time."""


def folded(line: str) -> str:
    """``line`` as patterns see it: cut to LONGEST_LINE, without escape codes, with straight quotes."""
    return _ESCAPES.sub("", line[:LONGEST_LINE]).translate(_QUOTES)


def anchored(expression: str) -> re.Pattern[str]:
    """``expression`` at the beginning of a line, after what may stand there. Raises re.error."""
    return re.compile(rf"{PREFIX}(?:{expression})", re.IGNORECASE)


def anywhere(expression: str) -> re.Pattern[str]:
    """``expression`` anywhere in a text; ``search`` is used. Raises re.error."""
    return re.compile(expression, re.IGNORECASE)
