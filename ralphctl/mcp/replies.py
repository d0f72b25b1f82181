"""What the tools answer: views, events and log lines as short JSON for an agent.

Pure functions. The same state gives the same answer: moments are absolute, and nothing counts from now.
Others write names, tasks and output, so every text is freed of escape codes; other controls are made visible.
"""

import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ralphctl.format import humanize, state_text
from ralphctl.format.event_text import words_of
from ralphctl.format.humanize import View, objects, part
from ralphctl.format.output import clean
from ralphd import overview, wire

LOG_BYTES = 8192
"""The most that ``logs`` and ``wait`` answer."""
MOST_BYTES = 16384
"""The most that any tool answers."""
LINES_BYTES = LOG_BYTES - 600
"""The most that the lines or events in such an answer take; the rest is for what stands around them."""
_LINE_CHARS = 2000
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, moves
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links, the clipboard
    r"|\x1b[ -/]{0,8}[0-~]"
)


def plain(text: object) -> str:
    """Return text without escape sequences; other control characters but newlines and tabs are shown."""
    lines = _ESCAPES.sub("", str(text)).replace("\r\n", "\n").split("\n")
    shown = "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)
    return shown.encode(errors="replace").decode()  # a lone surrogate cannot be sent


def answer(value: Any) -> str:
    """Return a reply as JSON: plain texts, and nothing that is None, empty or false."""
    return json.dumps(_pruned(value), ensure_ascii=False, separators=(",", ":"))


def _pruned(value: Any) -> Any:
    match value:
        case str():
            return plain(value)
        case dict():
            pairs = ((plain(key), _pruned(each)) for key, each in value.items())
            kept = ("actions", "cursor", "events", "ralphs", "lines")
            return {key: each for key, each in pairs if key in kept or each not in (None, "", [], {}, False)}
        case list() | tuple():
            return [_pruned(each) for each in value]
        case _:
            return value


def cut(text: str, most: int = MOST_BYTES) -> str:
    """Return ``text`` in at most ``most`` bytes of UTF-8, with a note where its end is missing."""
    note = "\n… cut: name one ralph, or a shorter time"
    if len(whole := text.encode()) <= most:
        return text
    return whole[: most - len(note.encode())].decode(errors="ignore") + note


def state_of(view: View) -> str:
    """Return the state: ``Paused``; ``WaitingForRetry`` also for a run that waits itself."""
    state = str(view.get("state") or "unknown")
    waits = state == "running" and overview.word(view) in ("waiting", "limited")
    return "".join(word.capitalize() for word in ("waiting_for_retry" if waits else state).split("_"))


def actions(view: View, allowed: Collection[str]) -> list[str]:
    """Return what may be requested of a ralph now: verbs of ``act`` and ``start``, of ``allowed`` tools."""
    state, guard, landing = view.get("state"), part(view, "guard"), part(view, "landing")
    is_settled, wait = state in wire.SETTLED_STATES, part(view, "wait")
    # A command that waits within its run may not know the request.
    can_skip = state == "waiting_for_retry" or (state == "running" and bool(wait))
    can_skip = can_skip and (not view.get("ralph_pid") or state_text.is_built_in(view))
    is_elsewhere = "/" in str(view.get("name"))
    possible = {
        "stop": not is_settled or state == "paused",
        "pause": not is_settled and state not in ("pausing", "stopping"),
        "resume": state in ("paused", "pausing"),
        "skip-wait": bool(wait.get("until")) if state == "paused" else can_skip,
        "ack": bool(part(view, "incident")) and not part(view, "incident").get("acknowledged_at"),
        "undo": is_settled and bool(guard.get("reverted")),
        "land": state == "done"
        and landing.get("state") not in ("queued", "landed")
        and view.get("branch") not in (None, "main", "master", landing.get("target")),
    }
    verbs = [verb for verb, is_possible in possible.items() if is_possible and "act" in allowed]
    if is_elsewhere and state == "unknown":
        return []
    if is_elsewhere:
        return [verb for verb in verbs if verb in ("stop", "pause", "resume")]
    return verbs + (["start"] if "start" in allowed and is_settled and state != "paused" else [])


def row(view: View, allowed: Collection[str]) -> dict[str, Any]:
    """Return a ralph in a list: state, reason, work, and the actions that are allowed now."""
    summary = overview.Row(view)
    ending = view.get("state") in ("pausing", "stopping")
    reason = humanize.asked(view.get("message"))[0] if ending else state_text.reason(view, 0.0)
    return {
        "name": view.get("name"),
        "state": state_of(view),
        "reason": reason,
        "until": summary.until,
        "as_of": view.get("as_of"),
        "needs_you": summary.needs_you,
        "do": state_text.needed(view),
        "task": summary.task,
        "tasks": "{}/{}".format(*summary.tasks) if summary.tasks else None,
        "iteration": view.get("iteration"),
        "agent": summary.agent,
        "cost_usd": summary.cost_usd,
        "actions": actions(view, allowed),
    }


