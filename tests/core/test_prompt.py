"""The prompt of an attempt: what is in it, and what is left out (L4, 000-T2)."""

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import Previous
from ralphd.core.loop.prompt import MOST_LINE_CHARS, PLACEHOLDER, previous_attempt, prompt
from ralphd.core.loop.tasks import PROMPT_ALONE
from ralphd.core.plan import Task, TaskStatus, is_promised
from tests.core.loop_scenes import plan_of

TASK = Task("US-001", "Add a login", TaskStatus.PENDING)
PREVIOUS = Previous(1, "claude", FailureKind.AGENT_CRASH, "exit status 3", ("one", "two"))


def test_a_first_prompt_is_the_users_own_and_the_task() -> None:
    text = prompt("Do it well.\n", task=TASK, plan=plan_of("US-001"))

    assert text.startswith("Do it well.\n\n## Task\n\nUS-001: Add a login\n")
    assert "prd.json" in text
    assert "Previous Attempt" not in text
    assert "Handoff" not in text


def test_without_a_list_the_prompt_is_the_users_own_alone() -> None:
    assert prompt("Do it.\n", task=PROMPT_ALONE, plan=None) == "Do it.\n"


def test_t2_a_retry_says_which_attempt_it_is_what_went_wrong_and_what_was_printed() -> None:
    text = previous_attempt(PREVIOUS, 2)

    assert text.startswith("## Previous Attempt\n")
    assert "This is attempt 2. Attempt 1, by claude, failed (agent crash): exit status 3" in text
    assert "```\none\ntwo\n```" in text


def test_t2_the_section_goes_where_the_users_template_wants_it() -> None:
    own = f"Before.\n{PLACEHOLDER}\nAfter."

    text = prompt(
        own, task=TASK, plan=plan_of("US-001"), previous_attempt_context=previous_attempt(PREVIOUS, 2)
    )

    assert text.count("## Previous Attempt") == 1
    assert text.index("Before.") < text.index("## Previous Attempt") < text.index("After.")
    assert PLACEHOLDER not in prompt(own, task=TASK, plan=None)


def test_the_handoff_and_the_trouble_of_the_repository_are_told() -> None:
    text = prompt("Do.", task=TASK, plan=None, handoff="- crashed", trouble=["a rebase is under way"])

    assert "## Handoff\n\n- crashed" in text
    assert "- a rebase is under way" in text


def test_what_an_agent_printed_does_not_end_the_fence_around_it() -> None:
    previous = Previous(1, "codex", FailureKind.UNKNOWN, "why", ("```", "````", "text"))

    lines = previous_attempt(previous, 2).splitlines()

    assert lines[-1] == "`````"
    assert lines.count("`````") == 2


def test_a_long_line_is_cut() -> None:
    previous = Previous(1, "codex", FailureKind.UNKNOWN, "x" * 10_000, ("y" * 10_000,))

    assert max(map(len, previous_attempt(previous, 2).splitlines())) < MOST_LINE_CHARS + 100


def test_an_agent_that_echoes_its_prompt_has_promised_nothing() -> None:
    text = prompt("Do.", task=TASK, plan=plan_of("US-001"))

    assert "<promise>COMPLETE</promise>" in text
    assert not is_promised(text.splitlines())
