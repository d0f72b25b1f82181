"""The ralphs of other machines: read when somebody looks at them, and kept as last known.

Each look sends one small request for each ralph. While nobody looks, nothing is sent. Silent machines are not
asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import field
from typing import Any, Final

from ralphd.core.fleet.model import HostName, HostRecord
from ralphd.core.fleet.views import SILENT_S
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.fleet.picture import Picture
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError, UnknownRalph
from ralphd.wire import VIEW_KEYS, fits, is_name

LOOK_S: Final = 5.0
"""A look ends after this time, with what it has."""
FRESH_S: Final = 2.0
_AT_ONCE: Final = 16
_MOST: Final = 1000
Read = Callable[[str, str], Awaitable[dict[str, Any]]]
"""Returns the view of ``NAME`` on ``HOST``, named ``HOST/NAME``. Raises RalphdError."""


@dataclass(slots=True)
class OtherRalphs:
    """The ralphs of all machines but this ``host``, by the names that the machines give themselves."""

    host: str
    picture: Picture
    read: Read
    _known: dict[tuple[str, str], tuple[Moment, dict[str, Any]]] = field(default_factory=dict)
    _faults: dict[str, str] = field(default_factory=dict)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked_at: tuple[float, Moment] = (float("-inf"), 0.0)

    async def views(self, *, is_connected: bool) -> list[dict[str, Any]]:
        """Return the views. If one could not be read now, its ``as_of`` is when it was last read."""
        names = self._names()
        async with self._looking:
            if self.picture.monotonic() - self._looked_at[0] > FRESH_S:
                self._known = {key: self._known[key] for key in names if key in self._known}
                self._looked_at = self.picture.monotonic(), self.picture.clock()
                await self._look(self.picture.heard() if is_connected else [], names)
        return [self._shown(host, name) for host, name in names]

    def _names(self) -> list[tuple[str, str]]:
        """Return host and name of each, also of one that has an item and has not described itself since."""
        names = {(str(each.name), name) for each in self.picture.hosts for name in each.ralphs}
        names |= {(each.holder, each.id) for each in self.picture.items if each.holder}
        return sorted(key for key in names if key[0] != self.host and is_name(key[1]))[:_MOST]

    async def _look(self, hosts: list[HostRecord], names: list[tuple[str, str]]) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)
        self._faults = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S), asyncio.TaskGroup() as tasks:
                for host in (str(each.name) for each in hosts):
                    tasks.create_task(self._read([name for own, name in names if own == host], host, turns))

    async def _read(self, names: list[str], host: str, turns: asyncio.Semaphore) -> None:
        async with turns:
            for name in names:
                try:
                    view = await self.read(host, name)
                except UnknownRalph:  # removed since the machine described itself
                    self._known.pop((host, name), None)
                except RalphdError as fault:  # it would refuse the others too, or not answer again
                    self._faults[host] = fault.what
                    return
                else:
                    fitting = {key: each for key, each in view.items()
                               if key in VIEW_KEYS and fits(each, VIEW_KEYS[key])}  # fmt: skip
                    self._known[host, name] = self.picture.clock(), fitting | {"name": f"{host}/{name}"}

    def _shown(self, host: str, name: str) -> dict[str, Any]:
        if (known := self._known.get((host, name))) is None:
            age_s = self.picture.ages().get(HostName(host), SILENT_S)
            why = self._faults.get(host) or ("" if age_s < SILENT_S else f"{host} is silent")
            as_of = rfc3339(self.picture.clock() - age_s)
            return {"name": f"{host}/{name}", "state": "unknown", "message": why, "as_of": as_of}
        at, view = known
        return view if at >= self._looked_at[1] else view | {"as_of": rfc3339(at)}
