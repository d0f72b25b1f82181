"""Patterns of an agent's own lines as data: what each means, with lines that it has to match and not (K3)."""

import re
from dataclasses import dataclass

from ralphd.core.failure import FailureKind


@dataclass(frozen=True, slots=True)
class Pattern:
    """One message of one agent. ``expression`` is anchored and matched without regard to case.

    ``examples`` match it; ``counter_examples`` look like it and do not. ``live``: on stderr, followed by
    silence, it means that the agent will not go on (L7).
    """

    name: str
    kind: FailureKind
    expression: re.Pattern[str]
    examples: tuple[str, ...] = ()
    counter_examples: tuple[str, ...] = ()
    live: bool = False


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one agent, in the order in which they are tried. ``version`` is the file's."""

    agent: str
    version: int
    patterns: tuple[Pattern, ...] = ()
