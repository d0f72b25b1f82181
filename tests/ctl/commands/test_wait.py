"""wait: for what and for how long it waits, and whom it waits for."""

import sys
import threading
from pathlib import Path

from tests.ctl.conftest import Ctl
from tests.ctl.fake import FakeDaemon, view
from tests.ctl.golden_files import Golden
from tests.terminal import Terminal


def test_a_wait_says_for_what_since_when_and_how_long_at_most(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view()}
    reply = ctl("wait", "api", "--for", "done", "--wait-timeout", "0.5")
    golden(reply)
    assert reply.returncode == 124


def test_a_wait_for_what_waits_for_a_person_says_so_and_what_to_type(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(state="paused", pause_reason="guard", ralph_pid=None)}
    golden(ctl("wait", "api", "--for", "done", "--wait-timeout", "0.8"))


def test_on_a_terminal_a_line_tells_how_it_is_meanwhile_and_is_gone_at_the_end(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {"api": view(task={"title": "Parse"})}
    words = [sys.executable, "-P", "-m", "ralphctl", "wait", "api"]
    with Terminal(words, cwd=tmp_path, environment=environment | {"TERM": "xterm"}, columns=40) as terminal:
        terminal.shows("s: api is working for ")
        threading.Timer(0.05, daemon.views.__setitem__, ("api", view(state="done"))).start()
        assert terminal.exit_code() == 0
        shown = terminal.screen()
    assert shown.split("\r\x1b[K")[-1].startswith("api: done")
    assert all(len(part) < 40 for part in shown.split("\r\x1b[K")[1:-1])
