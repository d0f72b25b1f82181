"""What a ralph is pinned to, and what of it is in force."""

from dataclasses import dataclass, replace

from ralphd import config
from ralphd.config.compare import COMMAND
from ralphd.core.model import Policy
from ralphd.store.state import Definition


@dataclass(frozen=True, slots=True)
class InForce:
    """The rules that hold now. ``awaited`` are the words for what holds from the next run on instead."""

    definition: Definition
    configuration: config.Configuration
    policy: Policy
    awaited: tuple[str, ...] = ()

    @classmethod
    def of(cls, definition: Definition) -> "InForce":
        """A definition put in force. Raises ConfigFaults, NewerState for what is none."""
        configuration = config.Configuration.from_pinned(definition.configuration)
        policy = replace(configuration.policy(), own_loop=definition.runs_own_loop)
        return cls(definition, configuration, policy)

    def changed_to(self, definition: Definition, pinned: Definition) -> "InForce":
        """The same for ``definition``, while ``pinned`` is what the next run gets."""
        changed = definition.configuration != self.definition.configuration
        other = definition.runs_own_loop != self.definition.runs_own_loop
        base = InForce.of(definition) if changed or other else replace(self, definition=definition)
        return replace(base, awaited=_awaited(base, pinned))


def _awaited(now: InForce, pinned: Definition) -> tuple[str, ...]:
    if now.definition.configuration == pinned.configuration:
        return ()
    then = config.Configuration.from_pinned(pinned.configuration)
    changes = config.differences(now.configuration, then)
    return tuple(
        f"from the next run on: {change.key} = {change.now or 'not set'} (now {change.pinned or 'not set'})"
        for change in changes
        if change.key != COMMAND or now.definition.command != pinned.command
    )
