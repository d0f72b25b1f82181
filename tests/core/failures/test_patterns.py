"""The failure that an agent's own last lines report, and by which rule (K1, K2)."""

from dataclasses import replace

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.patterns import (
    AfterGoodExit,
    LineMatch,
    Pattern,
    Patterns,
    Reading,
    anchored,
    first_error,
    folded_text,
    last_line,
    match_after_good_exit,
    match_in,
    read_error,
)

K = FailureKind
LAST, ALONE = AfterGoodExit.LAST, AfterGoodExit.ALONE
LIMIT = Pattern("limit", K.USAGE_LIMIT, anchored("you've hit your limit"), after_good_exit=LAST)
BROKE = Pattern("broke", K.AGENT_CRASH, anchored("it broke:(?P<text>.*)"), read=True)
ERROR = Pattern("error", K.UNKNOWN, anchored("error: (?P<text>.*)"), read=True, after_good_exit=ALONE)
LOST = Pattern("lost", K.TRANSIENT, anchored("connection lost"), live=True, vague=True)
PHRASES = (
    Pattern("usage", K.USAGE_LIMIT, "usage limit"),
    Pattern("billing", K.FATAL, " billing"),
    Pattern("busy", K.TRANSIENT, "overloaded"),
    Pattern("hm", K.TRANSIENT, "went away", vague=True),
    Pattern("panic", K.AGENT_CRASH, "panicked"),
)
PATTERNS = Patterns("one", 1, (LIMIT, BROKE, ERROR, LOST), PHRASES)
LIMIT_LINE = "■ You’ve hit your limit"
LIMIT_MATCH = LineMatch(K.USAGE_LIMIT, "limit", LIMIT_LINE.replace("’", "'"), "")


def test_a_line_matches_as_it_was_printed() -> None:
    assert LIMIT.match(LIMIT_LINE) is not None
    assert LIMIT.match("it says: You've hit your limit") is None


@pytest.mark.parametrize(
    ("line", "at_once", "live"),
    [
        ("Connection lost", False, True),
        ("Connection lost", True, True),
        ("You've hit your limit", False, False),
        ("You've hit your limit", True, False),
        ("read ECONNRESET", False, False),
        ("read ECONNRESET", True, True),
        ("working", True, False),
    ],
)
def test_l7_only_live_patterns_announce_the_end(line: str, at_once: bool, live: bool) -> None:
    assert PATTERNS.live(line, at_once=at_once) is live


@pytest.mark.parametrize(
    ("text", "status", "reading"),
    [
        ("slow down", 429, Reading(K.RATE_LIMIT, "status 429", "slow down")),
        ("The Usage Limit is hit", 429, Reading(K.USAGE_LIMIT, "status 429, phrase usage", "Usage Limit")),
        ("HTTP 503: late", None, Reading(K.TRANSIENT, "status 503", "HTTP 503: late")),
        ("late", 599, Reading(K.TRANSIENT, "status 599", "late")),
        ("late", 600, None),
        ("late", 399, None),
        ("OVERLOADED", None, Reading(K.TRANSIENT, "phrase busy", "OVERLOADED")),
        ("see billing", None, Reading(K.FATAL, "phrase billing", "billing")),
        ("it went away", None, Reading(K.TRANSIENT, "phrase hm", "went away", vague=True)),
        ("it is late", None, None),
    ],
)
def test_an_errors_text_is_read_by_status_then_phrase(
    text: str, status: int | None, reading: Reading | None
) -> None:
    assert read_error(text, PHRASES, status=status) == reading


def test_a_text_of_several_lines_is_read_as_one() -> None:
    assert folded_text("the\nusage\\nlimit   is\r\nhit") == "the usage limit is hit"


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ((LIMIT_LINE,), replace(LIMIT_MATCH, text="■ You've hit your limit\n■ You've hit your limit")),
        (
            ("Error: see billing", "  or ask"),
            LineMatch(K.FATAL, "error, phrase billing", "Error: see billing", "see billing\n  or ask"),
        ),
        (
            ("it broke: [object]",),
            LineMatch(K.AGENT_CRASH, "broke", "it broke: [object]", " [object]", vague=True),
        ),
        (
            ("it broke: it went away", "bye"),
            LineMatch(
                K.TRANSIENT, "broke, phrase hm", "it broke: it went away", " it went away\nbye", vague=True
            ),
        ),
        (
            ("error: thread panicked",),
            LineMatch(
                K.AGENT_CRASH, "error, phrase panic", "error: thread panicked", "thread panicked", vague=True
            ),
        ),
        (
            ("connection lost",),
            LineMatch(K.TRANSIENT, "lost", "connection lost", "connection lost\nconnection lost", vague=True),
        ),
        (("error: [object]",), None),
        (("working", "done"), None),
    ],
)
def test_a_line_opens_the_text_of_a_failure(lines: tuple[str, ...], match: LineMatch | None) -> None:
    assert match_in(lines, PATTERNS) == match


def test_a_reason_counts_before_a_vague_line_after_it() -> None:
    match = match_in(("error: see billing", "connection lost"), PATTERNS)
    assert match is not None and match.rule == "error, phrase billing"


def test_of_vague_lines_the_last_counts() -> None:
    match = match_in(("it broke: [object]", "connection lost"), PATTERNS)
    assert match is not None and match.rule == "lost"


@pytest.mark.parametrize(("others", "is_read"), [(11, True), (12, False)])
def test_twelve_lines_that_open_an_error_are_read(others: int, is_read: bool) -> None:
    lines = ("error: see billing", *["error: [object]"] * others)
    assert (match_in(lines, PATTERNS) is not None) is is_read


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (
            ("Request failed: overloaded", "", "bye", "now"),
            LineMatch(
                K.TRANSIENT,
                "last words, phrase busy",
                "Request failed: overloaded",
                "Request failed: overloaded\nbye\nnow",
            ),
        ),
        (("The tests say: request failed, overloaded",), None),
        (("overloaded",), None),
        (("Request failed: overloaded", *"abcde"), None),
    ],
)
def test_without_a_pattern_the_last_words_are_read(lines: tuple[str, ...], match: LineMatch | None) -> None:
    assert match_in(lines, PATTERNS) == match


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ((LIMIT_LINE,), "limit"),
        ((LIMIT_LINE, *["more"] * 39), "limit"),
        ((LIMIT_LINE, *["more"] * 40), None),
        (("one", "two", "error: see billing"), "error, phrase billing"),
        (("one", "two", "three", "error: see billing"), None),
        (("it prints:", LIMIT_LINE), None),
        (("connection lost",), None),
        ((), None),
    ],
)
def test_k2_after_exit_0_the_last_paragraph_is_read(lines: tuple[str, ...], rule: str | None) -> None:
    match = match_after_good_exit(lines, PATTERNS)
    assert (None if match is None else match.rule) == rule


def test_a_person_would_quote_the_first_error_or_the_last_line() -> None:
    lines = ("work", "  TypeError: x", "Error: y", "    at f (a.js:1:2)")
    assert (first_error(lines), last_line(lines)) == ("TypeError: x", "Error: y")
    assert (first_error(("work",)), last_line(("{", " "))) == ("", "")
