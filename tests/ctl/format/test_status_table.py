"""Several ralphs on a screen of any width: what is cut says least, and the names stay whole."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from ralphctl.format import status_text
from ralphd import wire
from tests.ctl.conftest import Ctl
from tests.ctl.fake import FakeDaemon, view
from tests.ctl.format.test_state_text import LIMIT, NOW
from tests.helpers import wait_for

WHY = "Ralph refused to run (exit 78: its configuration is wrong), and said a good deal more about it"
VIEWS = [
    view("api", started_at="2026-11-21T06:58:00Z", directory="/srv/work/team/api"),
    view("web-frontend", state="failed", message=WHY, finished_at="2026-11-21T06:00:00Z", restarts=2),
    view("docs", state="waiting_for_retry", wait={"reason": "crash", "until": "2026-11-21T07:00:25Z"}),
    view("billing", state="paused", pause_reason="usage_limit", wait=LIMIT),
]


def lines(columns: int | None) -> list[str]:
    return status_text.table(VIEWS, NOW, columns=columns).splitlines()


@pytest.mark.parametrize("columns", [60, 70, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(map(len, lines(columns))) <= columns


def test_at_eighty_columns_state_reason_and_directory_are_cut_and_the_names_are_not() -> None:
    head, api, web, docs, billing, *_ = lines(80)
    assert head.split() == ["NAME", "STATE", "RESTARTS", "LAST", "OUTPUT", "DIRECTORY"]
    assert api.startswith("api           running for 2m ")
    assert api.endswith("…work/team/api")
    assert web.startswith("web-frontend  failed 1h ago: Ralph refus…")
    assert docs.startswith("docs          waiting 25s more to start…")
    assert billing.startswith("billing       paused 2h 13m more at the…")


def test_where_there_is_room_all_is_shown() -> None:
    text = "\n".join(lines(250))
    assert WHY in text
    assert "/srv/work/team/api (branch main)" in text
    assert "…" not in text


def test_into_a_pipe_only_the_reason_is_bounded() -> None:
    text = "\n".join(lines(None))
    assert WHY not in text
    assert "failed 1h ago: Ralph refused to run" in text
    assert "/srv/work/team/api (branch main)" in text


def test_on_a_narrow_terminal_the_directory_is_left_out() -> None:
    assert "DIRECTORY" not in lines(60)[0]
    assert "api" in lines(20)[1]


def test_what_to_do_is_one_command_a_line_where_two_do_not_fit() -> None:
    assert (
        "  web-frontend: see why: ralphctl explain web-frontend, start again: ralphctl start web-frontend"
        in (lines(120))
    )
    at = lines(80).index("  web-frontend:")
    assert lines(80)[at + 1 : at + 3] == [
        "    see why: ralphctl explain web-frontend",
        "    start again: ralphctl start web-frontend",
    ]


def test_a_failure_that_was_an_exit_is_told_by_the_exit() -> None:
    failed = view(
        state="failed", consecutive_errors=3, last_exit={"code": 1, "signal": None, "outcome": "failed"},
        message="Ralph exited (exit 1) — giving up after 3 failures in a row",
        finished_at="2026-11-21T06:57:55Z",
    )  # fmt: skip
    assert status_text.brief_state(failed, NOW) == "failed 2m 5s ago: exit 1, 3 times in a row"


@pytest.mark.parametrize("state", wire.STATES)
def test_every_state_fits_its_column_by_its_first_words(state: str) -> None:
    words = status_text.brief_state(view(state=state, finished_at="2026-11-21T06:57:55Z"), NOW)
    assert words.startswith(state.partition("_")[0]) or state == "testing"


def test_a_ralph_that_goes_on_by_itself_is_not_among_those_that_wait_for_a_person() -> None:
    views = [view("a", state="paused", wait=LIMIT), view("b", state="paused"), view("c")]
    needed = status_text.table(views, NOW).split("These wait for you:")[1]
    assert needed.strip() == "b: go on: ralphctl resume b"
    assert "wait for you" not in status_text.table([views[0], views[2]], NOW)


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


def test_a_wait_that_a_run_has_reported_is_counted_down() -> None:
    wait = {"reason": "usage limit", "until": "2026-11-21T09:13:00Z"}

    assert status_text.brief_state(view(wait=wait), NOW) == ("running, waiting 2h 13m more — usage limit")
