"""``docs/one-to-five.md`` is true: its commands are typed on three machines, each with a home of its own.

A block of commands names its machine in its first line. ``fleet hub`` and ``fleet token`` stay in the
foreground there, so they are started beside the rest; the addresses are those of this test.
"""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.pages import DOCS, Typed, commands_of, is_as_told
from tests.whole.harness import daemon_in
from tests.whole.test_docs import Newcomer
from tests.whole.test_fleet import git

PAGE = DOCS / "one-to-five.md"
LIMIT_S = 60.0
MACHINES = ("hub", "rack1", "rack2")


@dataclass
class Rack:
    """The machines, and what is open in the terminals of the hub."""

    folder: Path
    port: int
    stack: ExitStack
    machines: dict[str, Newcomer] = field(default_factory=dict)
    tokens: list["subprocess.Popen[str]"] = field(default_factory=list)
    token: str = ""

    def typed_here(self, text: str) -> str:
        """Return a command of the page with the addresses of this test."""
        text = text.replace("init hub.example.com", f"init 127.0.0.1 --listen 127.0.0.1 --port {self.port}")
        text = text.replace("git@git.example.com:team", str(self.folder)).replace("TOKEN", self.token)
        return text.replace("git.example.com/team/*", f"{self.folder}/*")

    def opens(self, command: str) -> "subprocess.Popen[str]":
        """Start a command in a terminal of its own on the hub."""
        opened = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], env=self.machines["hub"].environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.stack.callback(self._ends, opened)
        return opened

    def _ends(self, opened: "subprocess.Popen[str]") -> None:
        if opened.poll() is None:
            opened.send_signal(signal.SIGINT)
        opened.communicate(timeout=LIMIT_S)

    def types(self, machine: str, typed: list[Typed]) -> None:
        """Type a block of the page on a machine."""
        block: list[Typed] = []
        for each in typed:
            command = self.typed_here(each.command)
            if command.startswith("ralphctl fleet hub"):
                self.say(machine, block)
                block = []
                hub = self.opens(command)
                assert hub.stdout is not None and any("Server is ready" in line for line in hub.stdout)
            elif command.startswith("ralphctl fleet token"):
                asks = self.opens(command)
                assert asks.stdout is not None and asks.stdin is not None
                self.token = asks.stdout.readline().strip()
                asks.stdin.write("y\n")
                asks.stdin.flush()
                self.tokens.append(asks)
            else:
                block.append(Typed(command, each.printed))
        self.say(machine, block)

    def say(self, machine: str, typed: list[Typed]) -> None:
        """Type commands, each of which has to end well and to print what the page shows."""
        known: dict[str, str] = {}
        if not typed:
            return
        for each, (code, lines) in zip(typed, self.machines[machine].types(typed), strict=True):
            told = f"{machine} $ {each.command}\n" + "\n".join(lines)
            assert code == 0, told
            assert not each.expected or is_as_told(each.expected, lines, known), told


@pytest.fixture
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    folder = tmp_path_factory.mktemp("git")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        rack = Rack(folder, port, stack)
        for name in MACHINES:
            daemon = stack.enter_context(daemon_in(tmp_path_factory.mktemp(name)))
            daemon.state = daemon.home / ".local" / "state" / "ralphd"
            rack.machines[name] = Newcomer(daemon)
            rack.machines[name].has_agents(*[{"do": "task", "takes_s": 2}] * 4)
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "shop.git")
        git(folder, "clone", "--quiet", "shop.git", "seed")
        git(folder / "seed", "commit", "--quiet", "--allow-empty", "--message", "first")
        git(folder / "seed", "push", "--quiet", "origin", "HEAD:main")
        yield rack
        for name in MACHINES:
            rack.machines[name].types([Typed("ralphctl regent stop --now", ())])


def test_one_machine_becomes_three(rack: Rack) -> None:
    machine, block = "", list[Typed]()
    for each in commands_of(PAGE):
        if named := re.fullmatch(r"# on (\w+)", each.command):
            rack.types(machine, block)
            machine, block = named[1], []
        else:
            block.append(each)
    rack.types(machine, block)

    for asks in rack.tokens:
        assert asks.wait(LIMIT_S) == 0
    shop = rack.folder / "shop.git"
    branches = git(shop, "branch", "--list", "ralph/*", "--format=%(refname)").split()
    subjects = [git(shop, "log", "--format=%s", branch) for branch in branches]
    assert sorted(text.count(": done") for text in subjects) == [2, 2]
