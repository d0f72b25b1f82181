"""A ralph's definition made anew from its files, with the flags and the environment of its start."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ralphd import config
from ralphd.config.compare import COMMAND
from ralphd.daemon.account import Account
from ralphd.store.state import Definition


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a ralph would be if it were registered now, and in what that differs from what is pinned."""

    definition: Definition
    configuration: config.Configuration
    changes: tuple[config.Difference, ...]


def renewed(account: Account, flags: Mapping[str, Any] | None = None) -> Renewal:
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
