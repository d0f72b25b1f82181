"""Golden files: each section has its test, and what differs in each run is not compared."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.ctl.conftest import SEVEN
from tests.ctl.golden_files import ACCEPT, FOLDER, Golden, path_of, printed, read, stale
from tests.template import CLOCK, command, ralphctl

MODULES = sorted(Path(__file__).parent.rglob("test_*.py"))


def test_each_section_has_its_test(request: pytest.FixtureRequest) -> None:
    assert {path_of(module) for module in MODULES} >= {*FOLDER.iterdir()}
    gone = {path_of(module).name: stale(module, request.session) for module in MODULES}
    assert {name: titles for name, titles in gone.items() if titles} == {}, "take them out: make golden"


def test_what_differs_in_each_run_is_not_compared(golden: Golden, tmp_path: Path) -> None:
    out = f"{tmp_path}/a {tmp_path}-not pid {os.getpid()} kept-20261121T070000Z since 06:59:31\n\n  end  "
    golden(printed("ralphctl", 3, out, "pid 4712 is hidden, pid 47123 is not\n\x1b[2J\n"), hide={4712: "PID"})


def test_a_difference_fails_and_says_how_to_accept_it(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ACCEPT, raising=False)
    with pytest.raises(
        pytest.fail.Exception, match=r"(?s)\+something new.*make golden TESTS=tests/ctl/test_golden"
    ):
        golden("something new")


def test_the_clock_of_a_command_stands(environment: dict[str, str], tmp_path: Path) -> None:
    at = environment | {CLOCK: str(SEVEN)}
    words = ["classify", "--json", "out.log"]
    (tmp_path / "out.log").write_text("usage limit reached, resets in 1 hour\n")

    forked = ralphctl(words, at, tmp_path, 20)
    executed = subprocess.run(
        command("ralphctl", words, at), env=at, cwd=tmp_path, capture_output=True, text=True, timeout=20
    )

    assert forked.stdout == executed.stdout
    assert '"2026-11-21T08:00:00' in forked.stdout


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("=== a\n$ ralphctl\n\n-- b\n\n=== c[1]\nlast\n")
    assert read(tmp_path / "x.txt") == {"a": "$ ralphctl\n\n-- b\n", "c[1]": "last\n"}
    assert read(tmp_path / "none.txt") == {}
