"""A night as a story that a person can read: who did what, and when by the clock on the wall."""

from dataclasses import fields
from datetime import UTC, datetime

from ralphd.core.time import Moment
from tests.core.supervision.scenes import NOW
from tests.sim.checking import Broken
from tests.sim.cores import REAL, Steps
from tests.sim.faults import Script, Setting
from tests.sim.night import Night

MOST_LINES = 70


def broken(script: Script, steps: Steps = REAL) -> str | None:
    """The rule that is broken in a night, with what was seen; None for a good night."""
    try:
        Night(script, steps=steps).play()
    except Broken as found:
        return str(found)
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as bug:  # of the core itself
        return f"no bug: {type(bug).__name__}: {bug}"
    return None


def rule_of(found: str) -> str:
    """Which rule it was."""
    return found.partition(":")[0]


def story(script: Script, steps: Steps = REAL) -> str:
    """The rules of the night, its faults, what happened, and how it ended."""
    lines: list[str] = []

    def tell(at: Moment, who: str, what: str) -> None:
        lines.append(f"  {datetime.fromtimestamp(at, UTC):%H:%M:%S}  {who + ':':<13} {what}")

    try:
        Night(script, steps=steps, teller=tell).play()
        end = "A good night: every promise was kept."
    except Broken as found:
        end = f"BROKEN: {found}"
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as bug:
        end = f"BROKEN: no bug: {type(bug).__name__}: {bug}"
    left_out = len(lines) - MOST_LINES
    if left_out > 0:
        lines[MOST_LINES // 2 : MOST_LINES // 2 + left_out] = [f"  … {left_out} lines"]
    return "\n".join([*_head(script), "", *lines, "", end])


def _head(script: Script) -> list[str]:
    unusual = [
        f"{field.name} = {getattr(script.setting, field.name)}"
        for field in fields(Setting)
        if getattr(script.setting, field.name) != field.default
    ]
    rules = ", ".join(unusual) or "as they come"
    head = [f"Night {script.seed}. Rules: {rules}.", "What goes wrong:"]
    for fault in script.faults:
        more = [f"for {fault.lasts_s:g} s"] * bool(fault.lasts_s)
        more += [f"at the {fault.count}. thing it does then"] * bool(fault.count)
        who = f" ({fault.agent})" if fault.agent else ""
        at = datetime.fromtimestamp(NOW + fault.at_s, UTC)
        head.append(f"  {at:%H:%M:%S}  {fault.what}{who}{', ' if more else ''}{', '.join(more)}")
    return head
