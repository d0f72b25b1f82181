"""What is kept of why things were done to a run: ``explanation.json`` and ``evidence.json``.

Both lie in the run's directory, for people and programs to read; docs/files.md has their form. An attempt of
the built-in loop keeps the second in its own.
"""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ralphd.core.evidence import Sighting
from ralphd.core.explain import Explanation
from ralphd.core.model import Moment
from ralphd.core.moments import rfc3339
from ralphd.store.files import Broken, read_json, write_whole

EVIDENCE_VERSION = 1
EVIDENCE_FILE, EXPLANATION_FILE = "evidence.json", "explanation.json"
MOST_PROCESSES = 200
LONGEST_LINE = 500


def save(directory: Path, sighting: Sighting) -> None:
    """Keep the evidence with a run, or with an attempt. Raises OSError."""
    _write(
        directory / EVIDENCE_FILE,
        {
            "at": rfc3339(sighting.at),
            **asdict(sighting.explanation),
            "processes": [asdict(seen) for seen in sighting.processes[:MOST_PROCESSES]],
            "last_lines": [line[:LONGEST_LINE] for line in sighting.last_lines],
        },
    )


def save_explanation(run_directory: Path, at: Moment, explanation: Explanation) -> None:
    """Keep with a run why its end led to what it did; a full disk costs only that."""
    if run_directory.is_dir():
        with suppress(OSError):
            _write(run_directory / EXPLANATION_FILE, {"at": rfc3339(at), **asdict(explanation)})


def load(run_directory: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The explanation and the evidence that are kept with a run; None for what is missing or broken."""
    return _read(run_directory / EXPLANATION_FILE), _read(run_directory / EVIDENCE_FILE)


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"version": EVIDENCE_VERSION, **content}, indent=2, ensure_ascii=False)
    write_whole(path, text.encode(errors="replace") + b"\n", durable=False)


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(Broken, OSError):
        kept = read_json(path)
        if kept is not None and kept.pop("version", None) == EVIDENCE_VERSION:
            return kept
    return None
