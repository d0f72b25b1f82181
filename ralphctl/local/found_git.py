"""How a directory stands with git, as far as a loop that commits has to know."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralphd.git.repo import Repository, answer, head


@dataclass(frozen=True, slots=True)
class FoundGit:
    """``fault`` says why there is no repository to work with; then nothing else is known.

    ``root`` is the top of the work tree, ``branch`` None where HEAD is detached.
    """

    fault: str = ""
    mend: str = ""
    root: str = ""
    branch: str | None = None
    has_commit: bool = False
    upstream: str = ""
    has_identity: bool = False


def found_git(directory: Path, environ: Mapping[str, str]) -> FoundGit:
    """Ask git, by calls that take no lock and run nothing of the repository's. Blocks for some seconds."""
    if shutil.which("git") is None:
        return FoundGit("git is not installed", "install git")
    root = _said(directory, "rev-parse", "--show-toplevel")
    if not root:
        if Repository.find(directory) is None:
            return FoundGit("not a git repository", "git init")
        return FoundGit("git does not read the repository here", "git status")
    now = head(directory)
    return FoundGit(
        root=root,
        branch=now.branch if now else None,
        has_commit=bool(now and now.commit),
        upstream=_said(directory, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}"),
        has_identity=_has_identity(directory, environ),
    )


def _has_identity(directory: Path, environ: Mapping[str, str]) -> bool:
    """Whether a commit has an author; what git would make up of the machine's name does not count."""
    return all(
        (environ.get(f"GIT_AUTHOR_{part}") and environ.get(f"GIT_COMMITTER_{part}"))
        or _said(directory, "config", "--get", f"user.{part.lower()}")
        for part in ("NAME", "EMAIL")
    )  # fmt: skip


def _said(directory: Path, *words: str) -> str:
    code, printed = answer(directory, *words) or (1, b"")
    return printed.decode(errors="replace").strip() if code == 0 else ""
