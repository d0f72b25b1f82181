"""A report as JSON, documented key by key in docs/report.md. A new key does not raise its version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralphctl.local.report import Report
    from ralphd.core.night_model import Money, Night, TaskWork, Undone

VERSION = 1
_MICRO = 1_000_000
_STATE_KEYS = ("state", "message", "pause_reason", "agent", "branch", "iteration", "total_cost_usd", "notes")


def document(reports: Sequence[Report], since: float, until: float) -> dict[str, Any]:
    """What ``--json`` prints."""
    ralphs = [_ralph(report) for report in reports]
    return {"version": VERSION, "since": _text(since), "until": _text(until), "ralphs": ralphs}


def _ralph(report: Report) -> dict[str, Any]:
    night, stands = report.night, report.standing
    return {
        "name": report.place.name,
        "directory": report.place.directory,
        "since": _text(night.since),
        "until": _text(night.until),
        **{key: report.view.get(key) for key in _STATE_KEYS},
        "blocked": {
            "is_blocked": stands.is_blocked,
            "needs_person": stands.needs_person,
            "waits_for": stands.waits_for,
            "goes_on_at": None if stands.goes_on_at is None else _text(stands.goes_on_at),
            "agents_out": list(stands.agents_out),
        },
        "tasks": _tasks(report),
        "done": [_task(task) for task in night.done],
        "worked_on": [_task(task) for task in night.tasks],
        "undone": [_undone(each) for each in night.undone],
        "commits": {
            "kept": list(report.commits),
            "reverted": list(night.reverted),
            "unjudged_iterations": night.unjudged,
            "changed": None if report.changed is None else asdict(report.changed),
        },
        "times": _times(night),
        "cost": _money(night.money) | ({"usd": None} if report.has_untold_costs else {}),
        "cost_by_agent": [
            {"agent": work.agent, "failures": work.failures, **_money(work.money)} for work in night.agents
        ],
        "failures": [
            {"kind": each.kind, "count": each.count, "why": each.why, "last_at": _text(each.last_at)}
            for each in night.failures
        ],
        "calls": [{"at": _text(each.at), "message": each.message} for each in night.calls],
        "counts": {
            "iterations": night.iterations,
            "attempts": night.attempts,
            "runs": night.runs,
            "failed_runs": night.failed_runs,
        },
        "remarks": list(night.notes),
    }


def _tasks(report: Report) -> dict[str, Any] | None:
    tasks = report.tasks
    if tasks is None:
        return None
    return {
        "file": tasks.file,
        "total": tasks.total,
        "done": tasks.done,
        "open": [
            {
                "id": task.id,
                "title": task.title,
                "failures": task.failures,
                "why": task.why,
                "used_up": task.used_up,
            }
            for task in tasks.open
        ],
    }


def _task(task: TaskWork) -> dict[str, Any]:
    return {
        "id": task.id,
        "title": task.title,
        "done_at": None if task.done_at is None else _text(task.done_at),
        "iterations": list(task.numbers),
        "kept": list(task.kept),
        "reverted": list(task.reverted),
        "failures": task.failures,
        "last_failure": task.last_failure,
        **_money(task.money),
    }


def _undone(undone: Undone) -> dict[str, Any]:
    return {
        "at": _text(undone.at),
        "iteration": undone.number,
        "task": None if undone.task_id is None else {"id": undone.task_id, "title": undone.title},
        "commits": list(undone.commits),
        "why": undone.why,
        "tail": list(undone.tail),
        "put_back_at": None if undone.back_at is None else _text(undone.back_at),
    }


def _times(night: Night) -> list[dict[str, Any]]:
    return [
        {
            "doing": share.doing.value,
            "reason": share.reason,
            "seconds": share.us / _MICRO,
            "stretches": share.times,
        }
        for share in night.shares
    ]


def _money(money: Money) -> dict[str, Any]:
    """``usd`` is null where nobody knows any of it."""
    nothing_known = money.unknown > 0 and not money.micro_usd and money.unknown >= money.attempts
    return {
        "usd": None if nothing_known else money.micro_usd / _MICRO,
        "attempts": money.attempts,
        "unknown": money.unknown,
        "estimated": money.estimated,
    }


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
