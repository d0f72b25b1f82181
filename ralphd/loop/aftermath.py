"""What an agent has left in the repository, looked at when its tree is gone.

Locks of a git that was killed with it are removed. With ``[git] repair = "abort"`` what it left half done is
brought to an end, and what it left half written is set aside where it crashed: whoever comes next does not
commit it unseen. After a time-out or a limit the work stays: the next attempt goes on with it.
"""

import asyncio
import time
from dataclasses import dataclass

from ralphd.core.boundary import Position
from ralphd.core.failure import FailureKind
from ralphd.core.loop_model import Iteration
from ralphd.core.model import Moment
from ralphd.git.facts import position
from ralphd.git.halfway import put_away, uncommitted_paths
from ralphd.git.repair import RepairMode, repair
from ralphd.git.trouble import has_locks, in_the_way
from ralphd.loop.asking import Answer
from ralphd.loop.console import Console
from ralphd.loop.desk import Desk
from ralphd.loop.settings import Settings


@dataclass(frozen=True, slots=True)
class Before:
    """How the repository was before an attempt. ``uncommitted`` None: not known, or nothing is set aside."""

    at: Moment
    position: Position
    uncommitted: frozenset[bytes] | None


class Aftermath:
    """Looks after the repository between the attempts of one loop."""

    def __init__(self, settings: Settings, console: Console, desk: Desk) -> None:
        self._settings = settings
        self._console = console
        self._desk = desk
        self._mode = RepairMode(settings.configuration.git.repair)

    async def before(self) -> Before:
        """Look how it is, before an agent is started."""
        return await asyncio.to_thread(self._before)

    def _before(self) -> Before:
        directory = self._settings.directory
        aborts = self._mode is RepairMode.ABORT
        uncommitted = uncommitted_paths(directory) if aborts else None
        return Before(time.time(), position(directory), uncommitted)

    async def after(self, before: Before, iteration: Iteration, answer: Answer) -> None:
        """Mend what is to be mended after an attempt; the next agent is told, and the log.

        After a good one too: whoever did the task on a detached HEAD has done it, and its commits can be
        judged once they are on the branch.
        """
        if not self._settings.configuration.regent.enabled:
            return
        for line in await asyncio.to_thread(self._mended, before, iteration, answer):
            self._console.say(line)
            await asyncio.to_thread(self._desk.hand_over, line)

    def _mended(self, before: Before, iteration: Iteration, answer: Answer) -> tuple[str, ...]:
        settings = self._settings
        lines: list[str] = []
        where, branch = settings.directory, before.position.branch
        label = f"{settings.name}/{settings.run_id or 'run'}-{iteration.number}-{iteration.attempt}"
        if in_the_way(where) or has_locks(where):
            ended_at, began_at = answer.result.ended_at, before.at
            lines += repair(
                where, self._mode, ended_at=ended_at, began_at=began_at, label=label, branch=branch
            ).done
        if answer.finding.kind is FailureKind.AGENT_CRASH and before.uncommitted is not None:
            lines.append(put_away(where, before.uncommitted, label, scratch=settings.home).words)
        return tuple(filter(None, lines))
