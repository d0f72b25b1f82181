"""What is said of a plan, at its numbers."""

import pytest

from ralphd.core.plan import Plan, Task, TaskStatus, parallel_words


@pytest.mark.parametrize(
    ("many", "named"),
    [
        (5, "1, 2, 3, 4, 5 are marked parallel"),
        (6, "1, 2, 3, 4, 5 and 1 more are marked parallel"),
        (7, "1, 2, 3, 4, 5 and 2 more are marked parallel"),
    ],
)
def test_of_many_tasks_that_are_marked_parallel_five_are_named_and_the_others_counted(
    many: int, named: str
) -> None:
    marked = tuple(Task(str(n), "", TaskStatus.PENDING, parallel=True) for n in range(1, many + 1))

    assert parallel_words(Plan("PLAN.md", marked)).startswith(named)
