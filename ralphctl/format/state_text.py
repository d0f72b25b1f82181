"""A ralph's view in words: its state, its work, and what to do next.

A view comes from the API (``ralphd.wire.RalphView``) or from ``.ralph``. Any key may be missing, and others
may have written any text in it, so control characters are made visible.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ralphctl.format import gate_text, humanize
from ralphctl.format.humanize import View, count, part, pause_words, since_words, until, wait_words
from ralphctl.format.output import BLUE, GREEN, RED, YELLOW, clean

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
    pid, why = _pid(view), message_words(view)
    reason = f"waiting {wait_words(wait_of(view).get('reason', 'unknown'))}"
    over = until(wait_of(view).get("until"), now)
    waits = f", {reason}{f': over {over}' if over else ''}" if wait_of(view) else ""
    ended = since_words(", ", view.get("finished_at"), now, " ago")
    match view.get("state"):
        case "idle":
            return "idle: registered, never started"
        case "running":
            return f"running{since_words(' for ', view.get('started_at'), now)}{pid}{waits}"
        case "testing":
            return f"running the tests{gate_text.testing_words(view, now)}{pid}"
        case "waiting_for_retry":
            return f"{reason}; starts {over}" if over else reason
        case "pausing" | "stopping" as state:
            what, at = humanize.asked(view.get("message"))
            since = "" if at is None else f", asked {humanize.duration(now - at)} ago"
            return f"{state}: {clean(what) or 'its run was asked to end'}{since}{pid}{waits}"
        case "paused":
            paused = f"paused {pause_words(view.get('pause_reason'))}".rstrip()
            return f"{paused}; resumes by itself {over}" if over else paused
        case "stopped":
            return f"stopped{why}{ended if why else ended.removeprefix(',')}"
        case "failed":
            return f"failed: {why_failed(view)}{ended}"
        case "done":
            return f"done{why}{ended}"
        case other:
            return clean(other)


def _pid(view: View) -> str:
    return f" (pid {view['ralph_pid']})" if view.get("ralph_pid") else ""


def message_words(view: View) -> str:
    """Return the Regent's message after a colon; empty without one."""
    return f": {clean(view['message'])}" if view.get("message") else ""


def wait_of(view: View) -> View:
    """Return what it waits for and until when; empty if it does not wait."""
    return part(view, "wait")


def why_failed(view: View) -> str:
    """Return why the ralph failed."""
    if view.get("message"):
        return clean(view["message"])
    errors = view.get("consecutive_errors") or 0
    ending = view.get("last_exit")
    how = humanize.last_exit(ending) if ending else "it could not go on"
    return f"{how}, {errors} times in a row" if errors > 1 else how


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
        return f"running already{_pid(view)} in {directory_name(view)}"
    verb = {"running": "started", "starting": "starting"}.get(str(view.get("state")))
    return f"{verb}{_pid(view)} in {directory_name(view)}" if verb else ""


def next_steps(view: View) -> list[tuple[str, str]]:
    """Return what the user may want to do now, best first: the effect, and the command for it."""
    steps, do = _steps(view), needed(view)
    if not do:
        return steps
    does = next((does for does, how in steps if how == do), "what it needs")
    return [(does, do), *((does, how) for does, how in steps if how not in do)]


def is_stuck(view: View) -> bool:
    """Return whether it failed, or is paused without an end."""
    is_paused = view.get("state") == "paused" and not wait_of(view).get("until")
    return is_paused or view.get("state") == "failed"


def needed(view: View) -> str:
    """Return the command that an incident asks for while the ralph cannot continue without it."""
    return clean(part(view, "incident").get("do") or "") if is_stuck(view) else ""


