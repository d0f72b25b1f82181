"""Where ``ralphctl build`` keeps the state of its private ralphd (P5)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from ralphctl.local import lastknown
from ralphd import wire
from ralphd.config import fit_name

_HASH_CHARS = 8


def place_of(directory: str, name: str | None, environ: Mapping[str, str]) -> Path:
    """The state directory for a build in ``directory``: ``build/NAME-HASH`` below the user's own.

    The hash is of the resolved directory, so that two of the same name do not meet.
    """
    real = os.path.realpath(directory)
    called = name or fit_name(os.path.basename(real))  # noqa: PTH119 - of any bytes
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:_HASH_CHARS]
    return Path(wire.state_directory(environ)) / "build" / f"{called}-{digest}"


def homes(place: Path) -> list[Path]:
    """Where the originals of the builds at ``place`` are; one, unless somebody gave it other names."""
    return sorted((place / "ralphs").glob("*")) if (place / "ralphs").is_dir() else []


def last_command(place: Path) -> list[str]:
    """The command of the last build at ``place``; empty for the built-in loop, and where there was none."""
    held = [lastknown.read_file(str(home / "ralph.json")) for home in homes(place)]
    command: object = next((each["command"] for each in held if each and "command" in each), [])
    return [str(word) for word in command] if isinstance(command, list) else []
