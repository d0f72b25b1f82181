"""What an agent's own last lines say of its end, read from the last one backwards (K1, K2)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ralphd.core.error_text import read_error
from ralphd.core.failure import FailureKind
from ralphd.core.patterns import PREFIX, AfterGoodExit, Pattern, Patterns, folded

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
class Said:
    """A line that tells of a failure: what it means, by which rule, and the whole text that it opens.

    ``vague``: it opens an error's text in which nothing is known.
    """

    kind: FailureKind
    rule: str
    line: str
    text: str
    vague: bool = False


def said_in(lines: Sequence[str], patterns: Patterns) -> Said | None:
    """What the lines of an attempt that failed say of it; the last line that says something counts.

    One that says no more than that the program broke, or that there was no answer, counts only where none
    before it says why.
    """
    looked_at = [line for line in lines if not _FRAME.fullmatch(line)][-LOOKED_AT:]
    vague: Said | None = None
    matches = ((index, patterns.first(looked_at[index])) for index in range(len(looked_at) - 1, -1, -1))
    for index, found in islice(((index, found) for index, found in matches if found), _MOST_READ):
        said = _read(found, looked_at[index:], patterns)
        if said is None:
            continue
        if not said.vague:
            return said
        vague = vague or said
    return vague or _last_words_read(looked_at, patterns)


def _last_words_read(lines: Sequence[str], patterns: Patterns) -> Said | None:
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
            return Said(reading.kind, f"last words, {reading.rule}", line, "\n".join(said[index:]))
    return None


def said_after_good_exit(lines: Sequence[str], patterns: Patterns) -> Said | None:
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


def _read(found: tuple[Pattern, re.Match[str]], lines: Sequence[str], patterns: Patterns) -> Said | None:
    """What the line that was found says, with the lines that follow it: errors are printed over several."""
    pattern, match = found
    first = folded(lines[0])
    opened = (match["text"] if "text" in match.re.groupindex else None) or first
    text = "\n".join((opened, *lines[1:]))[:_LONGEST_TEXT]
    line = first.strip()
    if not pattern.read:
        return Said(pattern.kind, pattern.name, line, f"{line}\n{text}", pattern.vague)
    if (reading := read_error(text, patterns.phrases)) is not None:
        vague = reading.vague or reading.kind is FailureKind.AGENT_CRASH
        return Said(reading.kind, f"{pattern.name}, {reading.rule}", line, text, vague)
    if pattern.kind is FailureKind.UNKNOWN:
        return None
    return Said(pattern.kind, pattern.name, line, text, vague=pattern.kind is FailureKind.AGENT_CRASH)
