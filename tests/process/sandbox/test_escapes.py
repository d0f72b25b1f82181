"""Real tries of a run to reach its supervision, at each level of the sandbox (A1, A2): the table of escapes.

One run per level makes all tries, each in a process of its own. What came of them is read from outside: from
victims, sockets and files. Only pids that the test itself started are ever named.
"""

import asyncio
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ralphctl.client import discovery
from ralphd.core.sandbox import DEVICES, NO_SANDBOX, SIGNALS_ABI, SandboxChoice
from ralphd.plain_files import read_plain
from ralphd.process import agent_process, shim
from ralphd.process.sandbox.box import why_unavailable, wrapper
from ralphd.process.spawn import Run
from tests.helpers import is_alive
from tests.pages import ROOT
from tests.process.runs import Stage, output, stage_in
from tests.process.sandbox.escapes import LEVELS, REPAIRED_BY, rows
from tests.process.sandbox.test_box import box_of

PLAYER = (ROOT / "tests" / "players" / "escapist.py").read_text()
SOCKETS = tuple(name for name in rows() if name.startswith("connect_to"))
VICTIMS = ("kill_daemon", "trace", "write_memory_file", "write_memory_by_call",
           *(name for name in rows() if name.startswith("signal_")))  # fmt: skip
MADE = {
    "write_state": "state/new",
    "rename_into_state": "state/renamed",
    "link_into_state": "state/linked",
    "mount_the_state": "state/bound",
    "write_bashrc": "user/.bashrc",
    "write_outside": "outside/new",
    "make_a_disk": "home/null",
    "plant_a_hook": "home/.git/hooks/pre-commit",
}
KEPT = ("truncated", "d.sock", "ralph.json", "mode", "times")
"""Files of the state directory; each is the goal of one escape."""


class Scene:
    """One run with all tries, its surroundings, and what is left of them."""

    def __init__(self, level: str, stage: Stage, sockets: Path, cleanup: ExitStack) -> None:
        self.level, self.stage, self.root = level, stage, stage.home.parent
        self.box = box_of(stage)  # makes repository and state directory
        for name in ("user", "outside"):
            (self.root / name).mkdir()
        for name in KEPT:
            (self.root / "state" / name).write_text("kept")
            (self.root / "state" / name).chmod(0o600)
        self.victims = {name: subprocess.Popen(["sleep", "120"]) for name in VICTIMS}
        for victim in self.victims.values():
            cleanup.callback(victim.wait)
            cleanup.callback(victim.kill)
        self.listening = {name: socket.socket(socket.AF_UNIX) for name in SOCKETS}
        self.abstract = f"ralph-test-{secrets.token_hex(8)}"
        for name, each in self.listening.items():
            cleanup.callback(each.close)
            each.bind(f"\0{self.abstract}" if "abstract" in name else str(sockets / name[-6:]))
            each.listen()
        self.paths = {name: str(sockets / name[-6:]) for name in SOCKETS}

    async def play(self) -> None:
        sandbox = SandboxChoice(self.level if self.level != "box" else "signals", required=True)
        if self.level == "write":
            sandbox = replace(sandbox, writable=(str(self.stage.home), *DEVICES))
        sandbox = NO_SANDBOX if self.level == "none" else sandbox
        sibling = await self._started(("sleep", "120"), sandbox)
        assert sibling.record is not None
        at = {
            "escapes": list(rows()), "sibling": sibling.record.pid, "abstract": self.abstract,
            "victims": {name: victim.pid for name, victim in self.victims.items()}, "sockets": self.paths,
            "state": str(self.root / "state"), "home": str(self.root / "user"),
            "outside": str(self.root / "outside"), "secret": str(self.root / "state" / "secret"),
            "become": agent_process.STARTS, "shim": str(Path(shim.__file__).parent),
        }  # fmt: skip
        run = await self._started(
            (sys.executable, "-c", PLAYER, json.dumps(at)), sandbox, boxed=self.level == "box"
        )
        assert run.record is not None
        (self.stage.home / "shim").write_text(str(run.record.shim_pid))
        self.is_lost = (await run.ended()).lost
        self.printed = output(run.directory).decode()
        self.sibling_lives = is_alive(sibling.record.pid)
        sibling.kill_tree()
        await sibling.ended()

    async def _started(self, command: tuple[str, ...], sandbox: SandboxChoice, *, boxed: bool = False) -> Run:
        directory = self.stage.directory()
        words = wrapper(self.box) if boxed else ()
        spec = replace(self.stage.spec(directory, command), sandbox=sandbox, wrapper=words)
        run = await Run.spawn(directory, spec, None)
        self.stage.started.append(run)
        return run

    def escaped(self, name: str) -> bool:
        """Return whether the deed was done, as seen from outside of the run."""
        state, home = self.root / "state", self.stage.home
        match name:
            case "kill_shim":
                return self.is_lost
            case "kill_sibling":
                return not self.sibling_lives
            case "symlink_into_state":
                return (state / "symlink").is_symlink()
            case "truncate_state":
                return (state / "truncated").read_text() == ""
            case "remove_the_socket":
                return not (state / "d.sock").exists()
            case "replace_a_definition":
                return (state / "ralph.json").read_text() == ""
            case "change_the_mode_of_state":
                return (state / "mode").stat().st_mode & 0o777 != 0o600
            case "change_the_times_of_state":
                return (state / "times").stat().st_mtime == 1
            case "plant_a_file_watcher":
                return "fsmonitor" in (home / ".git" / "config").read_text()
            case "plant_a_link":
                with suppress(OSError):
                    return bool(read_plain(home / "planted", 100))
                return False
            case "forge_the_signpost":
                assert (home / ".ralph" / "lock").exists()
                return self.paths["connect_to_docker"] in discovery.candidates(None, {}, str(home))
            case _ if name in MADE:
                return (self.root / MADE[name]).exists()
            case _ if name in SOCKETS:
                return bool(select.select([self.listening[name]], [], [], 0)[0])
            case _ if name == "kill_daemon" or name.startswith("signal_"):
                return self.victims[name].poll() is not None
        return f"{name} reached" in self.printed


