"""What agents print is shown without control sequences, and no longer than a line may be (F6)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.text import LINE_CHARS, TEXT_LINES, plain, plain_lines


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
    assert plain("x" * (LINE_CHARS + 1)) == "x" * LINE_CHARS + f" [cut: {LINE_CHARS + 1} characters]"


def test_a_long_text_is_cut_and_told_as_cut() -> None:
    lines = list(plain_lines("line\n" * (TEXT_LINES + 50)))

    assert lines[:TEXT_LINES] == ["line"] * TEXT_LINES
    assert lines[TEXT_LINES:] == ["[cut: 50 more lines]"]
    assert list(plain_lines("1\n2\n3\n4", 2)) == ["1", "2", "[cut: 2 more lines]"]
    assert list(plain_lines("1\n2\n3\n", 2)) == ["1", "2", "[cut: 1 more line]"]
    assert list(plain_lines("a\n\nb")) == ["a", "", "b"]
    assert list(plain_lines("")) == []


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=50)
def test_whatever_is_printed_nothing_of_it_moves_a_terminal(text: str) -> None:
    for line in plain_lines(text):
        assert not any(char < " " and char != "\t" for char in line)
        assert not any("\x7f" <= char <= "\x9f" for char in line)
        assert line.encode().decode() == line
