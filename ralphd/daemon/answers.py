"""What a report is answered: what to do next, and the verdict where there is one."""

from dataclasses import dataclass
from typing import Any

from ralphd.core.model import Next
from ralphd.core.reported import task_data
from ralphd.store.gate_file import Last


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a report. ``verdict`` is what was said of the commits of its iteration."""

    next: Next
    verdict: Last | None = None


def verdict_view(last: Last | None) -> dict[str, Any] | None:
    """A verdict as whoever reported the boundary gets it."""
    if last is None:
        return None
    return {
        "kind": last.verdict.value,
        "why": last.why,
        "commits": list(last.commits),
        "reverted": list(last.reverted),
        "task": task_data(last.task),
        "tail": last.tail,
    }