_MORE = (
    *("directory", "branch", "mode", "started_at", "finished_at", "last_output_at", "last_commit"),
    *("restarts", "consecutive_errors", "reverts", "run_id"),
)


def ralph(view: View, allowed: Collection[str], explanation: View | None = None) -> dict[str, Any]:
    """Return one ralph in full, with why the supervisor last acted if ``explanation`` is given."""
    incident, change, ending = (part(view, key) for key in ("incident", "last_change", "last_exit"))
    full = row(view, allowed) | {key: view.get(key) for key in _MORE}
    full |= {
        "last_change": {key: change.get(key) for key in ("at", "what")},
        "last_exit": ending and {"at": ending.get("at"), "how": humanize.last_exit(ending)},
        "alert": {key: incident.get(key) for key in ("opened_at", "message", "needs", "acknowledged_at")},
        "landing": overview.landing_words(view),
    }
    return full if explanation is None else full | {"why": _why(explanation)}


def _why(explanation: View) -> dict[str, Any]:
    keys = ("rule", "title", "because", "done", "at", "missing")
    shown = objects(explanation, "figures")[:12]
    return {
        **{key: explanation.get(key) for key in keys},
        "figures": [
            f"{each.get('name')}: {each.get('seen')}"
            + (f" (limit {each['limit']})" if each.get("limit") else "")
            for each in shown
        ],
        "tests": {key: part(explanation, "verdict").get(key) for key in ("title", "because")},
        "request": part(explanation, "request").get("action"),
    }


def rows(views: Iterable[View], state: str, allowed: Collection[str]) -> str:
    """Return a list of ralphs, those that need a person first; as many as fit, and how many are left out."""
    every = [row(each.view, allowed) for each in overview.rows(views)]
    chosen = [each for each in every if state in ("", each["state"])]
    reply, shown = answer({"ralphs": chosen, "total": len(chosen)}), len(chosen)
    while len(reply.encode()) > MOST_BYTES:
        shown = shown * 3 // 4
        reply = answer({"ralphs": chosen[:shown], "total": len(chosen), "left_out": len(chosen) - shown})
    return reply


def figures(document: Mapping[str, Any]) -> str:
    """Return the figures of a report; of many ralphs the main ones only."""
    if len((reply := answer(document)).encode()) <= MOST_BYTES:
        return reply
    main = ("name", "state", "tasks", "commits", "counts", "cost")
    ralphs = [{key: each.get(key) for key in main} for each in document["ralphs"]]
    while len((reply := answer({**document, "ralphs": ralphs, "shortened": True})).encode()) > MOST_BYTES:
        ralphs = ralphs[: len(ralphs) * 3 // 4]
    return reply


def log(records: Iterable[Mapping[str, Any]], cursor: str, view: View, allowed: Collection[str]) -> str:
    """Return lines of a log: with a ``cursor`` those that follow it, else the last ones, as many as fit."""
    lines: deque[str] = deque()
    taken, more, after = 0, False, cursor
    for record in records:
        line = _log_line(record)
        if cursor and taken + size(line) > LINES_BYTES:
            more = True
            break
        lines.append(line)
        taken, after = taken + size(line), str(record.get("cursor") or after)
        while taken > LINES_BYTES:
            taken -= size(lines.popleft())
            more = True
    reply = {"cursor": after, "more" if cursor else "older_left_out": more, "lines": list(lines)}
    return answer({**reply, "state": state_of(view), "actions": actions(view, allowed)})


def _log_line(record: Mapping[str, Any]) -> str:
    if "gap" in record:
        return f"[ralphd] gap in the log: {plain(record['gap'])}"
    text = clipped(plain(record.get("text", "")))
    return text if record.get("stream") == "stdout" else f"[{record.get('stream')}] {text}"


def clipped(line: str) -> str:
    """Return a line of a log; of a long one the beginning, and how long it is."""
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… ({len(line)} characters)"


def event(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event in words."""
    keys = {key: told.get(key) for key in ("id", "at", "ralph", "host", "type")}
    return keys | {"text": humanize.cut(plain(words_of(told)), _LINE_CHARS)}


def size(value: object) -> int:
    """Return how many bytes a part takes in a reply, with the comma."""
    return len(answer(value).encode()) + 1
