"""``docs/states.md``: the transitions that matter, from ``tests/core/supervision/states.toml``."""

from collections.abc import Mapping
from typing import Any

from tests.core.supervision.states import DEFAULT, ENDS, EVENTS, SCENES, rows

INTRODUCTION = """\
# States

Written by `make docs` from the table `tests/core/supervision/states.toml`, which lists what each event leads
to in each state; a test checks every row against `ralphd.core.supervision.step.step`. Do not edit this page.

A ralph has a **goal**, what was requested (running, paused or stopped), and a **state**, what is happening.
The state is saved before the actions are carried out, one by one. `terminate` is SIGTERM to the run;
`kill` ends its process tree; `escalate` calls a person. Events and log lines are left out here. What is not
listed changes nothing. A line that begins in *italics* says where such a ralph differs from the plain one.

| state | meaning | leads to |
| --- | --- | --- |
"""
MEANINGS: Mapping[str, str] = {
    "idle": "registered, never started",
    "starting": "a run is ordered; its command does not run yet",
    "running": "a run is alive",
    "waiting": "nothing runs until a moment (`waiting_for_retry`): backoff, next iteration",
    "pausing": "a run is alive and ends for a pause",
    "paused": "nothing runs until `resume`, or until a usage limit resets",
    "stopping": "a run is alive and ends: for a stop, a restart, a limit, or with the daemon",
    "stopped": "nothing runs: stopped on request, with the daemon, or without progress",
    "failed": "nothing runs until you act",
    "done": "the work is done, or a limit that you set is reached",
}
LEFT_OUT = (
    *("later", "late, run alive", "set back", "another run alive"),
    *("after the deadline", "no reason", "at the reset"),
)
"""Events whose answers differ by moments only."""
SCENES_LEFT_OUT = (
    *("another run", "starting, tests running", "starting, limit skipped"),
    *("running, reverted", "running, tests running", "running, hello", "running, built-in loop"),
    "pausing, for the gate",
    *("pausing, signalled", "stopping, signalled", "waiting, "),
)
LIKE = dict.fromkeys(
    ("running, waits", "running, gives up", "running, no progress", "running, limit"), "running, signals"
)
"""What a scene is compared with, where not with the first one of its state."""
ORDERS = ("spawn", "terminate", "kill", "signal", "wake", "escalate")


def states_page() -> str:
    """The text of ``docs/states.md``."""
    table = {case: row.answer for row in rows() for case in row.cases()}
    default = {(scene, event): row for (scene, event, policy), row in table.items() if policy == DEFAULT}
    summary = "".join(f"| {kind} | {MEANINGS[kind]} | {_leads_to(kind, default)} |\n" for kind in MEANINGS)
    sections = [_section(kind, default) for kind in MEANINGS]
    return "\n".join([INTRODUCTION + summary, *sections, _by_policy(table), _refusals(default)])


def _scenes(kind: str) -> list[str]:
    return [name for name in SCENES if name.split(",")[0] == kind and not name.startswith(SCENES_LEFT_OUT)]


def _kind(answer: Mapping[str, Any]) -> str | None:
    kind: str | None = answer["next"].split("(")[0] if "next" in answer else None
    return "waiting" if kind == "waiting_for_retry" else kind


def _leads_to(kind: str, default: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    scenes = _scenes(kind)
    following = {_kind(answer) for (scene, _), answer in default.items() if scene in scenes}
    return ", ".join(name for name in MEANINGS if name in following - {kind})


def _section(kind: str, default: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """What the first scene does, and where the others do something else."""
    scenes = _scenes(kind)
    events = [event for event in EVENTS if event != "spawned" or kind == "starting"]
    answers = {
        scene: {event: _shown(default.get((scene, event), {})) for event in events} for scene in scenes
    }
    lines = _lines(answers[scenes[0]])
    for scene in scenes[1:]:
        other = answers[LIKE.get(scene, scenes[0])]
        lines += _lines({event: own for event, own in answers[scene].items() if own != other[event]}, scene)
    head = "| event | next | actions |\n| --- | --- | --- |"
    return f"## {kind.capitalize()}\n\n{head}\n" + "".join(f"{line}\n" for line in lines)


def _shown(answer: Mapping[str, Any]) -> tuple[str, str]:
    """The next state with the goal, and the actions other than announcements."""
    goal = f"goal {answer['goal']}" if "goal" in answer else ""
    then = ", ".join(part for part in (_kind(answer) or "", goal) if part)
    orders = [order.split(":")[0] for order in answer.get("do", ()) if order.startswith(ORDERS)]
    return then, ", ".join("wake" if order.startswith("wake") else order for order in orders)


def _lines(answers: Mapping[str, tuple[str, str]], scene: str = "") -> list[str]:
    """One line for each answer, with the events that have it."""
    events: dict[tuple[str, str], list[str]] = {}
    for event, answer in answers.items():
        if not event.endswith(LEFT_OUT) and (any(answer) or scene):
            events.setdefault(answer, []).append(event)
    about = f"*{scene.split(', ', 1)[1]}:* " if scene else ""
    return [
        f"| {about}{_list(of)} | {then or '–'} | {orders or '–'} |" for (then, orders), of in events.items()
    ]


def _list(events: list[str]) -> str:
    if set(ENDS) <= set(events):
        events = [*(event for event in events if event not in ENDS), "any end of the run"]
    return "; ".join(events)


def _by_policy(table: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> str:
    lines = []
    for policy in dict.fromkeys(policy for _, _, policy in table if policy != DEFAULT):
        answers = {
            event: _shown(table["running", event, policy])
            for event in EVENTS
            if ("running", event, policy) in table
        }
        lines += [line.replace("| ", f"| `{policy}`: ", 1) for line in _lines(answers)]
    head = "| configuration and event | next | actions |\n| --- | --- | --- |"
    return (
        f"## Running, by configuration\n\nWhere it differs from the default.\n\n{head}\n"
        + "\n".join(lines)
        + "\n"
    )


def _refusals(default: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    refused: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for (scene, event), answer in default.items():
        if "refused" in answer and not event.startswith("report") and not event.endswith(LEFT_OUT):
            events, kinds = refused.setdefault(answer["refused"], ({}, {}))
            events[event] = kinds[scene.split(",")[0]] = None
    lines = [
        f"- `{', '.join(events)}` ({', '.join(kinds)}): {why}" for why, (events, kinds) in refused.items()
    ]
    return "## Refused requests\n\n" + "\n".join(lines) + "\n"
