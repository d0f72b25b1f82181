"""Which Regents there are: one task each, by the ralph's name."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ralphd.core.events import Event
from ralphd.daemon.regent import Regent
from ralphd.errors import NewerState, RalphdError, UnknownRalph


class Roster:
    """All Regents of a daemon. ``unusable`` maps names of ralphs that cannot be supervised to the reason."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.unusable: dict[str, str] = {}
        self._regents: dict[str, Regent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Regent]:
        """Every Regent, by name; the roster may change meanwhile."""
        return iter([regent for _, regent in sorted(self._regents.items())])

    def __len__(self) -> int:
        return len(self._regents)

    def directories(self) -> dict[str, Path]:
        """Where each ralph works."""
        return {name: regent.account.definition.directory for name, regent in self._regents.items()}

    def find(self, name: str) -> Regent | None:
        """The Regent of that name, if there is one. Raises NewerState for a ralph that cannot be used."""
        if name in self.unusable:
            raise NewerState(f"{name} cannot be used", why=self.unusable[name])
        return self._regents.get(name)

    def get(self, name: str) -> Regent:
        """The Regent of that name. Raises UnknownRalph, NewerState."""
        if (regent := self.find(name)) is None:
            raise UnknownRalph(f"there is no ralph {name!r}", mend="ralphctl status")
        return regent

    def take_in(self, regent: Regent) -> None:
        """Have ``regent`` supervise from now on."""
        self._regents[regent.name] = regent
        self._tasks[regent.name] = asyncio.get_running_loop().create_task(
            regent.supervise(), name=f"regent {regent.name}"
        )

    async def drop(self, regent: Regent) -> None:
        """Forget a ralph and what is kept of it; its working directory stays as it is."""
        regent.holds.release()
        self._regents.pop(regent.name, None)
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
        await asyncio.gather(*(self._end(task) for task in self._tasks.values()))

    async def _end(self, task: "asyncio.Task[None]") -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def feed(regent: Regent, event: Event) -> None:
    """Have ``event`` answered where nobody waits to hear that it could not be done."""
    with suppress(RalphdError):
        await regent.ask(event)
