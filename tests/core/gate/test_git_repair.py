"""A rewritten branch: accepted with every change of the old history, restored without (A8)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.gate.git_repair import (
    RewriteAction,
    RewrittenBranch,
    decide,
    repair_number,
    repair_of,
    repair_to_undo,
    repairs,
    to_reapply,
)
from ralphd.core.gate.verdict import Change
from ralphd.core.gate.verdict_views import ToUndo

ONE, TWO = Change("1" * 40, "t1", "p1"), Change("2" * 40, "t2", "p2")
NEW = Change("a" * 40, "ta", "pa")
LOST = RewrittenBranch(TWO.sha, TWO.tree, (ONE, TWO), (NEW,))


def copy(change: Change, tree: str = "other") -> Change:
    return replace(change, sha="c" * 39 + change.sha[0], tree=tree)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param((Change("b" * 40, TWO.tree, "squashed"),), id="squash, or an amended message"),
        pytest.param((Change("b" * 40, TWO.tree, "squashed"), NEW), id="squash, then new work"),
        pytest.param((NEW, copy(ONE), copy(TWO)), id="rebase onto other commits"),
        pytest.param((copy(TWO), copy(ONE)), id="another order"),
    ],
)
def test_a_history_with_every_change_is_accepted(new: tuple[Change, ...]) -> None:
    assert decide(replace(LOST, new=new), pauses=True)[0] is RewriteAction.ACCEPT


@pytest.mark.parametrize("new", [(), (NEW,), (copy(ONE),), (NEW, copy(TWO))])
def test_a_history_without_a_change_is_repaired(new: tuple[Change, ...]) -> None:
    assert decide(replace(LOST, new=new), pauses=False)[0] is RewriteAction.REPAIR


def test_a_lost_merge_is_never_taken_for_another_one() -> None:
    merge = Change("3" * 40, "t3")
    branch = replace(LOST, lost=(merge,), new=(Change("b" * 40, "tb"),))
    assert decide(branch, pauses=False)[0] is RewriteAction.REPAIR


def test_nothing_lost_is_accepted() -> None:
    assert decide(replace(LOST, lost=(), pulled=True), pauses=True)[0] is RewriteAction.ACCEPT


def test_a_person_decides_where_repair_is_off_or_commits_were_pulled() -> None:
    off = decide(LOST, pauses=True)
    assert off == (RewriteAction.PAUSE, 'git.rewritten = "pause"')
    pulled = decide(replace(LOST, pulled=True), pauses=False)
    assert (pulled[0], "pull" in pulled[1]) == (RewriteAction.PAUSE, True)


def test_what_is_half_done_is_left_alone() -> None:
    found = decide(replace(LOST, in_the_way="a rebase is half done"), pauses=True)
    assert found == (RewriteAction.LEAVE, "a rebase is half done")


def test_copies_of_lost_commits_are_not_applied_again() -> None:
    merge = Change("d" * 40, "td")
    branch = replace(LOST, new=(NEW, copy(ONE), merge))
    assert to_reapply(branch) == (NEW, merge)


def test_a_rewrite_of_commits_that_no_run_made_is_accepted() -> None:
    assert decide(replace(LOST, by_other=True), pauses=True)[0] is RewriteAction.ACCEPT


# Repairs in the history.

BRANCH_1 = {"branch": "main", "lost": ["abc1234"], "conflicts": [], "ref": "refs/x", "why": ""}
CUSTODY_1: dict[str, Any] = {
    **{"what": "repository.repaired", "message": "restored", "why": "gone", "left": None},
    **{"refs": [], "undo": "git log"},
}


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"kind": "repair", "key": f"b{number}/repair", "run_id": "r1", "number": number, **more}


def test_old_entries_read_as_new_ones() -> None:
    branch, custody = repair_of(BRANCH_1), repair_of(CUSTODY_1)
    assert branch.keys() == custody.keys() == repair_of({}).keys()
    assert (branch["what"], branch["refs"], branch["number"]) == ("repository.repaired", ["refs/x"], None)
    assert (custody["left"], custody["why"], custody["undo"]) == ("", "gone", "git log")
    assert repair_of({**BRANCH_1, "why": "a file"})["what"] == "guard.blocked"
    assert repair_of({"lost": 3, "refs": "x", "why": 7, "number": "1"}) == {**repair_of({}), "refs": []}


WORDS = st.text("ab/ é\n", max_size=9)


@given(st.dictionaries(st.sampled_from([*repair_of({}), "ref"]), st.none() | WORDS | st.lists(WORDS)))
def test_one_shape_stays_as_it_is(found: dict[str, Any]) -> None:
    assert repair_of(repair_of(found)) == repair_of(found)


def test_repairs_are_numbered_once() -> None:
    assert [repair_number([entry(2), entry(1)], f"b{n}/repair") for n in (1, 2, 3)] == [1, 2, 3]
    assert repair_number([], "b1/repair") == 1


def test_the_last_repair_of_a_branch_is_undone_once() -> None:
    undo = {"kind": "undo", "key": "b3/repair/undo"}
    past = [undo, entry(4, **CUSTODY_1), entry(3, **BRANCH_1), {"kind": "run"}, entry(2, **BRANCH_1)]
    assert [(each["number"], each["undone"]) for each in repairs(past, 2)] == [(4, False), (3, True)]
    last = repair_to_undo(past, 0)
    assert isinstance(last, ToUndo)
    assert (last.boundary_id, last.id, last.repair, last.branch) == ("b2", "b2/repair", 2, "main")
    assert repair_to_undo(past, 2) == last
    assert repair_to_undo(past, 3) == "repair 3 is undone already"
    assert repair_to_undo(past, 4) == "repair 4 moved no branch: git log"
    assert repair_to_undo(past, 5) == "repair 5 is not in the history"
    assert repair_to_undo([], 0) == "nothing was repaired so far"
