"""What a loop hears, to the letter: bounds at the very place, words, and what is no verdict (R9)."""

import pytest

from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import (
    MOST_LINE_CHARS,
    MOST_SHAS,
    TAIL_CHARS,
    TAIL_LINES,
    RevertNotice,
    VerdictMessage,
    heard,
    heard_in,
    one_line,
    tail_of,
)

SHA = "0123456789abcdef" * 2 + "01234567"
ANSWER = {"kind": "kept", "why": "the tests pass", "commits": [SHA], "reverted": []}


def test_the_bounds_are_these() -> None:
    assert (TAIL_LINES, TAIL_CHARS, MOST_LINE_CHARS, MOST_SHAS) == (50, 8000, 500, 20)


def test_what_is_not_said_is_nothing() -> None:
    plain = VerdictMessage("b", VerdictKind.KEPT, "why")
    assert (plain.task, plain.commits, plain.reverted, plain.tail, plain.is_open) == (None, (), (), (), False)
    assert (RevertNotice((), "").tail, RevertNotice((), "").boundary) == ((), "")
    assert heard("b", "kept", "", task=None, commits=(), reverted=(), tail="").why == "nobody says why"
    assert heard("b", "kept", "x", task=None, commits=(), reverted=(), tail="").is_open is False
    assert heard("b", "kept", "x", task=None, commits=(), reverted=(), tail="", is_open=True).is_open


def test_a_revert_as_the_failure_that_it_is() -> None:
    assert RevertNotice(("a",), "red").words == "its commit was reverted (a): red"
    assert RevertNotice(("a", "b"), "red").words == "its commits were reverted (a, b): red"


def test_only_a_revert_leaves_a_note_of_so_many_commits() -> None:
    shas = tuple(map(str, range(21)))
    reverted = VerdictMessage("r1/7", VerdictKind.REVERTED, "red", "A", shas, shas, ("1 failed",))
    assert reverted.note == RevertNotice(shas[:20], "red", ("1 failed",), "r1/7")
    assert VerdictMessage("b", VerdictKind.UNTESTED, "red", "A", shas, shas).note is None
    assert VerdictMessage("b", VerdictKind.KEPT, "red").note is None


@pytest.mark.parametrize(
    ("kind", "commits", "reverted", "said"),
    [
        (VerdictKind.KEPT, "ab", "", "verdict: kept a, b: why"),
        (VerdictKind.KEPT, "abc", "", "verdict: kept a, b, c: why"),
        (VerdictKind.UNTESTED, "abcde", "ab", "verdict: untested a, b, c and 2 more: why"),
        (VerdictKind.REVERTED, "abcde", "ab", "verdict: reverted a, b: why"),
        (VerdictKind.UNTESTED, "abcd", "", "verdict: untested a, b, c and 1 more: why"),
        (VerdictKind.UNTESTED, "", "", "verdict: untested: why"),
    ],
)
def test_a_verdict_in_a_line(kind: VerdictKind, commits: str, reverted: str, said: str) -> None:
    assert VerdictMessage("b", kind, "why", None, tuple(commits), tuple(reverted)).words == said


@pytest.mark.parametrize(
    ("commits", "reverted", "whole"), [("ab", "ab", True), ("ab", "b", False), ("", "", True)]
)
def test_nothing_is_left_where_all_went(commits: str, reverted: str, whole: bool) -> None:
    assert (
        VerdictMessage("b", VerdictKind.REVERTED, "", None, tuple(commits), tuple(reverted)).is_whole is whole
    )


def test_an_answer_is_taken_as_it_is() -> None:
    assert heard_in(ANSWER, "r1/7") == VerdictMessage(
        "r1/7", VerdictKind.KEPT, "the tests pass", None, (SHA[:7],)
    )
    assert heard_in({**ANSWER, "task": {"id": "T-1"}, "tail": "a\nb"}, "b") == VerdictMessage(
        "b", VerdictKind.KEPT, "the tests pass", "T-1", (SHA[:7],), (), ("a", "b")
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"commits": ["012345"]}, {"commits": ["g" * 40]}, {"commits": ["0" * 65]}, {"commits": [f"{SHA}\n"]},
        {"commits": 1}, {"tail": 1}, {"task": {}}, {"task": {"id": 1}}, {"reverted": None}, {"kind": "KEPT"},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_no_verdict(wrong: dict[str, object]) -> None:
    assert heard_in({**ANSWER, **wrong}, "b") is None
    assert heard_in(ANSWER, "b") is not None


@pytest.mark.parametrize("missing", ["kind", "why", "commits", "reverted"])
def test_what_lacks_a_part_is_no_verdict(missing: str) -> None:
    assert heard_in({key: value for key, value in ANSWER.items() if key != missing}, "b") is None


@pytest.mark.parametrize("length", [7, 40, 64])
def test_commits_are_abbreviated(length: int) -> None:
    found = heard_in({**ANSWER, "commits": ["a" * length]}, "b")
    assert found is not None and found.commits == ("aaaaaaa",)


@pytest.mark.parametrize("sha", ["xyz", "a" * 6])
def test_a_word_that_is_no_commit_is_named_in_the_fault(sha: str) -> None:
    with pytest.raises(ValueError, match=f"^'{sha}' is no commit$"):
        heard("b", "kept", "w", task=None, commits=[sha], reverted=(), tail="")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  a\tb\n\nc  ", "a b c"),
        ("a\x00b", "a b"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1bcx", "x"),
        ("a\x1b\nb", "ab"),
        ("x" * 501, "x" * 500),
    ],
)
def test_a_text_becomes_one_line(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_the_last_fifty_lines_are_kept_of_which_empty_ones_at_the_end_are_none() -> None:
    lines = [f"line {number}" for number in range(60)]
    assert tail_of("\n".join(lines)) == tuple(lines[-50:])
    assert tail_of("\n".join([*lines, "", " ", ""])) == tuple(lines[-50:])
    assert tail_of("\n".join(["first", *[""] * 98, "last"])) == ("",) * 49 + ("last",)
    assert tail_of("\n".join(["last but far", *[""] * 100])) == ()
    assert tail_of("\n".join(["near", *[""] * 99])) == ("near",)
    assert tail_of("\n\na\n\nb") == ("", "", "a", "", "b")


def test_all_lines_together_have_so_many_characters() -> None:
    line = "x" * 499
    assert tail_of("\n".join([line] * 17)) == (line,) * 16
    assert tail_of("\n".join(["y" * 500, *["x" * 499] * 15, "z" * 499])) == (line,) * 15 + ("z" * 499,)
    assert tail_of("\n".join(["y" * 500, *[line] * 15])) == (line,) * 15
    assert tail_of("x" * 501) == ("x" * 500,)
    assert tail_of("a" * 499 + " b") == ("a" * 499,)


def test_tabs_are_four_wide_and_what_cannot_be_printed_is_a_blank() -> None:
    assert tail_of("\ta\tb\r\nc\x00d  ") == ("    a   b", "c d")
    assert tail_of("a\x1b[2Kb") == ("ab",)
