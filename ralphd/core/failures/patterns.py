"""Find the failure in an agent's own last lines, from the last one backwards (K1, K2).

Patterns are data: what a line means, with lines that it has to match and not (K3). A text that is known to be
an error's is read by its HTTP status first, then by the vendors' phrases.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Final

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.text import strip_controls
from ralphd.dataclass import dataclass


class AfterGoodExit(StrEnum):
    """Whether a line counts although the exit status was 0: some CLIs and many wrappers lose it (K2)."""

    NEVER = "never"
    ALONE = "alone"  # it is all that was printed, but for a line or two
    LAST = "last"  # it begins what was printed last, and nothing before it introduces it as a quotation


@dataclass(frozen=True, slots=True)
class Pattern:
    """One message of one agent. ``written`` is its regular expression, a line's with ``anchored``.

    ``examples`` match it; ``counter_examples`` look like it and do not. ``live``: on stderr, followed by
    silence, it means that the agent will not continue (L7). ``read``: the line opens an error's text (its
    group ``text``, else all of it), which is read for an HTTP status and phrases; ``kind`` applies if it has
    neither, ``unknown`` if the line alone proves nothing. ``vague``: there was no answer, or something broke;
    a line with a reason counts before it.
    """

    name: str
    kind: FailureKind
    written: str
    examples: tuple[str, ...] = ()
    counter_examples: tuple[str, ...] = ()
    live: bool = False
    read: bool = False
    vague: bool = False
    after_good_exit: AfterGoodExit = AfterGoodExit.NEVER

    @property
    def expression(self) -> re.Pattern[str]:
        """The regular expression, without regard to case."""
        return compiled(self.written)

    def match(self, line: str) -> re.Match[str] | None:
        """Match a line as it was printed: glyphs, times and curly quotes do not matter."""
        return self.expression.match(folded(line))


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one agent, in the order in which they are tried. ``version`` is the file's.

    ``phrases`` are searched for anywhere in a text that is known to be an error's, never in other lines.
    """

    agent: str
    version: int
    patterns: tuple[Pattern, ...] = ()
    phrases: tuple[Pattern, ...] = ()

    def first(self, line: str, *, live: bool = False) -> tuple[Pattern, re.Match[str]] | None:
        """Return the first pattern that a line matches; of the live ones alone with ``live``."""
        plain = folded(line)
        if not plain.strip():
            return None
        for pattern in self.patterns:
            if (pattern.live or not live) and (match := pattern.expression.match(plain)):
                return pattern, match
        return None

    def live(self, line: str, *, at_once: bool = False) -> bool:
        """Whether silence after this line of stderr is the end (L7).

        ``at_once``: without a grace, common errors count wherever they stand. Agents print those
        and retry by themselves: with a grace they do not justify a kill.
        """
        is_crash = at_once and COMMON_CRASHES.search(folded(line)) is not None
        return is_crash or self.first(line, live=True) is not None


COMMON_CRASHES = re.compile(r"no messages returned|\b(?:ECONNRESET|ETIMEDOUT)\b", re.IGNORECASE)
LOST_CONNECTION = re.compile(r"\bE(?:CONNRESET|TIMEDOUT)\b")

LONGEST_LINE = 4000
"""As much of a line as is read; an error's reason stands at its beginning."""

_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " "})

_GLYPHS = "■□▪✕✖✗✘×⎿●⏺⚠❌⛔❗✋🖐🛑🚫\ufe0f"
_TIME = r"\[?(?:(?:\d\d)?\d\d-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s+-)?\s+"
_TAG = r"\[[a-z][\w.-]{2,20}\]\s+"
PREFIX = rf"\s*(?:[{_GLYPHS}]\s*)*(?:{_TAG})?(?:{_TIME})?"
"""What may stand before a message: white space, a glyph, a relay's tag (``[server]``), a time."""


def folded(line: str) -> str:
    """Return a line as patterns see it: cut to LONGEST_LINE, without escape codes, with straight quotes."""
    return strip_controls(line[:LONGEST_LINE]).translate(_QUOTES)


def anchored(expression: str) -> str:
    """Return ``expression`` for the beginning of a line, after PREFIX."""
    return rf"{PREFIX}(?:{expression})"


@cache
def compiled(written: str) -> re.Pattern[str]:
    """Compile at the first use: all of them take 60 ms, and most nights use few. Raise re.error."""
    return re.compile(written, re.IGNORECASE)


LONGEST_TEXT: Final = 16_000
"""As much of an error's text as is read; the reason stands at its beginning."""

_RATE, _USAGE = FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT
_FATAL, _CONTEXT, _TRANSIENT = FailureKind.FATAL, FailureKind.CONTEXT, FailureKind.TRANSIENT


@dataclass(frozen=True, slots=True)
class Reading:
    """The kind of an error's text, the rule and the words that decided; ``vague`` as the phrase is."""

    kind: FailureKind
    rule: str
    words: str
    vague: bool = False


