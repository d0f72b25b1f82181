"""Drift: the difference between a ralph's pinned configuration and its files.

An agent can write ``ralph.toml``, so a change of it has no effect by itself: it is shown and published, and a
person reloads it. As long as the files are untouched, a poll costs a ``stat`` of each.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ralphd.config import configuration as config
from ralphd.config.configuration import COMMAND
from ralphd.config.keys import WEBHOOKS, is_daemons
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.store.state import Definition


@dataclass(frozen=True, slots=True)
class Renewal:
    """A ralph as it would be registered now, and the differences to what is pinned."""

    definition: "Definition"
    changes: tuple[config.Difference, ...]


def renewed(
    account: "RalphRecord", flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Renewal:
    """Read all layers again; ``flags`` come over those of earlier starts. Blocks, and changes nothing.

    The command follows the files where it was theirs; one that was given on the command line stays. Without
    any it is the built-in loop. Raises ConfigFaults with all that is wrong.
    """
    definition = account.definition
    environ = account.files.load_environment() if environ is None else environ
    both = {**(definition.flags or {}), **(flags or {})}
    pinned = config.Configuration.from_pinned(definition.configuration)
    current = config.load(definition.directory, flags=both, environ=environ)
    has_same_hooks = account.destinations(pinned) == account.destinations(current)
    changes = tuple(
        each
        for each in config.differences(pinned, current)
        if not is_daemons(each.key) and not (has_same_hooks and each.key.startswith(WEBHOOKS))
    )
    command = definition.command
    if command != pinned.ralph.command:  # it was given, and holds whatever the files say
        changes = tuple(change for change in changes if change.key != COMMAND)
    else:
        command = current.ralph.command
    return Renewal(replace(definition, flags=both, configuration=current.pinned(), command=command), changes)


READ_FOR_S = 0.2
"""How long one poll may read changed files; the next one reads the rest."""
MOST_LISTED = 50
LONGEST_FAULT = 300

Drift: TypeAlias = tuple[Mapping[str, Any], ...]
Signature: TypeAlias = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """One ralph's files as they were read, and the signature by which a change is noticed."""

    pinned: Mapping[str, Any]
    places: tuple[Path, ...]
    signature: Signature
    drift: Drift


class DriftWatch:
    """Keeps ``account.drift`` of every ralph up to date."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}
        self._left_s = READ_FOR_S

    def begin(self, names: Collection[str]) -> None:
        """Begin a pass, which may read for READ_FOR_S. Forget all others than ``names``."""
        self._known = {name: read for name, read in self._known.items() if name in names}
        self._left_s = READ_FOR_S

    async def look(self, account: "RalphRecord") -> None:
        """Check a ralph's files, and publish what has changed since the last time."""
        name = account.definition.name
        if self._left_s > 0 and await asyncio.to_thread(self.is_new, account):
            began = time.monotonic()
            await self._look_at(name, account)
            self._left_s -= time.monotonic() - began

    def is_new(self, account: "RalphRecord") -> bool:
        """Return whether the files of a ralph have changed since they were read. Blocks."""
        known = self._known.get(account.definition.name)
        return (
            known is None
            or known.pinned is not account.definition.configuration
            or known.signature != signature(known.places)
        )

    async def _look_at(self, name: str, account: "RalphRecord") -> None:
        read = await asyncio.to_thread(_read, account)
        if read is None or read.pinned is not account.definition.configuration:
            return  # its directory is gone, or it was reloaded during the read
        self._known[name] = read
        before, account.drift = account.drift, read.drift
        if read.drift and read.drift != before:
            await self._publish(name, account, read)

    async def _publish(self, name: str, account: "RalphRecord", read: _Read) -> None:
        # Once for each change, over restarts of the daemon too: the key holds the files' signature.
        digest = hashlib.sha256(json.dumps([read.drift, read.signature]).encode()).hexdigest()[:16]
        message, do = "was changed; it holds when it is reloaded", f"ralphctl reload {name}"
        if fault := read.drift[0].get("fault"):
            message = f"was changed, and nothing changes until it is right: {fault}"
            do = "ralphctl config check"
        data = {"message": f"the configuration of {name} {message}", "drift": list(read.drift), "do": do}
        await account.publish("config.drifted", data, key=digest)


def signature(places: Iterable[Path]) -> Signature:
    """Return what changes when a file is written or replaced; None for one that is missing."""
    return tuple(map(_stat, places))


def drift_of(account: "RalphRecord") -> Drift:
    """Return what a reload would change, or why it would be refused. Blocks."""
    try:
        changes = renewed(account).changes
    except RalphdError as fault:
        return _bounded([{"fault": line[:LONGEST_FAULT]} for line in (fault.why or fault.what).splitlines()])
    return _bounded([change.as_object() for change in changes])


def _read(account: "RalphRecord") -> _Read | None:
    definition = account.definition
    if not definition.directory.is_dir():
        return None
    places = config.sources(definition.directory, environ=account.files.load_environment())
    before = signature(places)  # a write during the read is noticed by the next poll
    return _Read(definition.configuration, places, before, drift_of(account))


def _bounded(drift: list[Mapping[str, Any]]) -> Drift:
    # A file that an agent wrote can differ in thousands of keys.
    left_out = len(drift) - MOST_LISTED
    return tuple(drift) if left_out <= 0 else (*drift[:MOST_LISTED], {"fault": f"and {left_out} more"})


def _stat(path: Path) -> tuple[int, ...] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode
