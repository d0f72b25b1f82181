"""The played agents: what a test is told of a call is so, and each line is one that the CLI could print."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import agents

CLIS = ("claude", "codex", "gemini", "opencode")
LIMIT_S = 30


class Stage:
    """A directory with a repository, agents on PATH, and a script."""

    def __init__(self, root: Path, *steps: Mapping[str, Any]) -> None:
        self.repo = root / "repo"
        self.repo.mkdir()
        self.script = agents.write_script(root / "script.json", steps)
        added = agents.environment(agents.install(root / "bin"), self.script)
        self.environment = {**os.environ, **added, "RALPH_ATTEMPT_ID": "a1"}

    def start(self, agent: str, *argv: str) -> "subprocess.Popen[bytes]":
        program = str(Path(self.environment["PATH"].split(os.pathsep)[0]) / agent)
        return subprocess.Popen(
            [program, *argv], cwd=self.repo, env=self.environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def call(self, agent: str, *argv: str, prompt: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [agent, *argv], cwd=self.repo, env=self.environment, input=prompt, capture_output=True, text=True,
            check=False, timeout=LIMIT_S,
        )  # fmt: skip


def git(stage: Stage, *argv: str) -> str:
    return subprocess.run(
        ["git", "-C", stage.repo, *argv], capture_output=True, text=True, check=True, timeout=LIMIT_S
    ).stdout


@pytest.mark.parametrize("agent", CLIS)
def test_every_line_of_a_cli_is_an_event_of_its_own(agent: str, tmp_path: Path) -> None:
    kinds = ("task", "rate_limit", "usage_limit", "overloaded", "fatal")
    stage = Stage(tmp_path, *({"do": kind, "seconds": 3} for kind in kinds))

    ended = [stage.call(agent, "-p", "do it") for _ in kinds]

    for result in ended:
        assert all("type" in json.loads(line) for line in result.stdout.splitlines())
        assert result.stdout
    assert [result.returncode == 0 for result in ended] == [True, False, False, False, False]
    assert "3" in ended[1].stdout


def test_a_task_is_done_ticked_and_committed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    git(stage, "init", "-q")
    stories = [
        {"id": "US-001", "passes": True},
        {"id": "US-002", "passes": False},
        {"id": "US-003", "passes": False},
    ]
    (stage.repo / "prd.json").write_text(json.dumps({"userStories": stories}))
    (stage.repo / "TASKS.md").write_text("- [x] US-001 first\n- [ ] US-002 second\n- [ ] US-003 third\n")

    stage.call("plain", prompt="Do task US-003 now.")
    stage.call("plain", prompt="Go on.")

    assert git(stage, "log", "--format=%s").splitlines() == ["US-002: done", "US-003: done"]
    assert git(stage, "status", "--short") == ""
    plan = json.loads((stage.repo / "prd.json").read_text())
    assert all(story["passes"] for story in plan["userStories"])
    assert "[ ]" not in (stage.repo / "TASKS.md").read_text()


def test_a_call_is_recorded_with_what_it_was_given(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"do": "claim", "agent": "codex"}, {"do": "empty"})

    stage.call("claude", "--resume", "abc", "-p", prompt="the prompt\n")
    stage.call("codex", "exec", "a longer prompt")
    empty, claim = agents.calls(stage.script)

    assert (empty.agent, empty.do, empty.session, empty.exit) == ("claude", "empty", "abc", 0)
    assert (empty.argv, empty.stdin, empty.beside) == (("--resume", "abc", "-p"), "the prompt\n", ())
    assert empty.environment["RALPH_ATTEMPT_ID"] == "a1"
    assert (claim.agent, claim.do, claim.prompt) == ("codex", "claim", "a longer prompt")
    assert claim.ended_at is not None
    assert empty.started_at < claim.started_at < claim.ended_at


def test_calls_that_live_at_the_same_time_are_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"do": "hang_stubborn"}, {"do": "hang"})
    stubborn = stage.start("gemini")
    wait_for(lambda: agents.calls(stage.script), timeout_s=LIMIT_S)
    hung = stage.start("claude")
    try:
        wait_for(lambda: len(agents.calls(stage.script)) == 2, timeout_s=LIMIT_S)
        stubborn.terminate()
        hung.terminate()

        assert hung.wait(LIMIT_S) == -signal.SIGTERM
        assert stubborn.poll() is None
        assert [call.beside for call in agents.calls(stage.script)] == [(), (1,)]
    finally:
        for process in (stubborn, hung):
            process.kill()
            process.communicate(timeout=LIMIT_S)
    assert agents.calls(stage.script)[0].ended_at is None


def test_a_limit_holds_for_its_agent_and_takes_no_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"do": "usage_limit", "holds_s": 60, "agent": "claude"}, {"do": "claim"})

    first, again = stage.call("claude"), stage.call("claude")
    stage.call("codex")

    limits = [
        json.loads(line) for line in (first.stdout + again.stdout).splitlines() if "rate_limit_info" in line
    ]
    assert len({limit["rate_limit_info"]["resetsAt"] // 3 for limit in limits}) <= 2
    assert [call.do for call in agents.calls(stage.script)] == ["usage_limit", "usage_limit", "claim"]
    assert [call.limited for call in agents.calls(stage.script)] == [False, True, False]


def test_a_child_that_is_left_behind_outlives_its_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"do": "claim", "leave_child": True, "broken_lines": True, "escape_codes": True})

    subprocess.run(
        ["claude"], cwd=stage.repo, env=stage.environment, stdin=subprocess.DEVNULL, capture_output=True,
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    (child,) = wait_for(lambda: agents.children(stage.script))

    try:
        assert is_alive(child)
        assert os.getsid(child) != os.getsid(0)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"do": "crash", "exit": 3}, 3),
        ({"do": "crash", "signal": 11}, -11),
        ({"do": "empty"}, 0),
        ({"do": "parrot"}, 0),
    ],
)
def test_it_ends_as_the_script_says(step: Mapping[str, Any], code: int, tmp_path: Path) -> None:
    stage = Stage(tmp_path, step)

    result = stage.call("plain", prompt="say this")

    assert result.returncode == code
    assert ("say this" in result.stdout) is (step["do"] == "parrot")
