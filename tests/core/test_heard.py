"""Verdicts as a loop hears them: bounded, harmless, and none where what came is none (R9)."""

import pytest

from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import (
    MOST_LINE_CHARS,
    TAIL_CHARS,
    TAIL_LINES,
    VerdictMessage,
    heard_in,
    one_line,
    tail_of,
)
from ralphd.core.loop.prompt import prompt
from ralphd.core.loop.state import TaskRecord, TaskState
from ralphd.core.loop.tasks import judged
from tests.core.loop_scenes import plan_of

SHA, OTHER = "a" * 40, "b" * 40
ANSWER = {
    "kind": "reverted",
    "why": "the tests\x1b[31m failed\n",
    "commits": [SHA, OTHER],
    "reverted": [SHA],
    "task": {"id": "A", "title": "do A"},
    "tail": "1 failed\n",
}
FAILED = VerdictMessage(
    "r1/7", VerdictKind.REVERTED, "the tests failed", "A", ("aaaaaaa",), ("aaaaaaa",), ("```", "red")
)


def test_the_answer_of_a_boundary_is_a_verdict_in_words_for_a_line() -> None:
    found = heard_in(ANSWER, "r1/7")

    shas = ("aaaaaaa", "bbbbbbb")
    why = "the tests failed"
    assert found == VerdictMessage("r1/7", VerdictKind.REVERTED, why, "A", shas, shas[:1], ("1 failed",))
    assert found.words == "verdict: reverted aaaaaaa: the tests failed"
    assert heard_in({**ANSWER, "kind": "kept", "task": None}, "r1/7") is not None


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "odd"}, {"kind": ["kept"]}, {"why": 3}, {"commits": [1]}, {"reverted": "x"}, {"task": "A"}],
)
def test_what_is_no_verdict_is_none(wrong: dict[str, object]) -> None:
    assert heard_in({**ANSWER, **wrong}, "r1/7") is None
    assert heard_in(None, "r1/7") is heard_in([], "r1/7") is heard_in({}, "r1/7") is None


def test_what_tests_print_is_bounded_and_cannot_steer_a_terminal() -> None:
    text = "\x1b]0;title\x07\x1b[1;31mred\x1b[0m \x9b5n\x00\r\n\ta\u202eb\n\n \x1b"

    assert tail_of(text) == ("red  5n", "    a b")
    assert tail_of("") == ()
    assert tail_of("\n".join(str(n) for n in range(200))) == tuple(str(n) for n in range(150, 200))
    many = tail_of("x" * 1000 + "\n" + "\n".join(["y" * 2000] * TAIL_LINES))
    assert {len(line) for line in many} == {MOST_LINE_CHARS}
    assert sum(len(line) + 1 for line in many) <= TAIL_CHARS
    assert len(one_line("z" * 9999)) == MOST_LINE_CHARS


def test_r9_the_prompt_says_what_was_reverted_why_and_what_the_tests_printed() -> None:
    plan = plan_of("A")

    text = prompt("Go.", task=plan.tasks[0], plan=plan, reverted=FAILED.note)

    assert "reverted (aaaaaaa): the tests failed." in text
    assert text.endswith("The end of what the tests printed:\n\n````\n```\nred\n````\n")


def test_r9_of_what_waits_for_a_verdict_only_what_is_gone_is_open_again() -> None:
    waiting = {id_: TaskRecord(id_, id_, TaskState.COMPLETE, 1, unjudged=True) for id_ in "AB"}
    clean = TaskRecord("B", "B", TaskState.COMPLETE)

    partly = VerdictMessage("r1/7", VerdictKind.REVERTED, "red", "A", ("1", "2"), ("1",))
    after = judged(waiting, partly, a_round=9)
    assert (after["A"].reopened, after["A"].failure_count, after["B"]) == (True, 2, clean)
    after = judged(waiting, FAILED, a_round=9)
    assert [after[id_].reopened for id_ in "AB"] == [True, True]
    untested = VerdictMessage("r1/7", VerdictKind.UNTESTED, "cut", "A", is_open=True)
    assert judged(waiting, untested, a_round=9) == waiting


def test_r9_a_task_that_had_failed_already_is_not_counted_twice_and_stays_put_back() -> None:
    put_back = {"A": TaskRecord("A", "A", TaskState.FAILED, 3)}

    record = judged(put_back, FAILED, a_round=3)["A"]

    assert (record.standing, record.failure_count, record.reverted) == (TaskState.FAILED, 3, FAILED.note)
