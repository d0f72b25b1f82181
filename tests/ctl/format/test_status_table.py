"""Several ralphs on a screen of any width: reasons continue below, and the names stay whole."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format import output, table_text
from ralphd import wire
from ralphd.errors import UsageError
from tests.ctl.conftest import Ctl
from tests.ctl.fake import FakeDaemon, view
from tests.ctl.format.test_state_text import LIMIT, NOW
from tests.ctl.golden_files import Golden
from tests.helpers import wait_for

WHY = "Ralph refused to run (exit 78: its configuration is wrong), and said a good deal more about it"
VIEWS = [
    view("api", started_at="2026-11-21T06:58:00Z", directory="/srv/work/team/api"),
    view("web-frontend", state="failed", message=WHY, finished_at="2026-11-21T06:00:00Z", restarts=2),
    view("docs", state="waiting_for_retry", wait={"reason": "crash", "until": "2026-11-21T07:00:25Z"}),
    view("billing", state="paused", pause_reason="usage_limit", wait=LIMIT),
]


def lines(columns: int | None) -> list[str]:
    return table_text.table(VIEWS, NOW, columns=columns).splitlines()


@pytest.mark.parametrize("columns", [30, 40, 60, 70, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    wide = [line for line in lines(columns) if len(line) > columns]
    assert all("ralphctl " in line for line in wide)  # a command is whole, to be copied


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 250, None])
def test_a_reason_continues_below_and_names_stay_whole(columns: int | None, golden: Golden) -> None:
    golden(lines(columns))


@pytest.mark.parametrize("columns", [20, 40, 80, 250, None])
def test_a_reason_is_never_cut(columns: int | None) -> None:
    text = "\n".join(lines(columns))
    missing = [word for word in WHY.split() if word not in text]
    assert not missing or "all of it: ralphctl status web-frontend" in text


def test_a_very_long_reason_ends_with_the_command_that_shows_it() -> None:
    shown = table_text.table([view(state="failed", message="very long " * 40), view("b")], NOW, columns=80)
    cut, hint = shown.splitlines()[3:5]
    assert cut.endswith(("very…", "long…")) and len(cut) <= 80
    assert hint.strip() == "all of it: ralphctl status api"


def test_the_task_is_what_a_ralph_does_now_and_its_title_is_cut(golden: Golden) -> None:
    task = {"id": "US-1", "title": "Write a test for leap seconds in the parser of the header"}
    views = [
        view("api", tasks={"done": 2, "total": 5}, task=task, agent="claude"),
        view("web", seen={"cost_usd": 0.11, "agent": "codex"}, total_cost_usd=0.0, iteration=0),
    ]
    golden(table_text.table(views, NOW, columns=80))


def test_a_cost_below_a_cent_is_not_zero() -> None:
    costs = [view(total_cost_usd=usd) for usd in (0.0031, 1234.5)]
    assert table_text.formatted(costs, "{cost}", NOW).splitlines() == ["<$0.01", "$1,234.50"]


def test_every_state_has_its_word_and_reason(golden: Golden) -> None:
    views = [
        view(f"r{i}", state=state, finished_at="2026-11-21T06:57:55Z") for i, state in enumerate(wire.STATES)
    ]
    golden(table_text.table(views, NOW, columns=100))


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    nasty = view(
        "a\x1b[2J",
        state="x\x1b]0;\n",
        task={"id": "\x1b", "title": "\x1b[31m\r"},
        agent="\x9b",
        iteration="\x1b",
    )
    for shown in (
        table_text.table([nasty, nasty], NOW, columns=80),
        table_text.formatted([nasty], "{name}{state}{task}{agent}{branch}{iteration}", NOW),
        table_text.short([nasty], NOW),
    ):
        assert not set(shown) & {"\x1b", "\x9b", "\r"}


@pytest.mark.parametrize(
    "form",
    ["{name.__class__}", "{name[0]}", "{}", "{name:>99999999999}", "{name:{name.x}}", "{name:>201}"],
)
def test_a_format_has_fields_only_and_bounded_widths(form: str) -> None:
    with pytest.raises(UsageError) as refused:
        table_text.formatted([view("a")], form, NOW)
    assert refused.value.why.startswith("fields: name, state, ")
    assert table_text.formatted([view("a")], "{name:*>200.3}{{", NOW) == "*" * 199 + "a{"


def test_a_ralph_that_continues_by_itself_does_not_need_you(golden: Golden) -> None:
    views = [view("a", state="paused", wait=LIMIT), view("b", state="paused"), view("c")]
    golden(table_text.table(views, NOW), table_text.table([views[0], views[2]], NOW))


def test_columns_says_how_wide_a_pipe_is(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {each["name"]: each for each in VIEWS}
    shown = ctl("status", more={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert max(map(len, ctl("status").stdout.splitlines())) > 80


class Screen:
    """``ralphctl`` on a terminal of its own, and all that it wrote there."""

    def __init__(self, *words: str, environment: dict[str, str], cwd: Path, rows: int, columns: int) -> None:
        self.written = b""
        self._main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralphctl", *words],
            env=environment | {"NO_COLOR": "1"}, cwd=cwd, stdin=terminal, stdout=terminal, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)

    def text(self) -> str:
        """What has been written, read on by one look; the terminal's end reads as nothing."""
        try:
            self.written += os.read(self._main, 65536)
        except OSError:
            self.process.wait(10)
        return self.written.decode()

    def end(self) -> int:
        self.process.send_signal(2)
        wait_for(lambda: self.text() is not None and self.process.poll() is not None)
        os.close(self._main)
        return self.process.wait(10)


