"""Which Regents there are: one task each, by the ralph's name."""

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ralphd.core.events import Event
from ralphd.daemon.regent import Regent
from ralphd.errors import RalphdError, UnknownRalph, UnusableState


class Roster:
    """All Regents of a daemon. ``unusable`` holds, by name, why a ralph cannot be supervised."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.unusable: dict[str, UnusableState] = {}
        self._regents: dict[str, Regent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._revivals: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Regent]:
        """Every Regent, by name; the roster may change meanwhile."""
        return iter([regent for _, regent in sorted(self._regents.items())])

    def __len__(self) -> int:
        return len(self._regents)

    def directories(self) -> dict[str, Path]:
        """Where each ralph works."""
        return {name: regent.account.definition.directory for name, regent in self._regents.items()}

    def find(self, name: str) -> Regent | None:
        """The Regent of that name, if there is one. Raises UnusableState for one that cannot be used."""
        if (fault := self.unusable.get(name)) is not None:
            raise fault.with_traceback(None)
        return self._regents.get(name)

    def get(self, name: str) -> Regent:
        """The Regent of that name. Raises UnknownRalph, UnusableState."""
        if (regent := self.find(name)) is None:
            raise UnknownRalph(f"there is no ralph {name!r}", mend="ralphctl status")
        return regent

    def take_in(self, regent: Regent) -> None:
        """Have ``regent`` supervise from now on."""
        self._regents[regent.name] = regent
        self._tasks[regent.name] = asyncio.get_running_loop().create_task(
            regent.supervise(), name=f"regent {regent.name}"
        )

    def revive(self, regent: Regent, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have ``work`` done for a Regent; it ends with it at the latest."""
        task = asyncio.get_running_loop().create_task(work, name=f"revival {regent.name}")
        self._revivals[regent.name] = task
        return task

    async def drop(self, regent: Regent) -> None:
        """Forget a ralph and what is kept of it; its working directory stays as it is."""
        regent.holds.release()
        self._regents.pop(regent.name, None)
        await self._end(self._revivals.pop(regent.name, None))
        await self._end(self._tasks.pop(regent.name))
        await asyncio.to_thread(shutil.rmtree, regent.account.files.home, ignore_errors=True)

    async def tell_all(self, event: Event) -> None:
        """Have every Regent answer ``event``; what one cannot do it has written down itself."""
        await asyncio.gather(*(feed(regent, event) for regent in self))

    def busy(self) -> list[Regent]:
        """Those that have a run."""
        return [regent for regent in self if regent.has_a_run]

    async def close(self) -> None:
        """End all supervision; the runs go on."""
        await asyncio.gather(*map(self._end, [*self._revivals.values(), *self._tasks.values()]))

    async def _end(self, task: "asyncio.Task[None] | None") -> None:
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def feed(regent: Regent, event: Event) -> None:
    """Have ``event`` answered where nobody waits to hear that it could not be done."""
    with suppress(RalphdError):
        await regent.ask(event)
