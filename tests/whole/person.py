"""A person at a terminal: the real ``ralphctl``, in an environment of its own, beside a real daemon."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.helpers import wait_for
from tests.template import ralphctl
from tests.whole.harness import Daemon, View

ANSWER_S = 30.0

Said: TypeAlias = subprocess.CompletedProcess[str]
Files: TypeAlias = dict[str, tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class Person:
    """Types ``ralphctl`` commands for one daemon; ``person("status", "demo")`` is what came of one."""

    daemon: Daemon

    def __call__(self, *words: str, cwd: Path | None = None, timeout_s: float = ANSWER_S) -> Said:
        """Type a command and read the answer."""
        return ralphctl(words, self.environment, cwd or self.daemon.home, timeout_s)

    @property
    def environment(self) -> dict[str, str]:
        """What the commands are typed in; the daemon that one of them starts has it too."""
        return self.daemon.environment | {"TZ": "UTC"}

    @contextmanager
    def watching(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A command that goes on, such as ``logs -f``; ended at the end of the block."""
        process = subprocess.Popen(
            argv(words),
            cwd=self.daemon.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def directory(self, name: str = "demo", *, toml: str = "") -> Path:
        """A working directory below the home, with a ``ralph.toml`` where one is given."""
        place = self.daemon.home / name
        place.mkdir(exist_ok=True)
        if toml:
            (place / "ralph.toml").write_text(toml)
        return place

    def configures(self, text: str) -> None:
        """Write the user's own configuration file."""
        place = self.daemon.root / "config" / "ralph"
        place.mkdir(mode=0o700, exist_ok=True)
        (place / "config.toml").write_text(text)

    def starts(self, directory: Path, command: Sequence[str], *words: str) -> View:
        """``ralphctl start DIRECTORY -- COMMAND``, which has to go well; the ralph that is there then."""
        said = self("start", str(directory), *words, "--", *command)
        assert said.returncode == 0, said
        return self.daemon.view(directory.name)

    def says_lines(self, name: str, count: int) -> list[str]:
        """The output of a ralph's run, once there are so many lines of it."""

        def lines() -> list[str] | None:
            text = self.daemon.ask("GET", f"/v1/ralphs/{name}/logs?tail=all&stream=stdout").decode()
            found = text.splitlines()
            return found if len(found) >= count else None

        return wait_for(lines, what=f"{count} lines of {name}") or []


def argv(words: Sequence[str]) -> list[str]:
    """What the shell makes of ``ralphctl WORDS``."""
    return [sys.executable, "-P", "-m", "ralphctl", *words]


def tree_of(place: Path) -> Files:
    """All that is below a directory: kind and mode, time of the last change, and content, by path."""
    found = {}
    for folder, directories, files in os.walk(place):
        for name in (*directories, *files):
            path = Path(folder) / name
            about = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            # A directory tells by what is in it; its time moves when something was there for a moment.
            changed_at = 0 if path.is_dir() else about.st_mtime_ns
            if name == "regent-state.json":  # renewed every few seconds while a run prints
                changed_at, content = 0, _TIMES_OF_OUTPUT.sub(b"", content)
            found[str(path.relative_to(place))] = (about.st_mode, changed_at, content)
    return found


_TIMES_OF_OUTPUT = re.compile(rb'"last_output_at": [^\n]*\n')
