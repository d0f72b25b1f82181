"""What a run has left half done in the repository, looked at when nothing of its processes is alive."""

import asyncio

from ralphd.core.events import LeftBehind
from ralphd.daemon.account import Account
from ralphd.git.repair import RepairMode, repair
from ralphd.git.repo import Repository
from ralphd.git.trouble import in_the_way
from ralphd.process.spawn import ExitRecord


class Mending:
    """Mends one ralph's repository after each run; what is the same as after the last one is told once."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._told: tuple[str, ...] = ()

    async def after(self, record: ExitRecord, branch: str | None) -> LeftBehind | None:
        """What there is to tell of it, if anything. ``branch`` is where HEAD was before the run.

        Nothing is touched while a process of the run may live, nor of a ralph that is not supervised (P6).
        """
        if record.survivors or not self._account.policy.supervised:
            return None
        return await asyncio.to_thread(self._after, record, branch)

    def _after(self, record: ExitRecord, branch: str | None) -> LeftBehind | None:
        directory = self._account.definition.directory
        if Repository.find(directory) is None or (record.code == 0 and not in_the_way(directory)):
            return None
        label = f"{self._account.definition.name}/{record.run_id}"
        mode = RepairMode(self._account.configuration.git.repair)
        found = repair(
            directory,
            mode,
            ended_at=record.ended_at,
            began_at=record.started_at or 0.0,
            label=label,
            branch=branch,
        )
        told = () if found.told == self._told else found.told
        self._told = found.told
        return LeftBehind(record.ended_at, record.run_id, found.done, told) if found.done or told else None
