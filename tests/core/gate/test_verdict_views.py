"""Verdicts read back from the record: which can be undone, and how they are explained."""

from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.explanation import Explanation, Figure
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


def test_a_repair_has_an_id_of_its_own_beside_that_of_its_boundary() -> None:
    reverted = ToUndo("r1/f2", "r1", 2, None, ("b",))

    assert reverted.id == "r1/f2"
    assert replace(reverted, repair=3).id == "r1/f2/repair"


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


def test_a_branch_that_went_back_is_told_with_what_keeps_its_commits() -> None:
    entry = verdict(2, "bad", tests=["red"], refs=["refs/ralph/left/2"])

    assert explain_verdict(entry, is_undone=False).done == (
        "the branch went back, and the ref keeps what it left; ralphctl undo puts it back"
    )
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


KEYS = [
    *(
        "at",
        "run_id",
        "iteration",
        "task",
        "verdict",
        "why",
        "commits",
        "reverted",
        "tests",
        "tests_s",
        "refs",
    ),
    *("baseline", "tail"),
]


BACK_ALREADY = "what was reverted of iteration 1 is put back already"


def entry(key: str, **more: Any) -> dict[str, Any]:
    return {"kind": "verdict", "key": f"{key}/verdict", "run_id": "r1", **more}


def undo_of(key: str) -> dict[str, Any]:
    return {"kind": "undo", "key": f"{key}/undo"}


def test_a_verdict_is_listed_with_all_that_is_known_of_it() -> None:
    known = dict.fromkeys(KEYS, "x")
    [found] = verdicts([{"kind": "verdict", "key": "a/verdict", "odd": 1, **known}], 5)
    assert found == {**known, "undone": False}
    assert verdicts([entry("a")], 1) == [dict.fromkeys(KEYS) | {"run_id": "r1", "undone": False}]
    assert undo_key("r1/7") == "r1/7/undo"


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_no_more_are_listed_than_asked_for(limit: int, count: int) -> None:
    assert len(verdicts([entry("a"), {"kind": "run"}, entry("b")], limit)) == count


def test_only_what_was_undone_later_counts_as_undone() -> None:
    again = [entry("a", reverted=["x"]), undo_of("a"), undo_of("c")]
    assert [each["undone"] for each in verdicts(again, 5)] == [False]
    assert [each["undone"] for each in verdicts([undo_of("b"), undo_of("a"), entry("a"), entry("c")], 5)] == [
        True,
        False,
    ]


def test_an_iteration_is_found_below_others() -> None:
    later, meant = entry("b", iteration=2, reverted=["y"]), entry("a", iteration=1, reverted=["x"])
    assert to_undo([later, meant], 1) == ToUndo("a", "r1", 1, None, ("x",))


def test_what_to_undo_has_what_the_record_says() -> None:
    found = entry("r1/f2", iteration=2, task={"id": "T"}, reverted=["b", "a"])
    assert to_undo([found], 2) == ToUndo("r1/f2", "r1", 2, {"id": "T"}, ("b", "a"))
    odd = entry("r1/f2", iteration="2", task="T", reverted=["b"])
    assert to_undo([odd], None) == ToUndo("r1/f2", "r1", None, None, ("b",))


