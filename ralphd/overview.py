"""What every screen shows of ralphs: a word per state, the order, and the totals.

Pure functions over views (the keys of ``ralphd.wire.VIEW_KEYS``), whether a daemon or a file supplied them,
so any key may be missing. Each screen formats times and colours itself. Nothing is imported: ``status`` loads
this module, and what it loads costs start-up time.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    View = Mapping[str, Any]

WORDS = ("failed", "paused", "working", "testing", "limited", "waiting", "stopped", "done")
"""All words for a state, in the order of a list of ralphs."""
FINISHED = frozenset({"stopped", "done"})
_WORDS = dict.fromkeys(("starting", "running", "pausing", "stopping"), "working")
_WORDS |= {"idle": "stopped", "waiting_for_retry": "waiting"}
RUNS = frozenset({"starting", "running", "testing", "pausing", "stopping"})
_WAITS_WITHIN = RUNS | {"waiting_for_retry"}
_CAN_WAIT = ("running", "waiting_for_retry", "paused")
LIMITS = frozenset({"usage_limit", "rate_limit"})
_WAIT_PHRASES = {
    "resources": ("slots are in use",),
    "usage_limit": ("usage limit", "limit reset", "-hour limit", "weekly limit", " is out"),
    "rate_limit": ("rate limit",),
    "outage": ("reach its service", "outage"),
    "retry": ("failed",),
}
"""By reason, what the waits for it say where a run gives no reason but a sentence."""


class Row:
    """One ralph in a list. ``needs_you``: nothing continues before a person acts.

    ``until`` is the RFC 3339 time at which a wait ends. ``tasks`` are how many are done, and how many there
    are. ``seen`` is what was recognised in the output of a loop that reports nothing itself. ``as_of`` is
    when the view was read, for one of another machine that could not be read now.
    """

    def __init__(self, view: "View") -> None:
        seen, tasks = part(view, "seen"), part(view, "tasks")
        counts = tasks.get("done"), tasks.get("total")
        task = view.get("task")
        self.view = view
        self.name = str(view.get("name") or "?")
        self.word = word(view)
        self.needs_you = needs_you(view)
        self.until = part(view, "wait").get("until") or part(seen, "limit").get("resets_at")
        self.tasks = counts if all(type(count) is int for count in counts) else None
        self.task = str(task.get("title") or task.get("id") or "") if isinstance(task, dict) else ""
        self.agent = str(view.get("agent") or seen.get("agent") or "")
        costs = (view.get("total_cost_usd"), seen.get("cost_usd"))
        self.cost_usd = next((cost for cost in costs if isinstance(cost, int | float) and cost), None)
        finished_at = view.get("finished_at") if self.word in FINISHED else None
        self.last_at = finished_at or view.get("last_output_at")
        self.as_of = view.get("as_of")


def part(view: "View", key: str) -> "View":
    """Return the object under ``key``; an empty one for anything else."""
    value = view.get(key)
    return value if isinstance(value, dict) else {}


def word(view: "View") -> str:
    """Return the one word for a ralph's state; a state that is not known stands for itself."""
    state, wait = str(view.get("state")), part(view, "wait")
    if state in _CAN_WAIT and (wait.get("until") or state != "paused"):
        if wait_reason(view) in LIMITS or part(view, "seen").get("limit"):
            return "limited"
        if wait and state == "running":
            return "waiting"
    return _WORDS.get(state, state)


def wait_reason(view: "View") -> str:
    """Return why a ralph waits, as one of the known reasons; else in the run's own words.

    The built-in loop reports a sentence, and saves the reason in its checkpoint.
    """
    wait, saved = part(view, "wait"), part(view, "checkpoint").get("pause_reason")
    reason = str(wait.get("reason") or "").strip()
    known = known_reason(reason) if wait else ""
    if wait and saved in LIMITS and known != "resources" and " " in reason and view.get("command") == []:
        return str(saved)
    return known


def known_reason(words: str) -> str:
    """Return the known reason that a wait's own words stand for, else these words."""
    words = words.strip()
    plain = words.casefold().replace("_", " ")
    known = (reason for reason, parts in _WAIT_PHRASES.items() if any(part in plain for part in parts))
    return next(known, words or "unknown")


