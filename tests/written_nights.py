"""Records of nights that nobody lived through: a history of so many iterations, as a Regent writes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ralphd.core.time import rfc3339

PACE_S = 180.0
"""How long an iteration takes, its waits not counted."""
Entry = dict[str, Any]


def night(iterations: int, began_at: float, *, tasks: int = 60) -> Iterator[Entry]:
    """Entries of a run with so many iterations: now and then a limit, a crash, a hang, a revert."""
    at, run = began_at, "r000001-0000beef"
    for number in range(1, iterations + 1):
        told = {"run_id": run, "iteration": number, "task": _task((number - 1) * tasks // iterations)}
        if number % 17 == 0:
            at += 5
            yield attempt(at, told, 1, kind="rate_limit", cost=None, duration_s=4.0)
            yield entry(
                "wait", f"{number}/w", at, run_id=run, reason="rate limit of claude", until=rfc3339(at + 600)
            )
            at += 600
            yield entry("wait_over", f"{number}/o", at, run_id=run)
        if number % 23 == 0:
            at += 120
            yield attempt(
                at, told, 2, agent="codex", kind="stall" if number % 2 else "agent_crash", cost=0.02
            )
        at += PACE_S
        sha = f"{number:07x}"
        yield attempt(at - 20, told, 3, cost=0.11, duration_s=PACE_S - 30, commits=1)
        gone = [sha] if number % 29 == 0 else []
        yield entry(
            "verdict", f"{number}/verdict", at - 2, **told, verdict="reverted" if gone else "kept",
            why="the tests failed, and pass without it" if gone else "the tests pass", commits=[sha],
            reverted=gone, tests=["red", "green"] if gone else ["green"], refs=[],
            tests_s=[6.5, 6.5][: 1 + bool(gone)], baseline="green",
            tail="E   assert 3 == 4\nFAILED tests/test_list.py" if gone else "",
        )  # fmt: skip
        yield entry(
            "iteration", f"{number}", at, **told, failed=False, summary="done", complete=True, commits=[sha]
        )
    yield entry(
        "run", run, at + 1, run_id=run, started_at=rfc3339(began_at - 1), duration_s=at - began_at, code=0,
        signal=None, outcome="done", failure_kind=None, reason="complete", why="all tasks are done", oom=None,
        commit=f"{iterations:07x}", swept=[], dropped_bytes=0,
    )  # fmt: skip


def attempt(
    at: float,
    told: Entry,
    number: int,
    *,
    agent: str = "claude",
    kind: str | None = None,
    cost: float | None = 0.1,
    duration_s: float = 60.0,
    commits: int = 0,
) -> Entry:
    """The end of an attempt, with all its keys."""
    return entry(
        "attempt", f"{told['iteration']}/{number}", at, **told, attempt=number, phase=None, agent=agent,
        outcome="failed" if kind else "ok", failure_kind=kind, category=None, hint=None, rule="final event",
        why="its final event says so", code=1 if kind else 0, cost_usd=cost,
        cost_source="unknown" if cost is None else "told", tokens_in=41000, tokens_out=2300,
        model="claude-opus", session="6b1e3c52-5f0a-4f3e-9a55-0d5c8a5b7a11", duration_s=duration_s,
        reset_at=None, commits=commits, next="the iteration is finished",
    )  # fmt: skip


def entry(kind: str, key: str, at: float, **data: Any) -> Entry:
    """One entry."""
    return {"kind": kind, "key": key, "at": rfc3339(at), **data}


def write(home: Path, directory: Path, entries: Iterator[Entry], **state: Any) -> Path:
    """A ralph's files with this record, in ``home``, its name; gives the history."""
    home.mkdir(parents=True)
    definition = {
        "version": 1,
        "name": home.name,
        "directory": str(directory),
        "command": [],
        "goal": "running",
    }
    (home / "ralph.json").write_text(json.dumps(definition))
    shown = {"version": 1, "name": home.name, "state": "done", "goal": "running", "total_cost_usd": 0.0}
    (home / "regent-state.json").write_text(json.dumps(shown | state))
    path = home / "history.jsonl"
    with path.open("w") as file:
        file.writelines(f"{json.dumps(each, separators=(',', ':'))}\n" for each in entries)
    return path


def _task(number: int) -> dict[str, str]:
    return {"id": f"US-{number:03d}", "title": f"Story {number} of the list"}
