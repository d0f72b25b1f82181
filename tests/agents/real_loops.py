"""Real agents in the built-in loop, against vendors that fail: ``make test-agents``."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.installed import why_not
from tests.agents.lodging import Lodging
from tests.agents.vendors.answers import rate_limit, usage_limit
from tests.agents.vendors.server import Vendors
from tests.helpers import wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.person import Person, argv

pytestmark = pytest.mark.timeout(300)
RESET_S = 20.0
MARGIN_S = 1.0
LONG_S = 120.0
TOML = f"""\
[agents]
primary = "claude"
fallback = {{fallback}}
timeout_seconds = 60

[retry]
rate_limit_seconds = 1
reset_margin_seconds = {MARGIN_S:g}

"""
# What an agent's tool call does: the first open task, once it may.
WORK = """\
import json, pathlib, subprocess, time
plan = json.loads(pathlib.Path("prd.json").read_text())
task = next(each for each in plan["userStories"] if not each["passes"])
moment = pathlib.Path(__file__).with_name(task["id"])
while moment.exists() and time.time() < float(moment.read_text()):
    time.sleep(0.1)
task["passes"] = True
pathlib.Path("prd.json").write_text(json.dumps(plan))
subprocess.run(["git", "add", "prd.json"], check=True)
subprocess.run(["git", "commit", "--quiet", "--message", task["id"]], check=True)
"""

TAKES_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A repository with tasks, the agents that are to do them, and a daemon for its loop."""

    lodging: Lodging
    daemon: Daemon
    vendors: Vendors

    @property
    def directory(self) -> Path:
        """The working directory."""
        return self.lodging.project

    def has(self, tasks: Sequence[str], agents: Sequence[str]) -> None:
        """Write the tasks, the prompt, and the configuration."""
        for agent in agents:
            if reason := why_not(agent):
                pytest.skip(reason)
        stories = [{"id": task, "title": f"do {task}", "passes": False} for task in tasks]
        (self.directory / "prd.json").write_text(json.dumps({"userStories": stories}))
        (self.directory / "PROMPT.md").write_text("Do your task, and tick it in prd.json.\n")
        fallback = json.dumps(list(agents[1:]))
        sections = "\n".join(self.lodging.toml(agent) for agent in agents)
        (self.directory / "ralph.toml").write_text(TOML.format(fallback=fallback) + sections)
        self.lodging.git("add", ".")
        self.lodging.git("commit", "--quiet", "-m", "tasks")

    def holds_back(self, task: str, until: float) -> None:
        """Whoever does ``task`` is not finished before that moment."""
        (self.lodging.root / task).write_text(str(until))

    def done(self) -> list[str]:
        """The tasks that were done, each as often as it was."""
        return [line for line in self.lodging.git("log", "--format=%s").splitlines() if line.startswith("T-")]

    def attempts(self) -> list[dict[str, Any]]:
        """The record's attempts."""
        return self.daemon.history("project", "attempt")

    def standing(self) -> dict[str, Any]:
        """``tasks.json`` as it is."""
        return dict(json.loads((self.directory / ".ralph" / "tasks.json").read_text()))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """One, with nothing in it; nothing of it is left afterwards."""
    script = tmp_path / "work.py"
    script.write_text(WORK)
    with Vendors(f"'{sys.executable}' '{script}'") as vendors, daemon_in(tmp_path) as daemon:
        yield Project(Lodging(tmp_path, vendors.url).furnish(), daemon, vendors)


