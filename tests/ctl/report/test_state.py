"""The present state in a report: what blocks it, who has to act, and what of its list is done."""

from typing import Any

import pytest

from ralphctl.report.model import RalphReport, ReportSource, SpanSummary
from ralphctl.report.read import reported_state, task_list_state
from ralphd import overview
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.time import rfc3339
from ralphd.wire import STATES

END = 1_795_280_400.0
View = dict[str, Any]


@pytest.mark.parametrize(
    ("view", "blocked", "person"),
    [
        ({"state": "failed"}, True, True),
        ({"state": "paused", "pause_reason": "guard"}, True, True),
        ({"state": "paused", "pause_reason": "user_requested"}, False, False),
        ({"state": "paused", "wait": {"reason": "usage_limit", "until": rfc3339(END)}}, True, False),
        ({"state": "running"}, False, False),
        ({"state": "running", "wait": {"reason": "rate limit of claude"}}, True, False),
        ({"state": 3, "wait": "x", "pool": {"agents": [3]}}, False, False),
    ],
)
def test_what_blocks_it_and_whether_a_person_is_needed(view: View, blocked: bool, person: bool) -> None:
    found = reported_state(view)

    assert (found.is_blocked, found.needs_person) == (blocked, person)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("more", [{}, {"pause_reason": "user_requested"}, {"wait": {"until": rfc3339(END)}}])
def test_a_report_agrees_with_status_on_who_needs_you(state: str, more: View) -> None:
    view, source = {"name": "api", "state": state, **more}, ReportSource("api", "/somewhere", None)
    summary = SpanSummary(0.0, END)
    report = RalphReport(source, view, reported_state(view), summary, None, None)

    assert report.needs_you == overview.Row(view).needs_you


def test_agents_that_are_out_until_a_person_acts_are_named() -> None:
    out = {"name": "codex", "in": False, "until": None}
    later = {"name": "claude", "in": False, "until": rfc3339(END)}

    assert reported_state({"state": "running", "pool": {"agents": [out, later]}}).agents_out == ("codex",)


def test_a_task_counts_as_done_when_the_list_says_so_and_nothing_was_taken_back() -> None:
    plan = Plan("prd.json", tuple(Task(id_, id_, TaskStatus.DONE) for id_ in ("A", "B")))
    plan = Plan("prd.json", (*plan.tasks, Task("C", "see", TaskStatus.PENDING)))
    ledger = {"B": {"reopened": True, "failure_count": 2, "last_failure": "red"}, "C": {"failure_count": 6}}

    found = task_list_state(plan, ledger, most_failures=5)

    assert found is not None
    assert (found.file, found.done, found.total) == ("prd.json", 1, 3)
    assert [(task.id, task.failures, task.why, task.used_up) for task in found.open] == [
        ("B", 2, "red", False),
        ("C", 6, "", True),
    ]
    alone = task_list_state(
        None, {"A": {"status": "complete"}, "B": {"status": "failed"}, "C": 3}, most_failures=0
    )
    assert alone is not None
    assert (alone.file, alone.done, alone.total) == (None, 1, 2)
    assert task_list_state(None, {}, most_failures=5) is None