def _steps(view: View) -> list[tuple[str, str]]:
    name = view.get("name", "")
    again, follow = f"ralphctl start {name}", f"ralphctl attach {name}"
    why = f"ralphctl explain {name}"
    match view.get("state"):
        case "waiting_for_retry" if wait_of(view).get("reason") == "no_daemon":
            return [("starts it again", "ralphctl regent start")]
        case "waiting_for_retry":
            return [("see why", why), ("do not wait", f"ralphctl skip-wait {name}")]
        case "paused" if view.get("pause_reason") == "guard":
            undo = ("put reverted commits back", f"ralphctl undo {name}")
            steps = [("see why", f"ralphctl verdicts {name}"), ("then go on", f"ralphctl resume {name}")]
            return [steps[0], undo, steps[1]] if part(view, "guard").get("reverted") else steps
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
            return [("see what it did", f"ralphctl report {name}"), ("start again", again)]
        case "running" if wait_of(view) and is_built_in(view):
            return [("watch it", follow), ("do not wait", f"ralphctl skip-wait {name}")]
        case _:
            return [("watch it", follow)]


def directory_words(view: View) -> str:
    """Return where it works, and on which branch."""
    branch = f" (branch {clean(view['branch'])})" if view.get("branch") else ""
    return directory_name(view) + branch


def directory_name(view: View) -> str:
    """Return where it works."""
    path, home = clean(view.get("directory") or ""), os.path.expanduser("~")  # noqa: PTH111
    return "~" + path[len(home) :] if home != "/" and (path == home or path.startswith(home + "/")) else path


def work_words(view: View) -> str:
    """Return iterations, task, agent and cost; empty if none is known."""
    task, cost_usd = view.get("task"), view.get("total_cost_usd")
    if task and isinstance(task, dict):
        task = task.get("title") or task.get("id") or "?"
    parts = [
        count(view["iteration"], "iteration") if view.get("iteration") else "",
        f"task {humanize.cut(clean(task), _TASK_CHARS)}" if task else "",
        clean(view.get("agent") or ""),
        f"${cost_usd:.2f}" if cost_usd else "",
    ]
    return ", ".join(filter(None, parts))


def resource_cells(view: View) -> tuple[str, str, str]:
    """Return processor time, memory and number of processes; empty for what is not known."""
    used = part(view, "resources")
    cpu, rss, processes = used.get("cpu_s"), used.get("rss_bytes"), used.get("processes")
    return (
        humanize.duration(cpu) if isinstance(cpu, int | float) else "",
        f"{rss / 1e6:.0f} MB" if isinstance(rss, int) else "",
        str(processes) if isinstance(processes, int) else "",
    )


# --- configuration that has changed -----------------------------------------------------------------------

_MOST_ROWS = 6


def drift_rows(view: View) -> list[str]:
    """Return what was changed in its files and is not in force, and the command that applies it."""
    drift = [each for each in view.get("drift") or () if isinstance(each, dict)]
    if not drift:
        return []
    name = clean(view.get("name") or "NAME")
    lines = [
        f"  {clean(each['fault']) if each.get('fault') else _change(each, 'now', 'pinned')}" for each in drift
    ]
    head = f"the configuration was changed; to have it from the next run on: ralphctl reload {name}"
    if not any(each.get("key") for each in drift):
        head = "the configuration was changed and is not right now; until it is, nothing changes:"
    if len(lines) > _MOST_ROWS + 1:
        lines[_MOST_ROWS:] = [f"  and {len(lines) - _MOST_ROWS} more: ralphctl --json status {name}"]
    return [head, *lines]


def change_lines(changes: Sequence[View]) -> list[str]:
    """Return what a reload changed, one line per key."""
    return [f"  {_change(each, 'becomes', 'was')}" for each in changes]


def _change(each: View, new: str, old: str) -> str:
    origin = clean(each.get("origin") or "")
    key = clean(each.get("key") or "?") + (f" ({origin})" if origin else "")
    values = ("not set" if each.get(name) is None else clean(each[name]) for name in (new, old))
    return "{} = {}, was {}".format(key, *values)
