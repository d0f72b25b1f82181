"""Where ``ralphctl build`` prints to: a pipe that is read late or never, a full disk, nothing at all (P5)."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.whole.builds import END_S, Build, build_in
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

MORE_THAN_A_PIPE_HOLDS = (
    "sh",
    "-c",
    "head -c 300000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo the last line",
)


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


def unread(build: Build) -> int:
    """Have it print more than a pipe holds, and be done; the other end of the pipe."""
    heard, said = os.pipe()
    build.start("--", *MORE_THAN_A_PIPE_HOLDS, stdout=said)
    os.close(said)
    build.says("Ctrl-C stops it")
    build.exit_record()
    wait_for(lambda: build.state()["state"] == "done", what="a state")
    return heard


def test_who_reads_late_gets_all_of_it(build: Build) -> None:
    with os.fdopen(unread(build), "rb") as reader:
        lines = reader.read().splitlines()

    assert build.ends_leaving_nothing() == 0
    assert b"the last line" in lines
    assert lines[-1].endswith(b"Ralph is done")
    assert "missing" not in build.words()


def test_signals_end_the_wait_for_who_reads_nothing(build: Build) -> None:
    heard = unread(build)
    assert wait_for(lambda: is_blocked(build.pid), what="a full pipe")

    build.send(signal.SIGTERM)
    assert wait_for(lambda: "stopping" in build.words() or "may be missing here" in build.words())
    if "may be missing" not in build.words():  # it had not seen the end yet
        build.send(signal.SIGTERM)

    assert build.ends_leaving_nothing() in (0, 130)
    os.close(heard)


def is_blocked(pid: int) -> bool:
    """Whether one of its threads waits until a pipe takes more."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return any("pipe" in (task / "wchan").read_text() for task in tasks)


def test_a_full_disk_below_its_output_is_told_and_ends_nothing(build: Build) -> None:
    with open("/dev/full", "wb") as full:
        go_on = build.daemon.root / "go-on"
        build.start("--", *player("says", "out:one\\n", f"file:{go_on}", "out:two\\n"), stdout=full.fileno())
    build.says("cannot be written here: No space left on device")

    go_on.touch()

    assert build.ends_leaving_nothing() == 0
    assert "demo: done" in build.words()
    assert build.words().count("No space left") == 1


def test_its_exit_code_stands_though_its_words_cannot_be_written(build: Build) -> None:
    with open("/dev/full", "wb") as full:
        said = subprocess.run(
            argv(["build", "--", *player("exits", 75)]),
            cwd=build.directory,
            env=Person(build.daemon).environment,
            stdout=full,
            stderr=full,
            timeout=END_S,
        )

    assert said.returncode == 75
    assert not build.daemon.leftovers()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_with_closed_streams_it_does_its_work(build: Build, closed: str) -> None:
    command = [
        "sh",
        "-c",
        f'exec "$@" {closed}',
        "sh",
        *argv(["build", "--", *player("says", "out:hello\\n")]),
    ]
    said = subprocess.run(
        command,
        cwd=build.directory,
        env=Person(build.daemon).environment,
        capture_output=True,
        text=True,
        timeout=END_S,
    )

    assert said.returncode == 0, said
    assert "Traceback" not in said.stderr
    assert "started" not in said.stdout  # that belongs to the other one
    assert not build.daemon.leftovers()


def test_a_state_directory_that_cannot_be_made_is_told(daemon: Daemon) -> None:
    (daemon.root / "file").write_text("")
    environment = Person(daemon).environment | {"RALPHD_STATE_DIR": str(daemon.root / "file")}
    said = subprocess.run(
        argv(["build", "--", *player("exits", 0)]),
        cwd=Person(daemon).directory(),
        env=environment,
        capture_output=True,
        text=True,
        timeout=END_S,
    )

    assert said.returncode == 1
    assert said.stderr.startswith("error: cannot start the private ralphd\n")
    assert "Not a directory" in said.stderr
    assert "Traceback" not in said.stderr