# What a status means, and the kinds that the text beside it may refine it to.
_REFUSED: Final = (_FATAL, {_CONTEXT, _USAGE})
_FAILED_THERE: Final = (_TRANSIENT, set[FailureKind]())
_STATUSES: Final[Mapping[int, tuple[FailureKind, set[FailureKind]]]] = {
    **dict.fromkeys((408, 409, 425), _FAILED_THERE),
    401: (_FATAL, set()),
    402: (_FATAL, {_USAGE}),
    403: (_FATAL, {_USAGE, _RATE}),
    413: (_CONTEXT, set()),
    429: (_RATE, {_USAGE, _FATAL, _RATE}),
}

# A status stands at the beginning, or after a word that introduces one: "code":429, status 503, error (429),
# HTTP/2 429, rejected (429). Any other number is a length, a port or a line.
_STATUS = re.compile(
    r"(?:^\W{0,3}"
    r"|\b(?:\w{0,20}status(?:[ _]?code)?|\w{0,20}error|code|failed|failure|rejected|returned|answered"
    r"|replied|responded with"
    r"|https?(?:/[\d.]+)?)\b\W{1,6}(?:code\W{1,3}|status\W{1,3})?"
    r"|\b(?:failed|error)\b.{0,80}: (?=\d{3}\W*$))"
    r"([45]\d\d)(?![\w.,]*\d)",
    re.IGNORECASE,
)


def read_error(text: str, phrases: Sequence[Pattern], *, status: int | None = None) -> Reading | None:
    """Read an error's text, with its ``status`` where that is known; None where nothing in it is known."""
    plain = folded_text(text)
    if status is None and (match := _STATUS.search(plain)):
        status = int(match[1])
    if status is None or not 400 <= status <= 599:
        return _by_phrase(plain, phrases)
    kind, refined = _STATUSES.get(status, _REFUSED if status < 500 else _FAILED_THERE)
    reading = _by_phrase(plain, [phrase for phrase in phrases if phrase.kind in refined])
    if reading is None or reading.kind is kind:
        return Reading(kind, f"status {status}", plain)
    return Reading(reading.kind, f"status {status}, {reading.rule}", reading.words)


def folded_text(text: str) -> str:
    """Return a text of several lines as one, as patterns see it."""
    pieces = (folded(line) for line in text[:LONGEST_TEXT].replace("\\n", "\n").splitlines())
    return " ".join(" ".join(pieces).split())


def _by_phrase(plain: str, phrases: Sequence[Pattern]) -> Reading | None:
    for phrase in phrases:
        if match := phrase.expression.search(plain):
            return Reading(phrase.kind, f"phrase {phrase.name}", match[0].strip(), phrase.vague)
    return None


_LOOKED_AT: Final = 40
"""So many last lines are read, not counting stack frames."""

_ALONE: Final = 3
_LONGEST_TEXT: Final = 4000
_MOST_READ: Final = 12
"""At most so many lines that open an error's text are read: reading costs time, and the last ones count."""

_FRAME: Final = re.compile(r"\s+at (?:async |new )?\S.*|\s*(?:[{}\[\]()]\s*[,;]?)\s*$|\s+\d+: 0x[0-9a-f]+ .*")
_LINK: Final = re.compile(r"\s*https?://\S+\s*$")
_INTRODUCES: Final = re.compile(
    r".*(?::|```\w*|~~~\w*|\(|\b(?:says|prints|reads|shows|is))\s*$", re.IGNORECASE
)

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
"""Text between fences is a quotation."""

_NO_WORDS: Final = re.compile(r"\s*[{\[]|Traceback \(|={8}|-{8}|  File \"")
_OPENS_AN_ERROR: Final = re.compile(
    PREFIX + r"\[?(?:[\w.]{0,40}(?:error|exception)\b|(?:fatal|panic|failed|critical|uncaught)\b)",
    re.IGNORECASE,
)

