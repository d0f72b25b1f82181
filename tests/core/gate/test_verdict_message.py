"""Verdicts as a loop hears them: bounded, harmless, and none where what came is none (R9)."""

import pytest

from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.gate.verdict_views import (
    MOST_LINE_CHARS,
    MOST_SHAS,
    TAIL_CHARS,
    TAIL_LINES,
    RevertNotice,
    heard,
    heard_in,
    notice_of,
    one_line,
    tail_of,
    verdict_line,
)
from ralphd.core.loop.model import TaskRecord, TaskState
from ralphd.core.loop.prompt import prompt
from ralphd.core.loop.tasks import judged
from tests.core.loop.scenes import plan_of, verdict_of

SHA, OTHER = "a" * 40, "b" * 40
ANSWER = {
    "kind": "reverted",
    "why": "the tests\x1b[31m failed\n",
    "commits": [SHA, OTHER],
    "reverted": [SHA],
    "task": {"id": "A", "title": "do A"},
    "tail": "1 failed\n",
}
FAILED = verdict_of(
    "r1/7", VerdictKind.REVERTED, "the tests failed", "A", ("aaaaaaa",), ("aaaaaaa",), ("```", "red")
)


def test_a_boundary_reply_becomes_a_verdict() -> None:
    found = heard_in(ANSWER, "r1/7")

    shas = ("aaaaaaa", "bbbbbbb")
    why = "the tests failed"
    assert found == verdict_of("r1/7", VerdictKind.REVERTED, why, "A", shas, shas[:1], ("1 failed",))
    assert verdict_line(found) == "verdict: reverted aaaaaaa: the tests failed"
    assert heard_in({**ANSWER, "kind": "kept", "task": None}, "r1/7") is not None


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "odd"}, {"kind": ["kept"]}, {"why": 3}, {"commits": [1]}, {"reverted": "x"}, {"task": "A"}],
)
def test_what_is_no_verdict_is_none(wrong: dict[str, object]) -> None:
    assert heard_in({**ANSWER, **wrong}, "r1/7") is None
    assert heard_in(None, "r1/7") is heard_in([], "r1/7") is heard_in({}, "r1/7") is None


def test_test_output_is_bounded_and_cannot_steer_terminals() -> None:
    text = "\x1b]0;title\x07\x1b[1;31mred\x1b[0m \x9b5n\x00\r\n\ta\u202eb\n\n \x1b"

    assert tail_of(text) == ("red  5n", "    a b")
    assert tail_of("") == ()
    assert tail_of("\n".join(str(n) for n in range(200))) == tuple(str(n) for n in range(150, 200))
    many = tail_of("x" * 1000 + "\n" + "\n".join(["y" * 2000] * TAIL_LINES))
    assert {len(line) for line in many} == {MOST_LINE_CHARS}
    assert sum(len(line) + 1 for line in many) <= TAIL_CHARS
    assert len(one_line("z" * 9999)) == MOST_LINE_CHARS


def test_r9_the_prompt_shows_the_revert_and_its_reason() -> None:
    plan = plan_of("A")

    text = prompt("Go.", task=plan.tasks[0], plan=plan, reverted=notice_of(FAILED))

    assert "reverted (aaaaaaa): the tests failed." in text
    assert text.endswith("The last lines of the tests' output:\n\n````\n```\nred\n````\n")


def test_r9_only_what_was_reverted_is_open_again() -> None:
    waiting = {id_: TaskRecord(id_, id_, TaskState.COMPLETE, 1, unjudged=True) for id_ in "AB"}
    clean = TaskRecord("B", "B", TaskState.COMPLETE)

    partly = verdict_of("r1/7", VerdictKind.REVERTED, "red", "A", ("1", "2"), ("1",))
    after = judged(waiting, partly, a_round=9)
    assert (after["A"].reopened, after["A"].failure_count, after["B"]) == (True, 2, clean)
    after = judged(waiting, FAILED, a_round=9)
    assert [after[id_].reopened for id_ in "AB"] == [True, True]
    untested = verdict_of("r1/7", VerdictKind.UNTESTED, "cut", "A", is_open=True)
    assert judged(waiting, untested, a_round=9) == waiting


def test_r9_a_failed_task_is_not_counted_twice() -> None:
    put_back = {"A": TaskRecord("A", "A", TaskState.FAILED, 3)}

    record = judged(put_back, FAILED, a_round=3)["A"]

    assert (record.state, record.failure_count, record.reverted) == (TaskState.FAILED, 3, notice_of(FAILED))


