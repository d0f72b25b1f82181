"""The built-in loop without a Regent, in a scratch repository, with agents that play a script."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers import is_alive, wait_for
from tests.players import agents
from tests.template import Forked, Template

HURRY = """
[retry]
same_agent_base_seconds = 0.05
base_seconds = 0.05
rate_limit_seconds = 0.2
reset_margin_seconds = 0
outage_max_wait_seconds = 0.1
[regent]
hang_timeout_seconds = {hang_s}
startup_grace_seconds = 0
"""
AGENTS = """
[agents]
primary = "claude"
heartbeat_seconds = 0.2
crash_pattern_grace_seconds = 0.3
exit_grace_seconds = 0.3
"""


class Night:
    """One working directory, its task list, its agents, and the loop that works there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "demo"
        self.directory.mkdir()
        self.bin = agents.install(root / "bin")
        self.script = root / "script.json"
        self.loop: Forked | None = None
        self.git("init", "-q", "-b", "main")
        self.write("PROMPT.md", "Do the next task.\n")
        self.configure()

    def git(self, *words: str) -> str:
        """What git answers in the working directory."""
        who = ("-c", "user.name=night", "-c", "user.email=night@example.invalid")
        command = ["git", *who, *words]
        return subprocess.run(
            command, cwd=self.directory, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def write(self, name: str, text: str) -> None:
        """A file of the user's."""
        (self.directory / name).write_text(text)

    def configure(self, agents_more: str = "", more: str = "", *, hang_s: float = 2) -> None:
        """``ralph.toml``: the times of a short night, and what the test wants."""
        self.write("ralph.toml", AGENTS + agents_more + HURRY.format(hang_s=hang_s) + more)

    def tasks(self, count: int) -> None:
        """A list of open tasks, committed with all that is there."""
        stories = [{"id": f"US-{n:03d}", "title": f"story {n}", "passes": False} for n in range(1, count + 1)]
        self.write("prd.json", json.dumps({"userStories": stories}, indent=1))
        self.write(".gitignore", ".ralph/\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "start")

    def plays(self, *steps: Mapping[str, Any] | str) -> None:
        """What the agents do, call by call; afterwards their work."""
        agents.write_script(self.script, [{"do": step} if isinstance(step, str) else step for step in steps])

    @property
    def environment(self) -> dict[str, str]:
        """What the loop runs in."""
        unwanted = ("RALPH", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        identity = {
            f"GIT_{who}_{what}": "night@example.invalid"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        own = {"HOME": str(self.root), "XDG_STATE_HOME": str(self.root / "state"), "TZ": "UTC"}
        return kept | identity | own | agents.environment(self.bin, self.script)

    def start(self, *words: str, **more: str) -> Forked:
        """Start the loop, and give its process."""
        self.loop = Template.present().piped("ralphd.loop", words, self.environment | more, self.directory)
        return self.loop

    def ends(self, *words: str, **more: str) -> tuple[int, str]:
        """Run the loop to its end: exit code and log."""
        return self.end(self.start(*words, **more))

    def end(self, loop: Forked) -> tuple[int, str]:
        """Wait for its end."""
        log, _ = loop.communicate(timeout=60)
        return loop.wait(0), log

    def calls(self, count: int = 0) -> list[agents.Call]:
        """The calls of agents, as soon as there are ``count``."""
        wait_for(lambda: len(agents.calls(self.script)) >= count, timeout_s=30, what=f"{count} calls")
        return agents.calls(self.script)

    def did(self) -> list[tuple[str, str]]:
        """Who did what, call by call."""
        return [(call.agent, call.do) for call in agents.calls(self.script)]

    def open(self) -> int:
        """How many tasks are not ticked."""
        stories = json.loads((self.directory / "prd.json").read_text())["userStories"]
        return sum(not story["passes"] for story in stories)

    @property
    def home(self) -> Path:
        """What the loop keeps for itself."""
        (home,) = (self.root / "state" / "ralphd" / "loop").iterdir()
        return home

    def kept(self, name: str) -> dict[str, Any]:
        """A file of its home."""
        found: dict[str, Any] = json.loads((self.home / name).read_text())
        return found

    def failures(self) -> list[int]:
        """How often each task has failed."""
        return [record["failure_count"] for record in self.kept("tasks.json")["tasks"].values()]

    def check_commits(self, count: int) -> None:
        """One commit a task: none was done twice."""
        subjects = self.git("log", "--format=%s", "main").split("\n")[:-2]
        assert len(subjects) == count, subjects
        assert len(set(subjects)) == count, subjects

    def check_alone(self) -> None:
        """No two agents at a time, and nobody is left."""
        calls = agents.calls(self.script)
        assert not [call.number for call in calls if call.beside]
        assert not [call.pid for call in calls if is_alive(call.pid)]
        assert not [pid for pid in agents.children(self.script) if is_alive(pid)]

    def close(self) -> None:
        """End what may still run."""
        if self.loop is not None and self.loop.poll() is None:
            self.loop.send_signal(signal.SIGQUIT)
            try:
                self.loop.communicate(timeout=20)
            finally:
                self.loop.kill()
                self.loop.wait(20)
        for pid in [*(call.pid for call in agents.calls(self.script)), *agents.children(self.script)]:
            wait_for(lambda pid=pid: not is_alive(pid), timeout_s=20, what=f"the end of {pid}")  # type: ignore[misc]


@contextmanager
def night_in(root: Path) -> Iterator[Night]:
    """A night in ``root``."""
    night = Night(root)
    try:
        yield night
    finally:
        night.close()


def shown(lines: Sequence[str] | str, *wanted: str) -> bool:
    """Whether each of ``wanted`` is somewhere in the log, in this order."""
    text, at = lines if isinstance(lines, str) else "\n".join(lines), 0
    for words in wanted:
        at = text.find(words, at)
        if at < 0:
            return False
    return True
