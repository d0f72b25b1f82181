"""Verdicts of the record, to the letter: what is listed, what can be put back, how each is explained."""

from typing import Any

import pytest

from ralphd.core.gate.verdict_views import ToUndo, explain_verdict, to_undo, undo_key, verdicts
from ralphd.core.supervision.explain import Explanation, Figure

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


def undone(key: str) -> dict[str, Any]:
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
    again = [entry("a", reverted=["x"]), undone("a"), undone("c")]
    assert [each["undone"] for each in verdicts(again, 5)] == [False]
    assert [each["undone"] for each in verdicts([undone("b"), undone("a"), entry("a"), entry("c")], 5)] == [
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
                undone("a"),
                entry("a", iteration=1, reverted=["x"]),
            ],
            1,
            "nothing of iteration 1 was reverted: it is kept, since green",
        ),
        ([undone("a"), entry("a", iteration=1, reverted=["x"])], 1, BACK_ALREADY),
        ([undone("a"), entry("a", reverted=["x"])], None, "what was reverted is put back already"),
        (
            [
                undone("a"),
                undone("b"),
                entry("b", iteration=2, reverted=["y"]),
                entry("a", iteration=1, reverted=["x"]),
            ],
            None,
            BACK_ALREADY,
        ),
        (
            [
                undone("b"),
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