@pytest.fixture(scope="module", params=LEVELS)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    level = request.param
    if level != "none" and shim.landlock_abi() < SIGNALS_ABI:
        pytest.skip(f"Landlock ABI {shim.landlock_abi()} restricts no signals")
    if level == "box" and (why := why_unavailable()):
        pytest.skip(why)
    with ExitStack() as cleanup:
        sockets = Path(cleanup.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        stage = cleanup.enter_context(stage_in(tmp_path_factory.mktemp(level)))
        played = Scene(level, stage, sockets, cleanup)
        asyncio.run(played.play())
        yield played


def cannot_try(name: str) -> str:
    """Why this machine refuses a deed whatever the level."""
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() == 0:
        return "" if name != "mount_the_state" or can_mount() else "no user namespaces here"
    if name == "make_a_disk":
        return "only root makes device nodes"
    if (name == "trace" or "memory_" in name) and yama.exists() and yama.read_text().strip() != "0":
        return "Yama restricts ptrace here"
    return "" if name != "mount_the_state" or can_mount() else "no user namespaces here"


def can_mount() -> bool:
    words = ["unshare", "-rm", "mount", "--bind", "/", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(words, check=False).returncode == 0


@pytest.mark.parametrize("name", rows())
def test_an_escape_ends_as_the_table_says(scene: Scene, name: str) -> None:
    expected: Mapping[str, str] = rows()[name][1]
    is_refused = expected[scene.level] == "refused"
    if not is_refused and (why := cannot_try(name)):
        pytest.skip(why)

    assert scene.escaped(name) is not is_refused, scene.printed


@pytest.mark.parametrize(
    "name", [name for name, (_, cells) in rows().items() if "repaired" in cells.values()]
)
def test_each_repair_is_shown_by_a_test(name: str) -> None:
    path, _, test = REPAIRED_BY[name].partition("::")

    assert f"def {test}(" in (ROOT / path).read_text()
