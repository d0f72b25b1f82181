"""The verdicts of a ralph as its history has them: what `ralphctl verdicts` shows where no daemon answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ralphctl import link
from ralphctl.fast import here
from ralphctl.local import lastknown
from ralphd.core.gate import verdict_views as kept
from ralphd.store.history import History

HISTORY = "history.jsonl"


def verdicts(name: str | None, limit: int) -> tuple[str, list[dict[str, Any]]] | None:
    """The name of this directory's ralph and its last verdicts; None where it is not known, or not meant."""
    view = next((known for above in link.upward(here()) if (known := lastknown.state(above))), None)
    if view is None or name not in (None, view["name"]):
        return None
    home = lastknown.home(view, os.environ)
    if home is None:
        return None
    return str(view["name"]), kept.verdicts(History(Path(home) / HISTORY).backwards(), limit)
