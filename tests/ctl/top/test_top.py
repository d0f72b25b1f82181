"""``ralphctl top --once`` and ``--json``: the picture at any width, and what others write into it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphctl.client.client import Client
from ralphctl.format.humanize import cells
from ralphctl.format.output import clean
from ralphctl.report.strip import sparkline
from ralphctl.top.model import TopModel, gathered
from ralphctl.top.page import TopScreen, fitted, page
from ralphd.core.time import rfc3339
from tests.ctl.commands.test_quota import account
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.ctl.golden_files import Golden
from tests.ctl.report.test_report import EVENING, EVIL, NOW, held, home, ralph
from tests.written_nights import night

__all__ = ["held", "home"]

WINDOW = {"name": "five_hour", "limit": "5-hour limit", "used": 0.82, "resets_at": rfc3339(NOW + 3600)}
LIMIT = {"reason": "usage_limit", "until": rfc3339(NOW + 1900)}
TASK = {"id": "1", "title": "Write a test for leap seconds in the header of a date"}
LINES = ["I'll add the leap-second case to test_header.py.", "\x1b[2J[b]not bold[/b]"]


@pytest.fixture
def night_of_five(daemon: FakeDaemon, held: Path) -> Iterator[FakeDaemon]:
    """Three at work, one limited, one that failed, one done; ``api`` has a history."""
    directory = ralph(held, night(60, NOW - 5 * 3600), "api", state="running")
    views = [
        view("api", directory=str(directory), task=TASK, tasks={"done": 4, "total": 5}, total_cost_usd=0.66),
        view("web", task={"id": "2", "title": "日付を現地時間で表示する" * 4}, tasks={"done": 2, "total": 5}),
        view("infra", state="waiting_for_retry", wait=LIMIT, agent="claude", tasks={"done": 2, "total": 5}),
        view("docs", state="failed", message="5 tasks failed, all: unhandled exception in tool loop"),
        view("old", state="done"),
    ]
    daemon.views = {each["name"]: each for each in views}
    accounts = [account("claude", windows=[WINDOW | {"ends_at": None}]), account("codex")]
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": accounts}))
    records = [log_line(text, number) for number, text in enumerate(LINES)]
    daemon.on("GET /v1/ralphs/docs/logs", lambda _: Answer("\n".join([*records, ""]).encode()))
    yield daemon


def log_line(text: str, number: int = 0) -> str:
    record = {
        "at": rfc3339(NOW),
        "stream": "stdout",
        "text": text,
        "partial": False,
        "cursor": f"r:1:{number}",
    }
    return json.dumps(record)


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_the_picture_has_a_row_for_each_ralph(
    columns: str, night_of_five: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    reply = ctl("top", "--once", more={"COLUMNS": columns})
    golden(reply)
    lines = reply.stdout.splitlines()
    assert max(map(cells, lines)) <= int(columns)
    assert [sum(line[1:].startswith(f"{name} ") for line in lines) for name in ("api", "web", "infra")] == [
        1
    ] * 3
    assert "\x1b" not in reply.stdout


def test_an_account_at_its_limit_is_shown_before_open_ones(night_of_five: FakeDaemon, ctl: Ctl) -> None:
    limited = account("zoe", "limited", until=rfc3339(NOW + 3600), limit="usage limit")
    accounts = [*(account(f"a{number}") for number in range(4)), limited]
    night_of_five.on("GET /v1/quota", lambda _: Answer({"accounts": accounts}))
    shown = ctl("top", "--once").stdout
    assert "zoe" in shown and "and 2 accounts more" in shown


def test_the_model_is_what_status_and_report_know(night_of_five: FakeDaemon, ctl: Ctl) -> None:
    shown = json.loads(ctl("top", "--json").stdout)
    assert [each["name"] for each in shown["ralphs"]] == ["docs", "api", "web", "infra", "old"]
    assert shown["totals"] == {"needs you": 1, "working": 2, "limited": 1, "done": 1}
    assert shown["accounts"][0]["account"] == "claude"
    assert shown["night"]["reverted"] == 2
    assert {"working", "reverted"} <= set(shown["strips"][0]["cells"])


def test_without_a_daemon_it_says_how_to_start_one(ctl: Ctl) -> None:
    reply = ctl("top", "--once")
    assert (reply.returncode, reply.stdout) == (3, "")
    assert "ralphctl regent start" in reply.stderr


def test_without_utf8_the_picture_is_plain(night_of_five: FakeDaemon, ctl: Ctl) -> None:
    shown = ctl("top", "--once", more={"PYTHONIOENCODING": "ascii"}).stdout
    assert ">docs" in shown and "####" in shown


def test_a_pipe_is_no_terminal(night_of_five: FakeDaemon, ctl: Ctl) -> None:
    reply = ctl("top")
    assert reply.returncode == 2 and "ralphctl top --once" in reply.stderr


def test_without_the_extra_it_prints_what_installs_it(tmp_path: Path, ctl: Ctl) -> None:
    (tmp_path / "lacks").mkdir()
    (tmp_path / "lacks" / "textual.py").write_text("raise ImportError(name='textual')")
    reply = ctl("top", more={"PYTHONPATH": f"{tmp_path / 'lacks'}:{Path(__file__).parents[3]}"})
    assert reply.returncode == 69
    assert "try: make install EXTRAS=tui\n" in reply.stderr
    assert "-m pip install 'textual" in reply.stderr


LOADED = "import sys; from ralphctl.main import main; main(); sys.exit('textual' in sys.modules)"


@pytest.mark.parametrize("words", [["status"], ["quota"], ["top", "--once"], ["top", "--json"]])
def test_textual_is_imported_by_the_app_alone(
    words: list[str], night_of_five: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-P", "-c", LOADED, *words]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ran.stdout != "", ran.returncode, ran.stderr) == (True, 0, "")


def model_of(views: list[dict[str, Any]]) -> TopModel:
    return TopModel(NOW - 3600, views={each["name"]: each for each in views})


@given(
    columns=st.integers(1, 150), rows=st.integers(1, 60), number=st.integers(0, 200), at=st.integers(0, 200),
    text=st.text(max_size=60),
)  # fmt: skip
def test_no_picture_is_larger_than_the_screen(
    columns: int, rows: int, number: int, at: int, text: str
) -> None:
    task = {"id": "1", "title": text + EVIL}
    views = [
        view(f"r{i}", state="failed" if i % 7 == 0 else "running", task=task, message=text)
        for i in range(number)
    ]
    screen = TopScreen(columns, rows, f"r{at}", [clean(text)], message=EVIL, trouble="away")
    lines = page(model_of(views), screen, NOW)
    assert len(lines) <= rows
    assert max(map(cells, lines)) <= columns
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_the_selected_one_of_200_has_a_row() -> None:
    views = [view(f"r{i:03}") for i in range(200)]
    for name in ("r000", "r100", "r199"):
        lines = page(model_of(views), TopScreen(80, 24, name), NOW)
        assert [line[1:5] for line in lines if line.startswith("▸")] == [name]


def test_a_line_with_colours_is_cut_by_what_is_seen() -> None:
    assert fitted("\x1b[31mred\x1b[0m and more", 5) == "\x1b[31mred\x1b[0m…"
    assert fitted("\x1b[31mred\x1b[0m", 3) == "\x1b[31mred\x1b[0m"


@pytest.fixture
def real_night(night_of_five: FakeDaemon, held: Path) -> TopModel:
    """The model, with the histories that are in the files of the daemon."""
    status = {"version": "0.2.0", "daemon": {"state_directory": str(held)}}
    night_of_five.on(
        "GET /v1/status", lambda _: Answer({**status, "ralphs": [*night_of_five.views.values()]})
    )
    return gathered(Client(lambda: [str(night_of_five.path)]), EVENING)


def test_a_budget_has_a_line(real_night: TopModel, held: Path) -> None:
    path = held / "ralphs" / "api" / "ralph.json"
    limit = {"configuration": {"values": {"ralph": {"max_cost_usd": 1.32}}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | limit))
    real_night.read_nights(real_night.views, NOW)
    lines = page(real_night, TopScreen(80), NOW)
    assert "budget  █████░░░░░  $0.66 of $1.32 for 1 of 5 ralphs" in lines
    assert real_night.document(NOW)["budget"] == {"spent_usd": 0.66, "usd": 1.32, "ralphs": ["api"]}
    assert any(line.startswith("tonight ") and line.endswith("/h") for line in lines)


def test_each_iteration_has_a_bar(real_night: TopModel) -> None:
    real_night.read_nights(real_night.views, NOW)
    (row,) = [line for line in page(real_night, TopScreen(80), NOW) if line.startswith(" api ")]
    assert row.endswith("  ▇▇▇▇▇")
    assert sparkline([[9, 1], [0, 0], [50, 1], [100, 1], [1, 2]], 4) == "·▄▇▂"
    assert sparkline([[0, 1], [0, 2], [0, 0]], 5) == "▄▇·", "without costs by commits"


def test_a_night_that_cannot_be_read_is_said(real_night: TopModel, tmp_path: Path) -> None:
    assert any(line == "tonight …" for line in page(real_night, TopScreen(80), NOW))
    real_night.state_directory = str(tmp_path / "gone")
    real_night.read_nights(real_night.views, NOW)
    shown = " ".join(page(real_night, TopScreen(200), NOW))
    assert f"tonight unknown: no history can be read in {tmp_path}/gone" in shown


def test_problems_of_the_daemon_are_shown(
    night_of_five: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = night_of_five.daemon() | {"problems": ["disk: it is full\x1b[2J"]}
    monkeypatch.setattr(night_of_five, "daemon", lambda: known)
    assert "ralphd is degraded: disk: it is full^[[2J" in ctl("top", "--once").stdout.splitlines()


def test_one_that_stays_open_shows_the_last_night(real_night: TopModel) -> None:
    real_night.read_nights(real_night.views, NOW)
    assert real_night.document(NOW)["night"]["kept"] == 58
    real_night.read_nights([], NOW + 86_400)
    night = real_night.document(NOW + 86_400)["night"]
    assert (night["since"], night["kept"]) == (rfc3339(EVENING + 86_400), 0)


def test_narrow_screens_have_all_keys() -> None:
    for columns in (40, 80):
        assert page(model_of([view("api")]), TopScreen(columns, 24, "api"), NOW)[-1].endswith("q quit")


def test_the_selected_one_has_its_night_as_a_strip(
    real_night: TopModel,
) -> None:
    model = real_night
    model.read_nights(model.views, NOW)
    wide, narrow = (page(model, TopScreen(columns, 24, "api"), NOW) for columns in (120, 40))
    (strip,) = [line for line in wide if line.startswith(" night 18:00 ┤")]
    assert "R" in strip and strip.endswith("▏07:00") and cells(strip) == 64 + 20
    assert any(line.startswith(" night") and cells(line) <= 40 for line in narrow)
