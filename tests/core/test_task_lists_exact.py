"""Task lists where one rule ends: ids made of titles, stories by other keys, headings with parts (E4)."""

import json

import pytest

from ralphd.core.plan import MAX_TASKS, Task, TaskStatus, has_task_headings, parse

PENDING, DONE = TaskStatus.PENDING, TaskStatus.DONE


def stories(*found: dict[str, object]) -> tuple[Task, ...]:
    """The tasks of a list in JSON."""
    return parse("prd.json", json.dumps({"userStories": found})).tasks


@pytest.mark.parametrize(
    ("title", "id_"),
    [
        ("(Add a login!)", "add-a-login"),
        ("x" * 47 + " y", "x" * 47),  # cut at 48, and no dash is left at its end
        ("x" * 46 + " yz", "x" * 46 + "-y"),
    ],
)
def test_an_id_made_from_a_title_neither_begins_nor_ends_with_a_dash(title: str, id_: str) -> None:
    assert [task.id for task in parse("TASKS.md", f"- [ ] {title}\n").tasks] == [id_]


@pytest.mark.parametrize("key", ["title", "description", "name"])
def test_a_story_is_called_by_whatever_key_it_has(key: str) -> None:
    (story,) = stories({"id": "US-7", key: "Add a login"})

    assert story == Task("US-7", "Add a login", PENDING)


def test_a_story_without_passes_is_as_far_as_its_status_says() -> None:
    (story,) = stories({"id": "US-7", "title": "Add a login", "status": "done"})

    assert story == Task("US-7", "Add a login", DONE)


def test_a_heading_that_says_itself_how_far_it_is_counts_beside_its_parts() -> None:
    plan = parse("TASKS.md", "## Task 1: All of it (done)\n### Task 1.1: A part\n- [ ] do it\n")

    assert [(task.id, task.status) for task in plan.tasks] == [("task-1", DONE), ("task-1.1", PENDING)]


def test_a_text_with_more_task_headings_than_can_be_has_task_headings() -> None:
    assert has_task_headings("# Task 1\n" * (MAX_TASKS + 1))


@pytest.mark.parametrize(
    "word", ["x", "Done", "complete", "completed", "finished", "implemented", "passed", "passes", "CLOSED"]
)
def test_these_words_say_that_a_task_is_done(word: str) -> None:
    (task,) = parse("TASKS.md", f"## Task 1: Add a login\nStatus: {word}\n").tasks

    assert task.status is DONE


def test_a_letter_before_a_heading_is_no_mark() -> None:
    assert parse("TASKS.md", "## X Task 1: Add a login\n").tasks == ()
