"""Ticks of two branches in one task list are never a conflict (M2)."""

from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.landing.task_lists import is_task_list, merged_list, with_ticks

LIST = "# Plan\n- [ ] one\n- [ ] two\n- [ ] three\n"


def test_neighbouring_ticks_are_united() -> None:
    ours, theirs = LIST.replace("[ ] one", "[x] one"), LIST.replace("[ ] two", "[x] two")
    assert merged_list(LIST, ours, theirs) == "# Plan\n- [x] one\n- [x] two\n- [ ] three\n"


def test_a_new_task_and_a_tick_are_united() -> None:
    ours, theirs = LIST + "- [ ] four\n", LIST.replace("[ ] three", "[x] three")
    both = "# Plan\n- [ ] one\n- [ ] two\n- [x] three\n- [ ] four\n"
    assert merged_list(LIST, ours, theirs) == merged_list(LIST, theirs, ours) == both


def test_two_rewritten_lists_are_a_conflict() -> None:
    assert merged_list(LIST, LIST + "- [ ] four\n", LIST + "- [ ] five\n") is None


def test_equal_tasks_are_told_apart_by_their_order() -> None:
    twice = "- [ ] test\n- [ ] test\n"
    assert (
        merged_list(twice, "- [x] test\n- [ ] test\n", "- [ ] test\n- [/] test\n")
        == "- [x] test\n- [/] test\n"
    )


def test_only_known_lists_are_merged() -> None:
    assert is_task_list("TASKS.md", "auto")
    assert is_task_list("work/todo.md", "work/todo.md")
    assert not is_task_list("README.md", "auto")
    assert not is_task_list("prd.json", "auto")


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
def test_a_task_is_ticked_if_either_side_ticked_it(ticks: list[tuple[bool, bool]]) -> None:
    def text(marks: list[bool]) -> str:
        return "".join(f"- [{'x' if mark else ' '}] task {at}\n" for at, mark in enumerate(marks))

    ours, theirs = [a for a, _ in ticks], [b for _, b in ticks]
    assert merged_list(text([False] * len(ticks)), text(ours), text(theirs)) == text(
        [a or b for a, b in ticks]
    )


def test_a_reopened_task_is_not_ticked_again() -> None:
    base = "- [x] one\n- [ ] two\n"
    reopened, ticked = "- [ ] one\n- [ ] two\n", "- [x] one\n- [x] two\n"
    assert (
        merged_list(base, reopened, ticked) == merged_list(base, ticked, reopened) == "- [ ] one\n- [x] two\n"
    )


def test_of_two_changed_marks_the_further_counts() -> None:
    assert merged_list("- [ ] one\n", "- [/] one\n", "- [x] one\n") == "- [x] one\n"
    assert merged_list("- [x] one\n", "- [ ] one\n", "- [/] one\n") == "- [/] one\n"


def test_ticks_follow_a_task_to_another_heading_but_go_to_no_other_task() -> None:
    done = "# v1\n- [x] write tests\n"
    assert with_ticks("# version 1\n- [ ] write tests\n", done) == "# version 1\n- [x] write tests\n"
    two = "# v2\n- [ ] write tests\n# v1\n- [ ] write tests\n"
    assert with_ticks(two, done) == "# v2\n- [ ] write tests\n# v1\n- [x] write tests\n"
    assert with_ticks(two, "# v0\n- [x] write tests\n") == two
    assert with_ticks("- [ ] a\n- [ ] a\n", "- [x] a\n- [ ] a\n") == "- [x] a\n- [ ] a\n"