@pytest.mark.parametrize(
    ("record", "iteration", "why"),
    [
        ([entry("a", iteration=1, reverted=["x"])], 2, "iteration 2 was not judged"),
        (
            [entry("a", iteration=1, verdict="untested", why="a rebase")],
            1,
            "nothing of iteration 1 was reverted: it is untested, since a rebase",
        ),
        (
            [
                entry("b", iteration=1, verdict="kept", why="green"),
                entry("a", iteration=1, verdict="untested", why="x"),
            ],
            1,
            "nothing of iteration 1 was reverted: it is kept, since green",
        ),
        (
            [
                entry("c", iteration=1, verdict="kept", why="green"),
                undo_of("a"),
                entry("a", iteration=1, reverted=["x"]),
            ],
            1,
            "nothing of iteration 1 was reverted: it is kept, since green",
        ),
        ([undo_of("a"), entry("a", iteration=1, reverted=["x"])], 1, BACK_ALREADY),
        ([undo_of("a"), entry("a", reverted=["x"])], None, "what was reverted is put back already"),
        (
            [
                undo_of("a"),
                undo_of("b"),
                entry("b", iteration=2, reverted=["y"]),
                entry("a", iteration=1, reverted=["x"]),
            ],
            None,
            BACK_ALREADY,
        ),
        (
            [
                undo_of("b"),
                entry("b", iteration=1, reverted=["y"]),
                entry("a", iteration=1, verdict="kept", why="green"),
            ],
            1,
            BACK_ALREADY,
        ),
        ([entry("a", iteration=1, verdict="kept")], None, "nothing was reverted so far"),
    ],
)
def test_why_nothing_can_be_put_back(record: list[dict[str, Any]], iteration: int | None, why: str) -> None:
    assert to_undo(record, iteration) == why


@pytest.mark.parametrize(
    ("last", "rule", "title", "done"),
    [
        (
            {"verdict": "kept", "tests": ["green"]},
            "R3",
            "Its commits stay: the tests pass",
            "nothing was changed",
        ),
        (
            {"verdict": "reverted", "tests": ["red"], "reverted": ["a"]},
            "R5",
            "Commits were reverted",
            "each has a commit of its own that takes it back; ralphctl undo puts them back",
        ),
        (
            {"verdict": "untested", "tests": ["red"]},
            "",
            "Its commits were not judged",
            "nothing was reverted",
        ),
        ({"verdict": "untested", "tests": []}, "R8", "Its commits were not judged", "nothing was reverted"),
        (
            {"verdict": "untested", "reverted": ["a"]},
            "R8",
            "Its commits were not judged",
            "reverts that were made are still there",
        ),
        ({"verdict": "odd"}, "", "Not known", ""),
        ({}, "", "Not known", ""),
    ],
)
def test_each_verdict_has_its_rule_and_title(last: dict[str, Any], rule: str, title: str, done: str) -> None:
    told = explain_verdict({**last, "why": "since"}, is_undone=False)
    assert (told.rule, told.title, told.because, told.done) == (rule, title, "since", done)


def test_an_explanation_in_all_its_figures() -> None:
    last = {
        "verdict": "reverted",
        "iteration": 0,
        "commits": list("abcdef"),
        "reverted": list("abcde"),
        "tests": ["red", "timed_out"],
        "tests_s": [1.5, 2.5],
    }
    assert explain_verdict(last, is_undone=True) == Explanation(
        "R5",
        "Commits were reverted",
        "",
        figures=(
            Figure("iteration", "0"),
            Figure("commits", "a, b, c, d, e and 1 more"),
            Figure("reverted", "a, b, c, d, e"),
            Figure("tests", "red, timed out, 4.0 s in all"),
        ),
        done="put back by ralphctl undo",
    )


@pytest.mark.parametrize(
    ("more", "figures"),
    [
        ({}, [("commits", "none")]),
        ({"commits": "abc", "tests": "red"}, [("commits", "none")]),
        (
            {"commits": ("a",), "tests": ("red",), "tests_s": (4,)},
            [("commits", "a"), ("tests", "red, 4.0 s in all")],
        ),
        ({"tests": ["red"], "tests_s": []}, [("commits", "none"), ("tests", "red")]),
        ({"tests": ["red"], "tests_s": "4"}, [("commits", "none"), ("tests", "red")]),
        ({"tests": [], "tests_s": [4]}, [("commits", "none")]),
    ],
)
def test_figures_of_what_is_missing_are_left_out(
    more: dict[str, Any], figures: list[tuple[str, str]]
) -> None:
    told = explain_verdict({"verdict": "kept", **more}, is_undone=False)
    assert [(each.name, each.seen) for each in told.figures] == figures