_LAST_WORDS: Final = 5
_REPORTS_AN_ERROR: Final = re.compile(
    r"(?:error|exception)\b|['\"]E(?:CONN\w+|TIMEDOUT|NOTFOUND|AI_AGAIN)\b"
    r"|\b(?:fail(?:ed|ure)|unable to|could not|cannot|denied|rejected|not authori[sz]ed|experiencing"
    r"|exceeded|expired|revoked|no longer (?:valid|accepted)|refused|blocked|(?:signed|logged) out"
    r"|(?:log|sign)(?:ged|ed)?(?: back)?[ -]?in(?= to| again| required|:)|re-?(?:log-?in|authenticate)"
    r"|try again|come back|throttled|(?:is|are) overloaded|timed out|used up|spent|wait \d+ ?s\w*)\b"
    r"|(?:^|\b(?:status|http|said|gave|sent|with|answered|replied|returned) )[45]\d\d"
    r"(?: (?:-|from\b)|[^\w\s]|$)",
    re.IGNORECASE,
)
_OTHER_WORDS: Final = "-in-other-words"
"""The end of the name of a phrase that finds both a topic and its trouble: it reports an error by itself."""
_PROSE: Final = re.compile(
    PREFIX + r"(?:[-*+>#|$`\"'(]|\d+[.)] |//|@@"
    r"|(?:i|we|you(?! (?:are|have|used|need|must|hit|reached)\b)|he|they|this|that|these|those|there|here|now"
    r"|then|when|if|so|but|and|as|in|on|for|with|to|all|both|an?(?! (?:\w+ )?(?:error|exception) occ)"
    r"|summary|note|next|let"
    r"|the(?! (?:[\w'-]+ )?(?:provider|api|model|server|request|service|session|token|credentials?"
    r"|upstream|gateway|endpoint|backend|vendor|remote|account|connection)\b)"
    r"|done|added?|adds|fix(?:ed|es)?|chang\w+|implement\w*|handl\w+|updat\w+|remov\w+"
    r"|tests?|expected|received|assert\w*|fail|pass|ok|not ok|e"
    r"|def|class|return|import|raise|throw|const|var|function"
    r"|(?:feat|docs|chore|refactor|ci|build|perf)(?:\(.{0,40}\))?!?:)(?:\s|\W|$))"
    r"|.{0,200}(?:\.[a-z]{1,4}:\d+|\b(?:i(?!/)|my|(?:is|are) now)\b)",
    re.IGNORECASE,
)
"""How an agent's prose, code and test output begin, and errors do not."""

_SUCCEEDED: Final = re.compile(r"(?:Applied edit to|Commit [0-9a-f]{7,40}|Tokens:) ")
"""The end of a step of aider's that succeeded, whatever it printed before."""


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A line that reports a failure: its kind, by which rule, and the whole text that it opens.

    ``vague``: it gives no reason.
    """

    kind: FailureKind
    rule: str
    line: str
    text: str
    vague: bool = False


def match_in(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """Return what the lines of a failed attempt report; the last line with a meaning counts.

    A vague one counts only where no line before it has a reason.
    """
    tail = [line for line in lines if not _FRAME.fullmatch(line)][-_LOOKED_AT:]
    vague: LineMatch | None = None
    matches = ((index, patterns.first(tail[index])) for index in reversed(range(len(tail))))
    for index, first in islice(((index, first) for index, first in matches if first), _MOST_READ):
        match = _read(first, tail[index:], patterns)
        if match is not None and not match.vague:
            return match
        vague = vague or match
    return vague or _last_words(tail, patterns)


def _last_words(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """Read the last lines, which no pattern opens; they usually are the reason of a program that failed.

    Prose, code and the output of tests are left out, and lines that do not report an error.
    """
    tail = [line for line in lines if line.strip()][-_LAST_WORDS:]
    for index in reversed(range(len(tail))):
        line = folded(tail[index]).strip()
        if _PROSE.match(line) or (reading := read_error(line, patterns.phrases)) is None:
            continue
        if reading.rule.endswith(_OTHER_WORDS) or _REPORTS_AN_ERROR.search(line):
            return LineMatch(reading.kind, f"last words, {reading.rule}", line, "\n".join(tail[index:]))
    return None


def match_after_good_exit(lines: Sequence[str], patterns: Patterns) -> LineMatch | None:
    """Return a failure that the last paragraph reports although the exit status was 0 (K2).

    Only patterns that allow it count.
    """
    lines = [line for line in lines if not _FRAME.fullmatch(line) and not _LINK.fullmatch(line)]
    while lines and not lines[-1].strip():
        lines.pop()
    for index in reversed(range(max(len(lines) - _LOOKED_AT, 0), len(lines))):
        if not lines[index].strip() or _SUCCEEDED.match(lines[index]):
            return None
        first = patterns.first(lines[index])
        if first and _counts(first[0], index, lines) and (match := _read(first, lines[index:], patterns)):
            return match
    return None


def first_error(lines: Sequence[str]) -> str:
    """Return the line that a person would quote: the first that begins as errors do; empty if none does."""
    return next((line.strip() for line in _words(lines) if _OPENS_AN_ERROR.match(line)), "")


def last_line(lines: Sequence[str]) -> str:
    """Return the last line of words: no stack frame, no event. May be empty."""
    return next((line.strip() for line in reversed(_words(lines))), "")


def _words(lines: Sequence[str]) -> list[str]:
    return [
        line for line in lines if line.strip() and not _FRAME.fullmatch(line) and not _NO_WORDS.match(line)
    ]


def _counts(pattern: Pattern, index: int, lines: Sequence[str]) -> bool:
    match pattern.after_good_exit:
        case AfterGoodExit.ALONE:
            printed = [line for line in lines if line.strip()]
            return len(printed) <= _ALONE and not any(map(_FENCE.match, printed))
        case AfterGoodExit.LAST:
            before = next((line for line in reversed(lines[:index]) if line.strip()), "")
            return not _INTRODUCES.fullmatch(before)
    return False


def _read(
    first_match: tuple[Pattern, re.Match[str]], lines: Sequence[str], patterns: Patterns
) -> LineMatch | None:
    """Read a matching line with the lines that follow it: errors are printed over several."""
    pattern, match = first_match
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
