"""``gate.json``: the state of a ralph's gate, written before each order of a gate run is carried out.

A daemon that dies during a run leaves it here, and the next one continues. Version 1 is read by older and
newer daemons alike, so its shape is fixed: it nests the steps of a run, and keeps only part of a verdict.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from ralphd.core.gate import verdict
from ralphd.core.gate.range import GateState
from ralphd.core.time import parse_rfc3339, rfc3339
from ralphd.store.codec import load_file, peek_file
from ralphd.store.files import as_json, write_whole

GATE_VERSION: Final = 1
_ORDERS: Final[dict[str, type[verdict.GateOrder]]] = {
    "run_tests": verdict.RunTests, "set_aside": verdict.SetAside, "show_old": verdict.ShowOld,
    "put_back": verdict.PutBack, "revert": verdict.Revert, "restore": verdict.Restore,
    "push": verdict.Push, "say": verdict.Say,
}  # fmt: skip
_NAMES: Final = {order: name for name, order in _ORDERS.items()}
_RUN: Final = ("boundary_id", "number", "task", "run_id", "judgement", "tests", "tail", "check")
_STEPS: Final = (
    *("boundary", "baseline", "head", "order", "runs"),
    *("is_aside", "alone", "reverted", "planned", "retakes", "stale", "confirmed", "excused", "note"),
)
_DECISION: Final = ("kind", "why", "baseline", "pauses", "calls", "is_open", "weakened")
_LAST: Final = (
    *("boundary_id", "number", "task", "run_id", "verdict", "why"),
    *("commits", "reverted", "refs", "tail", "at", "weakened"),
)
_ADDED: Final = {
    **{"retakes": 0, "stale": "", "confirmed": 0, "excused": "", "note": "", "knows_run": False},
    **{"by_run": None, "reverts": "", "owner": "run", "rewritten": False, "is_bare": False},
    **{"start_commit": "", "hiding": [], "command": ""},
}
"""Keys that earlier daemons do not know, with the values at which they are left out."""
_STATE: Final = TypeAdapter(GateState)


def order_name(order: verdict.GateOrder) -> str:
    """Return the name of an order in the file."""
    return _NAMES[type(order)]


def load_gate(path: Path) -> GateState:
    """Read the file; an empty state where there is none. Raise Broken (it is set aside) or NewerState."""
    return load_file(path, GATE_VERSION, _state_of) or GateState()


def look_into(path: Path) -> GateState | None:
    """Read the file of another process without touching it; None where it cannot be read."""
    return peek_file(path, GATE_VERSION, _state_of)


def save_gate(path: Path, state: GateState) -> None:
    """Replace the file, durably. Raise OSError when the disk does not take it."""
    write_whole(path, as_json(_as_plain(state)))


def _as_plain(state: GateState) -> dict[str, Any]:
    plain: dict[str, Any] = _STATE.dump_python(state, mode="json")
    if state.judging is not None:
        run = plain["judging"]
        if isinstance(state.judging.order, verdict.Say):
            run["order"]["verdict"] = _only(_DECISION, run["order"]["verdict"])
        run["order"] = {"do": order_name(state.judging.order), **run["order"]}
        run["planned"] = run["planned"] and _only(_DECISION, run["planned"])
        run["judgement"] = _only(_STEPS, run)
        plain["judging"] = _only(_RUN, run)
    for key in ("good", "unapplied"):
        if plain[key] is None:
            del plain[key]  # a file of an earlier version stays as it is
    if state.since is not None:
        plain["since"] = rfc3339(state.since)
    for key, last in (("last", state.last), ("reverted", state.reverted), ("unapplied", state.unapplied)):
        if last is not None:
            plain[key] = _only(_LAST, plain[key] | {"verdict": last.kind.value, "at": rfc3339(last.at)})
    return {"version": GATE_VERSION, **_without_added(plain)}


def _without_added(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_without_added(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    left_out = {key for key, value in _ADDED.items() if key in plain and plain[key] == value}
    return {key: _without_added(value) for key, value in plain.items() if key not in left_out}


def _only(keys: tuple[str, ...], plain: dict[str, Any]) -> dict[str, Any]:
    return {key: plain[key] for key in keys}


def _state_of(read_back: dict[str, Any]) -> GateState:
    plain = {field.name: read_back[field.name] for field in fields(GateState) if field.name in read_back}
    if (run := plain.get("judging")) is not None:
        steps = dict(run["judgement"])
        words = dict(steps["order"])
        order: TypeAdapter[verdict.GateOrder] = TypeAdapter(_ORDERS[words.pop("do")])
        steps["order"] = order.validate_python(words)
        plain["judging"] = {**run, **steps}
        del plain["judging"]["judgement"]
    if plain.get("since") is not None:
        plain["since"] = parse_rfc3339(plain["since"])
    for key in ("last", "reverted", "unapplied"):
        if (last := plain.get(key)) is not None:
            plain[key] = {**last, "kind": last["verdict"], "at": parse_rfc3339(last["at"])}
            del plain[key]["verdict"]
    return _STATE.validate_python(plain)
