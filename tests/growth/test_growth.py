"""What is made of the figures; and that what must not grow does the same work at each size."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest import mock

import pytest

from ralphctl.offline.log import explanations
from ralphd.core.explanation import Explanation
from ralphd.core.supervision.model import RunId
from ralphd.daemon.ralph.journal import Journal
from ralphd.process.log.segments import RunFiles, Runs
from ralphd.store import history
from ralphd.store.history import History, save_explanation
from tests.growth import page
from tests.growth.curve import FLAT, LINEAR, Curve, Point, Series, Table, slope
from tests.growth.plot import picture


def curve(*values: float, goal: float = FLAT, what: str = "status") -> Curve:
    """One value at 10, 100, 1000 …"""
    points = (Point(10.0**number, (value,)) for number, value in enumerate(values, 1))
    return Curve(what, "ms CPU", goal, tuple(points))


SERIES = Series(
    "runs", "By the runs", "runs", "Runs are copied.", (curve(3, 3, 3), curve(1, 10, 90, goal=1.0))
)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_the_slope_of_the_logarithms(exponent: float) -> None:
    found = curve(*(7.0 * 10 ** (number * exponent) for number in range(1, 5)))

    assert found.exponent == pytest.approx(exponent)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.last_exponent == pytest.approx(exponent)


def test_a_fixed_cost_hides_growth_from_the_fit_but_not_from_its_end() -> None:
    found = curve(*(50 + size / 100 for size in (10, 100, 1_000, 10_000, 100_000)))

    assert found.exponent < 0.4
    assert found.last_exponent > 0.8
    assert not found.is_met


def test_the_least_repetition_counts_and_the_middle_one_is_the_noise() -> None:
    table = Table()
    table.add("status", "ms", FLAT, 10, 2.0, 3.0, 9.0)
    table.add("status", "ms", FLAT, 100, 2.0)

    (found,) = table.curves()

    assert slope(found.points)[0] == 0.0
    assert found.noise == 0.5
    assert found.is_met


@pytest.mark.parametrize(
    ("goal", "last", "is_met"),
    [(FLAT, 1.2, True), (FLAT, 2.0, False), (LINEAR, 11.0, True), (LINEAR, 20.0, False)],
)
def test_a_goal_is_met_up_to_its_exponent(goal: float, last: float, *, is_met: bool) -> None:
    assert curve(1.0, 1.0, last, goal=goal).is_met is is_met


def test_what_was_measured_is_kept_and_read_again() -> None:
    assert Series.of_json(SERIES.as_json()) == SERIES


def test_the_page_has_each_figure_with_its_exponents_and_what_is_missed() -> None:
    text = page.text([SERIES, Series("x", "By x", "x", "How.", (curve(1, 5, 50, what="explain"),))])

    assert "| status, ms CPU | 3.00 | 3.00 | 3.00 | 0.00 ± 0.00 | 0.00 | 0 % | 0, met |" in text
    assert "| explain, ms CPU | 1.00 | 5.00 | 50.0 |" in text and "Missed: explain." in text
    assert "2 of 3 goals met" in text
    assert "](pictures/growth-runs.svg)" in text


def test_the_picture_is_a_drawing_with_a_panel_for_each_figure_inside_its_frame() -> None:
    drawn = ET.fromstring(picture(SERIES))

    panels = drawn.findall("{*}g")
    assert len(panels) == len(SERIES.curves)
    assert [len(panel.findall("{*}circle")) for panel in panels] == [3, 3]
    numbers = [
        float(each) for line in drawn.iter("{*}polyline") for each in re.split("[ ,]", line.attrib["points"])
    ]
    assert all(0 <= number <= 280 for number in numbers)


def test_explaining_a_run_reads_as_much_of_any_history(tmp_path: Path) -> None:
    def parsed(entries: int) -> int:
        path = tmp_path / f"{entries}.jsonl"
        path.write_text("".join(f'{{"kind":"attempt","key":"{number}"}}\n' for number in range(entries)))
        journal = Journal.__new__(Journal)
        journal.history = History(path)
        with mock.patch.object(history, "_parsed", wraps=history._parsed) as parse:
            assert (journal.explained(), journal.last_request(), journal.last_repair()) == (None, None, None)
        return parse.call_count

    assert parsed(1_000) == parsed(20_000) > 0


def test_the_explanations_of_no_more_runs_are_read_than_a_daemon_keeps(tmp_path: Path) -> None:
    for number in range(1, 131):
        run = tmp_path / "runs" / f"r{number:06}-{number:08x}"
        run.mkdir(parents=True)
        save_explanation(run, float(number), Explanation("A1", f"end {number}", "why"))

    shown = explanations(tmp_path)

    assert [each["which"] for each in shown] == [str(number) for number in range(130, 30, -1)]


def test_the_next_run_is_found_with_few_looks_among_any_number(tmp_path: Path) -> None:
    def looks(count: int) -> int:
        runs = Runs(tmp_path / str(count))
        for number in range(1, count + 1):
            run = runs.path / f"r{number:06}-{number:08x}"
            run.mkdir(parents=True)
            (run / "log.000001").touch()
        before, after = (RunId(f"r{number:06}-{number:08x}") for number in (count // 2, count // 2 + 1))
        with mock.patch.object(RunFiles, "has_output", autospec=True, return_value=True) as has_output:
            assert runs.first_after(before) == after
            assert runs.first_after(before, last=before) is None
            assert runs.first_after(None) == runs.ids()[0]
        return has_output.call_count

    assert looks(10) == looks(300) == 2