def needs_you(view: "View") -> bool:
    """Return whether the ralph failed, or is paused without an end."""
    ends = part(view, "wait").get("until")
    return view.get("state") in (("failed",) if ends else ("failed", "paused"))


def has_a_run(view: "View") -> bool:
    """Return whether a run lives or starts: the built-in loop may wait within a run."""
    return view.get("state") in (_WAITS_WITHIN if view.get("ralph_pid") else RUNS)


def is_at_work(view: "View") -> bool:
    """Return whether the ralph works, tests or waits, and continues without a person."""
    return word(view) not in FINISHED and not needs_you(view)


def rows(views: "Iterable[View]") -> list[Row]:
    """Return the ralphs as rows: those that need a person first, then those at work, then the others."""

    def order(row: Row) -> tuple[bool, int, str]:
        return not row.needs_you, WORDS.index(row.word) if row.word in WORDS else len(WORDS), row.name

    return sorted(map(Row, views), key=order)


def folded(rows: "Sequence[Row]") -> "tuple[Sequence[Row], Sequence[Row]]":
    """Return the rows to show, and those to count only: the finished ones, unless all are."""
    open_rows = [row for row in rows if row.word not in FINISHED]
    return (open_rows, [row for row in rows if row.word in FINISHED]) if open_rows else (rows, [])


def totals(rows: "Iterable[Row]") -> dict[str, int]:
    """Return how many ralphs need a person (``needs you``), and how many others are in each state."""
    keys = ["needs you" if row.needs_you else row.word for row in rows]
    return {key: keys.count(key) for key in ("needs you", *WORDS, *keys) if key in keys}


_LANDING = {"queued": "queued to land", "waiting": "waits for you to land", "refused": "does not land"}
_ASIDE = "on ralph/landed"
MERGE = "git merge ralph/landed"
"""What a person types in the target's checkout, once nothing in it is uncommitted."""


def is_aside(landing: "View") -> bool:
    """Return whether a branch landed on ``ralph/landed`` only: the target waits for its checkout (M3)."""
    return landing.get("state") == "landed" and str(landing.get("why") or "").startswith(_ASIDE)


def aside_words(landing: "View", target: str) -> str:
    """Return what a landing waits for that is not on the target yet, and the command."""
    why = str(landing.get("why")).removeprefix(_ASIDE).removeprefix(": ")
    return f"waits for the checkout of {target}" + (f": {why}" if why else "") + f"; then there: {MERGE}"


def landing_words(view: "View") -> str:
    """Return where the ralph's branch stands in its landing queue; empty for a landing before this run."""
    landing = part(view, "landing")
    state, why, step = (str(landing.get(key) or "") for key in ("state", "why", "next"))
    undoes, target = "revert of it " * bool(landing.get("undoes")), str(landing.get("target"))
    if is_aside(landing):
        return undoes + aside_words(landing, target)
    if not state or (state == "landed" and str(landing.get("ended_at")) < str(view.get("started_at") or "")):
        return ""
    if state == "pushed":
        return f"pushed as {landing.get('branch')}" + (f": {step}" if step else "")
    why = step if state == "queued" else why if state != "waiting" or step not in why else ""
    return f"{undoes}{_LANDING.get(state, state)} on {target}" + (f": {why}" if why else "")


def landing_need(view: "View") -> str:
    """Return why its branch does not land before a person acts; empty if it may.

    A refused one is not a person's matter while its ralph works.
    """
    landing = part(view, "landing")
    needs = {"waiting": "waiting for you", "refused": "" if is_at_work(view) else "refused"}
    if is_aside(landing):
        return "waiting for you"
    return "blocked" if landing.get("blocked") else needs.get(str(landing.get("state")), "")


def landing_line(rows: "Iterable[Row]") -> str:
    """Return whose branches need a person to land; empty if there are none."""
    names: dict[str, list[str]] = {"waiting for you": [], "refused": [], "blocked": []}
    for row in rows:
        names.setdefault(landing_need(row.view), []).append(row.name)
    counts = [f"{len(who)} {need} ({', '.join(who)})" for need, who in names.items() if need and who]
    return f"landing: {', '.join(counts)}: ralphctl queue" if counts else ""
