"""Names, ports, disk, what may be removed, and claims (W1, W3, W4, W6)."""

from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.worktrees.rules import (
    PORTS,
    Claim,
    Claims,
    Worktree,
    WorktreeFacts,
    claimed,
    folder_of,
    names_of,
    only,
    over_limit,
    port_bases,
    released,
    why_kept,
)

TREE = Worktree(
    "fix", "/data/trees/demo/fix", "/home/demo/.git", "/home/demo", "ralph/fix", "a" * 40, 0.0, 20_000
)
CLEAN = WorktreeFacts(True, size_bytes=1 << 30)
OPEN, DONE = TaskStatus.PENDING, TaskStatus.DONE


def plan_of(*tasks: str, done: tuple[str, ...] = ()) -> Plan:
    return Plan("TASKS.md", tuple(Task(each, each, DONE if each in done else OPEN) for each in tasks))


def own(plan: Plan) -> list[str]:
    return [task.id for task in plan.open if not task.elsewhere]


def test_one_worktree_has_the_name_and_several_have_numbers() -> None:
    assert names_of("fix", 1) == ("fix",)
    assert names_of("fix", 3) == ("fix-1", "fix-2", "fix-3")


def test_a_second_repository_of_a_name_gets_a_digest() -> None:
    assert folder_of("demo", "/home/demo/.git", "1234", [TREE]) == "demo"
    assert folder_of("demo", "/home/other/.git", "1234", [TREE]) == "demo-1234"


def test_no_two_worktrees_share_ports() -> None:
    bases = list(islice(port_bases([TREE.port_base]), 3))
    assert bases == [20_000 + PORTS, 20_000 + 2 * PORTS, 20_000 + 3 * PORTS]


def test_what_is_nowhere_else_is_named() -> None:
    facts = replace(CLEAN, dirty=("a", "b"), unlanded=2, doing="a rebase waits")
    assert why_kept(CLEAN) == ()
    assert why_kept(facts) == (
        "a rebase waits",
        "not committed: a, b",
        "2 commits that no other branch and no remote has",
    )
    assert why_kept(replace(CLEAN, unlanded=1)) == ("1 commit that no other branch and no remote has",)
    assert why_kept(facts, for_good=True) == ("a rebase waits",)


@given(st.builds(WorktreeFacts, st.booleans(), dirty=st.lists(st.text("ab", min_size=1)).map(tuple),
                 doing=st.sampled_from(["", "a merge"]), unlanded=st.integers(0, 3)))  # fmt: skip
def test_only_what_has_nothing_of_its_own_may_be_removed(facts: WorktreeFacts) -> None:
    has_work = bool(facts.dirty or facts.doing or facts.unlanded)
    assert bool(why_kept(facts)) == has_work


def test_beyond_the_limit_those_that_may_go_are_named() -> None:
    facts = {"a": CLEAN, "b": replace(CLEAN, unlanded=1), "c": CLEAN}
    assert over_limit(facts, 4 << 30, ["a", "b", "c"]) == ""
    assert over_limit(facts, 0, ["a", "b", "c"]) == ""
    text = over_limit(facts, 3 << 30, ["a", "b"])
    assert text.startswith("3.0 GiB of 3GiB are used") and text.endswith("landed and clean: a")
    assert over_limit(facts, 1, []).endswith("landed and clean: none")


# --- claims -------------------------------------------------------------------------------------------


def test_each_ralph_gets_the_next_task_that_nobody_has() -> None:
    claims, first = claimed({}, plan_of("a", "b"), "one")
    claims, second = claimed(claims, plan_of("a", "b"), "two")
    claims, third = claimed(claims, plan_of("a", "b"), "three")
    assert (own(first), own(second), own(third)) == (["a"], ["b"], [])


def test_a_ralph_keeps_its_task_until_that_is_done() -> None:
    claims, plan = claimed({"b": Claim("one")}, plan_of("a", "b"), "one")
    assert own(plan) == ["b"] and claims == {"b": Claim("one")}
    claims, plan = claimed(claims, plan_of("a", "b", done=("b",)), "one")
    assert own(plan) == ["a"] and claims == {"a": Claim("one"), "b": Claim("one", done=True)}


def test_a_task_that_failed_does_not_keep_its_ralph_from_others() -> None:
    claims, plan = claimed({"a": Claim("one")}, plan_of("a", "b", "c"), "one", failed={"a"})
    assert own(plan) == ["a", "b"] and claims["b"] == Claim("one")


def test_a_list_that_changes_keeps_the_claims_of_other_copies() -> None:
    claims, plan = claimed({"old": Claim("one"), "b": Claim("two")}, plan_of("b", "new"), "one")
    assert own(plan) == ["new"] and claims["old"] == Claim("one")


def test_the_tasks_of_a_removed_ralph_are_free_unless_they_landed() -> None:
    claims = {"a": Claim("one", done=True), "b": Claim("one"), "c": Claim("two")}
    assert released(claims, "one") == {"c": Claim("two")}
    assert released(claims, "one", landed=True) == {"a": Claim("one", done=True), "c": Claim("two")}


def test_only_the_named_tasks_are_the_ralphs_own() -> None:
    plan = only(plan_of("a", "b", "c", done=("c",)), ("b",))
    assert own(plan) == ["b"]
    assert own(claimed({}, plan, "one")[1]) == ["b"]
    assert own(claimed({"b": Claim("two")}, plan, "one")[1]) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["look", "done", "fail", "leave"])), max_size=60)
)
def test_no_task_has_two_ralphs_and_none_is_forgotten(moves: list[tuple[int, str]]) -> None:
    ids = ("a", "b", "c", "d", "e")
    claims: Claims = {}
    done: dict[str, set[str]] = {f"r{n}": set() for n in range(4)}
    failed: dict[str, set[str]] = {f"r{n}": set() for n in range(4)}
    for number, move in moves:
        name = f"r{number}"
        if move == "leave":
            claims, done[name], failed[name] = released(claims, name), set(), set()
            continue
        claims, plan = claimed(claims, plan_of(*ids, done=tuple(done[name])), name, failed[name])
        mine = own(plan)
        assert all(claims[each].ralph == name for each in mine)
        if mine and move in ("done", "fail"):
            (done if move == "done" else failed)[name].add(mine[-1])
        doers = [id_ for those in done.values() for id_ in those]
        assert len(doers) == len(set(doers))
    while True:  # whoever is left takes what is free, until nothing is
        claims, plan = claimed(claims, plan_of(*ids, done=tuple(done["r0"])), "r0", failed["r0"])
        if not (left := [each for each in own(plan) if each not in failed["r0"]]):
            break
        done["r0"].add(left[0])
    assert set(claims) == set(ids)
