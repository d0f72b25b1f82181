"""What the bench makes of its figures; the figures themselves are what ``make bench`` is for."""

from dataclasses import replace
from pathlib import Path

from tests.bench import page
from tests.bench.bench import Bench, Rounds
from tests.bench.peers.circus import Circus
from tests.bench.peers.pm2 import Pm2
from tests.bench.peers.supervisord import Supervisord
from tests.bench.table import Line, Verdict, broken, text


def a_bench(tmp_path: Path) -> Bench:
    """Two peers are there, pm2 is not."""
    return Bench(tmp_path, [Supervisord, Circus], [Pm2.name], kills=1)


def a_line(verdict: Verdict, *, gates: bool = False) -> Line:
    """Twice as dear as circus."""
    return Line("idling", "<= 1", "2", verdict, "By waiting.", {"circus": "1"}, {"circus": 2.0}, gates=gates)


def test_only_a_missed_row_that_gates_fails_the_bench() -> None:
    assert a_line(Verdict.MISSED, gates=True).fails
    assert not a_line(Verdict.MISSED).fails
    assert not a_line(Verdict.MET, gates=True).fails
    assert not a_line(Verdict.NONE, gates=True).fails


def test_a_row_that_cannot_be_measured_fails_the_bench_where_it_gates() -> None:
    assert broken("trees", ValueError("no tree"), gates=True).fails
    assert "no tree" in text([broken("trees", ValueError("no tree"), gates=False)], ["circus"])


def test_a_peer_that_breaks_is_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    bench = a_bench(tmp_path)
    rounds: Rounds[float] = Rounds(bench, "idling")
    asked: list[str] = []

    def measure(kind: type[object]) -> float:
        asked.append(kind.__name__)
        if kind is Supervisord:
            raise RuntimeError("it has gone")
        return 4.0

    rounds.take(measure)
    rounds.take(measure)

    assert asked == ["Supervisord", "Circus", "Circus"]
    assert rounds.texts(lambda found: f"{found}") == {
        "circus": "[4.0, 4.0]", "supervisord": "failed (see below)", "pm2": "not installed",
    }  # fmt: skip
    assert rounds.ratios(2.0, lambda value: value) == {"circus": 0.5}
    assert bench.faults == ["idling: supervisord: RuntimeError: it has gone"]


def test_the_page_tells_what_is_missed_and_where_a_peer_needs_less(tmp_path: Path) -> None:
    bench = a_bench(tmp_path)
    bench.faults.append("idling: circus: it fell over")

    told = page.text([a_line(Verdict.MISSED)], bench, full=False, took_s=60.0)

    assert "0 of 1 goals met." in told
    assert "- idling: missed\n- idling: more than circus\n" in told
    assert "pm2: not installed" in told and "it fell over" in told
    assert "|  | idling | ≤ 1 | 2 | - | 1 (2.00) | - | - | MISSED |" in told


def test_a_missed_goal_is_told_beside_what_the_machine_takes(tmp_path: Path) -> None:
    line = replace(a_line(Verdict.MISSED), relative="2 times a bare one; the goal was 3 times")

    told = page.text([line], a_bench(tmp_path), full=False, took_s=60.0)

    assert "- idling: missed; 2 times a bare one; the goal was 3 times\n" in told


def test_the_page_is_the_same_for_a_full_run_but_for_what_it_lacks(tmp_path: Path) -> None:
    short, full = (
        page.text([a_line(Verdict.MET, gates=True)], a_bench(tmp_path), full=full, took_s=60.0)
        for full in (False, True)
    )

    assert page.LARGE.split("`")[1] in short
    assert page.LARGE.split("`")[1] not in full
