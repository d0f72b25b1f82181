"""``gate.json``: a judgement that is read back is the one that was written, at each of its orders."""

import json
from pathlib import Path

import pytest

from ralphd.core.gate.range import GateState
from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    GateOrder,
    GateRun,
    JudgedCommit,
    Position,
    Push,
    PutBack,
    Restore,
    Result,
    Revert,
    RunTests,
    Say,
    SetAside,
    TestRun,
    Verdict,
    VerdictKind,
)
from ralphd.core.supervision.model import ReportedTask, RunId
from ralphd.errors import NewerState
from ralphd.store.files import Broken
from ralphd.store.gate import load_gate, look_into, save_gate

RUN = RunId("r000001-3fa9c1d2")
VERDICT = Verdict(VerdictKind.REVERTED, "the tests failed, and pass without it", Baseline.GREEN, calls=True)
BOUNDARY = Boundary(
    Position("a" * 40, "main"),
    Position("b" * 40, None),
    commits=(JudgedCommit("b" * 40, "subject", pulled=True),),
    dirty=("a b.txt",),
)
ORDERS = (RunTests(), SetAside(), PutBack(), Revert(("b" * 40,)), Restore("b" * 40), Push(), Say(VERDICT))


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_what_was_written_is_read_back(tmp_path: Path, order: GateOrder) -> None:
    judging = GateRun(
        BOUNDARY, Baseline.GREEN, "b" * 40, order, (Result.RED,), True, Result.RED, ("b" * 40,), VERDICT,
        "r/2", RUN, 4, ReportedTask("t1", "parse"), (TestRun(RUN, Result.RED, 1.5),), "E  assert",
    )  # fmt: skip
    last = Verdict(
        VerdictKind.KEPT, "why", boundary_id="r/1", run_id=RUN, commits=("c" * 40,), refs=("refs/x",),
        tail="tail", at=1e9,
    )  # fmt: skip
    state = GateState(Baseline.GREEN, BOUNDARY.before, True, None, RUN, judging, last)
    save_gate(tmp_path / "gate.json", state)
    assert load_gate(tmp_path / "gate.json") == state


def test_nothing_is_known_without_a_file(tmp_path: Path) -> None:
    assert load_gate(tmp_path / "gate.json") == GateState()


def test_f2_a_damaged_file_is_put_aside_and_a_newer_one_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    for text in ('{"version": 1, "baseline": "blue"}', '{"version": 1, "judging": {"judgement": 3}}', "{"):
        path.write_text(text)
        with pytest.raises(Broken):
            load_gate(path)
        assert not path.exists()
    path.write_text('{"version": 2}')
    with pytest.raises(NewerState):
        load_gate(path)
    assert path.read_text() == '{"version": 2}'


NEWER = {"counts", "counted", "check", "weakened", "is_old"}
"""Keys that earlier daemons do not write, and ignore."""


def without_newer(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_newer(each) for key, each in value.items() if key not in NEWER}
    return [without_newer(each) for each in value] if isinstance(value, list) else value


def test_a_file_of_an_earlier_daemon_keeps_all_its_keys(tmp_path: Path) -> None:
    written = Path(__file__).with_name("gate.json").read_bytes()
    path = tmp_path / "gate.json"
    path.write_bytes(written)

    state = load_gate(path)
    save_gate(path, state)

    assert without_newer(json.loads(path.read_bytes())) == json.loads(written)
    assert load_gate(path) == state
    assert state.judging is not None and state.judging.verdict == VERDICT
    assert look_into(path) == state
