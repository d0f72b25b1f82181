"""What an agent's own last lines say of its end, read from the last one backwards (K1, K2)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.text import strip_controls

# Patterns of an agent's own lines as data: what each means, with lines that it has to match and not (K3).


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

_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " "})

_GLYPHS = "■□▪✕✖✗✘×⎿●⏺⚠❌⛔❗✋🖐🛑🚫\ufe0f"
_TIME = r"\[?(?:(?:\d\d)?\d\d-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s+-)?\s+"
_TAG = r"\[[a-z][\w.-]{2,20}\]\s+"
PREFIX = rf"\s*(?:[{_GLYPHS}]\s*)*(?:{_TAG})?(?:{_TIME})?"
"""What may stand before a message: white space, a glyph, who passes it on (``[server]``), a time."""


def folded(line: str) -> str:
    """``line`` as patterns see it: cut to LONGEST_LINE, without escape codes, with straight quotes."""
    return strip_controls(line[:LONGEST_LINE]).translate(_QUOTES)


def anchored(expression: str) -> re.Pattern[str]:
    """``expression`` at the beginning of a line, after what may stand there. Raises re.error."""
    return re.compile(rf"{PREFIX}(?:{expression})", re.IGNORECASE)


def anywhere(expression: str) -> re.Pattern[str]:
    """``expression`` anywhere in a text; ``search`` is used. Raises re.error."""
    return re.compile(expression, re.IGNORECASE)


# What a text says that is known to be an error's: its HTTP status first, then the phrases of the vendors.

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


LOOKED_AT: Final = 40
"""So many last lines are looked at, not counting stack frames."""

_ALONE: Final = 3
_LONGEST_TEXT: Final = 4000
_MOST_READ: Final = 12
"""So many lines that open an error's text are read at most: reading costs time, and the last ones count."""

_FRAME: Final = re.compile(r"\s+at (?:async |new )?\S.*|\s*(?:[{}\[\]()]\s*[,;]?)\s*$|\s+\d+: 0x[0-9a-f]+ .*")
_LINK: Final = re.compile(r"\s*https?://\S+\s*$")
_INTRODUCES: Final = re.compile(
    r".*(?::|```\w*|~~~\w*|\(|\b(?:says|prints|reads|shows|is))\s*$", re.IGNORECASE
)

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
"""What is shown between fences is a quotation."""

_NO_WORDS: Final = re.compile(r"\s*[{\[]|Traceback \(|={8}|-{8}|  File \"")
_OPENS_AN_ERROR: Final = re.compile(
    PREFIX + r"\[?(?:[\w.]{0,40}(?:error|exception)\b|(?:fatal|panic|failed|critical|uncaught)\b)",
    re.IGNORECASE,
)

_LAST_WORDS: Final = 5
_TELLS_OF_AN_ERROR: Final = re.compile(
    r"(?:error|exception)\b"
    r"|\b(?:fail(?:ed|ure)|unable to|could not|cannot|denied|rejected|not authori[sz]ed|experiencing)\b",
    re.IGNORECASE,
)
_PROSE: Final = re.compile(
    PREFIX + r"(?:[-*+>#|$`\"'(]|\d+[.)] |//|@@"
    r"|(?:i|we|you(?! are not| have)|he|they|this|that|these|those|there|here|now|then|when|if|so|but|and"
    r"|as|in|on|for|with|to|all|both|an?(?! (?:\w+ )?(?:error|exception) occ)|summary|note|next|let"
    r"|the(?! (?:provider|api|model|server|request|service)\b)"
    r"|done|added?|adds|fix(?:ed|es)?|chang\w+|implement\w*|handl\w+|updat\w+|remov\w+"
    r"|tests?|expected|received|assert\w*|fail|pass|ok|not ok|e"
    r"|def|class|return|import|raise|throw|const|var|function"
    r"|(?:feat|docs|chore|refactor|ci|build|perf)(?:\(.{0,40}\))?!?:)(?:\s|\W|$))"
    r"|.{0,200}\.[a-z]{1,4}:\d+",
    re.IGNORECASE,
)
"""How what an agent says or shows begins, and an error does not."""

