"""What changed in a working directory since the last look: its files, and where its HEAD is (H2).

Nothing here takes a lock of git's, writes anything, or raises for what it finds. To be called for as long as
a run is silent, and from one thread at a time.
"""

import time
from pathlib import Path

from ralphd.core.model import Moment
from ralphd.core.watch import Changes
from ralphd.git import repo
from ralphd.git.files import Files
from ralphd.git.listing import SHARE
from ralphd.git.repo import Repository, Signature


class WorkTree:
    """A working directory, watched from ``since`` on: what changed before that is no news.

    Without ``since``, from now on.
    """

    def __init__(self, directory: Path, *, since: Moment | None = None) -> None:
        self._head = HeadWatch(directory)
        self._files = Files(directory, since=time.time() if since is None else since)

    def changes(self) -> Changes:
        """What changed since the call before; the first one tells what changed after ``since``."""
        count, file = self._files.changes()
        return Changes(files=count, file=file, committed=self._head.moved())

    def close(self) -> None:
        """End a call of git that may still be under way."""
        self._files.close()


class HeadWatch:
    """Whether HEAD names another commit than before. Git is asked only where its files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._repository: Repository | None = None
        self._signature: Signature | None = None
        self._commit: str | None = None
        self._is_known = False
        self._free_at = 0.0

    def moved(self) -> bool:
        """Whether there is another commit than at the call before; never at the first one."""
        self._repository = self._repository or Repository.find(self._directory)
        if self._repository is None:
            self._is_known = True  # one that is made later begins with its first commit
            return False
        signature, began = self._repository.signature(), time.monotonic()
        if signature == self._signature or began < self._free_at:
            return False
        head = repo.head(self._directory)
        if head is None:  # gone, or too slow: asked again later, the later the longer it took
            now = time.monotonic()
            self._free_at = now + (now - began) * (1 / SHARE - 1)
            return False
        before, self._commit, self._signature = self._commit, head.commit, signature
        was_known, self._is_known = self._is_known, True
        return was_known and not _is_same(before, head.commit)


def _is_same(one: str | None, other: str | None) -> bool:
    """Whether two short names are of one commit: git makes them longer as a repository grows."""
    if one is None or other is None:
        return one is other
    return one.startswith(other) or other.startswith(one)
