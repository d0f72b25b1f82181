"""Rotation under a daemon: what a crashed agent leaves in history and status (L3; 003, its validation)."""

import json
import os
import signal
import subprocess

import pytest

from tests.helpers import wait_for
from tests.players import agents
from tests.whole.harness import Daemon, View
from tests.whole.person import Person

LONG_S = 30.0
TOML = """
[agents]
primary = "claude"
fallback = ["codex", "gemini"]
strategy = "rotate"
[retry]
same_agent_base_seconds = 0.05
[regent]
retry_backoff_seconds = 0.05
"""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


class Rotation:
    """A ralph ``demo`` whose agents take turns and play a script."""

    def __init__(self, daemon: Daemon, tasks: str, *steps: View) -> None:
        self.daemon = daemon
        self.directory = Person(daemon).directory()
        (self.directory / "PLAN.md").write_text(tasks)
        (self.directory / "PROMPT.md").write_text("Do the next task.\n")
        (self.directory / "ralph.toml").write_text(TOML)
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
            subprocess.run(["git", *words], cwd=self.directory, check=True, env=self._git(), timeout=30)
        self.script = agents.write_script(daemon.root / "script.json", steps)

    def _git(self) -> dict[str, str]:
        people = {
            f"GIT_{who}_{what}": "a@b.invalid"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        return {**os.environ, **people}

    def start(self) -> View:
        """Have it begin."""
        programs = agents.install(self.daemon.root / "bin")
        environment = self._git() | agents.environment(programs, self.script)
        body = {"directory": str(self.directory), "environment": environment}
        return dict(self.daemon.ask("POST", "/v1/ralphs", body))

    def calls(self, count: int) -> list[agents.Call]:
        """The calls of agents, as soon as there are so many."""
        wait_for(lambda: len(agents.calls(self.script)) >= count, timeout_s=LONG_S, what=f"{count} calls")
        return agents.calls(self.script)


def who(view: View) -> list[tuple[str, bool, bool]]:
    """Name, in, last, of all in the pool."""
    return [(agent["name"], agent["in"], agent["last"]) for agent in view["pool"]["agents"]]


def test_003_an_agent_that_is_killed_is_told_in_handoff_history_and_status(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    tasks = "## Task 1: one\n- [ ] do\n## Task 2 (parallel)\n- [ ] do\n## Task 3 (parallel)\n- [ ] do\n"
    rotation = Rotation(daemon, tasks, {"do": "hang"}, {"do": "hang"})
    view = rotation.start()
    assert "rotation: claude, codex, gemini take turns, an iteration each" in view["notes"]
    assert "task-2, task-3 are marked parallel: they are done one after the other" in view["notes"]
    [first] = rotation.calls(1)

    os.kill(first.pid, signal.SIGKILL)  # 1: an agent dies in the middle of its work

    _, second = rotation.calls(2)  # 2: the next rotation goes on
    assert second.agent == "codex"
    note = "Previous rotation crashed: it was ended by SIGKILL, and not by ralphd"
    assert note in second.prompt  # 3: the handoff tells of it
    assert note in (rotation.directory / ".ralph" / "handoff.md").read_text()
    [entry] = daemon.history("demo", "attempt")  # 4: so does the history
    told = (entry["agent"], entry["failure_kind"], entry["code"], entry["next"])
    assert told == ("claude", "agent_crash", -9, "rotation: codex continues")
    assert entry["why"].startswith("it was ended by SIGKILL")
    assert [event["data"]["next"] for event in daemon.events("attempt.finished")] == [entry["next"]]
    assert who(daemon.view("demo")) == [
        ("claude", True, False),
        ("codex", True, True),
        ("gemini", True, False),
    ]

    loop = daemon.view("demo")["ralph_pid"]
    os.kill(loop, signal.SIGKILL)  # the loop itself, in the middle of codex's turn

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    order = [call.agent for call in rotation.calls(5)]
    assert order == ["claude", "codex", "codex", "gemini", "claude"]
    assert who(view) == [("claude", True, True), ("codex", True, False), ("gemini", True, False)]


def test_status_shows_who_is_out_with_a_daemon_and_without(daemon: Daemon, person: Person) -> None:
    daemon.start()
    rotation = Rotation(
        daemon,
        "## Task 1: one\n- [ ] do\n",
        {"do": "usage_limit", "holds_s": 7200},
        {"do": "fatal"},
        {"do": "hang"},
    )
    rotation.start()
    rotation.calls(3)

    shown = " ".join(person("status", "demo").stdout.split())

    assert "agents rotation: claude out until " in shown
    assert "codex out until you act (" in shown
    assert "gemini in, used last" in shown
    out, fatal, last = daemon.view("demo")["pool"]["agents"]
    assert (out["in"], fatal["in"], fatal["until"], last["last"]) == (False, False, None, True)
    assert out["reason"] and out["until"].endswith("Z")
    wait_for(
        lambda: [each["data"]["agent"] for each in daemon.events("agent.exhausted")] == ["claude", "codex"],
        what="the events of both agents",
    )
    assert person("stop", "--now", "demo").returncode == 0
    daemon.becomes("demo", "stopped")
    daemon.kill()
    known = json.loads(person("status", "--json", cwd=rotation.directory).stdout)["ralphs"][0]
    assert known["pool"]["agents"] == [out, fatal, last]
