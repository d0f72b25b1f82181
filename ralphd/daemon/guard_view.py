"""What a ralph's view tells of its guard."""

from typing import Any

from ralphd.core.model import Moment
from ralphd.core.moments import rfc3339
from ralphd.core.reported import task_data
from ralphd.store.gate_file import GateState, Last

SHORT = 7


def guard_view(state: GateState, *, testing_since: Moment | None, has_boundaries: bool) -> dict[str, Any]:
    """The guard of a ralph as the API shows it."""
    return {
        "baseline": state.baseline.value,
        "since": _text(state.since),
        "testing_since": _text(testing_since),
        "boundaries": has_boundaries,
        "verdict": _verdict(state.last),
        "reverted": _verdict(state.reverted),
    }


def _verdict(last: Last | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {
        "iteration": last.number,
        "task": task_data(last.task),
        "verdict": last.verdict.value,
        "why": last.why,
        "commits": [sha[:SHORT] for sha in last.commits],
        "reverted": [sha[:SHORT] for sha in last.reverted],
        "at": rfc3339(last.at),
    }


def _text(moment: Moment | None) -> str | None:
    return None if moment is None else rfc3339(moment)
