"""What agents print is shown without control sequences, and no longer than a line may be (F6)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.text import (
    LINE_CHARS,
    TEXT_LINES,
    ends_of,
    normalized,
    one_line,
    plain,
    plain_lines,
    short_sha,
    strip_controls,
    unescaped,
)
from ralphd.core.time import parse_rfc3339


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("hello, wörld ✓", "hello, wörld ✓"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]52;c;ZXZpbA==\x1b\\text", "text"),
        ("a\x07b\x9bc\x00d", "abcd"),
        ("10%\r50%\r100%", "100%"),
        ("line\r", "line"),
        ("\ttabs stay", "\ttabs stay"),
        ("abc\u202edef", "abcdef"),
        ("half \ud83d a smile", "half  a smile"),
    ],
)
def test_only_what_can_be_read_is_left(printed: str, shown: str) -> None:
    assert plain(printed) == shown


def test_a_long_line_is_cut_and_told_as_cut() -> None:
    assert plain("x" * LINE_CHARS) == "x" * LINE_CHARS
    assert plain("\x07" + "x" * LINE_CHARS) == "x" * LINE_CHARS
    assert plain("x" * (LINE_CHARS + 1)) == "x" * LINE_CHARS + f" [cut: {LINE_CHARS + 1} characters]"
    hidden = "\x07" * 3 * LINE_CHARS  # of a longer line no more than four times as much is read
    assert plain(hidden + "x" * LINE_CHARS) == "x" * LINE_CHARS
    assert (
        plain(hidden + "x" * LINE_CHARS + "y")
        == "x" * LINE_CHARS + f" [cut: {4 * LINE_CHARS + 1} characters]"
    )
    assert (
        plain(hidden + "\x07" + "x" * LINE_CHARS)
        == "x" * (LINE_CHARS - 1) + f" [cut: {4 * LINE_CHARS + 1} characters]"
    )


def test_a_long_text_is_cut_and_told_as_cut() -> None:
    lines = list(plain_lines("line\n" * (TEXT_LINES + 50)))

    assert lines[:TEXT_LINES] == ["line"] * TEXT_LINES
    assert lines[TEXT_LINES:] == ["[cut: 50 more lines]"]
    assert list(plain_lines("1\n2\n3\n4", 2)) == ["1", "2", "[cut: 2 more lines]"]
    assert list(plain_lines("1\n2\n3\n", 2)) == ["1", "2", "[cut: 1 more line]"]
    assert list(plain_lines("a\n\nb")) == ["a", "", "b"]
    assert list(plain_lines("\na")) == ["", "a"]
    assert list(plain_lines("")) == []


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=50)
def test_whatever_is_printed_nothing_of_it_moves_a_terminal(text: str) -> None:
    for line in plain_lines(text):
        assert not any(char < " " and char != "\t" for char in line)
        assert not any("\x7f" <= char <= "\x9f" for char in line)
        assert line.encode().decode() == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\x1b[31mb\x1b[0m\n\tc", "ab c"),
        ("one two", "one two"),
        ("a\x07b", "a b"),
        ("aaaaa bbbbb", "aaaaa…"),
        ("12345678", "123456…"),
        ("1234567", "1234567"),
        ("", ""),
    ],
)
def test_a_text_is_one_line_of_limited_length(text: str, line: str) -> None:
    assert one_line(text, 7) == line


def test_people_read_seven_characters_of_an_id() -> None:
    assert short_sha("0123456789" * 4) == "0123456"


@pytest.mark.parametrize(
    ("text", "left"), [("a\x1b[31mb", "ab"), ("a\x07b", "ab"), ("a\tb\n", "a\tb\n"), ("plain é", "plain é")]
)
def test_controls_are_stripped_and_white_space_stays(text: str, left: str) -> None:
    assert strip_controls(text) == left


def test_of_a_long_text_the_two_ends_are_read() -> None:
    longest = "a" * (8 << 10) + "b" * (24 << 10)

    assert ends_of("short") == "short"
    assert ends_of(longest) == longest
    assert ends_of("a" * (8 << 10) + "left out" + "b" * (24 << 10)) == longest.replace("ab", "a\nb")


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        (r"a\nb", "a\nb"),
        (r"a\rb", "a\nb"),
        (r"a\tb", "a b"),
        (r"say \"no\"", 'say "no"'),
        (r"a\/b", "a/b"),
        (r"you\u2019ve", "you’ve"),
        (r"nested \\\\u2019", "nested ’"),
        (r"a\qb", r"a\qb"),
    ],
)
def test_escapes_of_json_strings_are_resolved(text: str, resolved: str) -> None:
    assert unescaped(text) == resolved


def test_a_text_is_matched_in_plain_characters() -> None:
    printed = "‘a’ “b”\u00a0c\t·\u2009d – e：f\u200b g\r\u2028h"

    assert normalized(printed) == "'a' \"b\" c , d - e:f g\n\nh"


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999Z"],
)
def test_a_moment_that_cannot_be_written_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="a year that UTC does not have"):
        parse_rfc3339(text)
