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
    return status_text.table(VIEWS, NOW, columns=columns).splitlines()


@pytest.mark.parametrize("columns", [60, 70, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(map(len, lines(columns))) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120, 250, None])
def test_at_eighty_columns_state_reason_and_directory_are_cut_and_the_names_are_not(
    columns: int | None, golden: Golden
) -> None:
    golden(lines(columns))


def test_where_there_is_room_all_is_shown() -> None:
    text = "\n".join(lines(250))
    assert WHY in text
    assert "…" not in text


def test_into_a_pipe_only_the_reason_is_bounded() -> None:
    assert WHY not in "\n".join(lines(None))


def test_on_a_narrow_terminal_the_directory_is_left_out(golden: Golden) -> None:
    golden(lines(20))


def test_a_failure_that_was_an_exit_is_told_by_the_exit(golden: Golden) -> None:
    failed = view(
        state="failed", consecutive_errors=3, last_exit={"code": 1, "signal": None, "outcome": "failed"},
        message="Ralph exited (exit 1) — giving up after 3 failures in a row",
        finished_at="2026-11-21T06:57:55Z",
    )  # fmt: skip
    golden(status_text.brief_state(failed, NOW))


def test_every_state_fits_its_column_by_its_first_words(golden: Golden) -> None:
    views = [view(state=state, finished_at="2026-11-21T06:57:55Z") for state in wire.STATES]
    golden({each["state"]: status_text.brief_state(each, NOW) for each in views})


def test_a_ralph_that_goes_on_by_itself_is_not_among_those_that_wait_for_a_person(golden: Golden) -> None:
    views = [view("a", state="paused", wait=LIMIT), view("b", state="paused"), view("c")]
    golden(status_text.table(views, NOW), status_text.table([views[0], views[2]], NOW))


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


def test_a_wait_that_a_run_has_reported_is_counted_down(golden: Golden) -> None:
    wait = {"reason": "usage limit", "until": "2026-11-21T09:13:00Z"}

    golden(status_text.brief_state(view(wait=wait), NOW))
