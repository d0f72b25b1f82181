"""The checkpoint as the daemon deals with it: looked at, taken over, put aside. The loop writes it (CP).

The original lies in the ralph's home, a copy in ``.ralph/``. Nothing in either is trusted, none is destroyed.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ralphd.core.checkpoint import CHECKPOINT_VERSION
from ralphd.core.model import Moment
from ralphd.core.moments import parse_rfc3339
from ralphd.store import copies
from ralphd.store.checkpoint import CheckpointManager
from ralphd.store.copies import CHECKPOINT_FILE
from ralphd.store.files import write_whole
from ralphd.store.mirror import Mirror
from ralphd.store.versions import as_json

MAX_BYTES = 1 << 20
MOST_CHARS = 500
MOST_REASON_CHARS = 200

Summary: TypeAlias = Mapping[str, Any]
Signature: TypeAlias = tuple[int, int, int] | None


class CheckpointWatch:
    """What the checkpoint of one ralph says, read anew only when it was written. All calls block."""

    def __init__(self, home: Path) -> None:
        self._path = home / CHECKPOINT_FILE
        self._signature: Signature = None
        self.summary: Summary | None = None

    def look(self) -> None:
        """Bring ``summary`` up to date; it costs a stat."""
        signature = signature_of(self._path)
        if signature == self._signature:
            return
        self._signature = signature
        found = None if signature is None else read(self._path)
        self.summary = None if found is None else summary(found)


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to know of a checkpoint before it is gone on from; unfit values are None."""
    given = found.get("task")
    task = given if isinstance(given, dict) else {}
    files, name = found.get("uncommitted_files"), _text(task.get("id"))
    return {
        "created_at": _text(found.get("created_at")),
        "iteration": _number(found.get("iteration")),
        "task": None if name is None else {"id": name, "title": _text(task.get("title")) or ""},
        "attempt": _number(task.get("attempt")),
        "agent": _text(found.get("agent")),
        "pause_reason": _text(found.get("pause_reason")),
        "resume_at": _text(found.get("resume_at")),
        "uncommitted": len(files) if isinstance(files, list) else 0,
        "snapshot_ref": _text(found.get("snapshot_ref")),
    }


def read(path: Path) -> dict[str, Any] | None:
    """The object in a plain file of at most 1 MiB; None for anything else, and for nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
        found = json.loads(data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a run rests, and until when, as its checkpoint says."""

    reason: str | None = None
    resume_at: Moment | None = None


def pause_in(*paths: Path) -> Pause:
    """What the first checkpoint says that is there."""
    for path in paths:
        if (found := read(path)) is not None:
            return Pause(_reason(found.get("pause_reason")), _moment(found.get("resume_at")))
    return Pause()


def take_over(home: Path, directory: Path) -> bool:
    """Have the copy in ``.ralph/`` as the ralph's own checkpoint, where it has none. Whether it was so.

    ``build`` has left it there, or a daemon that has forgotten the ralph since: there is no other one, and
    the loop would drop it. Raises OSError for a full disk.
    """
    own = home / CHECKPOINT_FILE
    if os.path.lexists(own):
        return False
    found = read(Mirror(directory).path / CHECKPOINT_FILE)
    if found is None or found.get("version") != CHECKPOINT_VERSION:
        return False
    if CheckpointManager(home, directory).verify(found):
        return False
    write_whole(own, as_json(found))
    return True


def put_back(home: Path, directory: Path, kept_as: Path | None) -> None:
    """Have a discarded checkpoint again: the start that it was discarded for came to nothing."""
    if kept_as is not None and not os.path.lexists(home / CHECKPOINT_FILE):
        with suppress(OSError):
            kept_as.rename(home / CHECKPOINT_FILE)
        copies.renew(home, directory)


def signature_of(path: Path) -> Signature:
    """By what it is known that a file was replaced; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _reason(value: object) -> str | None:
    return value[:MOST_REASON_CHARS] if isinstance(value, str) else None


def _moment(value: object) -> Moment | None:
    with suppress(ValueError, OverflowError):
        return parse_rfc3339(value) if isinstance(value, str) else None
    return None


def _text(value: object) -> str | None:
    return value[:MOST_CHARS] if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
