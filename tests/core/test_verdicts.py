"""Verdicts read back from the record: which can be undone, and how they are explained."""

from typing import Any

from ralphd.core.gate.verdict_views import ToUndo, explain_verdict, to_undo, undo_key, verdicts


def verdict(number: int | None, *reverted: str, boundary: str = "", **more: Any) -> dict[str, Any]:
    """An entry; its boundary is named after its iteration."""
    return {
        "kind": "verdict",
        "key": f"{boundary or f'r1/f{number}'}/verdict",
        "run_id": "r1",
        "iteration": number,
        "task": None,
        "verdict": "reverted" if reverted else "kept",
        "why": "the tests failed, and pass without it" if reverted else "the tests pass",
        "commits": list(reverted) or ["good"],
        "reverted": list(reverted),
        **more,
    }


def undone(number: int) -> dict[str, Any]:
    return {"kind": "undo", "key": undo_key(f"r1/f{number}")}


def test_verdicts_are_listed_newest_first_and_say_whether_they_were_undone() -> None:
    record = [undone(2), {"kind": "run"}, verdict(3), verdict(2, "bad"), verdict(1)]
    found = verdicts(record, 2)
    assert [(each["iteration"], each["undone"]) for each in found] == [(3, False), (2, True)]
    assert "kind" not in found[0]
    assert verdicts([], 5) == []


def test_what_was_reverted_last_and_is_not_back_is_undone_where_no_iteration_is_named() -> None:
    record = [verdict(4), undone(3), verdict(3, "c"), verdict(2, "b", "a"), verdict(1)]
    assert to_undo(record, None) == ToUndo("r1/f2", "r1", 2, None, ("b", "a"))
    assert to_undo([verdict(None, "a", boundary="r7")], None) == ToUndo("r7", "r1", None, None, ("a",))


def test_of_several_iterations_of_one_number_the_last_that_can_be_undone_is_meant() -> None:
    again = verdict(2, "z", boundary="r9/f2")
    assert to_undo([again, verdict(2, "a")], 2) == ToUndo("r9/f2", "r1", 2, None, ("z",))
    assert to_undo([undone(2), verdict(2, boundary="r9/f2"), verdict(2, "a")], 2) == (
        "nothing of iteration 2 was reverted: it is kept, since the tests pass"
    )


def test_why_there_is_nothing_to_undo_is_said() -> None:
    assert to_undo([], None) == "nothing was reverted so far"
    assert to_undo([verdict(1)], None) == "nothing was reverted so far"
    assert to_undo([verdict(1)], 2) == "iteration 2 was not judged"
    assert (
        to_undo([undone(1), verdict(1, "a")], None) == "what was reverted of iteration 1 is put back already"
    )
    assert to_undo([undone(1), verdict(1, "a")], 1) == "what was reverted of iteration 1 is put back already"


def test_a_verdict_is_explained_by_its_tests_and_commits() -> None:
    entry = verdict(2, "bad", tests=["red", "timed_out", "green"], tests_s=[4.0, 4.0, 4.5])
    told = explain_verdict(entry, is_undone=False)
    assert (told.rule, told.because) == ("R5", "the tests failed, and pass without it")
    assert [(each.name, each.seen) for each in told.figures] == [
        ("iteration", "2"),
        ("commits", "bad"),
        ("reverted", "bad"),
        ("tests", "red, timed out, green, 12 s in all"),
    ]
    assert "ralphctl undo" in told.done
    blocked = explain_verdict(verdict(2, verdict="untested", why="a rebase", tests=[]), is_undone=False)
    assert (blocked.rule, blocked.because, blocked.done) == ("R8", "a rebase", "nothing was reverted")
    assert explain_verdict(entry, is_undone=True).done == "put back by ralphctl undo"


def test_reverts_that_could_not_be_taken_back_are_not_told_as_nothing() -> None:
    told = explain_verdict(
        {"verdict": "untested", "reverted": ["abc1234"], "tests": ["red"]}, is_undone=False
    )
    assert told.done == "reverts that were made are still there"
    assert (
        explain_verdict({"verdict": "untested", "tests": ["red"]}, is_undone=False).done
        == "nothing was reverted"
    )