_WENT_ON: Final = re.compile(r"(?:Applied edit to|Commit [0-9a-f]{7,40}|Tokens:) ")
"""What aider ends a step with that went well, whatever it printed before."""


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A line that tells of a failure: what it means, by which rule, and the whole text that it opens.

    ``vague``: it opens an error's text in which nothing is known.
    """

    kind: FailureKind
    rule: str
    line: str
    text: str
    vague: bool = False


def match_in(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """What the lines of an attempt that failed say of it; the last line that says something counts.

    One that says no more than that the program broke, or that there was no answer, counts only where none
    before it says why.
    """
    looked_at = [line for line in lines if not _FRAME.fullmatch(line)][-LOOKED_AT:]
    vague: LineMatch | None = None
    matches = ((index, patterns.first(looked_at[index])) for index in range(len(looked_at) - 1, -1, -1))
    for index, found in islice(((index, found) for index, found in matches if found), _MOST_READ):
        said = _read(found, looked_at[index:], patterns)
        if said is None:
            continue
        if not said.vague:
            return said
        vague = vague or said
    return vague or _last_words_read(looked_at, patterns)


def _last_words_read(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """What the last lines of a program that failed say in words that no pattern opens.

    They are its reason as a rule. What reads as prose, as code or as the output of tests is left out, and
    what does not speak of an error.
    """
    said = [line for line in lines if line.strip()][-_LAST_WORDS:]
    for index in range(len(said) - 1, -1, -1):
        line = folded(said[index]).strip()
        if _PROSE.match(line) or not _TELLS_OF_AN_ERROR.search(line):
            continue
        if (reading := read_error(line, patterns.phrases)) is not None:
            return LineMatch(reading.kind, f"last words, {reading.rule}", line, "\n".join(said[index:]))
    return None


def match_after_good_exit(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """What lines say of a failure although the exit status was 0: only of patterns that allow it (K2)."""
    looked_at = [line for line in lines if not _FRAME.fullmatch(line) and not _LINK.fullmatch(line)]
    for index, line in _last_paragraph(looked_at):
        found = patterns.first(line)
        if found is None or not _counts(found[0], index, looked_at):
            continue
        if said := _read(found, looked_at[index:], patterns):
            return said
    return None


def first_error(lines: Sequence[str]) -> str:
    """The line that a person would quote: the first that begins as an error does; empty where none does."""
    return next((line.strip() for line in _words(lines) if _OPENS_AN_ERROR.match(line)), "")


def last_line(lines: Sequence[str]) -> str:
    """The last line that is words: no stack frame, no event. May be empty."""
    return next((line.strip() for line in reversed(_words(lines))), "")


def _words(lines: Sequence[str]) -> list[str]:
    return [
        line for line in lines if line.strip() and not _FRAME.fullmatch(line) and not _NO_WORDS.match(line)
    ]


def _last_paragraph(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    for index in range(end - 1, max(end - LOOKED_AT, 0) - 1, -1):
        if not lines[index].strip() or _WENT_ON.match(lines[index]):
            return
        yield index, lines[index]


def _counts(pattern: Pattern, index: int, lines: Sequence[str]) -> bool:
    match pattern.after_good_exit:
        case AfterGoodExit.ALONE:
            said = [line for line in lines if line.strip()]
            return len(said) <= _ALONE and not any(_FENCE.match(line) for line in said)
        case AfterGoodExit.LAST:
            before = next((line for line in reversed(lines[:index]) if line.strip()), "")
            return not _INTRODUCES.fullmatch(before)
    return False


def _read(found: tuple[Pattern, re.Match[str]], lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """What the line that was found says, with the lines that follow it: errors are printed over several."""
    pattern, match = found
    first = folded(lines[0])
    opened = (match["text"] if "text" in match.re.groupindex else None) or first
    text = "\n".join((opened, *lines[1:]))[:_LONGEST_TEXT]
    line = first.strip()
    if not pattern.read:
        return LineMatch(pattern.kind, pattern.name, line, f"{line}\n{text}", pattern.vague)
    if (reading := read_error(text, patterns.phrases)) is not None:
        vague = reading.vague or reading.kind is FailureKind.AGENT_CRASH
        return LineMatch(reading.kind, f"{pattern.name}, {reading.rule}", line, text, vague)
    if pattern.kind is FailureKind.UNKNOWN:
        return None
    return LineMatch(pattern.kind, pattern.name, line, text, vague=pattern.kind is FailureKind.AGENT_CRASH)
