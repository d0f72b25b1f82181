"""Limits of a run's memory, processes and CPU time, and when a start waits for resources (A11)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?(?:([KMGTP])iB|B)?")


def size_in_bytes(value: object) -> object:
    """Return a size such as "8GiB" or "1.5 MiB" in bytes; any other value, which is not a size, unchanged."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    whole, part, unit = found.groups(default="")
    return int(whole) * _UNITS[unit] + int(part or 0) * _UNITS[unit] // 10 ** len(part)


def size_text(size: int) -> str:
    """Return a size in the largest unit that gives a whole number: ``8GiB``."""
    unit = next((unit for unit in "PTGMK" if size and size % _UNITS[unit] == 0), "")
    return f"{size // _UNITS[unit]}{unit}iB" if unit else str(size)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run, named as the keys of ``[limits]``; 0: not limited."""

    max_memory_bytes: int = 0
    max_processes: int = 0
    cpu_weight: int = 0
    require_cgroup: bool = False
    min_free_memory: float = 0.0
    max_running: int = 0

    def files(self) -> Mapping[str, str]:
        """Return what to write into which file of the run's control group."""
        given = {
            "memory.max": self.max_memory_bytes,
            "pids.max": self.max_processes,
            "cpu.weight": self.cpu_weight,
        }
        return {name: str(number) for name, number in given.items() if number}

    def controllers(self) -> list[str]:
        """Return the controllers that these limits need."""
        return [name.partition(".")[0] for name in self.files()]

    def unavailable(self, enabled: Collection[str] | None) -> str | None:
        """Return a warning for limits without effect; ``enabled`` None: there is no control group."""
        missing = [name for name in self.controllers() if name not in (enabled or ())]
        if not missing:
            return None
        if enabled is None:
            return "[limits] has no effect: ralphd cannot create control groups (v2) here"
        names = " and ".join(missing)
        return f"[limits] is not in effect for {names}: ralphd's control group does not delegate {names}"

    def why_wait(self, free_memory: float, running: int) -> str | None:
        """Return why a start has to wait: the share of free memory, or the number of living runs."""
        if 0 < self.max_running <= running:
            return f"{running} of {self.max_running} ralphs are running ([limits] max_running)"
        if free_memory < self.min_free_memory:
            free, least = f"{100 * free_memory:.1f} %", f"{100 * self.min_free_memory:g} %"
            return f"{free} of the memory is free, less than {least} ([limits] min_free_memory)"
        return None


UNLIMITED: Final = RunLimits()
