"""The commits of an iteration as git shows them: its diff, and the size of its changes.

The repository is not trusted: an agent can write to its configuration. No program that it names runs: no diff
driver, text converter, file watcher, hook, pager or transport. The user's own pager does.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.core.text import plain
from ralphd.git import repo

_NO_TITLE: Final = ((), ("--format=",))
_PLAIN: Final = ("--no-show-signature", "--no-notes", "--diff-merges=first-parent")
_PARENTS: Final = ("log", "--no-walk=unsorted", "--ignore-missing", *_PLAIN[:2], "--format=%H %P")
_NO_FETCH: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, slots=True)
class CommitRange:
    """Commits as git shows them: all between ``base`` and ``tip``, or with ``base`` empty each by itself."""

    shas: tuple[str, ...]
    base: str = ""
    tip: str = ""

    def words(self, *options: str) -> tuple[str, ...]:
        """Return the words for git, which then runs no program that the repository names."""
        safe = ("--no-ext-diff", "--no-textconv", "--submodule=short", *options)
        if self.base:
            return ("diff", *safe, self.base, self.tip, "--")
        return ("show", *_PLAIN, *safe, *self.shas, "--")


def range_of(parents: Mapping[str, Sequence[str]]) -> CommitRange:
    """Return the range of these commits, oldest first, by the parents of each.

    They make one range if they follow each other by first parents. If a commit of somebody else is between
    them, each is shown by itself.
    """
    shas, line = tuple(parents), list[str]()
    base = tip = shas[-1]
    while base in parents:
        line.append(base)
        base = next(iter(parents[base]), "")
    return CommitRange(shas, base, tip) if len(line) == len(shas) else CommitRange(shas)


def commit_range(directory: Path, shas: Sequence[str]) -> CommitRange | None:
    """Return the range of these commits, oldest first; None if git knows none of them."""
    code, printed = (shas and repo.answer(directory, *_PARENTS, *shas, "--", env=_NO_FETCH)) or (1, b"")
    parents = {sha: tuple(above) for sha, *above in map(str.split, printed.decode().splitlines())}
    return range_of(parents) if parents and code == 0 else None


def fault(directory: Path, shas: Sequence[str]) -> str:
    """Return why git has no range of these commits: the first line of its error, else that they are gone."""
    words, no_answer = (*_PARENTS, *shas, "--"), (1, b"git does not answer")
    code, said = repo.answer(directory, *words, env=_NO_FETCH, stderr=subprocess.STDOUT) or no_answer
    line = said.decode(errors="replace").partition("\n")[0]
    return plain(line) if code else "git no longer has its commits"


def stat(directory: Path, of: CommitRange) -> list[str]:
    """Return what the commits changed, one line per file, the sum last."""
    words = of.words("--stat=100", "--no-color", *_NO_TITLE[not of.base])
    code, printed = repo.answer(directory, *words, env=_NO_FETCH) or (1, b"")
    lines = printed.decode(errors="replace").splitlines() if code == 0 else []
    return [plain(line) for line in lines if line.strip()]


def pager(environ: Mapping[str, str]) -> str:
    """Return the pager that the user's own configuration and environment name; empty for none."""
    given = {name: value for name, value in environ.items() if name == "GIT_PAGER"}
    answer = repo.answer(Path("/"), "var", "GIT_PAGER", env={"GIT_DIR": "/dev/null", **given})
    return answer[1].decode(errors="replace").strip() if answer and answer[0] == 0 else ""


def show_diff(directory: Path, of: CommitRange) -> int:
    """Run git's diff of these commits on our terminal, in the user's own pager; return its exit code.

    The repository is not trusted: no diff driver, file watcher, hook, pager or transport of its
    configuration runs.
    """
    chosen = pager(os.environ)
    settings = ("-c", "core.sshCommand=false", "-c", f"pager.{of.words()[0]}={'true' if chosen else 'false'}")
    env = {**_NO_FETCH, "LC_ALL": os.environ.get("LC_ALL", ""), "GIT_PAGER": chosen or "cat"}
    argv, environment = repo.call(directory, *settings, *of.words(), env=env)
    with subprocess.Popen(argv, env=environment) as git:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager's: it ends the search, not the page
        return git.wait()
