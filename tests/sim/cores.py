"""The cores that a night is played with: the real ones, or a wrong one, to see that it is noticed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from ralphd.core.loop import step as loop_core
from ralphd.core.loop.model import Loop, LoopEvent, LoopPolicy, LoopStep
from ralphd.core.supervision import door
from ralphd.core.supervision import step as regent_core
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import Policy, Step, Supervision

RegentStep: TypeAlias = Callable[[Supervision, Event, Policy], Step]
LoopStepper: TypeAlias = Callable[[Loop, LoopEvent, LoopPolicy], LoopStep]
Door: TypeAlias = Callable[[RequestedAction, Caller, Collection[str]], bool]


@dataclass(frozen=True, slots=True)
class Steps:
    """The pure functions that decide in a night."""

    regent: RegentStep = regent_core.step
    loop: LoopStepper = loop_core.step
    door: Door = door.is_permitted


REAL = Steps()
