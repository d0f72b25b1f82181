"""The commits of an iteration as git shows them: its diff, and the size of its changes.

The repository is not trusted: an agent can write to its configuration. No program that it names runs: no diff
driver, text converter, file watcher, hook, pager or transport. The user's own pager does.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from ralphd.core.text import plain
from ralphd.dataclass import dataclass
from ralphd.git import repo

_NO_TITLE: Final = ((), ("--format=",))
_PLAIN: Final = ("--no-show-signature", "--no-notes", "--diff-merges=first-parent")
_SAFE: Final = ("--no-ext-diff", "--no-textconv", "--submodule=short")
_PARENTS: Final = ("log", "--no-walk=unsorted", "--ignore-missing", *_PLAIN[:2], "--format=%H %P")
_PATCHES: Final = ("log", "--no-walk=unsorted", "-p", *_PLAIN, *_SAFE, "--no-color", "--format=%x01%H%x01%s")
_NO_FETCH: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, slots=True)
class CommitRange:
    """Commits as git shows them: all between ``base`` and ``tip``, or with ``base`` empty each by itself."""

    shas: tuple[str, ...]
    base: str = ""
    tip: str = ""

    def words(self, *options: str) -> tuple[str, ...]:
        """Return the words for git, which then runs no program that the repository names."""
        if self.base:
            return ("diff", *_SAFE, *options, self.base, self.tip, "--")
        return ("show", *_PLAIN, *_SAFE, *options, *self.shas, "--")


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


class Patch(NamedTuple):
    """One commit: its subject and the beginning of its diff. ``is_whole``: nothing was left out."""

    sha: str
    subject: str
    lines: list[str]
    is_whole: bool


def patches(directory: Path, shas: Sequence[str], *, most_chars: int, limit_s: float) -> list[Patch]:
    """Return the commits that git knows, oldest first, each with at most ``most_chars`` of its diff.

    What git has not printed after ``limit_s`` is missing.
    """
    deadline, given = time.monotonic() + limit_s, "".join(f"{sha}\n" for sha in shas).encode()
    _, types = repo.answer(directory, "cat-file", "--batch-check", given=given, limit_s=limit_s) or (1, b"")
    known = [line.split()[0].decode() for line in types.splitlines() if line.split()[1:2] == [b"commit"]]
    if not known:
        return []
    words = (*_PATCHES, *known, "--")
    with repo.started(
        directory, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_NO_FETCH
    ) as git:
        timer = threading.Timer(max(deadline - time.monotonic(), 0.1), repo.ended, [git])
        timer.start()
        found = list(_read(git.stdout, most_chars)) if git.stdout else []
        timer.cancel()
    return found


def _read(printed: IO[bytes], most_chars: int) -> Iterator[Patch]:
    patch, left, is_new_line = None, 0, True
    for line in iter(partial(printed.readline, most_chars), b""):
        words, is_begin = line.decode(errors="replace").rstrip("\n"), is_new_line
        is_new_line = line.endswith(b"\n")  # else the rest of a long line, which may begin with anything
        if is_begin and words.startswith("\x01"):
            if patch is not None:
                yield patch
            _, sha, subject = words.split("\x01", 2)
            patch, left = Patch(sha, subject, [], True), most_chars
        elif patch is not None and len(words) <= left:
            patch.lines.append(words)
            left -= len(words) + 1
        elif patch is not None:
            patch, left = patch._replace(is_whole=False), 0
    if patch is not None:
        yield patch


def pager(environ: Mapping[str, str]) -> str:
    """Return the pager that the user's own configuration and environment name; empty for none."""
    given = {name: value for name, value in environ.items() if name == "GIT_PAGER"}
    answer = repo.answer(Path("/"), "var", "GIT_PAGER", env={"GIT_DIR": "/dev/null", **given})
    return answer[1].decode(errors="replace").strip() if answer and answer[0] == 0 else ""


def show_diff(directory: Path, of: CommitRange) -> int:
    """Run git's diff of these commits on our terminal, in the user's own pager; return a shell's exit code.

    The repository is not trusted: no diff driver, file watcher, hook, pager or transport of its
    configuration runs.
    """
    chosen = pager(os.environ)
    settings = ("-c", "core.sshCommand=false", "-c", f"pager.{of.words()[0]}={'true' if chosen else 'false'}")
    env = {**_NO_FETCH, "LC_ALL": os.environ.get("LC_ALL", ""), "GIT_PAGER": chosen or "cat"}
    argv, environment = repo.call(directory, *settings, *of.words(), env=env)
    with subprocess.Popen(argv, env=environment) as git:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager's: it ends the search, not the page
        return code if (code := git.wait()) >= 0 else 128 - code
