"""When a plan is complete, and what a promise is (E4)."""

from itertools import product

import pytest

from ralphd.core.plan import (
    AUTO,
    HEADED_LISTS,
    LISTS,
    PROMISE,
    Plan,
    Task,
    TaskStatus,
    is_complete,
    is_promised,
    parallel_words,
)

PENDING, IN_PROGRESS, DONE = TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.DONE


def statuses(*pairs: tuple[str, TaskStatus]) -> Plan:
    """A plan of such tasks."""
    return Plan("list", tuple(Task(name, name, status) for name, status in pairs))


def test_open_tasks_are_those_not_done() -> None:
    plan = statuses(("a", DONE), ("b", IN_PROGRESS), ("c", PENDING))

    assert [task.id for task in plan.open] == ["b", "c"]


def test_states_have_the_words_of_the_files_and_of_the_api() -> None:
    assert [each.value for each in TaskStatus] == ["pending", "in_progress", "done"]


def test_a_list_is_found_under_these_names() -> None:
    assert AUTO == "auto"
    assert (
        *("prd.json", "fix_plan.md", ".ralph/fix_plan.md", "IMPLEMENTATION_PLAN.md", "TASKS.md", "TODO.md"),
    ) == LISTS
    assert HEADED_LISTS == ("PLAN.md", "PRD.md")


# The promise


@pytest.mark.parametrize(
    "line",
    [
        PROMISE,
        f"  {PROMISE}\t",
        f"{PROMISE}\r",
        f"\x1b[1;32m{PROMISE}\x1b[0m",
        f"\x1b]0;title\x07{PROMISE}\x1b[K",
    ],
)
def test_a_promise_is_a_line_of_its_own(line: str) -> None:
    assert is_promised(["working", line, "bye"])


@pytest.mark.parametrize(
    "line",
    [
        f"say {PROMISE}",
        f"{PROMISE}.",
        f"`{PROMISE}`",
        f"**{PROMISE}**",
        f"> {PROMISE}",
        f'"{PROMISE}"',
        f"50 %\r{PROMISE}",
        PROMISE.lower(),
        "<promise> COMPLETE </promise>",
        "<promise>DONE</promise>",
        f'{{"type":"result","result":"{PROMISE}"}}',
        "",
    ],
)
def test_a_promise_that_is_spoken_of_is_none(line: str) -> None:
    assert not is_promised([line])


def test_only_the_last_50_lines_count() -> None:
    assert is_promised([PROMISE, *["more"] * 49])
    assert not is_promised([PROMISE, *["more"] * 50])
    assert not is_promised([])


# Complete

OPEN_PLAN = statuses(("a", DONE), ("b", IN_PROGRESS))
DONE_PLAN = statuses(("a", DONE), ("b", DONE))
NO_TASKS = statuses()
FAULTY = Plan("prd.json", fault="prd.json is not JSON")


@pytest.mark.parametrize(
    ("plan", "promised", "complete"),
    [
        (DONE_PLAN, False, True),
        (DONE_PLAN, True, True),
        (OPEN_PLAN, False, False),
        (OPEN_PLAN, True, False),
        (NO_TASKS, False, False),
        (NO_TASKS, True, True),
        (FAULTY, False, False),
        (FAULTY, True, False),
        (None, False, False),
        (None, True, True),
    ],
)
def test_e4_a_plan_is_complete_without_open_tasks(plan: Plan | None, promised: bool, complete: bool) -> None:
    assert is_complete(plan, promised) is complete


def test_e4_an_open_task_is_never_complete() -> None:
    assert not any(
        is_complete(statuses(("a", first), ("b", second)), promised)
        for first, second, promised in product(TaskStatus, TaskStatus, (False, True))
        if (first, second) != (DONE, DONE)
    )


def marked(*ids: str, status: TaskStatus = TaskStatus.PENDING) -> tuple[Task, ...]:
    """Tasks that the list marks as parallel."""
    return tuple(Task(each, each, status, parallel=True) for each in ids)


def test_parallel_tasks_are_announced() -> None:
    done = marked("9", status=TaskStatus.DONE)
    plain = Task("1", "plain", TaskStatus.PENDING)

    assert parallel_words(Plan("P.md", (plain, *done))) == ""
    assert (
        parallel_words(Plan("P.md", (plain, *marked("2", "3"), *done)))
        == "2, 3 are marked parallel: they are done one after the other"
    )
    assert "2 is marked parallel: it is done in its turn" in parallel_words(Plan("P.md", marked("2")))
    assert parallel_words(Plan("P.md", marked(*"1234567"))).startswith("1, 2, 3, 4, 5 and 2 more are")


@pytest.mark.parametrize(
    ("many", "named"),
    [
        (5, "1, 2, 3, 4, 5 are marked parallel"),
        (6, "1, 2, 3, 4, 5 and 1 more are marked parallel"),
        (7, "1, 2, 3, 4, 5 and 2 more are marked parallel"),
    ],
)
def test_of_many_parallel_tasks_five_are_named(many: int, named: str) -> None:
    marked = tuple(Task(str(n), "", TaskStatus.PENDING, parallel=True) for n in range(1, many + 1))

    assert parallel_words(Plan("PLAN.md", marked)).startswith(named)