SHA_40 = "0123456789abcdef" * 2 + "01234567"
PASSED = {"kind": "kept", "why": "the tests pass", "commits": [SHA_40], "reverted": []}


def test_the_bounds_are_these() -> None:
    assert (TAIL_LINES, TAIL_CHARS, MOST_LINE_CHARS, MOST_SHAS) == (50, 8000, 500, 20)


def test_what_is_not_said_is_nothing() -> None:
    plain = Verdict(VerdictKind.KEPT, "why")
    assert (plain.task, plain.commits, plain.reverted, plain.tail, plain.is_open) == (None, (), (), "", False)
    assert (RevertNotice((), "").tail, RevertNotice((), "").boundary) == ((), "")
    assert heard(Verdict(VerdictKind.KEPT, "")).why == "nobody says why"
    assert heard(plain).is_open is False
    assert heard(Verdict(VerdictKind.KEPT, "x", is_open=True)).is_open


def test_a_revert_as_the_failure_that_it_is() -> None:
    assert RevertNotice(("a",), "red").words == "its commit was reverted (a): red"
    assert RevertNotice(("a", "b"), "red").words == "its commits were reverted (a, b): red"


def test_only_a_revert_leaves_a_note() -> None:
    shas = tuple(map(str, range(21)))
    reverted = verdict_of("r1/7", VerdictKind.REVERTED, "red", "A", shas, shas, ("1 failed",))
    assert notice_of(reverted) == RevertNotice(shas[:20], "red", ("1 failed",), "r1/7")
    assert notice_of(verdict_of("b", VerdictKind.UNTESTED, "red", "A", shas, shas)) is None
    assert notice_of(verdict_of("b", VerdictKind.KEPT, "red")) is None


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
    assert verdict_line(verdict_of("b", kind, "why", None, tuple(commits), tuple(reverted))) == said


@pytest.mark.parametrize(
    ("commits", "reverted", "whole"), [("ab", "ab", True), ("ab", "b", False), ("", "", True)]
)
def test_nothing_is_left_where_all_went(commits: str, reverted: str, whole: bool) -> None:
    waiting = {id_: TaskRecord(id_, id_, TaskState.COMPLETE, 1, unjudged=True) for id_ in "AB"}
    verdict = verdict_of("b", VerdictKind.REVERTED, "", "A", tuple(commits), tuple(reverted))
    assert judged(waiting, verdict, a_round=9)["B"].reopened is whole


def test_an_answer_is_taken_as_it_is() -> None:
    assert heard_in(PASSED, "r1/7") == verdict_of(
        "r1/7", VerdictKind.KEPT, "the tests pass", None, (SHA_40[:7],)
    )
    assert heard_in({**PASSED, "task": {"id": "T-1"}, "tail": "a\nb"}, "b") == verdict_of(
        "b", VerdictKind.KEPT, "the tests pass", "T-1", (SHA_40[:7],), (), ("a", "b")
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"commits": ["012345"]}, {"commits": ["g" * 40]}, {"commits": ["0" * 65]},
        {"commits": [f"{SHA_40}\n"]}, {"commits": 1}, {"tail": 1}, {"task": {}}, {"task": {"id": 1}},
        {"reverted": None}, {"kind": "KEPT"},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_no_verdict(wrong: dict[str, object]) -> None:
    assert heard_in({**PASSED, **wrong}, "b") is None
    assert heard_in(PASSED, "b") is not None


@pytest.mark.parametrize("missing", ["kind", "why", "commits", "reverted"])
def test_what_lacks_a_part_is_no_verdict(missing: str) -> None:
    assert heard_in({key: value for key, value in PASSED.items() if key != missing}, "b") is None


@pytest.mark.parametrize("length", [7, 40, 64])
def test_commits_are_abbreviated(length: int) -> None:
    found = heard_in({**PASSED, "commits": ["a" * length]}, "b")
    assert found is not None and found.commits == ("aaaaaaa",)


@pytest.mark.parametrize("sha", ["xyz", "a" * 6])
def test_a_fault_names_the_invalid_commit(sha: str) -> None:
    with pytest.raises(ValueError, match=f"^'{sha}' is not a commit$"):
        heard(Verdict(VerdictKind.KEPT, "w", commits=(sha,)))


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


def test_the_last_fifty_lines_are_kept() -> None:
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


def test_tabs_are_four_wide_and_controls_are_blank() -> None:
    assert tail_of("\ta\tb\r\nc\x00d  ") == ("    a   b", "c d")
    assert tail_of("a\x1b[2Kb") == ("ab",)
