"""The ralphs of a soak and of upgrades: commands with habits, and built-in loops that commit."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.players import player
from tests.whole.harness import Daemon

HARDLY_EVER = 1_000_000
FLAGS: Mapping[str, object] = {
    "regent.retry_backoff_seconds": 0.5,
    "regent.max_retries": HARDLY_EVER,
    "regent.max_restarts_per_hour": 0,
    "regent.stop_timeout_seconds": 5,
}
LOOP_TOML = """[agents]
primary = "smith"
retries_before_fallback = 1000000
max_task_failures = 0
[agents.smith]
command = {command}
[ralph]
iteration_pause_seconds = 0.5
[retry]
same_agent_base_seconds = 0.2
base_seconds = 0.2
max_seconds = 1
"""
GATE = {
    "regent.rollback_on_test_failure": True,
    "regent.test_command": "! test -e broken",
    "regent.test_retries": 0,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One ralph. ``habit`` are the words of ``numbered.py`` after its record; empty: the built-in loop.

    ``flags`` are settings by key, ``rest_s`` how long the agent of the loop takes.
    """

    name: str
    habit: tuple[object, ...] = ()
    flags: Mapping[str, object] = field(default_factory=lambda: FLAGS)
    rest_s: float = 1.0

    @property
    def is_loop(self) -> bool:
        return not self.habit

    def directory(self, daemon: Daemon) -> Path:
        return daemon.home / self.name

    def record(self, daemon: Daemon) -> Path:
        return daemon.root / "records" / self.name

    def prepared(self, daemon: Daemon) -> dict[str, Any]:
        """Make its directories; return the body that registers it."""
        directory, record = self.directory(daemon), self.record(daemon)
        for each in (directory, record):
            each.mkdir(parents=True)
        if self.is_loop:
            self._repository(daemon, directory)
        return {
            "name": self.name,
            "directory": str(directory),
            "command": list(player("numbered", record, *self.habit)) if self.habit else [],
            "flags": dict(self.flags),
            "environment": {name: daemon.environment[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME")},
            "start": True,
        }

    def _repository(self, daemon: Daemon, directory: Path) -> None:
        (directory / "TASKS.md").write_text("".join(f"- [ ] task {number}\n" for number in range(1, 4)))
        (directory / "PROMPT.md").write_text("Do the next task.\n")
        command = json.dumps(list(player("committer", self.rest_s, self.record(daemon))))
        (directory / "ralph.toml").write_text(LOOP_TOML.format(command=command))
        for words in (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "smith"),
            ("config", "user.email", "smith@example.invalid"),
            ("add", "-A"),
            ("commit", "-q", "-m", "first"),
        ):
            self.git(daemon, *words)

    def git(self, daemon: Daemon, *words: str) -> str:
        """Return what git prints in its directory. Raises CalledProcessError."""
        done = subprocess.run(
            ["git", *words],
            cwd=self.directory(daemon),
            env=daemon.environment | {"GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def calls(self, daemon: Daemon) -> list[str]:
        """Return ``alone`` or ``beside`` for each call of the agent of a loop."""
        path = self.record(daemon) / "calls"
        return path.read_text().split() if path.exists() else []

    def starts(self, daemon: Daemon) -> list[tuple[str, str]]:
        """Return ``alone`` or ``beside``, and the run, for each start so far; none for a loop."""
        path = self.record(daemon) / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], line.split()[2]) for line in lines]


def cast() -> tuple[Member, ...]:
    """Return the twenty ralphs of a soak."""
    always = {**FLAGS, "ralph.restart": "always", "regent.healthy_after_seconds": 1}
    return (
        *(Member(f"print-{n}", (0.2 * (n + 1), "print")) for n in range(5)),
        *(Member(f"crash-{n}", (0.1, "crash", 1 + n / 2)) for n in range(4)),
        *(Member(f"tree-{n}", (0.3, "tree", 2 + n)) for n in range(3)),
        *(Member(f"flood-{n}", (0.2, "flood", 2_000_000, 3 + n), always) for n in range(3)),
        *(Member(f"loop-{n}", rest_s=1 + n) for n in range(3)),
        *(Member(f"gate-{n}", flags={**FLAGS, **GATE}, rest_s=2 + n) for n in range(2)),
    )


def small_cast() -> tuple[Member, ...]:
    """Return one of each, for a short scene."""
    return tuple(each for each in cast() if each.name.endswith("-0"))
