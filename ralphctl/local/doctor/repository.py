"""Git, this directory's repository, and this directory's configuration."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ralphctl.local.doctor.findings import Finding, Level
from ralphctl.words import count
from ralphd.config.configuration import Configuration
from ralphd.errors import RalphdError
from ralphd.git import repo, support
from ralphd.git.repo import Repository

_NEEDED = (2, 30)
"""What the guard needs more of is told by ``support``."""
_NAMES = ("user.name", "user.email")


def git(environ: Mapping[str, str], limit_s: float) -> Sequence[Finding]:
    """Whether there is one that will do."""
    path = shutil.which("git", path=environ.get("PATH"))
    if path is None:
        found = "not on PATH: no guard, no snapshots, and no agent that commits"
        return [Finding("git", Level.WARNING, found, "apt install git, or what your system has for that")]
    answer = repo.answer(Path("/"), "version", limit_s=limit_s)
    said = re.search(rb"(\d+)\.(\d+)[\w.]*", answer[1]) if answer is not None else None
    if said is None:
        return [Finding("git", Level.FAILED, f"{path} does not say its version", f"{path} version")]
    version = said[0].decode()
    if (int(said[1]), int(said[2])) < _NEEDED:
        wanted = ".".join(map(str, _NEEDED))
        return [Finding("git", Level.WARNING, f"{version}, older than {wanted}", "update git")]
    return [Finding("git", Level.OK, version)]


def repository(directory: Path, environ: Mapping[str, str], limit_s: float) -> Sequence[Finding]:
    """What is configured here, and what the guard cannot do. Names and addresses are not told."""
    name = "repository"
    found = Repository.find(directory)
    if found is None:
        return [Finding(name, Level.OK, f"none: {directory} is in no work tree, so there is no guard")]
    if shutil.which("git", path=environ.get("PATH")) is None:
        return []
    if faults := support.unsupported(directory):
        return [Finding(name, Level.WARNING, line, "docs/guard.md says what works") for line in faults]
    missing = [key for key in _NAMES if not _configured(directory, key, limit_s)]
    if missing:
        mend = "\n".join(f'git config --global {key} "{key.partition(".")[2].upper()}"' for key in missing)
        told = f"{' and '.join(missing)} not set: an agent that commits here fails"
        return [Finding(name, Level.WARNING, told, mend)]
    upstream = repo.answer(directory, "rev-parse", "--abbrev-ref", "@{upstream}", limit_s=limit_s)
    has_upstream = upstream is not None and upstream[0] == 0
    told = "with an upstream" if has_upstream else "no upstream: nothing is pulled or pushed"
    return [Finding(name, Level.OK, f"name and address are set; {told}")]


def _configured(directory: Path, key: str, limit_s: float) -> bool:
    answer = repo.answer(directory, "config", "--get", key, limit_s=limit_s)
    return answer is not None and answer[0] == 0 and bool(answer[1].strip())


def configuration(loaded: Configuration | RalphdError) -> Finding:
    """What is wrong with it, or that nothing is."""
    name = "configuration"
    if isinstance(loaded, RalphdError):
        found = "\n".join([loaded.what, *loaded.why.splitlines()])
        return Finding(name, Level.FAILED, found, loaded.mend or "ralphctl config check")
    idle = loaded.not_built_yet()
    if idle:
        found = f"no faults, but {count(len(idle), 'key')} without effect: {', '.join(idle)}"
        return Finding(name, Level.WARNING, found, "ralphctl config check")
    return Finding(name, Level.OK, "no faults")
