"""Files of JSON that carry a version: read, refused when newer, set aside when damaged (F2)."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralphd.core.model import Moment
from ralphd.core.moments import rfc3339
from ralphd.errors import NewerState
from ralphd.store.files import Broken, read_json, set_aside


def read_versioned(path: Path, known: int) -> dict[str, Any] | None:
    """The object in a file, None without one. Raises Broken (then it is set aside) or NewerState."""
    found = read_json(path)
    version = None if found is None else found.get("version")
    if isinstance(version, int) and version > known:
        raise NewerState(
            f"{path} was written by a newer ralphd (version {version}, this one knows {known})",
            why="it is left as it is",
            mend=f"install the newer ralphd again, or move the file away: mv {path} {path}.newer",
        )
    return found


def set_aside_as(path: Path, why: str) -> Broken:
    """Move a file that is JSON but not what it should be out of the way; the error that tells it."""
    return Broken(path, why, set_aside(path))


def said(broken: Broken, what: str, so: str) -> str:
    """One line for people: what was broken, why, where it is now, and what that means."""
    kept = "and could not be moved away" if broken.kept_as is None else f"and is kept as {broken.kept_as}"
    return f"{what} in {broken.path} is damaged ({broken.why}) {kept}; {so}"


def as_json(content: Mapping[str, Any]) -> bytes:
    """The bytes of such a file. What is no Unicode in a text becomes question marks."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"


def finite(amount: float) -> float:
    """An amount that JSON can hold; 0 for what an agent told that is none."""
    return amount if math.isfinite(amount) else 0.0


def moment_text(moment: Moment | None) -> str | None:
    """A moment as text, if there is one."""
    return None if moment is None else rfc3339(moment)
