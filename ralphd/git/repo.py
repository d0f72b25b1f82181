"""Git as calls: reads of a repository that take no lock and run nothing of the repository's own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

TIME_LIMIT_S = 5.0
_READ = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a repository stands: a short sha, None before the first; a branch, None when detached."""

    commit: str | None
    branch: str | None


def head(directory: Path) -> Head | None:
    """The HEAD of the repository around ``directory``; None without one, or when git cannot tell in time."""
    # Of a repository without a commit only the branch is known, of a detached HEAD only the commit.
    branch = _read(directory, "symbolic-ref", "--short", "--quiet", "HEAD")
    commit = _read(directory, "rev-parse", "--short", "--verify", "--quiet", "HEAD")
    return None if branch is None and commit is None else Head(commit, branch)


def _read(directory: Path, *words: str) -> str | None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run(
            [*_READ, "-C", str(directory), *words],
            capture_output=True,
            timeout=TIME_LIMIT_S,
            stdin=subprocess.DEVNULL,
            env=kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout.decode(errors="replace").strip()
    return text if answer.returncode == 0 and text else None
