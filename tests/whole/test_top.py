"""``ralphctl top`` at a real terminal, with a real daemon that goes away and comes back."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.terminal import Terminal
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

Top = Callable[..., Terminal]


@pytest.fixture
def top(daemon: Daemon) -> Iterator[Top]:
    """``ralphctl top WORDS`` at a terminal; ``more`` is added to the environment."""
    with ExitStack() as opened:

        def begin(*words: str, columns: int = 100, **more: str) -> Terminal:
            environment = Person(daemon).environment | {"TERM": "xterm-256color", "NO_COLOR": "1"} | more
            command = argv(["top", *words])
            terminal = Terminal(command, cwd=daemon.home, environment=environment, columns=columns)
            return opened.enter_context(terminal)

        yield begin


def begun(daemon: Daemon) -> None:
    daemon.start()
    person = Person(daemon)
    person.starts(person.directory("api"), player("loop_like"))
    person.starts(person.directory("web"), player("loop_like", "--wait", 600))


def is_as_before(terminal: Terminal) -> bool:
    """Whether the settings are as before, the cursor is shown, and the other screen is left."""
    text = terminal.screen()
    modes = (("?1049h", "?1049l"), ("?25l", "?25h"), ("?2004h", "?2004l"))
    return (
        all(text.rfind(f"\x1b[{on}") < text.rfind(f"\x1b[{off}") for on, off in modes)
        and terminal.settings() == terminal.before
    )


def pieces(terminal: Terminal) -> list[str]:
    """What was on the terminal before top took it over, and since each time."""
    return terminal.screen().split("\x1b[?1049h")


def test_it_follows_a_daemon_that_goes_and_comes_and_its_keys_work(daemon: Daemon, top: Top) -> None:
    begun(daemon)
    terminal = top()
    terminal.shows("2 ralphs")
    terminal.shows("Mend the parser")
    terminal.shows("0 tasks done")
    daemon.kill()
    terminal.shows("ralphd is away")
    daemon.start()
    person = Person(daemon)
    person.starts(person.directory("late"), player("loop_like"))
    terminal.shows("3 ralphs")

    terminal.type(b"\r")  # the first one is attached to, and left
    terminal.shows("── api · working")
    terminal.type(b"q")
    terminal.shows("detached: api keeps running")
    wait_for(lambda: len(pieces(terminal)) == 3 and "q quit" in pieces(terminal)[2], what="top again")
    terminal.type(b"e")
    terminal.shows("Enter returns to top")
    terminal.type(b"\r")
    wait_for(lambda: len(pieces(terminal)) == 4 and "q quit" in pieces(terminal)[3], what="top again")
    terminal.type(b"d")
    terminal.shows("has not finished an iteration")
    wait_for(lambda: terminal.screen().count("Enter returns to top") == 2, what="the end of the diff")
    terminal.type(b"\r")
    wait_for(lambda: len(pieces(terminal)) == 5 and "q quit" in pieces(terminal)[4], what="top again")
    terminal.type(b"l")
    wait_for(lambda: "begun" in pieces(terminal)[4].partition("\x1b[?1049l")[2], what="the logs")
    terminal.type(b"\x03")  # ends the logs, not top
    wait_for(lambda: terminal.screen().count("Enter returns to top") == 3, what="the end of the logs")
    terminal.type(b"\r")
    terminal.type(b"S")
    terminal.shows("Stop api after this iteration, or at once if it reports none? [y/N]")
    terminal.type(b"y")
    wait_for(lambda: daemon.view("api")["state"] == "stopped", what="the stop")
    terminal.shows("1 stopped")
    terminal.type(b"q")
    assert terminal.exit_code() == 0
    assert is_as_before(terminal)
    assert daemon.view("web")["state"] == "waiting_for_retry" or daemon.view("web")["wait"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_whole(number: int, daemon: Daemon, top: Top) -> None:
    begun(daemon)
    terminal = top()
    terminal.shows("2 ralphs")
    wait_for(terminal.is_raw)
    terminal.process.send_signal(number)
    assert terminal.exit_code() == 130
    assert is_as_before(terminal)


def test_a_closed_terminal_ends_it(daemon: Daemon, top: Top) -> None:
    begun(daemon)
    terminal = top()
    terminal.shows("2 ralphs")
    terminal.hang_up()
    assert terminal.process.wait(30) != 0
    assert daemon.view("api")["state"] == "running"


FAILS = """
import sys
from ralphctl.top import app
app.page = lambda model, screen, now: 1 / 0
from ralphctl.main import main
sys.argv = ["ralphctl", "top"]
sys.exit(main())
"""


def test_an_exception_leaves_the_terminal_whole(daemon: Daemon) -> None:
    begun(daemon)
    environment = Person(daemon).environment | {"TERM": "xterm-256color"}
    with Terminal([sys.executable, "-P", "-c", FAILS], cwd=daemon.home, environment=environment) as terminal:
        assert terminal.exit_code() == 1
        assert is_as_before(terminal) and "ZeroDivisionError" in terminal.screen()


def test_a_dumb_terminal_is_refused(daemon: Daemon, top: Top) -> None:
    daemon.start()
    terminal = top(TERM="dumb")
    assert terminal.exit_code() == 2
    assert "ralphctl top --once" in terminal.screen() and "\x1b" not in terminal.screen()
