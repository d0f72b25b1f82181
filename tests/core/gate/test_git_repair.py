"""A rewritten branch: accepted with every change of the old history, restored without (A8)."""

from dataclasses import replace

import pytest

from ralphd.core.gate.git_repair import Change, RewriteAction, RewrittenBranch, decide, to_reapply

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
    assert decide(replace(LOST, new=new), pauses=True).action is RewriteAction.ACCEPT


@pytest.mark.parametrize("new", [(), (NEW,), (copy(ONE),), (NEW, copy(TWO))])
def test_a_history_without_a_change_is_repaired(new: tuple[Change, ...]) -> None:
    assert decide(replace(LOST, new=new), pauses=False).action is RewriteAction.REPAIR


def test_a_lost_merge_is_never_taken_for_another_one() -> None:
    merge = Change("3" * 40, "t3")
    branch = replace(LOST, lost=(merge,), new=(Change("b" * 40, "tb"),))
    assert decide(branch, pauses=False).action is RewriteAction.REPAIR


def test_nothing_lost_is_accepted() -> None:
    assert decide(replace(LOST, lost=(), pulled=True), pauses=True).action is RewriteAction.ACCEPT


def test_a_person_decides_where_repair_is_off_or_commits_were_pulled() -> None:
    off = decide(LOST, pauses=True)
    assert (off.action, off.why) == (RewriteAction.PAUSE, 'git.rewritten = "pause"')
    pulled = decide(replace(LOST, pulled=True), pauses=False)
    assert (pulled.action, "pull" in pulled.why) == (RewriteAction.PAUSE, True)


def test_what_is_half_done_is_left_alone() -> None:
    found = decide(replace(LOST, in_the_way="a rebase is half done"), pauses=True)
    assert (found.action, found.why) == (RewriteAction.LEAVE, "a rebase is half done")


def test_copies_of_lost_commits_are_not_applied_again() -> None:
    merge = Change("d" * 40, "td")
    branch = replace(LOST, new=(NEW, copy(ONE), merge))
    assert to_reapply(branch) == (NEW, merge)
