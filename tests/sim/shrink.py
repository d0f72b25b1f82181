"""The smallest night that still breaks the same promise: faults are left out, rules made plain."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tests.sim.cores import REAL, Steps
from tests.sim.faults import Fault, Script, Setting
from tests.sim.story import broken, rule_of

MOST_TRIES = 1500
SHORTEST_S = 60.0


def shrunk(script: Script, steps: Steps = REAL) -> Script:
    """A night as small as it gets, by leaving out what makes no difference. Plays up to MOST_TRIES nights."""
    found = broken(script, steps)
    if found is None:
        return script
    rule, tries = rule_of(found), 0
    best, is_smaller = script, True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(best):
            tries += 1
            if tries > MOST_TRIES:
                return best
            still = broken(smaller, steps)
            if still is not None and rule_of(still) == rule:
                best, is_smaller = smaller, True
                break
    return best


def _smaller(script: Script) -> Iterator[Script]:
    """Nights that are a little plainer, the boldest cuts first."""
    faults, count = script.faults, len(script.faults)
    size = max(count // 2, 1)
    while count and size:
        for start in range(0, count, size):
            yield replace(script, faults=faults[:start] + faults[start + size :])
        size //= 2
    for setting in _plainer(script.setting):
        yield replace(script, setting=setting)
    for number, fault in enumerate(faults):
        for plainer in _plainer_fault(fault):
            changed = (*faults[:number], plainer, *faults[number + 1 :])
            yield replace(script, faults=tuple(sorted(changed, key=lambda each: each.at_s)))


def _plainer(setting: Setting) -> Iterator[Setting]:
    for field in fields(Setting):
        value = getattr(setting, field.name)
        if field.name == "tasks" and value > 1:
            yield replace(setting, tasks=value - 1)
        elif field.name == "agents" and value > 1:
            yield replace(setting, agents=value - 1)
        elif field.name not in ("tasks", "agents") and value != field.default:
            changes: dict[str, Any] = {field.name: field.default}
            yield replace(setting, **changes)


def _plainer_fault(fault: Fault) -> Iterator[Fault]:
    if fault.count:
        yield replace(fault, count=0)
    if fault.agent is not None:
        yield replace(fault, agent=None)
    if not fault.told:
        yield replace(fault, told=True)
    if fault.lasts_s > SHORTEST_S:
        yield replace(fault, lasts_s=round(fault.lasts_s / 2))
    if fault.at_s > SHORTEST_S:
        yield replace(fault, at_s=round(fault.at_s / 2))
