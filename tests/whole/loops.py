"""The built-in loop in a directory, with an agent that has moods."""

import json
from pathlib import Path

from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.person import Person


def loop_in(daemon: Daemon, *moods: str, tasks: int = 2, agents: str = "") -> Path:
    """A directory ``demo`` with tasks, a prompt and an agent of these moods; ``agents``: more such keys."""
    directory = Person(daemon).directory()
    (directory / "TASKS.md").write_text("".join(f"- [ ] task {n}\n" for n in range(tasks)))
    (directory / "PROMPT.md").write_text("Do the next task.\n")
    moods_file = daemon.root / "moods"
    moods_file.write_text("".join(f"{mood}\n" for mood in moods))
    command = json.dumps(list(player("task_agent", moods_file)))
    (directory / "ralph.toml").write_text(
        f'[agents]\nprimary = "moody"\n{agents}[agents.moody]\ncommand = {command}\n'
        "[retry]\nreset_margin_seconds = 0\n[regent]\nretry_backoff_seconds = 0.05\n"
    )
    return directory


def open_tasks(directory: Path) -> int:
    """How many boxes are not ticked."""
    return (directory / "TASKS.md").read_text().count("- [ ]")


def release(daemon: Daemon) -> None:
    """Let an agent work that rests."""
    (daemon.root / "moods.go").touch()
