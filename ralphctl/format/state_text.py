"""A ralph's view in words: its state, its work, and what to do next.

A view comes from the API (``ralphd.wire.RalphView``) or from ``.ralph``. Any key may be missing, and others
may have written any text in it, so control characters are made visible.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from ralphctl.format import humanize
from ralphctl.format.humanize import View, count, duration, minute, moment, part, since_words, wait_words
from ralphctl.format.output import BLUE, GREEN, RED, YELLOW, clean
from ralphd import overview

COLOURS = dict.fromkeys(("paused", "waiting", "limited"), YELLOW)
COLOURS |= {"working": GREEN, "testing": GREEN, "done": BLUE, "failed": RED}
"""By word (``ralphd.overview``)."""
_TASK_CHARS = 60
_TOLD = ("resources", "schedule", "usage_limit")
"""Waits whose message says what exactly is waited for."""


def state_words(view: View, now: float) -> str:
    """Return the state with its times and its reason: ``failed: exit 1, 2m 5s ago``."""
    word, state, why = clean(overview.word(view)), view.get("state"), reason(view, now)
    notes = [f"pid {view['ralph_pid']}"] if view.get("ralph_pid") and overview.has_a_run(view) else []
    span = ago = ""
    if word == "done" and why.startswith("but "):
        return f"{word}{since_words(' ', view.get('finished_at'), now, ' ago')}, {why}"
    if word in (*overview.FINISHED, "failed"):
        ago = since_words(", " if why else " ", view.get("finished_at"), now, " ago")
    elif word == "testing":
        span = since_words(" for ", part(view, "guard").get("testing_since"), now)
    elif state == "running" and word == "working":
        span = since_words(" for ", view.get("started_at"), now)
    elif (ends := moment(overview.Row(view).until)) is not None and ends > now:
        span, notes = f" until {minute(ends, now)}", [f"{duration(ends - now + 0.999)} left", *notes]
    elif ends is not None:
        notes = ["due now", *notes]
    between = f" ({', '.join(notes)})" if notes else ""
    return f"{word}{span}{between}{f': {why}' if why else ''}{ago}"


def reason(view: View, now: float) -> str:
    """Return why a ralph is in its state, without the state and its times; empty where it just works."""
    state = view.get("state")
    match overview.word(view):
        case "limited" | "waiting":
            return _wait_reason(view)
        case "failed":
            return why_failed(view)
        case "paused":
            return clean(humanize.pause_words(view.get("pause_reason")) or view.get("message") or "")
        case "stopped" | "done":
            why = "registered, never started" if state == "idle" else view.get("message")
            return clean(why or overview.landing_words(view))
        case _ if state in ("pausing", "stopping"):
            what, at = humanize.asked(view.get("message"))
            since = "" if at is None else f", requested {duration(now - at)} ago"
            verb = "pauses" if state == "pausing" else "stops"
            return (clean(what) or f"{verb} as soon as its run has ended") + since
        case "unknown":
            return clean(view.get("message") or "")
        case _:
            return "starting" if state == "starting" else ""


def age_words(view: View, now: float) -> str:
    """Return how old the view of a ralph of another machine is; empty for a present one."""
    return since_words("as of ", view.get("as_of"), now, " ago")


def _wait_reason(view: View) -> str:
    wait = wait_of(view)
    if overview.word(view) == "limited" and not wait:
        limit = part(part(view, "seen"), "limit")
        return f"{clean(limit.get('agent'))}: {clean(limit.get('name') or 'usage limit')} (seen in output)"
    own = clean(wait.get("reason") or "unknown").strip()
    if own in _TOLD and view.get("message"):
        return clean(view["message"])
    if own in overview.LIMITS:
        return humanize.pause_words(own)
    return own.rstrip(".") if " " in own else wait_words(own)


def waiting_words(view: View) -> str:
    """Return what the present wait is for: ``waiting to restart after a failure``."""
    own = wait_of(view).get("reason") or "unknown"
    return f"waiting {wait_words((view.get('message') if own in _TOLD else None) or own)}"


def _pid(view: View) -> str:
    return f" (pid {view['ralph_pid']})" if view.get("ralph_pid") else ""


def wait_of(view: View) -> View:
    """Return what it waits for and until when; empty if it does not wait."""
    return part(view, "wait")


def why_failed(view: View) -> str:
    """Return why the ralph failed."""
    if view.get("message"):
        return clean(view["message"])
    errors = view.get("consecutive_errors") or 0
    ending = view.get("last_exit")
    how = humanize.last_exit(ending) if ending else "it could not continue"
    return f"{how}, {errors} times in a row" if errors > 1 else how


def is_built_in(view: View) -> bool:
    """Return whether it runs the built-in loop, having no command of its own."""
    return view.get("command") == []


def started_words(view: View, *, before: Sequence[int] = ()) -> str:
    """Return that it was started, and where; empty if it is neither starting nor running.

    ``before`` are the pids that ran before the start: a start of one of those changed nothing.
    """
    if view.get("state") == "stopping":
        return f"is ending{_pid(view)}, and restarts then"
    if view.get("ralph_pid") in before:
        return f"already running{_pid(view)} in {directory_name(view)}"
    verb = {"running": "started", "starting": "starting"}.get(str(view.get("state")))
    if view.get("state") == "waiting_for_retry" and view.get("ralph_pid"):
        verb = "started"
    return f"{verb}{_pid(view)} in {directory_name(view)}" if verb else ""


_REACH = ("explain", "pause", "resume", "stop")
"""The commands that reach a ralph of another machine."""


def next_steps(view: View) -> list[tuple[str, str]]:
    """Return what the user may want to do now, best first: the effect, and the command for it."""
    steps, do = _steps(view), needed(view)
    host, is_elsewhere, _ = str(view.get("name", "")).rpartition("/")
    if is_elsewhere:
        reach = [each for each in steps if each[1].split()[1] in _REACH and "--now" not in each[1]]
        return [(f"on {host}", do)] if do else reach or [("see its output", f"ralphctl logs {view['name']}")]
    if not do:
        return steps
    does = next((does for does, how in steps if how == do), "what it needs")
    return [(does, do), *((does, how) for does, how in steps if how not in do)]


def needed(view: View) -> str:
    """Return the command that an incident asks for while the ralph cannot continue without it."""
    return clean(part(view, "incident").get("do") or "") if overview.needs_you(view) else ""


def _steps(view: View) -> list[tuple[str, str]]:
    name = clean(view.get("name", ""))
    again, done, follow = f"ralphctl start {name}", f"ralphctl report {name}", f"ralphctl attach {name}"
    why = f"ralphctl explain {name}"
    match view.get("state"):
        case "waiting_for_retry" if wait_of(view).get("reason") == "no_daemon":
            return [("restarts it", "ralphctl regent start")]
        case "waiting_for_retry" | "running" if view.get("ralph_pid") and wait_of(view) and is_built_in(view):
            return [("watch it", follow), ("do not wait", f"ralphctl skip-wait {name}")]
        case "waiting_for_retry":
            return [("see why", why), ("do not wait", f"ralphctl skip-wait {name}")]
        case "paused" if view.get("pause_reason") == "guard":
            undo = ("re-apply reverted commits", f"ralphctl undo {name}")
            steps = [("see why", f"ralphctl verdicts {name}"), ("then resume", f"ralphctl resume {name}")]
            return [steps[0], undo, steps[1]] if part(view, "guard").get("reverted") else steps
        case "paused":
            now = " now" if wait_of(view).get("until") else ""
            return [(f"resume{now}", f"ralphctl resume {name}")]
        case "stopping" | "pausing":
            return [("stop immediately", f"ralphctl stop --now {name}")]
        case "failed":
            return [("see why", why), ("start it again", again)]
        case "stopped" | "idle":
            return [("start it", again)]
        case "done" if overview.is_aside(part(view, "landing")):
            return [("in the target's checkout, once it is clean", overview.MERGE), ("see what it did", done)]
        case "done" if part(view, "landing").get("state") == "waiting":
            return [("land its branch", f"ralphctl land {name}"), ("see what it did", done)]
        case "done" if part(view, "landing").get("state") == "refused":
            return [("see why", "ralphctl queue"), ("start it: the built-in loop has the task", again)]
        case "done" if is_spent(view):
            return [("see what it did", done), ("give it more", f"ralphctl start --max-cost USD {name}")]
        case "done":
            return [("see what it did", done), ("start it again", again)]
        case _:
            return [("watch it", follow)]


def build_step(view: View, here: str = "") -> tuple[str, str]:
    """Return what continues a ralph of ``ralphctl build``: the effect, and the command to type ``here``."""
    does, directory = "continue" if view.get("state") == "paused" else "start it again", view.get("directory")
    there = f" -C {shlex.quote(clean(directory or '.'))}" if directory != here else ""
    again = f"ralphctl{there} build"
    return ("give it more", f"{again} --max-cost USD") if is_spent(view) else (does, again)


def is_spent(view: View) -> bool:
    """Return whether it ended at ``max_cost_usd``: until that is raised, a start ends at once."""
    return view.get("state") == "done" and str(view.get("message")).endswith("(max_cost_usd)")


def directory_words(view: View) -> str:
    """Return where it works, and on which branch."""
    return directory_name(view) + (f" (branch {clean(view['branch'])})" if view.get("branch") else "")


def directory_name(view: View) -> str:
    """Return where it works."""
    path, home = clean(view.get("directory") or ""), os.path.expanduser("~")  # noqa: PTH111
    return "~" + path[len(home) :] if home != "/" and (path == home or path.startswith(home + "/")) else path


def repository_names(queues: Sequence[View]) -> list[str]:
    """Return the name of each queue's repository, with as much of its path as tells two of one name apart."""
    paths = [tuple(str(queue["repository"]).removesuffix("/.git").split("/")) for queue in queues]
    return [clean(_tail(path, set(paths) - {path})) for path in paths]


