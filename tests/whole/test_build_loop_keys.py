"""Keys and countdown of ``ralphctl build`` at a terminal, which is given back as it was (L12, RT-12)."""

import signal
from collections.abc import Callable, Iterator

import pytest

from ralphd.process.shim import children
from tests.helpers import wait_for
from tests.players import player
from tests.terminal import Terminal
from tests.whole.builds import Build, build_in
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

At = Callable[..., Terminal]
SHELL = player("job_shell")
COUNTING = "waiting for the agent's rate limit to pass: "


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


@pytest.fixture
def at(build: Build) -> Iterator[At]:
    """``ralphctl build -- COMMAND`` at a terminal; other words in front of it make it a shell's job."""
    opened: list[Terminal] = []

    def begin(*command: str, before: tuple[str, ...] = ()) -> Terminal:
        terminal = Terminal(
            [*before, *argv(["build", "--", *command])],
            cwd=build.directory,
            environment=Person(build.daemon).environment | {"TERM": "xterm-256color", "NO_COLOR": "1"},
        )
        opened.append(terminal)
        return terminal

    yield begin
    for terminal in opened:
        with terminal:
            pass


def test_p_pauses_after_the_iteration_and_everything_else_is_passed_over(build: Build, at: At) -> None:
    terminal = at(*player("loop_like"))
    terminal.shows("begun")
    terminal.shows("p pauses after the iteration, s skips a wait, Ctrl-C stops it")
    assert terminal.is_raw()
    terminal.type(b"xSP\r\x1b[A\x1b[1;2p\x1bOps")  # the arrow and the like are no letters
    terminal.shows("there is nothing to skip")
    assert "Pausing" not in terminal.screen()
    terminal.type(b"p")
    terminal.shows("Pausing after current iteration...")

    assert terminal.exit_code() == 75
    assert not build.daemon.leftovers()
    terminal.shows("finished")
    terminal.shows("info: demo: paused: as requested")
    assert terminal.settings() == terminal.before


def test_q_asks_it_to_end_as_the_first_ctrl_c_does_and_a_question_mark_shows_the_keys(
    build: Build, at: At
) -> None:
    terminal = at(*player("loop_like"))
    terminal.shows("── demo · working")
    terminal.type(b"?q")
    terminal.shows("q             finish the iteration, then end")
    terminal.shows("press Ctrl-C again to end it at once")

    assert terminal.exit_code() == 130
    assert not build.daemon.leftovers()
    assert terminal.settings() == terminal.before


def test_killed_at_a_terminal_it_leaves_nobody_behind(build: Build, at: At) -> None:
    terminal = at(*player("loop_like"))
    terminal.shows("begun")
    wait_for(terminal.is_raw)
    below = children(terminal.process.pid)
    assert len(below) == 1  # its ralphd
    terminal.process.kill()
    terminal.exit_code()
    build.nothing_is_left(below)


def test_s_asks_once_and_only_a_yes_skips_the_wait(build: Build, at: At) -> None:
    terminal = at(*player("loop_like", "--wait", 600))
    terminal.shows(COUNTING + "9m 58s left")  # it is counted down
    terminal.type(b"s")
    terminal.shows("Skip the wait?")
    terminal.type(b"n")
    terminal.shows("not skipped; still waiting")
    assert "wait skipped" not in terminal.screen()
    # The next drawing without the question: a key that comes with "s" in one read is not an answer.
    wait_for(lambda: not any("[y/N]" in line for line in terminal.lines()[-3:]))
    terminal.type(b"s")
    wait_for(lambda: any("[y/N]" in line for line in terminal.lines()[-3:]))
    terminal.type(b"y")
    terminal.shows("wait skipped")
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    assert terminal.settings() == terminal.before


def test_the_countdown_stands_below_the_log_and_is_gone_without_a_trace(at: At) -> None:
    terminal = at(*player("loop_like", "--wait", 600))
    terminal.shows(COUNTING)
    terminal.shows("9m 5")
    terminal.type(b"p")
    terminal.shows("Pausing after current iteration...")
    assert terminal.exit_code() == 75
    lines = terminal.lines()
    assert not [line for line in lines if COUNTING in line or line.startswith("── ")]
    assert "finished" in lines


def test_without_a_terminal_a_wait_is_one_line_and_no_key_is_read(build: Build) -> None:
    build.start("--", *player("loop_like", "--wait", 600))
    build.says("; to skip it: ralphctl skip-wait")
    assert "waiting for the agent's rate limit to pass, " in build.words()
    build.says("Ctrl-C stops it")
    build.send(signal.SIGTERM)
    assert build.exit_code() == 130
    assert build.words().count("rate limit") == 1
    assert "p pauses" not in build.words()
    assert "\r" not in build.words() + build.out()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_ended_by_a_signal_it_leaves_the_terminal_as_it_was(
    number: signal.Signals, build: Build, at: At
) -> None:
    terminal = at(*player("loop_like"))
    terminal.shows("begun")
    terminal.shows("p pauses")
    wait_for(terminal.is_raw)
    terminal.process.send_signal(number)
    assert terminal.exit_code() == 130
    assert terminal.settings() == terminal.before


def test_ctrl_z_gives_the_terminal_back_and_the_foreground_takes_it_again(build: Build, at: At) -> None:
    terminal = at(*player("loop_like"), before=SHELL)
    terminal.shows("begun")
    wait_for(terminal.is_raw)
    terminal.type(b"\x1a")
    terminal.shows("shell: it rests")
    assert terminal.settings() == terminal.before
    terminal.type(b"fg\r")
    wait_for(terminal.is_raw, what="keys again")
    terminal.type(b"p")
    terminal.shows("Pausing after current iteration...")
    assert terminal.exit_code() == 75
    assert terminal.settings() == terminal.before


def test_in_the_background_it_neither_reads_nor_sets_anything(build: Build, at: At) -> None:
    terminal = at(*player("loop_like"), before=(*SHELL, "--background"))
    terminal.shows("begun")
    terminal.shows("Ctrl-C stops it")
    assert not terminal.is_raw()
    terminal.type(b"p\r")
    terminal.shows("shell: read 'p'")
    assert "Pausing" not in terminal.screen()
    terminal.type(b"fg\r")
    wait_for(terminal.is_raw, what="keys")
    terminal.type(b"p")
    terminal.shows("Pausing after current iteration...")
    assert terminal.exit_code() == 75
    assert terminal.settings() == terminal.before
