"""A person's task, from the first command to the morning: start it and go to bed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import agents
from tests.terminal import Terminal
from tests.whole.harness import Daemon
from tests.whole.person import Person

TASKS = "- [ ] parse the date in the header\n- [ ] show it in local time\n"
NIGHT_S = 60.0


@pytest.fixture
def repository(daemon: Daemon) -> Path:
    """A fresh repository with tests and a list of tasks, and nothing of ralphd's."""
    directory = daemon.home / "project"
    directory.mkdir()
    (directory / "Makefile").write_text("test:\n\ttest ! -e broken\n")
    (directory / "TASKS.md").write_text(TASKS)
    git(directory, "init", "--quiet", "-b", "main")
    git(directory, "config", "user.name", "A Person")
    git(directory, "config", "user.email", "person@example.com")
    git(directory, "add", "-A")
    git(directory, "commit", "--quiet", "-m", "what there is")
    return directory


def git(directory: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *words], check=True, capture_output=True, text=True, timeout=30
    ).stdout


def test_start_it_and_go_to_bed(
    daemon: Daemon, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = agents.install(tmp_path / "bin", ("claude",))
    bad = {"do": "task", "files": {"broken": "x"}}
    script = agents.write_script(tmp_path / "script.json", [{"do": "task", "takes_s": 0.5}, bad])
    for name, value in agents.environment(tools, script).items():
        monkeypatch.setenv(name, value)
    person = Person(daemon)
    environment = person.environment | {"PLAYED_SCRIPT": str(script)}

    # In the evening: three commands, and the lid is closed while an agent works.
    said = person("init", "--no-push", "--no-pull", "--rollback", cwd=repository)
    assert said.returncode == 0, said
    assert "make test  (Makefile, target test)" in said.stdout
    assert "TASKS.md: 2 tasks, 2 open" in said.stdout
    git(repository, "add", "PROMPT.md", "ralph.toml")
    git(repository, "commit", "--quiet", "-m", "ralph")
    typed = f"{sys.executable} -P -m ralphctl start; echo typed: $?; exec sleep 600"
    with Terminal(["/bin/sh", "-c", typed], cwd=repository, environment=environment) as terminal:
        terminal.shows("typed: 0")
        wait_for(lambda: agents.calls(script), timeout_s=NIGHT_S, what="an agent at work")

    # At night: the second task breaks the tests, is taken back, and done again.
    daemon.becomes("project", "done", timeout_s=NIGHT_S)

    # In the morning: one command says what is so.
    said = person("status", cwd=repository)
    assert said.returncode == 0
    assert "done" in said.stdout.splitlines()[0]
    assert "- [ ]" not in (repository / "TASKS.md").read_text()
    assert not (repository / "broken").exists()
    assert [call.do for call in agents.calls(script)] == ["task", "task", "task"]
    subjects = git(repository, "log", "--format=%s").splitlines()
    assert len([subject for subject in subjects if subject.endswith(": done")]) == 3
    assert len([subject for subject in subjects if subject.startswith("Revert")]) == 1
    assert git(repository, "status", "--porcelain") == ""
