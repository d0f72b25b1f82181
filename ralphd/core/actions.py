"""The orders that a Regent gives. The state that goes with them is written down first."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from ralphd.core.model import Moment, RunId


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a run. Answered by ``Spawned`` or ``SpawnFailed``."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the run's command to end (SIGTERM, SIGCONT)."""

    run_id: RunId


class Wish(StrEnum):
    """What a command whose hello said ``signals`` can be asked for: SIGUSR1, SIGUSR2."""

    PAUSE = "pause"
    SKIP_WAIT = "skip_wait"


@dataclass(frozen=True, slots=True)
class PassOn:
    """Ask a command for something that it said it knows."""

    run_id: RunId
    wish: Wish


@dataclass(frozen=True, slots=True)
class KillTree:
    """End the whole tree of a run."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class KillAfter:
    """Tell ``GraceOver`` when ``delay_s`` seconds have passed, whatever the wall clock does.

    A later one takes the place of an earlier one.
    """

    run_id: RunId
    delay_s: float


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Tell ``Woke`` at this moment of the wall clock, or soon after."""

    at: Moment


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell the event stream. ``text`` is what a person reads; None keeps it off the Regent's own lines.

    ``data`` is told with it, key by key.
    """

    type: str
    text: str | None = None
    wait_until: Moment | None = None
    data: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Escalate:
    """Call a person, once: event, webhooks, live view, ``ralphd.log`` (C2)."""

    text: str


Action: TypeAlias = Spawn | Terminate | PassOn | KillTree | KillAfter | WakeAt | Announce | Escalate
