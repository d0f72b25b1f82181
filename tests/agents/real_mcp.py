"""The MCP server of ``ralphctl`` in front of real agent CLIs: ``make test-agents``, as ``real_agents``.

The lines that register it and ask an agent are those of docs/mcp.md, typed in a shell.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agents.installed import program, why_not
from tests.agents.lodging import Lodging
from tests.agents.vendors.answers import ServerCalls
from tests.agents.vendors.server import Vendors
from tests.helpers import wait_for
from tests.pages import DOCS, fences_of
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 120.0
AGENTS = ("claude", "codex")
STATUS = ("get_status", {"name": "demo"})
PAUSE = ("act", {"name": "demo", "action": "pause"})


@dataclass(frozen=True, slots=True)
class Desk:
    """A person with a daemon, its state in the usual place, and an agent CLI that knows no ralphd yet."""

    lodging: Lodging
    daemon: Daemon
    vendors: Vendors

    def environment(self, agent: str) -> dict[str, str]:
        """What the person's shell has: nothing that leads to the daemon but the home."""
        path = os.pathsep.join(
            [str(self.lodging.root / "bin"), str(program(agent).parent), os.environ["PATH"]]
        )
        return {"PATH": path, "LANG": "C.UTF-8", **self.lodging.spec(agent).env}

    def types(self, agent: str, line: str) -> None:
        """Type a line of the page, which has to go well; no process of it is left."""
        done = subprocess.run(
            ["sh", "-c", line], env=self.environment(agent), cwd=self.lodging.project, check=False,
            timeout=LIMIT_S, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        wait_for(lambda: not at_work_in(self.lodging.project), what="the end of the agent and its servers")

    def has(self, agent: str) -> "tuple[str, str]":
        """Configure the agent for the vendors here; return the page's lines: to add ralphd, and to ask."""
        if reason := why_not(agent):
            pytest.skip(reason)
        (self.lodging.root / "bin").mkdir()
        (self.lodging.root / "bin" / "ralphctl").symlink_to(Path(sys.executable).with_name("ralphctl"))
        if agent == "codex":  # what the other tests give it as arguments
            settings = [word for word in self.lodging.spec(agent).args if "=" in word]
            (self.lodging.home / ".codex").mkdir()
            config = "\n".join(['model = "gpt-5"', *settings, ""])
            (self.lodging.home / ".codex" / "config.toml").write_text(config)
        lines = [line for each in fences_of(DOCS / "mcp.md", "console") for line in each.text.splitlines()]
        add, ask = (line.removeprefix("$ ") for line in lines if line.startswith(f"$ {agent} "))
        return add, ask

    def uses(self, *calls: "tuple[str, dict[str, str]]") -> list[str]:
        """Have the model make these calls; return what comes back of them, as it does."""
        planned = ServerCalls("ralphd", calls)
        self.vendors.uses(planned)
        return planned.results


def at_work_in(directory: Path) -> list[int]:
    """The processes that have this working directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{pid}/cwd").readlink() == directory:
                found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """One, with a ralph ``demo`` at work; nothing of it is left afterwards."""
    with Vendors("true") as vendors, daemon_in(tmp_path) as daemon:
        lodging = Lodging(tmp_path, vendors.url).furnish()
        daemon.state = lodging.home / ".local" / "state" / "ralphd"
        daemon.state.mkdir(parents=True, mode=0o700)
        daemon.start()
        Witness.of(daemon).register()
        daemon.becomes("demo", "running")
        yield Desk(lodging, daemon, vendors)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_cli_reads_and_pauses_a_ralph(agent: str, desk: Desk) -> None:
    add, ask = desk.has(agent)
    results = desk.uses(STATUS, PAUSE, STATUS)

    desk.types(agent, f"{add} --allow act")
    desk.types(agent, ask)

    assert desk.daemon.becomes("demo", "paused")
    assert ['"state":"Running"' in each for each in results] == [True, False, False], results
    assert '"actions":["stop","pause"]' in results[0]
    assert ['"state":"Paus' in each for each in results] == [False, True, True], results


@pytest.mark.parametrize("agent", AGENTS)
def test_without_allow_an_agent_cli_only_reads(agent: str, desk: Desk) -> None:
    add, ask = desk.has(agent)
    results = desk.uses(STATUS)

    desk.types(agent, add)
    desk.types(agent, ask)

    (result,) = results
    assert '"state":"Running"' in result and '"actions":[]' in result


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_cli_within_a_run_reads_and_is_refused(agent: str, desk: Desk) -> None:
    add, ask = desk.has(agent)
    results = desk.uses(STATUS, PAUSE)
    desk.types(agent, f"{add} --allow act --socket {desk.daemon.state}/ralphd.sock")

    words = {
        "directory": str(desk.lodging.project),
        "command": ["sh", "-c", ask],
        "name": "inner",
        "start": True,
    }
    desk.daemon.ask("POST", "/v1/ralphs", {**words, "environment": desk.environment(agent)})

    desk.daemon.becomes("inner", "done", timeout_s=LIMIT_S)
    read, refused = results
    assert '"state":"Running"' in read and '"actions":[]' in read, read
    assert "refused: this is a supervised run" in refused
    assert desk.daemon.view("demo")["state"] == "running"
