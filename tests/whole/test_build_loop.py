"""``ralphctl build`` with the built-in loop: limits, pauses, and the next build that goes on (L12, L13)."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.terminal import Terminal
from tests.whole.builds import Build, build_in
from tests.whole.harness import Daemon
from tests.whole.loops import loop_in, open_tasks, release
from tests.whole.person import Person, argv

QUESTION = "Resume, Discard, or View details? [R/d/v]"


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody at another terminal."""
    return Person(daemon)


def at_a_terminal(build: Build, *words: str) -> Terminal:
    environment = Person(build.daemon).environment | {"TERM": "xterm-256color", "NO_COLOR": "1"}
    return Terminal(argv(["build", *words]), cwd=build.directory, environment=environment)


def limit_is_over(build: Build) -> None:
    """Wait until the limit is over."""
    checkpoint = json.loads((build.directory / ".ralph" / "checkpoint.json").read_text())
    ends = datetime.fromisoformat(checkpoint["resume_at"])
    wait_for(lambda: datetime.now(UTC) > ends, timeout_s=30, what="the reset")


def installed(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``name`` a program that is found."""
    directory.mkdir()
    (directory / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_a_usage_limit_ends_it_with_75_and_the_next_build_asks_and_finishes(
    build: Build, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("codex", tmp_path / "bin", monkeypatch)
    loop_in(build.daemon, "usage 12")
    build.start()
    assert build.ends_leaving_nothing() == 75
    words = build.words()
    assert "demo: paused: the agent's usage limit is reached; its limit ends" in words
    assert "  task         task 0\n" in words
    assert "  why          the agent's usage limit is reached: " in words
    assert "the checkpoint is kept: ralphctl build resumes from it" in words
    assert "next: ralphctl build  (continue)" in words
    assert "next: ralphctl build --fallback codex  (continue with another agent)" in words

    status = person("status", cwd=build.directory)
    assert status.returncode == 75
    assert "demo  paused: the agent's usage limit is reached" in status.stdout
    assert "checkpoint   iteration 1, task task 0, moody" in status.stdout
    assert "next         ralphctl build  (continue)" in status.stdout
    [reset] = set(re.findall(r"limit ends.*\((\d\d:\d\d:\d\d)\)", words))
    assert f" until {reset} (in " in build.out()

    with at_a_terminal(build) as terminal:
        terminal.shows(QUESTION)
        assert "task         task 0" in terminal.screen()
        limit_is_over(build)
        terminal.type(b"\r")
        terminal.shows("resuming from the checkpoint: iteration 1, task task 0")
        assert terminal.exit_code() == 0
        terminal.shows("demo: done")
        assert terminal.settings() == terminal.before
    assert open_tasks(build.directory) == 0
    assert not (build.directory / ".ralph" / "checkpoint.json").exists()


def test_p_pauses_after_the_iteration_and_resume_finishes(build: Build, person: Person) -> None:
    loop_in(build.daemon, "rest")
    with at_a_terminal(build) as terminal:
        terminal.shows("resting")
        terminal.shows("p pauses after the iteration")
        terminal.type(b"p")
        terminal.shows("Pausing after current iteration...")
        release(build.daemon)
        assert terminal.exit_code() == 75
        terminal.shows("demo: paused: as requested")
        assert terminal.settings() == terminal.before
    assert open_tasks(build.directory) == 1

    build.start("--resume")
    assert build.ends_leaving_nothing() == 0
    assert open_tasks(build.directory) == 0


def test_a_rate_limit_is_told_shown_and_skipped_from_elsewhere(build: Build, person: Person) -> None:
    loop_in(build.daemon, "rate 600", tasks=1)
    build.start("--timeout", "77")
    build.says("; to skip it: ralphctl skip-wait")
    status = person("status", cwd=build.directory)
    assert status.returncode == 0
    said = r"limited until .* \((10m|9m 5\ds) left, pid \d+\): rate limit of moody"
    assert re.search(said, status.stdout), status.stdout
    assert "ralphctl skip-wait demo  (do not wait)" in status.stdout

    assert person("skip-wait", cwd=build.directory).stdout.startswith("demo: continues now\n")

    assert build.ends_leaving_nothing() == 0
    assert open_tasks(build.directory) == 0
    assert "moody: attempt 1, time limit 1 min 17 s" in build.out()


def test_the_command_of_the_last_time_is_run_again_and_said(build: Build) -> None:
    build.start("--", "true")
    assert build.ends_leaving_nothing() == 0

    build.start()

    assert build.ends_leaving_nothing() == 0
    assert "as last time: true  (built-in loop: ralphctl build --agent NAME)" in build.words()


def test_a_build_that_continues_keeps_the_flags_of_the_last_one(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("gemini", tmp_path / "bin", monkeypatch)
    directory = loop_in(build.daemon, "usage 600")
    with (directory / "ralph.toml").open("a") as file:
        file.write('[agents.codex]\ncommand = ["/nonexistent/codex"]\n')
    build.start("--max-cost", "5", "--fallback", "codex")
    assert build.ends_leaving_nothing() == 75
    assert "next: ralphctl build --fallback gemini  (continue with another agent)" in build.words()

    build.start("--max-cost", "7")
    assert build.ends_leaving_nothing() == 75
    assert "as last time: --fallback codex\n" in build.words()

    build.start()
    assert build.ends_leaving_nothing() == 75
    assert "as last time: --max-cost 7 --fallback codex\n" in build.words()


def test_a_build_that_is_done_leaves_its_flags_to_no_other(build: Build) -> None:
    loop_in(build.daemon)
    build.start("--max-iterations", "1")
    assert build.ends_leaving_nothing() == 5

    build.start()

    assert build.ends_leaving_nothing() == 0
    assert "as last time" not in build.words()
    assert open_tasks(build.directory) == 0


def test_without_a_list_a_loop_that_gets_nowhere_says_so_and_is_no_interruption(build: Build) -> None:
    (loop_in(build.daemon, "idle", "idle") / "TASKS.md").unlink()
    build.start()
    assert build.ends_leaving_nothing() == 0
    assert "demo: stopped: no progress: the last 2 iterations succeeded without a commit" in build.words()
    assert "checkpoint" not in build.words()  # there is none, and nothing is said of one
