"""What takes longer than a second is told to who sits at a terminal, and to nobody else."""

import io
import sys
import threading
from pathlib import Path

import pytest

from ralphctl.format import output
from tests.ctl.fake import Answer, FakeDaemon, Request, view
from tests.helpers import wait_for
from tests.terminal import Terminal


@pytest.mark.parametrize(("is_terminal", "told"), [(True, "waiting for it; 5 s at most\n"), (False, "")])
def test_a_wait_is_told_once_with_its_bound_on_a_terminal(
    is_terminal: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(output, "QUIET_S", 0.01)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal)

    with output.SlowNotice("it", 5.0):
        wait_for(lambda: stderr.getvalue() == told, what="the notice")

    assert stderr.getvalue() == told


def test_what_is_over_soon_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    with output.SlowNotice("it", 5.0):
        pass

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("typed", ["status", "regent status", "resume api"])
def test_a_daemon_that_takes_its_time_is_waited_for_with_a_word(
    typed: str, daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    told = threading.Event()

    def slowly(request: Request) -> Answer:
        told.wait(60)
        about = {"version": "0", "status": "ok", "pid": 7}
        is_view = typed.startswith("resume")
        return Answer(view() if is_view else {"version": "0", "daemon": about, "ralphs": [view()]})

    daemon.on("GET /v1/status", slowly)
    daemon.on("POST /v1/ralphs/api/resume", slowly)
    command = [sys.executable, "-P", "-m", "ralphctl", *typed.split()]
    with Terminal(command, cwd=tmp_path, environment=environment) as terminal:
        terminal.shows("waiting for ralphd to answer; ")
        told.set()
        code = terminal.exit_code()

    assert code == 0