@contextmanager
def terminal(project: Project, *words: str) -> Iterator["tuple[subprocess.Popen[bytes], int]"]:
    """A command at a terminal of its own, and the terminal's other side."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_THE_TERMINAL, *argv(words)],
        cwd=project.directory,
        env=Person(project.daemon).environment | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    os.set_blocking(master, False)
    try:
        yield process, master
    finally:
        os.close(master)
        if process.poll() is None:
            process.kill()
        process.wait(30)


def screen(master: int, before: bytes) -> bytes:
    """What is on the terminal by now."""
    with suppress(OSError):
        while piece := os.read(master, 65536):
            before += piece
    return before


def test_two_rate_limits_cost_a_task_nothing(project: Project) -> None:
    project.has(["T-1"], ["claude"])
    toml = project.directory / "ralph.toml"
    # Its own retries would hide the limits from the loop.
    toml.write_text(toml.read_text().replace("env = { ", 'env = { CLAUDE_CODE_MAX_RETRIES = "0", '))
    project.vendors.answer("claude", rate_limit(), rate_limit())
    project.daemon.start()

    said = Person(project.daemon)("start", str(project.directory))

    assert said.returncode == 0, said
    project.daemon.becomes("project", "done", timeout_s=LONG_S)
    assert project.done() == ["T-1"]
    assert [each["failure_kind"] for each in project.attempts()] == ["rate_limit", "rate_limit", None]
    task = project.standing()["tasks"]["T-1"]
    assert (task["status"], task["failure_count"]) == ("complete", 0)


def test_while_claude_is_out_codex_goes_on_and_then_claude_is_back(project: Project) -> None:
    project.has(["T-1", "T-2", "T-3"], ["claude", "codex"])
    limit = usage_limit(RESET_S)
    project.vendors.answer("claude", then=limit)
    assert limit.reset_at is not None
    project.holds_back("T-2", limit.reset_at + MARGIN_S + 2)
    project.daemon.start()

    said = Person(project.daemon)("start", str(project.directory))

    assert said.returncode == 0, said
    wait_for(lambda: project.daemon.events("agent.exhausted"), timeout_s=LONG_S, what="claude is out")
    asked = project.vendors.asked("claude")
    project.daemon.becomes("project", "done", timeout_s=LONG_S)
    assert project.done() == ["T-3", "T-2", "T-1"]
    told = [(each["agent"], each["failure_kind"]) for each in project.attempts()]
    assert told == [("claude", "usage_limit"), ("codex", None), ("codex", None), ("claude", None)]
    assert project.vendors.asked("claude") == asked + 2, "it was let alone while it was out"
    (out,) = project.daemon.events("agent.exhausted")
    assert out["data"]["agent"] == "claude"
    assert [each["data"]["agent"] for each in project.daemon.events("agent.returned")] == ["claude"]
    assert {each["failure_count"] for each in project.standing()["tasks"].values()} == {0}


def test_without_a_second_agent_a_build_pauses_and_the_next_one_asks_and_finishes(project: Project) -> None:
    project.has(["T-1", "T-2"], ["claude"])
    limit = usage_limit(RESET_S)
    project.vendors.answer("claude", then=limit)
    person = Person(project.daemon)

    said = person("build", cwd=project.directory, timeout_s=LONG_S)

    assert said.returncode == 75, said
    assert not project.daemon.leftovers()
    status = person("status", cwd=project.directory)
    assert (status.returncode, "usage" in status.stdout) == (75, True), status
    assert limit.reset_at is not None
    over_at = limit.reset_at + MARGIN_S
    wait_for(lambda: time.time() > over_at, timeout_s=RESET_S + 10, what="the reset")
    with terminal(project, "build") as (process, master):
        seen = b""

        def asks() -> bool:
            nonlocal seen
            seen = screen(master, seen)
            return b"[R/d/v]" in seen

        wait_for(asks, timeout_s=30, what="the question")
        assert b"T-1" in seen
        os.write(master, b"r\n")

        def ended() -> bool:
            nonlocal seen
            seen = screen(master, seen)
            return process.poll() is not None

        wait_for(ended, timeout_s=LONG_S, what="the end of the build")
    assert process.returncode == 0, seen.decode(errors="replace")
    assert project.done() == ["T-2", "T-1"]
    assert person("status", cwd=project.directory).returncode == 0
    assert not project.daemon.leftovers()
