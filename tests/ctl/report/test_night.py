"""``status --night``: the night as a strip of cells, from the same histories as the report."""

import json
import os
from pathlib import Path

import pytest

from ralphctl.report import night as nights
from ralphctl.report import read as reading
from ralphd.core.time import rfc3339
from tests.ctl.conftest import Ctl
from tests.ctl.fake import FakeDaemon
from tests.ctl.golden_files import Golden
from tests.ctl.report.test_report import EVENING, NOW, held, home, ralph
from tests.written_nights import attempt, entry, night

__all__ = ["held", "home"]


def strips(held: Path, width: int = 80, since: float = EVENING) -> list[nights.NightStrip]:
    sources = reading.choose(None, "/", {"RALPHD_STATE_DIR": str(held)})
    return nights.strips(sources, since, NOW, width)


def page(held: Path, width: int = 80, encoding: str = "utf-8") -> str:
    return nights.page(strips(held, width), EVENING, NOW, width, encoding=encoding, colour=False)


@pytest.fixture
def three(held: Path) -> Path:
    """One that worked all night, one that waited for a limit at the end, one that failed early."""
    ralph(held, night(200, NOW - 12.5 * 3600), state="running", tasks={"done": 60, "total": 72})
    run = {"run_id": "r000001-0000beef", "iteration": 1, "task": None}
    reason, until = "claude: 5-hour limit", rfc3339(NOW + 3600)
    waiting = [
        attempt(NOW - 7200, run, 1, duration_s=3600.0),
        entry("wait", "w", NOW - 7200, run_id=run["run_id"], reason=reason, until=until),
    ]
    ralph(
        held, iter(waiting), "infra", state="waiting_for_retry", ralph_pid=1,
        wait={"reason": reason, "until": until}, started_at=rfc3339(NOW - 10800),
    )  # fmt: skip
    failed = [
        attempt(NOW - 9 * 3600, run, 1, duration_s=1800.0),
        entry("escalation", "e", NOW - 9 * 3600, data={"message": "docs failed"}),
    ]
    ralph(held, iter(failed), "docs", state="failed", message="gave up")
    return held


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_night_is_a_strip_per_ralph_with_hours_legend_and_totals(
    three: Path, width: int, golden: Golden
) -> None:
    shown = page(three, width)
    golden(shown)
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_long_name_does_not_wrap_the_strips(three: Path, width: int) -> None:
    name = "a-name-of-63-characters.".ljust(63, "x")
    ralph(three, night(9, NOW - 3600), name, state="running")
    lines, totals = page(three, width).split("\n\n")
    assert max(map(len, lines.splitlines())) <= width
    assert len(strips(three, width)[0].cells) > width // 2
    assert name in totals, "it is never cut there"


def test_without_utf8_the_cells_are_plain(three: Path) -> None:
    page(three, encoding="iso-8859-1").encode("ascii")
    page(three, encoding="US-ASCII").encode("ascii")


def test_what_lasts_a_moment_is_drawn_and_the_rest_by_what_took_most(three: Path) -> None:
    docs, demo, infra = strips(three)
    assert [strip.row.name for strip in (docs, demo, infra)] == ["docs", "demo", "infra"]
    assert docs.cells.count("failed") == 1
    assert demo.cells.count("working") > len(demo.cells) / 2
    assert infra.cells[-1] == "limited"
    assert len({len(strip.cells) for strip in (docs, demo, infra)}) == 1


def test_a_span_without_any_entry_is_blank(held: Path) -> None:
    ralph(held, iter([]), state="stopped")
    (only,) = strips(held, 20)
    assert set(only.cells) == {"stopped"}
    assert page(held, 20)


def test_no_cost_is_named_where_no_attempt_reported_any(held: Path) -> None:
    ralph(held, iter(()), state="running")

    assert "demo: working, 0 tasks done, 0 commits kept, 0 reverted\n" in page(held) + "\n"


def test_the_command_needs_no_daemon_and_takes_a_time(
    environment: dict[str, str], ctl: Ctl, three: Path, tmp_path: Path
) -> None:
    shown = ctl("status", "--night", "--since", "2026-11-21 18:00", "--json", cwd=tmp_path)
    assert shown.returncode == 1
    document = json.loads(shown.stdout)
    assert [each["name"] for each in document["ralphs"]] == ["docs", "demo", "infra"]
    assert ctl("status", "--night", "demo", cwd=tmp_path).returncode == 0
    limited = {"state": "paused", "wait": {"reason": "usage_limit", "until": rfc3339(NOW + 60)}}
    ralph(tmp_path / "state", iter(()), "limited", **limited)
    for words in (["--night"], []):
        assert ctl("status", "limited", *words, cwd=tmp_path).returncode == 75
    assert document["daemon"] is None
    refused = (["--since", "soon"], ["--since", "2099-01-01"], ["--short"], ["--watch"], ["--format", "x"])
    for words in (["--since", "8h"], *(["--night", *each] for each in refused)):
        assert ctl("status", *words).returncode == 2


def test_its_json_has_the_daemon_that_answers(held: Path, daemon: FakeDaemon, ctl: Ctl) -> None:
    ralph(held, iter([]), state="stopped")
    assert json.loads(ctl("status", "--night", "--json").stdout)["daemon"]["pid"] == os.getpid()
