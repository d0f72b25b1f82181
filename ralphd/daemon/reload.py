"""Drift: what a ralph is pinned to, and what its files say now.

An agent can write ``ralph.toml``, so a change of it changes nothing by itself: it is shown and told, and a
person reloads it. As long as the files are untouched, a look costs a ``stat`` of each.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ralphd.config import configuration as config
from ralphd.config.configuration import COMMAND
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.daemon.services import EventPublisher
from ralphd.errors import RalphdError
from ralphd.store.state import Definition

# A ralph's definition made anew from its files, with the flags and the environment of its start.


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a ralph would be if it were registered now, and in what that differs from what is pinned."""

    definition: Definition
    configuration: config.Configuration
    changes: tuple[config.Difference, ...]


def renewed(account: RalphRecord, flags: Mapping[str, Any] | None = None) -> Renewal:
    """Read all layers again; ``flags`` come over those of earlier starts. Blocks, and changes nothing.

    The command follows the files where it was theirs; one that was given on the command line stays. Without
    any it is the built-in loop. Raises ConfigFaults with all that is wrong.
    """
    definition, environ = account.definition, account.files.load_environment()
    both = {**(definition.flags or {}), **(flags or {})}
    pinned = config.Configuration.from_pinned(definition.configuration)
    current = config.load(definition.directory, flags=both, environ=environ)
    changes = config.differences(pinned, current)
    command = definition.command
    if command != pinned.ralph.command:  # it was given, and holds whatever the files say
        changes = tuple(change for change in changes if change.key != COMMAND)
    else:
        command = current.ralph.command
    anew = replace(definition, flags=both, configuration=current.pinned(), command=command)
    return Renewal(anew, current, changes)


logger = logging.getLogger(__name__)

READ_FOR_S = 0.2
"""How long a look round may read changed files; what is left then is read in the next one."""
MOST_LISTED = 50
LONGEST_FAULT = 300

Drift: TypeAlias = tuple[Mapping[str, Any], ...]
Signature: TypeAlias = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of one ralph's files, and by what it is known that they are the same still."""

    pinned: Mapping[str, Any]
    places: tuple[Path, ...]
    signature: Signature
    drift: Drift


class DriftWatch:
    """Looks for drift in every ralph. ``account.drift`` is what it found; for its own task only."""

    def __init__(self, news: EventPublisher) -> None:
        self._news = news
        self._known: dict[str, _Read] = {}

    async def look(self, regents: Iterable[Regent]) -> None:
        """Look at every ralph's files, and tell of what has changed since the last time."""
        accounts = {regent.name: regent.account for regent in regents}
        self._known = {name: read for name, read in self._known.items() if name in accounts}
        deadline = time.monotonic() + READ_FOR_S
        for name, account in accounts.items():
            if not self._is_new(name, account):
                continue
            if time.monotonic() > deadline:
                return
            try:
                await self._look_at(name, account)
            except Exception:  # what is odd about one ralph's files costs no other one its look
                logger.exception("a look for drift failed", extra={"ralph": name})

    def _is_new(self, name: str, account: RalphRecord) -> bool:
        known = self._known.get(name)
        return (
            known is None
            or known.pinned is not account.definition.configuration
            or known.signature != signature(known.places)
        )

    async def _look_at(self, name: str, account: RalphRecord) -> None:
        read = await asyncio.to_thread(_read, account)
        if read is None or read.pinned is not account.definition.configuration:
            return  # its directory is gone, or it was reloaded meanwhile
        self._known[name] = read
        before, account.drift = account.drift, read.drift
        if read.drift and read.drift != before:
            await self._tell(name, account, read)

    async def _tell(self, name: str, account: RalphRecord, read: _Read) -> None:
        """Once a change, over restarts of the daemon too: it is known by the files' signature."""
        digest = hashlib.sha256(json.dumps([read.drift, read.signature]).encode()).hexdigest()[:16]
        if (fault := read.drift[0].get("fault")) is None:
            message, do = "was changed; it holds when it is reloaded", f"ralphctl reload {name}"
        else:
            message, do = (
                f"was changed, and nothing changes until it is right: {fault}",
                "ralphctl config check",
            )
        await self._news.tell(
            "config.drifted",
            {"message": f"the configuration of {name} {message}", "drift": list(read.drift), "do": do},
            ralph=name,
            run_id=account.facts.run_id,
            key=f"{name}/config.drifted/{digest}",
            destinations=account.configuration.destinations(),
        )


def signature(places: Iterable[Path]) -> Signature:
    """What tells that a file was written or replaced since; None for one that is not there."""
    return tuple(_stat(place) for place in places)


def drift_of(account: RalphRecord) -> Drift:
    """What a reload would change, or why it would be refused. Blocks."""
    try:
        changes = renewed(account).changes
    except RalphdError as fault:
        return _bounded([{"fault": line[:LONGEST_FAULT]} for line in (fault.why or fault.what).splitlines()])
    return _bounded([change.as_object() for change in changes])


def _read(account: RalphRecord) -> _Read | None:
    definition = account.definition
    if not definition.directory.is_dir():
        return None
    places = config.sources(definition.directory, environ=account.files.load_environment())
    before = signature(places)  # what is written while it is read is found in the next look
    return _Read(definition.configuration, places, before, drift_of(account))


def _bounded(found: list[Mapping[str, Any]]) -> Drift:
    """A file of an agent's making can differ in thousands of keys; nobody reads them all."""
    left_out = len(found) - MOST_LISTED
    return tuple(found) if left_out <= 0 else (*found[:MOST_LISTED], {"fault": f"and {left_out} more"})


def _stat(place: Path) -> tuple[int, ...] | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode
