"""``phases.json``: where an attempt is, as JSON and back; every value is looked at."""

from collections.abc import Mapping
from typing import Any, Final

from ralphd.core.phases import Phase, Phases
from ralphd.core.review import ReviewFinding
from ralphd.store.memory_json import count_of, of_kind

PHASES_VERSION: Final = 1
PHASES_FILE: Final = "phases.json"


def phases_of(found: Mapping[str, Any]) -> Phases:
    """What the object tells. Of what is no such object: KeyError, TypeError, ValueError, AttributeError."""
    return Phases(
        task_id=of_kind(str, found["task_id"]),
        phase=Phase(found["phase"]),
        plan=of_kind(str, found["plan"]),
        round=count_of(found["round"]),
        findings=_findings(found["findings"]),
        dismissed=_findings(found["dismissed"]),
        tries=count_of(found["tries"]),
    )


def phases_json(phases: Phases) -> dict[str, Any]:
    """The object for the file."""
    return {
        "version": PHASES_VERSION,
        "task_id": phases.task_id,
        "phase": phases.phase.value,
        "plan": phases.plan,
        "round": phases.round,
        "findings": [_finding_json(each) for each in phases.findings],
        "dismissed": [_finding_json(each) for each in phases.dismissed],
        "tries": phases.tries,
    }


def _findings(found: object) -> tuple[ReviewFinding, ...]:
    return tuple(
        ReviewFinding(*(of_kind(str, each[key]) for key in ("id", "text", "place")))
        for each in of_kind(list, found)
    )


def _finding_json(finding: ReviewFinding) -> dict[str, str]:
    return {"id": finding.id, "text": finding.text, "place": finding.place}
