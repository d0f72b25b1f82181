"""A person's task: it stopped in the night; why, and what now?"""

import re
from pathlib import Path

import pytest

from tests.players import agents
from tests.whole.harness import Daemon
from tests.whole.person import Person


def test_it_stopped_why_and_what_now(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = agents.install(tmp_path / "bin", ("claude",))
    script = agents.write_script(tmp_path / "script.json", [{"do": "task"}, {"do": "fatal"}])
    monkeypatch.setenv("PATH", agents.environment(tools, script)["PATH"])
    person = Person(daemon)
    directory = person.directory("shop", toml=f'[agents.claude]\nenv = {{ PLAYED_SCRIPT = "{script}" }}\n')
    (directory / "PROMPT.md").write_text("Do the task.\n")
    (directory / "TASKS.md").write_text("- [ ] parse the date\n- [ ] show it\n")
    daemon.start()
    assert person("start", str(directory)).returncode == 0
    person("wait", "shop", "--for", "idle", "--wait-timeout", "30", timeout_s=40)

    # The first look: the state, the reason in the agent's own words, and the next command.
    said = person("status", cwd=directory)
    assert said.returncode == 1
    first = said.stdout.splitlines()[0]
    assert first.startswith("shop  failed: ") and "claude" in first
    assert re.search(r"^  alert .* not acknowledged", said.stdout, re.M)
    needs = re.search(r"^  needs +(.+)$", said.stdout, re.M)
    assert needs is not None and "claude" in needs[1]
    assert "  last change " in said.stdout and "1 of 2" in person("report", cwd=directory).stdout

    # The second one: the evidence.
    why = person("explain", cwd=directory).stdout
    assert "Invalid API key" in why and "  rule      E2: " in why

    # What it says is done: the login (the script has no failure left), and the command that is named.
    named = re.search(r"ralphctl (start|resume) shop", said.stdout)
    assert named is not None
    assert person(named[1], "shop").returncode == 0
    daemon.becomes("shop", "done", timeout_s=30)
    assert "- [ ]" not in (directory / "TASKS.md").read_text()
    assert "  alert " not in person("status", cwd=directory).stdout
