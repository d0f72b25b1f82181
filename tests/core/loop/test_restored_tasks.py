"""What a revert takes off the task list with a commit is a person's work as well: it stays (R5)."""

import pytest

from ralphd.core.loop.tasks import with_restored_tasks

DONE = "# Tasks\n- [x] one\n- [ ] two\n- [ ] mine\n"
OPEN = "# Tasks\n- [ ] one\n- [ ] two\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_added_task_stays_in_its_place(end: str) -> None:
    before, after = ("# Tasks\n- [x] one\n- [ ] mine\n  in detail\n- [ ] two\n", OPEN)

    text, titles = with_restored_tasks("TASKS.md", *(each.replace("\n", end) for each in (before, after)))

    assert text == "# Tasks\n- [ ] one\n- [ ] mine\n  in detail\n- [ ] two\n".replace("\n", end)
    assert titles == "mine"


def test_a_task_that_the_revert_ticks_again_stays_ticked() -> None:
    text, titles = with_restored_tasks("TASKS.md", "- [ ] one\n- [ ] mine\n", "- [x] one\n")

    assert (text, titles) == ("- [x] one\n- [ ] mine\n", "mine")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(DONE.replace("- [ ] two\n", ""), OPEN, id="the commit removed a task"),
        pytest.param(DONE, f"{OPEN}See docs/.\n", id="the commit removed another line"),
        pytest.param(DONE.replace("- [ ] two", "- [ ] two (begun)"), OPEN, id="the commit renamed a task"),
        pytest.param(DONE, "", id="the list cannot be read"),
        pytest.param("* [X] one\n* [ ] mine\n", "* [ ] one\n", id="another mark"),
    ],
)
def test_nothing_else_is_lost_for_an_added_task(before: str, after: str) -> None:
    text, titles = with_restored_tasks("TASKS.md", before, after)

    assert (text, "mine" in titles) == (after, True)


def test_a_revert_that_takes_no_open_task_changes_nothing() -> None:
    assert with_restored_tasks("TASKS.md", OPEN.replace("[ ] one", "[x] one"), OPEN) == (OPEN, "")


def test_a_story_stays_unless_another_one_would_be_ticked() -> None:
    story = '{"id": "US-%d", "title": "%s", "passes": %s}'
    first, mine = story % (1, "first", "false"), story % (2, "mine", "false")
    after = f"[\n{first}\n]"

    assert with_restored_tasks("prd.json", f"[\n{first},\n{mine}\n]", after) == (after, "mine")
    ticked = f"[\n{first.replace('false', 'true')},\n{mine}\n]"
    assert with_restored_tasks("prd.json", ticked, after) == (after, "mine")
