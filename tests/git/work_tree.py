"""Real repositories for tests, with an identity of their own and nothing of the machine's configuration."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_IDENTITY = (
    "-c",
    "user.name=Ralph",
    "-c",
    "user.email=ralph@example.invalid",
    "-c",
    "gc.auto=0",
    "-c",
    "core.fsync=none",
)


@dataclass(frozen=True, slots=True)
class WorkTree:
    """A work tree and git in it."""

    path: Path

    @classmethod
    def new(cls, path: Path) -> "WorkTree":
        """Create an empty repository on the branch ``main``."""
        return cls(copy_of(_empty, path))

    @classmethod
    def clone(cls, other: "WorkTree", path: Path) -> "WorkTree":
        """A clone of another."""
        other.git("clone", "--quiet", str(other.path), str(path))
        return cls(path)

    def git(self, *words: str) -> str:
        """Run git, which has to go well; what it printed."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}
        return subprocess.run(
            ["git", *_IDENTITY, *words],
            cwd=self.path,
            env=environment | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def commit(self, subject: str, *, file: str | None = None) -> None:
        """Commit a file that holds the subject."""
        name = file or "".join(each if each.isalnum() else "-" for each in subject)
        (self.path / name).write_text(subject)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", subject)


def copy_of(build: Callable[[Path], None], path: Path) -> Path:
    """Copy what ``build`` makes, which it does once in a session: a copy costs less than calls of git."""
    return Path(shutil.copytree(_template(build).name, path, symlinks=True, dirs_exist_ok=True))


@cache
def _template(build: Callable[[Path], None]) -> TemporaryDirectory[str]:
    directory = TemporaryDirectory(prefix="template-")  # removed at the end of the process
    build(Path(directory.name))
    return directory


def _empty(path: Path) -> None:
    WorkTree(path).git("init", "--quiet", "-b", "main")
    for sample in (path / ".git" / "hooks").iterdir():
        sample.unlink()
