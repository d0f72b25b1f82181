"""``ralphctl demo``: everything it shows holds, and nothing of it stays, however it ends."""

import os
import re
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ralphctl.demo.printer import DemoPrinter
from ralphctl.demo.sandbox import DemoFailed
from tests.helpers import is_alive, wait_for

ENDING_S = 30.0


@contextmanager
def performance(temporary: Path, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo with ``temporary`` for its temporary directory; nothing of it may stay there or be alive."""
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TMPDIR": str(temporary),
        "HOME": "/nowhere",
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ralphctl", "demo"],
        env=environment | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(ENDING_S)
    assert list(temporary.iterdir()) == []
    assert alive_with(str(temporary)) == []


def alive_with(mark: str) -> list[str]:
    """The command lines of all living processes that have ``mark`` in them or in their environment."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [_command_line(pid) for pid in pids if pid != os.getpid() and is_alive(pid) and _has(pid, mark)]


def _has(pid: int, mark: str) -> bool:
    try:
        held = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return mark.encode() in held


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def columns(line: str) -> int:
    """How many columns of a terminal a line takes."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in line)
    return len(line) + wide - line.count("\N{VARIATION SELECTOR-16}")


def test_the_demo_shows_what_is_promised_and_leaves_nothing(tmp_path: Path) -> None:
    with performance(tmp_path) as process:
        said, _ = process.communicate(timeout=100)

    assert process.returncode == 0, said
    assert re.findall(r"^(\d)\. ", said, re.M) == list("12345678")
    assert "Ralph exited (exit 1) — retrying in 1s (attempt 2/3)" in said
    assert "$ kill -9 $(cat ~/.local/state/ralphd/lock)" in said
    before, after = re.findall(r"^✓ pid (\d+) before, pid (\d+) after", said, re.M)[0]
    assert before == after
    assert set(re.findall(r"(\d+) missing in the log", said)) == {"0"}
    assert "✓ 5 tasks, 5 commits: each done once" in said
    kinds = re.findall(r"attempt \d by (\w+) failed \(([\w ]+)\)", said)
    assert kinds == [("first", "agent crash")]
    assert re.findall(r"Ralph: first: (.*?limit)[.:]", said) == ["rate limit", "You've hit your usage limit"]
    commits = re.findall(r"^  (\w{7}) (.*add.sh adds.*)$", said, re.M)
    bad, again = "add.sh adds four numbers", "add.sh adds up to four numbers"
    assert [subject for _, subject in commits] == [bad, f'Revert "{bad}"', again]
    assert f"Tests failed ❌ — reverting commit {commits[0][0]}" in said
    assert "0 processes left: no daemon, no shim, no loop" in said
    assert "All checks passed" in said
    assert "\x1b" not in said, "colour is for terminals"
    assert [line for line in said.splitlines() if columns(line) > 80] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_all_it_started_and_removes_its_directory(
    tmp_path: Path, number: signal.Signals
) -> None:
    with performance(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the daemon (pid" in line:
                break
        wait_for(lambda: alive_with(f"HOME={tmp_path}/ralphd-demo-"), what="the loop is alive")
        process.send_signal(number)
        rest, _ = process.communicate(timeout=ENDING_S)

    assert process.returncode == 128 + number
    assert "interrupted; the processes of the demo were ended" in rest


def test_a_demo_whose_reader_has_left_cleans_up(tmp_path: Path) -> None:
    with performance(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(ENDING_S) != 0


def test_a_demo_without_git_says_so(tmp_path: Path) -> None:
    with performance(tmp_path, PATH="/nowhere") as process:
        said, _ = process.communicate(timeout=ENDING_S)

    assert process.returncode == 1
    assert "error: the demo needs git" in said


def test_what_does_not_hold_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    printer = DemoPrinter(sys.stdout, colour=False)
    printer.check(True, "it lives", "it died")
    with pytest.raises(DemoFailed, match="it died"):
        printer.check(False, "it lives", "it died")
    with pytest.raises(DemoFailed, match="this did not hold: it lives"):
        printer.check(False, "it lives")
    assert capsys.readouterr().out == "✓ it lives\n"
