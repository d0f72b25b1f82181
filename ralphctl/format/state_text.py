"""A ralph's view in words: its state, its work, and what to do next.

A view comes from the API (``ralphd.wire.RalphView``) or from ``.ralph``. Any key may be missing, and others
may have written any text in it, so control characters are made visible.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ralphctl.format import gate_text
from ralphctl.format.humanize import (
    asked,
    count,
    cut,
    duration,
    last_exit,
    pause_words,
    since_words,
    until,
    wait_words,
)
from ralphctl.format.output import BLUE, GREEN, RED, YELLOW, clean

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    View: TypeAlias = Mapping[str, Any]


COLOURS = {
    "running": GREEN,
    "testing": GREEN,
    "starting": GREEN,
    "done": BLUE,
    "failed": RED,
    "paused": YELLOW,
    "waiting_for_retry": YELLOW,
    "pausing": YELLOW,
    "stopping": YELLOW,
}
_TASK_CHARS = 60


def state_words(view: View, now: float) -> str:
    """Return the state with its reason, a wait with its countdown."""
    match view.get("state"):
        case "idle":
            return "idle: registered, never started"
        case "running":
            return (
                "running" + since_words(" for ", view.get("started_at"), now) + _pid(view) + _waits(view, now)
            )
        case "testing":
            return "running the tests" + gate_text.testing_words(view, now) + _pid(view)
        case "waiting_for_retry":
            starts = until(wait_of(view).get("until"), now)
            reason = f"waiting {clean(wait_words(wait_of(view).get('reason', 'unknown')))}"
            return f"{reason}; starts {starts}" if starts else reason
        case "pausing":
            return f"pausing: {_asked(view, now)}" + _pid(view) + _waits(view, now)
        case "paused":
            reason = f"paused {clean(pause_words(view.get('pause_reason')))}".rstrip()
            resumes = until(wait_of(view).get("until"), now)
            return f"{reason}; resumes by itself {resumes}" if resumes else reason
        case "stopping":
            return f"stopping: {_asked(view, now)}" + _pid(view) + _waits(view, now)
        case "stopped":
            before = ", " if view.get("message") else " "
            return "stopped" + _reason(view) + since_words(before, view.get("finished_at"), now, " ago")
        case "failed":
            return f"failed: {why_failed(view)}" + since_words(", ", view.get("finished_at"), now, " ago")
        case "done":
            return "done" + _reason(view) + since_words(", ", view.get("finished_at"), now, " ago")
        case other:
            return clean(str(other))


def _pid(view: View) -> str:
    return f" (pid {view['ralph_pid']})" if view.get("ralph_pid") else ""


def _asked(view: View, now: float) -> str:
    what, at = asked(view.get("message"))
    request = clean(what) or "its run was asked to end"
    return request if at is None else f"{request}, asked {duration(now - at)} ago"


def _waits(view: View, now: float) -> str:
    wait = wait_of(view)
    if not wait:
        return ""
    over = until(wait.get("until"), now)
    return f", waiting {clean(wait_words(wait.get('reason', 'unknown')))}" + (
        f": over {over}" if over else ""
    )


def wait_of(view: View) -> Mapping[str, Any]:
    """Return what it waits for and until when; empty if it does not wait."""
    wait = view.get("wait")
    return wait if isinstance(wait, dict) else {}


def why_failed(view: View) -> str:
    """Return why the ralph failed."""
    if view.get("message"):
        return clean(str(view["message"]))
    errors = view.get("consecutive_errors") or 0
    ending = view.get("last_exit")
    how = last_exit(ending) if ending else "it could not go on"
    return f"{how}, {errors} times in a row" if errors > 1 else how


def _reason(view: View) -> str:
    return f": {clean(str(view['message']))}" if view.get("message") else ""


def is_built_in(view: View) -> bool:
    """Return whether it runs the built-in loop, having no command of its own."""
    return view.get("command") == []


def started_words(view: View, *, before: Sequence[int] = ()) -> str:
    """Return that it was started, and where; empty if it is neither starting nor running.

    ``before`` are the pids that ran before the start: a start of one of those changed nothing.
    """
    if view.get("state") == "stopping":
        return f"is ending{_pid(view)}, and starts again as soon as it has"
    if view.get("ralph_pid") in before:
        return f"running already{_pid(view)} in {directory_words(view)}"
    verb = {"running": "started", "starting": "starting"}.get(str(view.get("state")))
    return f"{verb}{_pid(view)} in {directory_words(view)}" if verb else ""


def next_steps(view: View) -> list[tuple[str, str]]:
    """Return what the user may want to do now, best first: the effect, and the command for it."""
    steps, do = _steps(view), needed(view)
    if not do:
        return steps
    does = next((does for does, how in steps if how == do), "what it needs")
    return [(does, do), *((does, how) for does, how in steps if how not in do)]


def needed(view: View) -> str:
    """Return the command that an incident asks for while the ralph cannot continue without it."""
    incident = view.get("incident")
    waits = view.get("state") == "failed" or (
        view.get("state") == "paused" and not wait_of(view).get("until")
    )
    return clean(str(incident.get("do") or "")) if waits and isinstance(incident, dict) else ""


def _steps(view: View) -> list[tuple[str, str]]:
    name = view.get("name", "")
    again, logs, follow = f"ralphctl start {name}", f"ralphctl logs {name}", f"ralphctl logs -f {name}"
    why = f"ralphctl explain {name}"
    match view.get("state"):
        case "waiting_for_retry" if wait_of(view).get("reason") == "no_daemon":
            return [("starts it again", "ralphctl regent start")]
        case "waiting_for_retry":
            return [("see why", why), ("do not wait", f"ralphctl skip-wait {name}")]
        case "paused" if view.get("pause_reason") == "guard":
            return _after_a_look(view)
        case "paused":
            now = " now" if wait_of(view).get("until") else ""
            return [(f"go on{now}", f"ralphctl resume {name}")]
        case "stopping" | "pausing":
            return [("do not wait for it", f"ralphctl stop --now {name}")]
        case "failed":
            return [("see why", why), ("start again", again)]
        case "stopped" | "idle":
            return [("start it", again)]
        case "done":
            return [("see what it did", logs), ("start again", again)]
        case "running" if wait_of(view) and is_built_in(view):
            return [("watch it", follow), ("do not wait", f"ralphctl skip-wait {name}")]
        case _:
            return [("watch it", follow)]


def _after_a_look(view: View) -> list[tuple[str, str]]:
    name, guard = view.get("name", ""), view.get("guard")
    undo = ("put reverted commits back", f"ralphctl undo {name}")
    is_undoable = isinstance(guard, dict) and guard.get("reverted")
    see, on = ("see why", f"ralphctl verdicts {name}"), ("then go on", f"ralphctl resume {name}")
    return [see, undo, on] if is_undoable else [see, on]


def directory_words(view: View) -> str:
    """Return where it works, and on which branch."""
    branch = f" (branch {clean(str(view['branch']))})" if view.get("branch") else ""
    return directory_name(view) + branch


def directory_name(view: View) -> str:
    """Return where it works."""
    path, home = clean(str(view.get("directory") or "")), os.path.expanduser("~")  # noqa: PTH111
    return "~" + path[len(home) :] if home != "/" and (path == home or path.startswith(home + "/")) else path


def work_words(view: View) -> str:
    """Return iterations, task, agent and cost; empty if none is known."""
    parts = []
    if view.get("iteration"):
        parts.append(count(view["iteration"], "iteration"))
    if view.get("task"):
        parts.append(f"task {_task(view['task'])}")
    if view.get("agent"):
        parts.append(clean(str(view["agent"])))
    if view.get("total_cost_usd"):
        parts.append(f"${view['total_cost_usd']:.2f}")
    return ", ".join(parts)


def _task(task: object) -> str:
    if isinstance(task, dict):
        task = task.get("title") or task.get("id") or "?"
    return cut(clean(str(task)), _TASK_CHARS)


def resource_cells(view: View) -> tuple[str, str, str]:
    """Return processor time, memory and number of processes; empty for what is not known."""
    used = view.get("resources")
    used = used if isinstance(used, dict) else {}
    cpu, rss, count = used.get("cpu_s"), used.get("rss_bytes"), used.get("processes")
    return (
        duration(cpu) if isinstance(cpu, int | float) else "",
        f"{rss / 1e6:.0f} MB" if isinstance(rss, int) else "",
        str(count) if isinstance(count, int) else "",
    )


# --- configuration that has changed -----------------------------------------------------------------------

_MOST_ROWS = 6


def drift_rows(view: Mapping[str, Any]) -> list[str]:
    """Return what was changed in its files and is not in force, and the command that applies it."""
    drift = [each for each in view.get("drift") or () if isinstance(each, dict)]
    if not drift:
        return []
    name = clean(str(view.get("name") or "NAME"))
    faults = [clean(str(each["fault"])) for each in drift if each.get("fault")]
    if faults and not any(each.get("key") for each in drift):
        head = "the configuration was changed and is not right now; until it is, nothing changes:"
        return [head, *_first_rows(faults, name)]
    head = f"the configuration was changed; to have it from the next run on: ralphctl reload {name}"
    return [head, *_first_rows([_drifted(each) for each in drift], name)]


def _drifted(each: Mapping[str, Any]) -> str:
    change = f"{_key(each)} = {_value(each, 'now')}, was {_value(each, 'pinned')}"
    return clean(str(each["fault"])) if each.get("fault") else change


def _first_rows(lines: Sequence[str], name: str) -> list[str]:
    if len(lines) <= _MOST_ROWS + 1:
        return [f"  {line}" for line in lines]
    left = f"  and {len(lines) - _MOST_ROWS} more: ralphctl --json status {name}"
    return [*(f"  {line}" for line in lines[:_MOST_ROWS]), left]


def change_lines(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reload changed, one line per key."""
    return [f"  {_key(each)} = {_value(each, 'becomes')}, was {_value(each, 'was')}" for each in changes]


def _key(each: Mapping[str, Any]) -> str:
    origin = clean(str(each.get("origin") or ""))
    return clean(str(each.get("key") or "?")) + (f" ({origin})" if origin else "")


def _value(each: Mapping[str, Any], name: str) -> str:
    value = each.get(name)
    return "not set" if value is None else clean(str(value))
