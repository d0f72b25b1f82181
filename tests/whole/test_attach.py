"""``ralphctl attach``: the view of a daemon's ralph outlives the daemon, and leaving it changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.terminal import Terminal
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

Attach = Callable[..., Terminal]
COUNT = ["sh", "-c", 'i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i"; sleep 0.02; done']


@pytest.fixture
def attach(daemon: Daemon) -> Iterator[Attach]:
    """``ralphctl attach WORDS`` at a terminal, in the home; ``more`` is added to the environment."""
    with ExitStack() as opened:

        def begin(*words: str, columns: int = 80, **more: str) -> Terminal:
            environment = Person(daemon).environment | {"TERM": "xterm-256color", "NO_COLOR": "1"} | more
            terminal = Terminal(
                argv(["attach", *words]), cwd=daemon.home, environment=environment, columns=columns
            )
            return opened.enter_context(terminal)

        yield begin


def begun(daemon: Daemon, *command: str) -> int:
    """Start that as ``demo``; the pid of its leader."""
    daemon.start()
    person = Person(daemon)
    return int(person.starts(person.directory(), command)["ralph_pid"])


def test_it_goes_on_over_a_restart_of_the_daemon_and_no_line_is_lost_or_comes_twice(
    daemon: Daemon, attach: Attach
) -> None:
    begun(daemon, *COUNT)
    terminal = attach("demo", "-n", "10000")
    terminal.shows("line 20\r")
    daemon.kill()
    terminal.shows("ralphd is away: waiting for it")
    terminal.shows("demo · ralphd is away")
    daemon.start()
    wait_for(lambda: "── demo · working" in terminal.lines()[-1], what="the daemon seen again")
    last = len(daemon.ask("GET", "/v1/ralphs/demo/logs?tail=all&stream=stdout").splitlines())
    terminal.shows(f"line {last}\r")
    terminal.type(b"Syes")  # as it is pasted by mistake: who answers has read the question
    terminal.shows("Stop demo after this iteration, or at once if it reports none? [y/N]")
    terminal.type(b"y")

    assert terminal.exit_code() == 0
    lines = terminal.lines()
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum("ralphd is away" in line for line in lines) == 1
    assert any("info: demo: stopped" in line for line in lines)
    assert "stopping demo; at once: ralphctl stop --now demo" in lines
    assert daemon.view("demo")["state"] == "stopped"
    assert terminal.settings() == terminal.before


@pytest.mark.parametrize(("keys", "code"), [(b"q", 0), (b"\x03", 130)])
def test_to_leave_it_changes_nothing_and_says_how_to_come_back(
    keys: bytes, code: int, daemon: Daemon, attach: Attach
) -> None:
    pid = begun(daemon, *player("loop_like"))
    terminal = attach("demo")
    terminal.shows("task: Mend the parser")
    terminal.type(keys)

    assert terminal.exit_code() == code
    assert terminal.lines()[-2:] == [
        "detached: demo keeps running. Reattach: ralphctl attach demo",
        "",
    ]
    assert not [line for line in terminal.lines() if line.startswith("── ")]
    assert terminal.settings() == terminal.before
    assert is_alive(pid)
    assert daemon.view("demo")["state"] == "running"


def test_p_pauses_it_and_the_view_ends_as_status_does(daemon: Daemon, attach: Attach) -> None:
    begun(daemon, *player("loop_like", "--wait", 600))
    terminal = attach("demo", columns=20)
    terminal.shows("s left: wait")  # "9m 59s left: waiti…", where there is room for no more
    terminal.resize(80)
    terminal.shows("waiting for the agent's rate limit to pass: 9m 5")
    terminal.type(b"p")
    terminal.shows("Regent: Pausing after current iteration...")

    assert terminal.exit_code() == 75
    terminal.shows("info: demo: paused: as requested")
    terminal.shows("next: ralphctl resume demo")
    assert terminal.settings() == terminal.before


def test_ended_by_sigterm_the_view_leaves_the_terminal_as_it_was(daemon: Daemon, attach: Attach) -> None:
    pid = begun(daemon, *player("loop_like"))
    terminal = attach("demo")
    terminal.shows("begun")
    wait_for(terminal.is_raw)
    terminal.process.terminate()
    terminal.exit_code()
    wait_for(lambda: terminal.settings() == terminal.before, what="the terminal as it was")
    assert is_alive(pid)


def test_a_dumb_terminal_gets_plain_lines_and_one_without_utf8_question_marks(
    daemon: Daemon, attach: Attach
) -> None:
    begun(daemon, *player("loop_like", "--wait", 600))
    dumb = attach("demo", TERM="dumb")
    dumb.shows("to skip it: ralphctl skip-wait")
    poor = attach("demo", PYTHONIOENCODING="ascii")
    poor.shows("?? demo ? limited")
    Person(daemon)("pause", "demo")

    assert dumb.exit_code() == 75
    assert "\x1b" not in dumb.screen()
    assert "Regent: Pausing" in poor.screen()
    assert poor.screen().isascii()


def test_without_a_terminal_there_are_lines_alone_and_a_closed_pipe_ends_it(daemon: Daemon) -> None:
    daemon.start()
    person = Person(daemon)
    person.starts(person.directory(), player("says", "out:a\\x1b[2Jb\\n"))
    daemon.becomes("demo", "done")
    said = person("attach", "demo")
    assert said.returncode == 0
    assert said.stdout.splitlines()[0] == "a\x1b[2Jb"
    assert "demo: done" in said.stderr and "next: ralphctl report demo" in said.stderr
    assert person("attach", "nobody").returncode == 4

    person.starts(person.directory("other"), COUNT)
    with person.watching("attach", "other") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
