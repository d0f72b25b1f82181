"""What a soak is judged by, and a short one: small ralphs, many faults, nothing lost."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.soak import judge, plot
from tests.soak.cast import small_cast
from tests.soak.growth import fitted
from tests.soak.judge import FIRST_S, RULES
from tests.soak.samples import Process, Sample
from tests.soak.soak import Pace, Soak, as_json
from tests.whole.harness import daemon_in

SHORT = Pace(duration_s=4.0, sample_s=1.0, fault_s=0.4, as_child=False)


def lives(*slopes: float, count: int = 40) -> list[tuple[str, float, float]]:
    """Points of processes that begin anew at 100, each with a slope per second, one after the other."""
    return [
        (str(life), (life * count + at) * 10.0, 100 + slope * at * 10 + at % 2)
        for life, slope in enumerate(slopes)
        for at in range(count)
    ]


def samples_of(daemon_mb_per_s: float, extra: dict[str, float] | None = None) -> list[Sample]:
    """An hour of a daemon that grows, and of files that do not."""
    return [
        Sample(
            at * 10.0,
            [Process("daemon", "1-1", 80 + daemon_mb_per_s * at * 10, 20, 8)],
            {"processes": 30, "other_files": 100, **(extra or {})},
        )
        for at in range(360)
    ]


def faults(samples: list[Sample]) -> list[str]:
    return [row.fault for row in judge.rows(samples) if row.fault]


def test_a_new_process_hides_no_growth_of_the_last_one() -> None:
    growth = fitted(lives(0.01, 0.01, 0.01))
    assert growth is not None
    assert growth.per_hour == pytest.approx(36.0, abs=1.0)
    assert growth.exceeds(1.0, 0.01) and not growth.exceeds(10.0, 0.01)


def test_noise_is_no_growth() -> None:
    growth = fitted(lives(0.0, 0.0))
    assert growth is not None and not growth.exceeds(0.1, 0.0)
    assert fitted(lives(0.0, count=3)) is None


def test_growth_and_what_exceeds_its_bound_fail() -> None:
    assert faults(samples_of(0.0)) == []
    assert [fault.split(" grows:")[0] for fault in faults(samples_of(0.005))] == ["daemon: memory, MB"]
    [fault] = faults(samples_of(0.0, {"most_runs": 999.0}))
    assert fault.startswith("runs of a ralph")


def test_the_first_minutes_of_a_process_are_not_fitted() -> None:
    samples = samples_of(0.0)
    for sample in samples[300:]:
        late_s = sample.at_s - 3000
        sample.processes = [Process("daemon", "2-2", min(80.0, 40 + 40 * late_s / FIRST_S), 20, 8)]
    assert faults(samples) == []


def test_a_short_soak_loses_nothing_and_is_drawn(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        record = Soak(daemon, small_cast(), SHORT, seed=5).run()
    assert record.problems == []
    assert record.ends > 0 and sum(record.faults.values()) > 3
    last = record.samples[-1]
    assert {each.role for each in last.processes} >= {"daemon", "shim", "loop"}
    assert last.state["events"] > 0 and last.state["history_lines"] > 0
    assert '"problems":[]' in as_json(record)

    drawing = ET.fromstring(plot.svg(record.samples, "a <short> soak"))
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "a <short> soak" in texts
    assert {rule.label for rule in RULES} <= set(texts)
