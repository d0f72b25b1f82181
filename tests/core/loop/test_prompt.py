"""The prompt of an attempt: what is in it, and what is left out (L4, 000-T2)."""

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.loop.model import Iteration, Previous
from ralphd.core.loop.prompt import MOST_LINE_CHARS, PLACEHOLDER, previous_attempt, previous_of, prompt
from ralphd.core.loop.tasks import PROMPT_ALONE
from ralphd.core.plan import Task, TaskStatus, is_promised
from tests.core.loop.scenes import plan_of

TASK = Task("US-001", "Add a login", TaskStatus.PENDING)
PREVIOUS = Previous(1, "claude", FailureKind.AGENT_CRASH, "exit status 3", ("one", "two"))


def test_a_first_prompt_is_own_text_and_task() -> None:
    text = prompt("Do it well.\n", task=TASK, plan=plan_of("US-001"))

    assert text.startswith("Do it well.\n\n## Task\n\nUS-001: Add a login\n")
    assert "prd.json" in text
    assert "Previous Attempt" not in text
    assert "Handoff" not in text


def test_without_a_list_the_prompt_is_own_text() -> None:
    assert prompt("Do it.\n", task=PROMPT_ALONE, plan=None) == "Do it.\n"


def test_a_retry_describes_the_last_attempt() -> None:
    text = previous_attempt(PREVIOUS, 2)

    assert text.startswith("## Previous Attempt\n")
    assert "This is attempt 2. Attempt 1, by claude, failed (agent crash): exit status 3" in text
    assert "```\none\ntwo\n```" in text


def test_the_section_replaces_its_placeholder() -> None:
    own = "Before.\n{previous_attempt_context}\nAfter."

    text = prompt(
        own, task=TASK, plan=plan_of("US-001"), previous_attempt_context=previous_attempt(PREVIOUS, 2)
    )

    assert text.count("## Previous Attempt") == 1
    assert text.index("Before.") < text.index("## Previous Attempt") < text.index("After.")
    assert PLACEHOLDER not in prompt(own, task=TASK, plan=None)


def test_the_handoff_and_repository_trouble_are_included() -> None:
    text = prompt("Do.", task=TASK, plan=None, handoff="- crashed", trouble=["a rebase is under way"])

    assert "## Handoff\n\n- crashed" in text
    assert "- a rebase is under way" in text


def test_printed_output_cannot_end_its_fence() -> None:
    previous = Previous(1, "codex", FailureKind.UNKNOWN, "why", ("```", "````", "text"))

    lines = previous_attempt(previous, 2).splitlines()

    assert lines[-1] == "`````"
    assert lines.count("`````") == 2


def test_a_long_line_is_cut() -> None:
    previous = Previous(1, "codex", FailureKind.UNKNOWN, "x" * 10_000, ("y" * 10_000,))

    assert max(map(len, previous_attempt(previous, 2).splitlines())) < MOST_LINE_CHARS + 100


def test_an_echoed_prompt_promises_nothing() -> None:
    text = prompt("Do.", task=TASK, plan=plan_of("US-001"))

    assert "<promise>COMPLETE</promise>" in text
    assert not is_promised(text.splitlines())


DO_A = Task("A", "do A", TaskStatus.PENDING)
AFTER_CRASH = Previous(1, "claude", FailureKind.AGENT_CRASH, "exit status 3", ("one", "two"))


def asked(own: str, *, task: Task = PROMPT_ALONE, context: str = "") -> str:
    """A prompt without a handoff and without trouble."""
    return prompt(own, task=task, plan=plan_of("A"), previous_attempt_context=context)


def test_without_a_placeholder_the_section_comes_last() -> None:
    assert asked("Do it.", context="What went wrong.") == "Do it.\n\nWhat went wrong.\n"


def test_the_section_stands_only_at_its_placeholder() -> None:
    assert asked(f"Before.\n{PLACEHOLDER}\nAfter.\n", context="Wrong.") == "Before.\nWrong.\nAfter.\n"


def test_t2_a_first_attempt_has_no_such_section() -> None:
    assert previous_attempt(None, 1) == ""


def test_the_section_shows_output_in_a_fence() -> None:
    assert previous_attempt(AFTER_CRASH, 2).splitlines() == [
        "## Previous Attempt",
        "",
        "This is attempt 2. Attempt 1, by claude, failed (agent crash): exit status 3",
        "Its changes may still be in the working directory: inspect them before you begin.",
        "",
        "The last 2 lines of its output:",
        "",
        "```",
        "one",
        "two",
        "```",
    ]


def test_an_earlier_run_leaves_number_and_agent_out() -> None:
    told = previous_attempt(Previous(0, "", FailureKind.TIMEOUT, "600 s"), 1)

    assert "\nAn earlier attempt at this failed (timeout): 600 s\n" in told
    assert "```" not in told


def test_one_line_is_not_told_in_the_plural() -> None:
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", ("one",)), 2)

    assert "\nThe last line of its output:\n" in told


def test_the_present_attempt_is_counted_from_the_iteration() -> None:
    iteration = Iteration(1, DO_A, "claude", attempt=2, nth=7, previous=AFTER_CRASH)

    assert "This is attempt 7." in previous_of(iteration)


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (Task("A", "do A", TaskStatus.PENDING), "A: do A"),
        (Task("A", "", TaskStatus.PENDING), "A"),
        (Task("A", "A", TaskStatus.PENDING), "A"),
    ],
)
def test_a_task_is_named_once(task: Task, line: str) -> None:
    head = ["Own.", "", "## Task", "", line, ""]

    lines = asked("Own.", task=task).splitlines()

    assert lines[: len(head)] == head
    assert lines[len(head)].startswith("It is listed in prd.json.")


def test_a_line_is_cut_only_when_too_long() -> None:
    fits = "x" * 500
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", (fits, fits + "x")), 2)

    assert told.splitlines()[-3:-1] == [fits, fits + " …"]


def test_an_indented_fence_ends_nothing() -> None:
    told = previous_attempt(Previous(1, "claude", FailureKind.UNKNOWN, "why", ("  ```",)), 2)

    assert told.splitlines()[-3:] == ["````", "  ```", "````"]


@pytest.mark.parametrize(
    ("commits", "where"),
    [
        (("abc1234", "def5678"), "; `git show abc1234 def5678` shows them."),
        ((), "."),
    ],
)
def test_r9_a_reverted_task_is_told_why(commits: tuple[str, ...], where: str) -> None:
    text = prompt("Do.", task=TASK, plan=None, reverted=RevertNotice(commits, "red", ("1 failed",)))

    assert text == (
        "Do.\n\n## Reverted\n\n"
        f"The commits for this task were reverted ({', '.join(commits)}): red.\n"
        f"They are no longer in the working directory{where}\n"
        "Do the task again so that the tests pass, and commit it. Do not undo the revert.\n\n"
        "The last lines of the tests' output:\n\n```\n1 failed\n```\n"
    )