def _tail(path: tuple[str, ...], others: set[tuple[str, ...]]) -> str:
    sizes = range(1, len(path))
    is_own = (size for size in sizes if not any(each[-size:] == path[-size:] for each in others))
    return "/".join(path[-next(is_own, len(path)) :])


def work_words(view: View) -> str:
    """Return iterations, task, agent and cost; empty if none is known."""
    task = view.get("task")
    row, seen = overview.Row(view), " (seen in output)"
    parts = [
        f"{row.tasks[0]} of {count(row.tasks[1], 'task')} done" if row.tasks else "",
        count(view["iteration"], "iteration") if view.get("iteration") else "",
        f"task {humanize.cut(clean(row.task or task), _TASK_CHARS)}" if task else "",
        clean(row.agent),
        humanize.usd_words(row.cost_usd) + seen * (not view.get("total_cost_usd")) if row.cost_usd else "",
    ]
    return ", ".join(filter(None, parts))


def resource_cells(view: View) -> tuple[str, str, str]:
    """Return processor time, memory and number of processes; empty for what is not known."""
    used = part(view, "resources")
    cpu, rss, processes = used.get("cpu_s"), used.get("rss_bytes"), used.get("processes")
    time = duration(cpu) if isinstance(cpu, int | float) else ""
    memory = f"{rss / 1e6:.0f} MB" if isinstance(rss, int) else ""
    return time, memory, str(processes) if isinstance(processes, int) else ""


# --- configuration that has changed -----------------------------------------------------------------------

_MOST_ROWS = 6


def drift_rows(view: View) -> list[str]:
    """Return what was changed in its files and is not in force, and the command that applies it."""
    if not (drift := humanize.objects(view, "drift")):
        return []
    name = clean(view.get("name") or "NAME")
    texts = (clean(each["fault"]) if each.get("fault") else _change(each, "now", "pinned") for each in drift)
    lines = [f"  {text}" for text in texts]
    head = f"the configuration has changed; to apply it to the next run: ralphctl reload {name}"
    if not any(each.get("key") for each in drift):
        head = "the configuration has changed and is invalid; until it is fixed, nothing changes:"
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
