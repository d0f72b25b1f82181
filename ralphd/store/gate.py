"""``gate.json``: where the judgement of a ralph's commits stands, written before each order is carried out.

A daemon that dies in the middle of a judgement leaves it here, and the next one goes on from there.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from ralphd.core.gate.verdict import (
    Baseline,
    Judgement,
    JudgeOrder,
    Position,
    Push,
    PutBack,
    Restore,
    Result,
    Revert,
    RunTests,
    Say,
    SetAside,
    VerdictKind,
)
from ralphd.core.supervision.model import ReportedTask, RunId
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.store.checkpoint import read
from ralphd.store.files import as_json, read_versioned, set_aside_as, write_whole

GATE_VERSION: Final = 1
_ORDERS: Final[dict[str, type[JudgeOrder]]] = {
    "run_tests": RunTests,
    "set_aside": SetAside,
    "put_back": PutBack,
    "revert": Revert,
    "restore": Restore,
    "push": Push,
    "say": Say,
}
_NAMES: Final = {order: name for name, order in _ORDERS.items()}


@dataclass(frozen=True, slots=True)
class RanTests:
    """One run of the tests, what it came to, and how long it took."""

    run_id: RunId
    result: Result
    took_s: float


@dataclass(frozen=True, slots=True)
class GateRun:
    """A judgement under way. ``boundary_id`` names the boundary, ``number`` and ``task`` its iteration.

    ``tail`` is the end of what the tests printed that were red last.
    """

    boundary_id: str
    number: int | None
    task: ReportedTask | None
    run_id: RunId
    judgement: Judgement
    tests: tuple[RanTests, ...] = ()
    tail: str = ""


@dataclass(frozen=True, slots=True)
class LastVerdict:
    """The last verdict. ``commits`` and ``reverted`` are full shas, newest first."""

    boundary_id: str
    number: int | None
    task: ReportedTask | None
    run_id: RunId
    verdict: VerdictKind
    why: str
    commits: tuple[str, ...]
    reverted: tuple[str, ...]
    refs: tuple[str, ...]
    tail: str
    at: Moment


@dataclass(frozen=True, slots=True)
class GateState:
    """All that is known between two judgements.

    ``before`` is where HEAD was when the iteration began. ``is_open``: there may be commits since which no
    verdict was said of, so ``before`` stays. ``left`` is where HEAD was when the last run was seen to end.
    ``test_run`` is the run of the tests that is under way. ``since`` tells since when the baseline is what it
    is; ``reverted`` is the last verdict that reverted something and was not undone. ``undone`` are the
    boundaries whose commits a person has put back, the last ones of them.
    """

    baseline: Baseline = Baseline.UNKNOWN
    before: Position | None = None
    is_open: bool = False
    left: Position | None = None
    test_run: RunId | None = None
    judging: GateRun | None = None
    last: LastVerdict | None = None
    since: Moment | None = None
    reverted: LastVerdict | None = None
    undone: tuple[str, ...] = ()


_STATE: Final = TypeAdapter(GateState)


def order_name(order: JudgeOrder) -> str:
    """An order as it is written down."""
    return _NAMES[type(order)]


def load_gate(path: Path) -> GateState:
    """What the file holds, or nothing yet. Raises Broken (then it is set aside) or NewerState."""
    found = read_versioned(path, GATE_VERSION)
    if found is None:
        return GateState()
    try:
        return _state_of(found)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:  # pydantic's is a ValueError
        raise set_aside_as(path, str(fault)) from fault


def look_into(path: Path) -> GateState | None:
    """What the file of a ralph that may live tells; None for what tells nothing. It is left alone."""
    found = read(path)
    if found is None or found.get("version") != GATE_VERSION:
        return None
    try:
        return _state_of(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def save_gate(path: Path, state: GateState) -> None:
    """Replace the file, durably. Raises OSError when the disk does not take it."""
    write_whole(path, as_json(_as_plain(state)))


def _as_plain(state: GateState) -> dict[str, Any]:
    plain: dict[str, Any] = _STATE.dump_python(state, mode="json")
    if state.judging is not None:
        judgement = plain["judging"]["judgement"]
        judgement["order"] = {"do": order_name(state.judging.judgement.order), **judgement["order"]}
    if state.since is not None:
        plain["since"] = rfc3339(state.since)
    for key, last in (("last", state.last), ("reverted", state.reverted)):
        if last is not None:
            plain[key]["at"] = rfc3339(last.at)
    return {"version": GATE_VERSION, **plain}


def _state_of(found: dict[str, Any]) -> GateState:
    plain = {key.name: found[key.name] for key in fields(GateState) if key.name in found}
    if plain.get("judging") is not None:
        judgement = plain["judging"]["judgement"]
        words = dict(judgement["order"])
        order: TypeAdapter[JudgeOrder] = TypeAdapter(_ORDERS[words.pop("do")])
        judgement["order"] = order.validate_python(words)
    if plain.get("since") is not None:
        plain["since"] = parse_rfc3339(plain["since"])
    for key in ("last", "reverted"):
        if plain.get(key) is not None:
            plain[key]["at"] = parse_rfc3339(plain[key]["at"])
    return _STATE.validate_python(plain)


def tested(judging: GateRun, ran: RanTests, tail: str) -> GateRun:
    """The same with one more run of the tests; of a green one nobody needs the words."""
    kept = judging.tail if ran.result is Result.GREEN else tail
    return replace(judging, tests=(*judging.tests, ran), tail=kept)
