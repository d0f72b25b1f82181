"""``ralphctl build`` at a terminal: Ctrl-C once and twice, a closed terminal, the Regent in orange."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.terminal import TAKES_THE_TERMINAL, seen
from tests.whole.builds import END_S, Build, all_gone, build_in
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

ORANGE = "\x1b[38;5;208m"


class Terminal:
    """A terminal with a build in its foreground: what is typed, and what is on the screen."""

    def __init__(self, build: Build, *command: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._screen = b""
        build.process = self._process = subprocess.Popen(
            [sys.executable, "-c", TAKES_THE_TERMINAL, *argv(["build", "--", *command])],
            cwd=build.directory,
            env=Person(build.daemon).environment | {"TERM": "xterm-256color"} | environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._master, keys)

    def close(self) -> None:
        """Close it, as a person closes a window."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def screen(self) -> str:
        """All that was ever on it."""
        with suppress(BlockingIOError, OSError):  # EIO: nobody has it open any more
            while self._master >= 0 and (piece := os.read(self._master, 65536)):
                self._screen += piece
        return self._screen.decode(errors="replace")

    def lines(self) -> list[str]:
        """What is on it now, with all that has scrolled off it."""
        return seen(self.screen())

    def shows(self, text: str) -> None:
        """Wait until ``text`` is on it."""
        wait_for(lambda: text in self.screen(), timeout_s=30, what=f"{text!r} in {self.screen()!r}")

    def exit_code(self) -> int:
        """Wait for the end of the build; meanwhile the terminal goes on taking what is printed."""

        def ended() -> bool:
            self.screen()
            return self._process.poll() is not None

        wait_for(ended, timeout_s=END_S, what=f"the end of the build:\n{self.screen()}")
        return int(self._process.returncode)


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


def stubborn(terminal: Terminal) -> list[int]:
    """The pids of the stubborn player, once it has told them."""
    terminal.shows("grandchild")
    terminal.shows("leader")
    words = " ".join(terminal.lines()).split()
    return [int(words[words.index(name) + 1]) for name in ("leader", "grandchild")]


def polite(terminal: Terminal) -> None:
    """Wait until the polite player listens: it has told its pid then, on a line of its own."""
    wait_for(
        lambda: any(line.isdecimal() for line in terminal.lines()[:-1]),
        timeout_s=30,
        what="a pid",
    )


def test_ctrl_c_once_stops_it_as_stop_does(build: Build) -> None:
    terminal = Terminal(build, *player("polite"))
    polite(terminal)
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    terminal.shows("got SIGTERM")
    terminal.shows("press Ctrl-C again to end it at once")
    terminal.shows("demo: stopped")
    assert build.exit_record()["code"] == 0
    assert build.state()["state"] == "stopped"


def test_ctrl_c_twice_ends_it_now(build: Build) -> None:
    terminal = Terminal(build, *player("stubborn"))
    pids = stubborn(terminal)

    terminal.type(b"\x03")
    terminal.shows("press Ctrl-C again to end it at once")
    assert all(map(is_alive, pids))
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    assert all_gone(pids)
    terminal.shows("demo: killed")
    assert build.exit_record()["signal"] == signal.SIGKILL
    assert build.state()["state"] == "stopped"


def test_ctrl_c_to_a_ralphd_that_does_not_answer_is_told_and_the_second_one_ends_it(build: Build) -> None:
    terminal = Terminal(build, *player("stubborn"))
    pids = stubborn(terminal)
    terminal.shows("Ctrl-C stops it")
    os.kill(build.ralphd, signal.SIGSTOP)

    terminal.type(b"\x03")
    terminal.shows("its ralphd does not answer; Ctrl-C again ends everything anyway")
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    assert all_gone(pids)


def test_ctrl_c_before_anything_runs_leaves_nothing(build: Build) -> None:
    terminal = Terminal(build, *player("witness", build.witness.record))
    wait_for(lambda: list(build.daemon.state.glob("build/*/ralphd.err")), timeout_s=30, what="a ralphd")
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    assert "Traceback" not in terminal.screen()


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGHUP])
def test_quit_and_hang_up_end_it_at_once(build: Build, number: signal.Signals) -> None:
    terminal = Terminal(build, *player("stubborn"))
    pids = stubborn(terminal)

    build.send(number)

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    assert all_gone(pids)


def test_sigterm_is_like_the_first_ctrl_c(build: Build) -> None:
    terminal = Terminal(build, *player("polite"))
    polite(terminal)

    build.send(signal.SIGTERM)

    assert terminal.exit_code() == 130
    terminal.shows("got SIGTERM")
    assert not build.daemon.leftovers()


def test_a_closed_terminal_ends_everything(build: Build) -> None:
    terminal = Terminal(build, *player("stubborn"))
    pids = stubborn(terminal)
    record, ralphd = build.run_record(), build.ralphd

    terminal.close()

    terminal.exit_code()
    assert not build.daemon.leftovers()
    assert all_gone([*pids, record["shim_pid"], ralphd])
    assert build.state()["state"] == "stopped"


def test_a_stopped_build_goes_on_where_it_was(build: Build) -> None:
    terminal = Terminal(build, *player("witness", build.witness.record))
    build.witness.started(1)
    terminal.shows("Ctrl-C stops it")
    build.send(signal.SIGSTOP)
    build.witness.end(0)
    build.exit_record()

    build.send(signal.SIGCONT)

    assert terminal.exit_code() == 0
    terminal.shows("Ralph is done")


def test_the_regents_lines_are_orange_on_a_terminal_with_colours_alone(build: Build) -> None:
    terminal = Terminal(build, *player("exits", 0))
    assert terminal.exit_code() == 0
    assert "Regent: Ralph is done\x1b[0m" in terminal.screen()
    assert ORANGE in terminal.screen()

    plain = Terminal(build, *player("exits", 0), NO_COLOR="1")
    assert plain.exit_code() == 0
    plain.shows("🛡️  Regent: Ralph is done")
    assert not re.search(r"\x1b\[[0-9;]*m", plain.screen())


def test_control_sequences_of_the_command_are_shown_and_not_obeyed(build: Build) -> None:
    terminal = Terminal(build, *player("says", "out:a\\x1b[2Jb\\n"))

    assert terminal.exit_code() == 0
    assert "a^[[2Jb" in terminal.screen()


def test_the_command_has_no_terminal(build: Build) -> None:
    terminal = Terminal(build, *player("mirror"))

    assert terminal.exit_code() == 0
    assert '"stdin": "/dev/null"' in terminal.screen().replace("\r\n", "")


def test_with_nohup_it_outlives_its_terminal(build: Build, tmp_path: Path) -> None:
    with (tmp_path / "nohup.out").open("wb") as file:
        build.process = subprocess.Popen(
            ["nohup", *argv(["build", "--", *player("witness", build.witness.record)])],
            cwd=build.directory,
            env=Person(build.daemon).environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    build.witness.started(1)

    build.send(signal.SIGHUP)
    build.witness.end(0)

    assert build.exit_code() == 0
    assert "Ralph is done" in (tmp_path / "nohup.out").read_text()
