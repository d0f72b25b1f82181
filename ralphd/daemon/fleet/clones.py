"""Keep a clone of each repository that the fleet's items need: one for all items of a repository.

Agents can write the settings of a clone, so a fetch reads none of them, and runs none of its hooks. A clone
has no files of its own: each item has a worktree. It is made under a temporary name, so that one that was
interrupted is never used.
"""

import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.core.fleet.names import repo_id
from ralphd.dataclass import dataclass
from ralphd.git import remote, repo
from ralphd.git.fence.fence import dead_pushurl
from ralphd.git.runner import GitRunner, NotDone, isolated
from ralphd.store.files import make_private_directory

CLONE_LIMIT_S: Final = 600.0
KEEP_CLONES: Final = 20
TRACKED: Final = "refs/remotes/origin/"
"""The branches of the remote."""
ASIDE: Final = "refs/remotes/aside/"
"""What was saved on the remote outside of an item's branch."""
LOCAL: Final = "refs/ralph/local/"
"""What a branch had before an item began on it again."""
_TRANSPORTS: Final = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
_REFS: Final = "--format=%(refname) %(objectname)"

_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""Of each clone: the items of a repository fetch one after the other."""


@dataclass(frozen=True, slots=True)
class Clones:
    """The clones below ``folder``. The methods block; they raise NotDone and OSError."""

    folder: Path
    environment: Mapping[str, str]
    keep: int = KEEP_CLONES
    limit_s: float = CLONE_LIMIT_S

    @property
    def scratch(self) -> Path:
        """A directory for temporary files of git: a run in a sandbox cannot write it."""
        return self.folder / ".scratch"

    def directory(self, url: str) -> Path:
        """Return where the clone of a repository is, made or not."""
        try:
            return self.folder / repo_id(url)
        except ValueError as fault:
            raise NotDone(str(fault)) from fault

    def ready(self, directory: Path, url: str) -> None:
        """Make or fetch a clone, so that it has what the remote has now. Remove old clones."""
        make_private_directory(self.scratch)
        with _locks[directory]:
            if (directory / ".git").exists():
                self._fetch(directory, url)
            else:
                self._make(directory, url)
            if why := dead_pushurl(directory):
                raise NotDone(why)
            os.utime(directory)
        self._prune(directory)

    def fetch(self, directory: Path, url: str, *more: str) -> None:
        """Read the branches of the remote into TRACKED, and with refspecs ``more`` other refs into ASIDE."""
        with _locks[directory]:
            self._fetch(directory, url, *more)

    def _fetch(self, directory: Path, url: str, *more: str) -> None:
        kinds = (TRACKED, ASIDE) if more else (TRACKED,)
        words = ("fetch", "--no-tags", "--prune", "--", url, f"+refs/heads/*:{TRACKED}*", *more)
        with isolated(GitRunner(directory), self.scratch) as variables:
            inside = {**variables, **_TRANSPORTS}
            why = remote.exchange(
                directory, *words, outside=self.environment, inside=inside, limit_s=self.limit_s
            )
            if why:
                raise NotDone(why)
            git = GitRunner(directory)  # the network had a time limit of its own
            fetched = _refs(git, *kinds, env=variables)
        known = _refs(git, *kinds)
        if gone := known.keys() - fetched.keys():  # first: a new ref may need the name of its folder
            git.update_refs(*(f"delete {ref}" for ref in sorted(gone)))
        if new := {ref: sha for ref, sha in fetched.items() if known.get(ref) != sha}:
            git.update_refs(*(f"update {ref} {sha}" for ref, sha in new.items()))

    def _make(self, directory: Path, url: str) -> None:
        for left in self.folder.glob(f".new-{directory.name}-*"):  # by a daemon that was killed
            shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp("", f".new-{directory.name}-", self.folder))
        try:
            made = repo.answer(new, "init", "--quiet", "--template=")
            if made is None or made[0] != 0:
                raise NotDone(f"git init failed in {new}")
            self._fetch(new, url)
            git = GitRunner(new)
            if not (refs := _refs(git, TRACKED)):
                raise NotDone("the remote has no branches")
            git.output("config", "--local", "remote.origin.url", url)
            git.output("config", "--local", "remote.origin.fetch", f"+refs/heads/*:{TRACKED}*")
            # Detached: no branch of an item may count as checked out here.
            git.output("update-ref", "--no-deref", "HEAD", next(iter(refs.values())), env=git.identity)
            new.rename(directory)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _prune(self, present: Path) -> None:
        for left in self.folder.glob(".gone-*"):
            shutil.rmtree(left, ignore_errors=True)
        clones = [each for each in self.folder.iterdir() if not each.name.startswith(".")]
        clones.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for each in clones[self.keep :]:
            with suppress(NotDone, OSError):
                if each != present and _locks[each].acquire(blocking=False):
                    try:
                        _remove_unused(each)
                    finally:
                        _locks[each].release()


def is_saved(directory: Path, *commits: str) -> bool:
    """Return whether the remote had all of these commits when it was fetched. Raises NotDone."""
    words = ("rev-list", "--count", *commits, "--not", "--remotes")
    return not commits or GitRunner(directory).text(*words) == "0"


def free_branch(directory: Path, branch: str, tip: str) -> None:
    """Let an item begin at ``tip`` on a branch that an earlier one left; its commits stay under LOCAL.

    A branch that is checked out stays as it is. Raises NotDone.
    """
    git, ref = GitRunner(directory), f"refs/heads/{branch}"
    old = git.commit(ref)
    if old is None or old == tip or f"branch {ref}\n" in git.text("worktree", "list", "--porcelain") + "\n":
        return
    git.update_refs(f"update {LOCAL}{branch}/{old} {old}", f"delete {ref} {old}", reason="fleet: begin again")


def _refs(git: GitRunner, *kinds: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
    lines = git.text("for-each-ref", _REFS, *kinds, env=env).split("\n")
    return {ref: sha for ref, _, sha in (line.partition(" ") for line in lines) if sha}


def _remove_unused(directory: Path) -> None:
    if any((directory / ".git" / "worktrees").glob("*")) or not is_saved(directory, "--all"):
        return
    gone = directory.with_name(f".gone-{directory.name}")
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
