"""Events in words: what ``ralphctl events`` prints of each."""

from __future__ import annotations

import json
import time

from ralphctl.format.explanation import caller_words, localised
from ralphctl.format.humanize import View, clock, count, last_exit, moment, usd_words


def words_of(event: View) -> str:
    """Return an event in words; empty for one that does not fit: another machine can send anything."""
    try:
        return event_words(event["type"], event["data"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def event_words(kind: str, data: View) -> str:
    """Return what happened, without when and to whom. Users' own loops report too: any key may be missing."""
    match kind:
        case "attempt.finished":
            return _attempt(data)
        case "iteration.started":
            return _iteration(data) + (f": {_task(data)}" if _task(data) else "")
        case "iteration.finished":
            summary = data.get("summary") or ("failed" if data.get("failed") else "")
            return f"{_iteration(data)} ended" + (f": {summary}" if summary else "") + _commits(data)
        case "ralph.exited":
            return last_exit(data)
        case "tests.passed" | "tests.failed" if not data.get("message"):
            return _tested(kind, data)
        case "commit.kept" | "commit.reverted" | "guard.blocked" | "tests.weakened" if data.get("iteration"):
            return _judged(kind, data)
        case _ if kind in _ITEMS and data.get("item"):
            why = f": {data['why']}" if data.get("why") else ""
            return f"{data['item']} {_ITEMS[kind]}{data.get('previous') or ''}{why}"
        case "fleet.fenced" if data.get("item"):
            saved = ", ".join(map(str, data.get("refs") or ())) or "nowhere but here"
            owner = data.get("by") or "another machine"
            return f"{data['item']} is {owner}'s now; what was not pushed: {saved}"
    if kind in _WORDS and not data.get("message"):
        return _WORDS[kind]
    if isinstance(data.get("message"), str):
        ends = moment(data.get("until")) if kind == "wait.started" else None
        until = "" if ends is None else f"; until {clock(ends, time.time())}"
        return localised(data["message"], time.time()) + until
    return ", ".join(f"{key} {_value(value)}" for key, value in data.items() if value not in (None, [], ""))


def _tested(kind: str, data: View) -> str:
    """Return ``iteration 2: the tests failed (red, red, green)``."""
    how = "passed" if kind == "tests.passed" else "failed"
    if data.get("baseline"):
        return f"the tests {how} before Ralph starts"
    runs = data.get("tests")
    more = f" ({', '.join(map(str, runs)).replace('_', ' ')})" if isinstance(runs, list) and runs[1:] else ""
    return (f"{_iteration(data)}: " if data.get("iteration") else "") + f"the tests {how}{more}"


def _judged(kind: str, data: View) -> str:
    why = f": {data['why']}" if kind == "commit.reverted" and data.get("why") else ""
    return f"{_where(data)}: {data.get('message') or data.get('why') or ''}{why}"


_HOW = {"asked": "ended as requested", "lost": "was interrupted with its loop; its result is unknown"}
_ITEMS = {
    "item.claimed": "is worked on here",
    "item.taken_over": "continues here, after ",
    "item.released": "is given back",
    "item.done": "has ended",
    "item.held": "needs you",
}
_WORDS = {"wait.ended": "the wait is over", "ralph.failed": "gave up: nothing runs until you act"}


def _attempt(data: View) -> str:
    """Return ``iteration 2, build part 2: attempt 1 by claude failed (agent crash): …; next: …``."""
    where = _where(data)
    number = f"attempt {data['attempt']}" if data.get("attempt") else "an attempt"
    number += f" ({data['phase']})" if data.get("phase") else ""
    who = number + (f" by {data['agent']}" if data.get("agent") else "")
    kind = data.get("failure_kind")
    if kind or data.get("outcome") == "failed":
        how = "failed" + (f" ({str(kind).replace('_', ' ')})" if kind else "")
        how += f": {data['why']}" if data.get("why") else ""
    else:
        how = _HOW.get(str(data.get("outcome")), "succeeded")
    cost, commits = data.get("cost_usd"), data.get("commits")
    figures = [count(commits, "commit")] if isinstance(commits, int) and commits else []
    figures += [usd_words(cost)] if isinstance(cost, int | float) and cost else []
    follows = f"; next: {data['next']}" if data.get("next") else ""
    return (f"{where}: " if where else "") + ", ".join([f"{who} {how}", *figures]) + follows


def _where(data: View) -> str:
    return ", ".join(filter(None, (_iteration(data) if data.get("iteration") else "", _task(data))))


def _iteration(data: View) -> str:
    return f"iteration {data['iteration']}" if data.get("iteration") else "an iteration"


def _task(data: View) -> str:
    task = data.get("task")
    return str(task.get("title") or task.get("id") or "") if isinstance(task, dict) else str(task or "")


def _commits(data: View) -> str:
    shas = made if isinstance(made := data.get("commits"), list) else []
    return f"; commit{'s' * (len(shas) > 1)} {', '.join(map(str, shas))}" if shas else ""


def _value(value: object) -> str:
    if (at := moment(value)) is not None:
        return clock(at, time.time())
    if isinstance(value, dict) and "pid" in value:
        return caller_words(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