def test_a_terminal_of_eighty_columns_gets_lines_of_eighty(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {each["name"]: each for each in VIEWS}
    screen = Screen("status", environment=environment, cwd=tmp_path, rows=24, columns=80)
    wait_for(lambda: screen.text() and screen.process.poll() is not None)
    shown = screen.text().splitlines()
    screen.end()
    assert shown[0].startswith("NAME")
    assert max(map(len, shown)) <= 80


def test_a_page_that_is_watched_neither_wraps_nor_scrolls(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {f"r{number}": view(f"r{number}") for number in range(9)}
    screen = Screen("status", "-w", environment=environment, cwd=tmp_path, rows=8, columns=80)
    wait_for(lambda: "\x1b[?7h" in screen.text(), what="a whole frame")
    frame = screen.written.decode()
    assert screen.end() == 130
    assert frame.startswith("\x1b[2J\x1b[?7l\x1b[H")
    assert frame.count("\n") == 7
    assert "… and 4 lines more: ralphctl status" in frame


def test_a_limit_seen_in_the_output_is_shown_for_that_ralph(golden: Golden) -> None:
    seen = {"agent": "claude", "limit": {"agent": "claude", "name": "five_hour", "resets_at": LIMIT["until"]}}
    golden(table_text.table([view(seen=seen), view("b")], NOW, columns=100))


def test_what_waits_to_land_has_a_line(golden: Golden, daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    def done(name: str, state: str, why: str = "") -> dict[str, Any]:
        landing = {"state": state, "target": "main", "why": why, "next": f"ralphctl land {name}"}
        return view(name, state="done", command=[], landing=landing, finished_at="2026-11-21T06:00:00Z")

    views = [done("api", "waiting"), done("web", "refused", "conflict in src/app.py")]
    views.append(view("docs", directory=str(tmp_path)))
    daemon.views = {each["name"]: each for each in views}
    golden(
        table_text.table(views, NOW, columns=80), table_text.table(views, NOW, columns=80, every=False),
        ctl("status", "api"), ctl("status", "web"), ctl("status", cwd=tmp_path),
    )  # fmt: skip


def test_one_line_names_those_that_wait_for_the_same_agent() -> None:
    waits = {"wait": {"reason": "usage_limit", "until": "2026-11-21T09:00:00Z"}, "agent": "claude"}
    views = [view(name, **waits) for name in ("api", "infra")] + [view("web", agent="claude")]

    said = table_text.table(views, NOW, columns=80).splitlines()

    assert [line for line in said if ": api, infra" in line] == ["claude limited until 09:00: api, infra"]
    assert not any(": api" in line for line in table_text.table(views[1:], NOW).splitlines())


def test_a_change_is_explained_only_where_its_mark_is_shown() -> None:
    views = [view("api", state="done", drift=["changed"]), view("web")]
    assert "*" not in table_text.table(views, NOW, columns=80, every=False)
    assert table_text.table(views, NOW, columns=80).count("*") == 2


def test_wide_characters_take_two_columns() -> None:
    title = "日本語のタスクを実装する、とても長い題名なので折り返す"
    rows = [("TASK", "STATE"), (title, "open")]
    head, *lines = output.wrapped_table(rows, output.fitted(rows, 40), colour=False)
    assert all(output.cells(line) <= 40 for line in lines)
    assert output.cells(lines[0].partition("open")[0]) == head.index("STATE")
    assert "".join(line.replace("open", "").strip() for line in lines) == title
