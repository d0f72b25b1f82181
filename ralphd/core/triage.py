"""The answer of a triage: which findings of a review are not to be addressed (L15). Any text may come."""

import json
from typing import Any, Final

from ralphd.core.review import ReviewFinding

NOTHING: Final = "NOTHING"
"""The answer that nothing is to be addressed."""
MOST_OBJECTS: Final = 200
"""How many beginnings of a JSON object are tried, from the end of the answer."""


def dismissed_by(answer: str, findings: tuple[ReviewFinding, ...]) -> frozenset[str]:
    """The ids that a triage's answer dismisses: ``{"dismiss": [...]}``, else NOTHING on a line of its own."""
    known = frozenset(finding.id for finding in findings)
    if (listed := _dismiss_list(answer)) is not None:
        return known & {str(each).strip() for each in listed if isinstance(each, str | int)}
    if any(line.strip(" \t\r`*_.") == NOTHING for line in answer.splitlines()):
        return known
    return frozenset()


def _dismiss_list(answer: str) -> list[Any] | None:
    """The ``dismiss`` of the last JSON object that has one; prose and a fence may be around it."""
    decoder, start = json.JSONDecoder(), len(answer)
    for _ in range(MOST_OBJECTS):
        start = answer.rfind("{", 0, start)
        if start < 0:
            break
        try:
            found, _ = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(found.get("dismiss"), list):
            return list(found["dismiss"])
    return None
