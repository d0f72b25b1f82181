"""Views to text: a ralph's state in words, what it does, and what to do next. ``full`` shows all of one.

A view is what the API sends (``ralphd.wire.RalphView``) or what was read from ``.ralph``; any key may be
missing, and any text in it may be somebody else's, so it is shown with its control characters made visible.
"""

# pathlib would cost `status` its start-up time.
# ruff: noqa: PTH111
from __future__ import annotations

import os

from ralphctl.tell import BLUE, GREEN, RED, YELLOW, clean
from ralphctl.words import asked, count, duration, last_exit, moment, pause_words, until, wait_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
MOST_OF_A_TASK = 60
_LABEL = 12
_NARROWEST = 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%")


def state_words(view: View, now: float) -> str:
    """The state with its reason, waits with their countdown."""
    match view.get("state"):
        case "idle":
            return "idle: registered, never started"
        case "running":
            return (
                "running" + since_words(" for ", view.get("started_at"), now) + _pid(view) + _waits(view, now)
            )
        case "testing":
            return "running the tests" + _testing(view, now) + _pid(view)
        case "waiting_for_retry":
            return _waiting(view, now)
        case "pausing":
            return f"pausing: {_asked(view, now)}" + _pid(view) + _waits(view, now)
        case "paused":
            return _paused(view, now)
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


def _testing(view: View, now: float) -> str:
    if not view.get("guard"):
        return ""
    from ralphctl.guard_words import testing_words  # most do not test, and `status` is to be quick

    return testing_words(view, now)


def since_words(before: str, at: object, now: float, after: str = "") -> str:
    """How long ago something was, between two words; empty for no moment."""
    when = moment(at)
    return "" if when is None else f"{before}{duration(now - when)}{after}"


def _pid(view: View) -> str:
    return f" (pid {view['ralph_pid']})" if view.get("ralph_pid") else ""


def _asked(view: View, now: float) -> str:
    """What a run that is to end was asked, and when."""
    what, at = asked(view.get("message"))
    said = clean(what) or "its run was asked to end"
    return said if at is None else f"{said}, asked {duration(now - at)} ago"


def _waits(view: View, now: float) -> str:
    """A wait that the run reported, with its countdown."""
    wait = wait_of(view)
    if not wait:
        return ""
    over = until(wait.get("until"), now)
    return f", waiting {clean(wait_words(wait.get('reason', 'unknown')))}" + (
        f": over {over}" if over else ""
    )


def wait_of(view: View) -> Mapping[str, Any]:
    """What it waits for and until when; empty when it does not wait."""
    wait = view.get("wait")
    return wait if isinstance(wait, dict) else {}


def _waiting(view: View, now: float) -> str:
    wait = wait_of(view)
    starts = until(wait.get("until"), now)
    said = f"waiting {clean(wait_words(wait.get('reason', 'unknown')))}"
    return f"{said}; starts {starts}" if starts else said


def _paused(view: View, now: float) -> str:
    why = clean(pause_words(view.get("pause_reason")))
    said = f"paused {why}".rstrip()
    resumes = until(wait_of(view).get("until"), now)
    return f"{said}; resumes by itself {resumes}" if resumes else said


def why_failed(view: View) -> str:
    """Why it was given up."""
    if view.get("message"):
        return clean(str(view["message"]))
    errors = view.get("consecutive_errors") or 0
    ending = view.get("last_exit")
    how = last_exit(ending) if ending else "it could not go on"
    return f"{how}, {errors} times in a row" if errors > 1 else how


def _reason(view: View) -> str:
    return f": {clean(str(view['message']))}" if view.get("message") else ""


def is_built_in(view: View) -> bool:
    """Whether it runs the built-in loop: it has no command of its own."""
    return view.get("command") == []


def started_words(view: View, *, before: Sequence[int] = ()) -> str:
    """That it has been started, and where; empty when it is neither starting nor running.

    ``before`` are the pids of what ran already: to start that again changes nothing, and is said.
    """
    if view.get("state") == "stopping":
        return f"is ending{_pid(view)}, and starts again as soon as it has"
    if view.get("ralph_pid") in before:
        return f"running already{_pid(view)} in {directory_words(view)}"
    said = {"running": "started", "starting": "starting"}.get(str(view.get("state")))
    return f"{said}{_pid(view)} in {directory_words(view)}" if said else ""


def next_steps(view: View) -> list[tuple[str, str]]:
    """What a person may want to do now, best first: what it does, and the command that does it."""
    steps, do = _steps(view), needed(view)
    if not do:
        return steps
    does = next((does for does, how in steps if how == do), "what it needs")
    return [(does, do), *((does, how) for does, how in steps if how not in do)]


def needed(view: View) -> str:
    """The command that a person was called for, while nothing goes on without it."""
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
    """Where it works, and on which branch."""
    branch = f" (branch {clean(str(view['branch']))})" if view.get("branch") else ""
    return place(view) + branch


def place(view: View) -> str:
    """Where it works."""
    return _home(clean(str(view.get("directory") or "")))


def _home(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and (path == home or path.startswith(home + "/")) else path


def work_words(view: View) -> str:
    """What it has done and does: iterations, task, agent, cost; empty where nothing is known."""
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
    said = clean(str(task))
    return said if len(said) <= MOST_OF_A_TASK else said[: MOST_OF_A_TASK - 1] + "…"


def resource_cells(view: View) -> tuple[str, str, str]:
    """Processor time, memory and number of processes; empty for what is not known."""
    used = view.get("resources")
    used = used if isinstance(used, dict) else {}
    cpu, rss, count = used.get("cpu_s"), used.get("rss_bytes"), used.get("processes")
    return (
        duration(cpu) if isinstance(cpu, int | float) else "",
        f"{rss / 1e6:.0f} MB" if isinstance(rss, int) else "",
        str(count) if isinstance(count, int) else "",
    )
