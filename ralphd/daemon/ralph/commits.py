"""The commits of a ralph: where HEAD is, and how many commits its run has made (C3)."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd.git.repo import ReflogMark, Repository, Signature

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord


class CommitWatcher:
    """Counts the commits of a run, every few seconds.

    A poll costs a few stats; git runs, and the reflog is read, only after a change. For one task at a time.
    """

    def __init__(self, account: "RalphRecord") -> None:
        self._account = account
        self._repository: Repository | None = None
        self._signature: Signature | None = None

    @property
    def _directory(self) -> Path:
        return self._account.definition.directory

    async def begin(self) -> None:
        """Start counting: what is there now is not the run's."""
        await self._account.note_start()
        self._repository = await asyncio.to_thread(Repository.find, self._directory)
        self._account.note_reflog(self._mark())

    async def commits(self) -> int:
        """Return the number of commits since the last call, or since the run began."""
        if self._repository is None and (self._directory / ".git").exists():  # an adopted run, or a new one
            self._repository = await asyncio.to_thread(Repository.find, self._directory)
        if self._repository is None or not self._has_changed(self._repository):
            return 0
        before = self._account.facts.last_commit
        await self._account.note_head()
        moved = self._account.facts.last_commit != before
        return await asyncio.to_thread(self._count, self._repository, moved)

    def _has_changed(self, repository: Repository) -> bool:
        signature = repository.signature()
        changed, self._signature = signature != self._signature, signature
        return changed

    def _count(self, repository: Repository, moved: bool) -> int:
        mark = self._account.facts.reflog
        found = None if mark is None else repository.commits_made(ReflogMark(*mark))
        if found is None:  # no reflog tells: a move of HEAD counts for one
            self._account.note_reflog(self._mark())
            return int(moved)
        self._account.note_reflog(found.until)
        return found.made

    def _mark(self) -> ReflogMark | None:
        return None if self._repository is None else self._repository.mark()
