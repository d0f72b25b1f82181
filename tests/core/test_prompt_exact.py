"""The prompt to the letter: what stands where, and what an agent is spared (L4, 000-T2)."""

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import Iteration, Previous
from ralphd.core.loop.prompt import MOST_LINE_CHARS, PLACEHOLDER, previous_attempt, previous_of, prompt
from ralphd.core.loop.tasks import PROMPT_ALONE
from ralphd.core.plan import Task, TaskStatus
from tests.core.loop_scenes import plan_of

TASK = Task("A", "do A", TaskStatus.PENDING)
CRASH = Previous(1, "claude", FailureKind.AGENT_CRASH, "exit status 3", ("one", "two"))


def asked(own: str, *, task: Task = PROMPT_ALONE, context: str = "") -> str:
    """A prompt without a handoff and without trouble."""
    return prompt(own, task=task, plan=plan_of("A"), previous_attempt_context=context)


def test_t2_the_section_on_the_attempt_before_comes_last_where_the_user_gave_it_no_place() -> None:
    assert asked("Do it.", context="What went wrong.") == "Do it.\n\nWhat went wrong.\n"


def test_t2_it_stands_in_the_place_that_the_user_gave_it_and_nowhere_else() -> None:
    assert asked(f"Before.\n{PLACEHOLDER}\nAfter.\n", context="Wrong.") == "Before.\nWrong.\nAfter.\n"


def test_t2_a_first_attempt_has_no_such_section() -> None:
    assert previous_attempt(None, 1) == ""


def test_t2_the_section_names_the_attempt_and_shows_what_was_printed_in_a_fence() -> None:
    assert previous_attempt(CRASH, 2).splitlines() == [
        "## Previous Attempt",
        "",
        "This is attempt 2. Attempt 1, by claude, failed (agent crash): exit status 3",
        "What it had done may still be in the working directory: look before you begin.",
        "",
        "The last 2 lines that it printed:",
        "",
        "```",
        "one",
        "two",
        "```",
    ]


def test_t2_of_a_failure_in_an_earlier_run_neither_number_nor_agent_is_made_up() -> None:
    told = previous_attempt(Previous(0, "", FailureKind.TIMEOUT, "600 s"), 1)

    assert "\nAn earlier attempt at this failed (timeout): 600 s\n" in told
    assert "```" not in told


def test_one_line_is_not_told_in_the_plural() -> None:
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", ("one",)), 2)

    assert "\nThe last line that it printed:\n" in told


def test_the_present_attempt_is_counted_from_the_iteration() -> None:
    iteration = Iteration(1, TASK, "claude", attempt=7, previous=CRASH)

    assert "This is attempt 7." in previous_of(iteration)


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (Task("A", "do A", TaskStatus.PENDING), "A: do A"),
        (Task("A", "", TaskStatus.PENDING), "A"),
        (Task("A", "A", TaskStatus.PENDING), "A"),
    ],
)
def test_a_task_is_named_once_and_told_to_mark_itself_done(task: Task, line: str) -> None:
    head = ["Own.", "", "## Task", "", line, ""]

    lines = asked("Own.", task=task).splitlines()

    assert lines[: len(head)] == head
    assert lines[len(head)].startswith("It is listed in prd.json.")


def test_a_line_is_cut_only_where_it_is_too_long() -> None:
    fits = "x" * MOST_LINE_CHARS
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", (fits, fits + "x")), 2)

    assert told.splitlines()[-3:-1] == [fits, fits + " …"]


def test_an_indented_fence_in_what_was_printed_ends_nothing_either() -> None:
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", ("  ```",)), 2)

    assert told.splitlines()[-3:] == ["````", "  ```", "````"]
