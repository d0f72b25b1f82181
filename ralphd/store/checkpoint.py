"""``checkpoint.json``: where a loop was. The loop writes it and resumes from it, the daemon shows it (CP).

A ralph has one at most, in its home, where no agent works. The copy in ``.ralph/`` is for people and is not
read while there is an original: an agent that writes there could send the loop to another task, or make it
wait for years.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from ralphd.core.loop.model import CHECKPOINT_VERSION, Checkpoint
from ralphd.core.time import Moment, parse_rfc3339
from ralphd.dataclass import dataclass
from ralphd.plain_files import peek, sync_directory
from ralphd.store import mirror
from ralphd.store.codec import Codec, LoopFile, Unfit
from ralphd.store.files import as_json, write_whole
from ralphd.store.mirror import CHECKPOINT_FILE, Mirror

DISCARDED_KEPT: Final = 5
MOST_FILES: Final = 200
"""How many names of uncommitted files are kept."""
MOST_CHARS: Final = 500
MOST_REASON_CHARS: Final = 200
_FORMS: Final = {
    "head_commit": re.compile(r"[0-9a-f]{4,64}"),
    "snapshot_ref": re.compile(r"refs/ralph/[A-Za-z0-9._/-]{1,200}"),
}
_CODEC: Final = Codec[Checkpoint](
    Checkpoint,
    moments=("created_at", "resume_at"),
    last="pause_reason resume_at uncommitted_files head_commit snapshot_ref session_id resumes_session"
    " total_cost_usd why",
    newer=("resumes_session", "why"),
    most=10**9,
)
Summary: TypeAlias = Mapping[str, Any]


def to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what ``checkpoint.json`` holds."""
    names = checkpoint.uncommitted_files[:MOST_FILES]
    return {"version": CHECKPOINT_VERSION, **_CODEC.dump(replace(checkpoint, uncommitted_files=names))}


def from_json(stored: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint in ``stored``. Raises Unfit, which names the faults key by key."""
    version, task = stored.get("version"), stored.get("task")
    faults = [] if "version" in stored else ["version is missing"]
    if "version" in stored and not (type(version) is int and 1 <= version <= CHECKPOINT_VERSION):
        faults.append(f"version: not a version: {version!r:.40}")
    for key, form in _FORMS.items():
        value = stored.get(key)
        if isinstance(value, str) and (form.fullmatch(value) is None or ".." in value):
            faults.append(f"{key}: not of the form {form.pattern}: {value!r:.40}")
    if isinstance(task, dict) and task.get("id") == "":
        faults.append("task: its id is empty")
    try:
        checkpoint = _CODEC.load(stored)
    except Unfit as unfit:
        faults += unfit.faults
    if faults:
        raise Unfit(faults)
    return checkpoint


class CheckpointManager(LoopFile[Checkpoint | None]):
    """The checkpoint of one ralph. ``home`` holds the original, ``directory`` is where Ralph works."""

    def __init__(self, home: Path, directory: Path) -> None:
        super().__init__(
            home / CHECKPOINT_FILE, to_json, from_json, empty=None, failpoint="loop.checkpoint",
            what="the checkpoint", loss="the interrupted work starts again", copy_in=directory,
            version=CHECKPOINT_VERSION,
        )  # fmt: skip
        self._directory = directory

    def discard(self) -> Path | None:
        """Set the checkpoint aside on a person's request and return where; None without one.

        The last 5 are kept. It may be unreadable or of a newer version. Raises OSError if it cannot be moved.
        """
        mirror.drop(self._directory, CHECKPOINT_FILE)
        # Microseconds make the name free, and have later ones sort after earlier ones.
        stamps = (datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ") for _ in count())
        names = (self.path.with_name(f"checkpoint.discarded-{at}.json") for at in stamps)
        kept_as = next(path for path in names if not os.path.lexists(path))
        try:
            self.path.rename(kept_as)
        except FileNotFoundError:
            return None
        sync_directory(self.path.parent)
        for old in sorted(self.path.parent.glob("checkpoint.discarded-*.json"))[:-DISCARDED_KEPT]:
            with suppress(OSError):
                old.unlink()
        return kept_as

    def verify(self, stored: Mapping[str, Any]) -> list[str]:
        """Return the faults of a checkpoint, key by key; empty if all of it can be believed."""
        try:
            from_json(stored)
        except Unfit as unfit:
            return list(unfit.faults)
        return []


def summary(path: Path) -> Summary | None:
    """Return what a person wants to know before the checkpoint at ``path`` is resumed; None without one.

    Values that do not fit are None.
    """
    if (stored := peek(path)) is None:
        return None
    inner, files = stored.get("task"), stored.get("uncommitted_files")
    task = inner if isinstance(inner, dict) else {}

    def text(of: Mapping[str, Any], key: str) -> str | None:
        return of[key][:MOST_CHARS] if isinstance(of.get(key), str) else None

    id_, title = text(task, "id"), text(task, "title") or ""
    return {
        "created_at": text(stored, "created_at"),
        "iteration": stored["iteration"] if type(stored.get("iteration")) is int else None,
        "task": None if id_ is None else {"id": id_, "title": title},
        "attempt": task["attempt"] if type(task.get("attempt")) is int else None,
        "agent": text(stored, "agent"),
        "pause_reason": text(stored, "pause_reason"),
        "resume_at": text(stored, "resume_at"),
        "uncommitted": len(files) if isinstance(files, list) else 0,
        "snapshot_ref": text(stored, "snapshot_ref"),
    }


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a run rests, and until when, according to its checkpoint."""

    reason: str | None = None
    resume_at: Moment | None = None


def pause_in(*paths: Path) -> Pause:
    """Return the pause of the first checkpoint that is there."""
    for path in paths:
        if (stored := peek(path)) is not None:
            reason, resume_at = stored.get("pause_reason"), None
            with suppress(ValueError, OverflowError, TypeError):
                resume_at = parse_rfc3339(stored.get("resume_at", ""))
            return Pause(reason[:MOST_REASON_CHARS] if isinstance(reason, str) else None, resume_at)
    return Pause()


def take_over(home: Path, directory: Path) -> bool:
    """Make the copy in ``.ralph/`` the ralph's own checkpoint if it has none. Return whether it did.

    ``build`` left it there, or a daemon that has forgotten the ralph since; the loop would drop a copy
    without an original. Raises OSError for a full disk.
    """
    own = home / CHECKPOINT_FILE
    stored = None if os.path.lexists(own) else peek(Mirror(directory).path / CHECKPOINT_FILE)
    if stored is None or CheckpointManager(home, directory).verify(stored):
        return False
    write_whole(own, as_json(stored))
    return True


def put_back(home: Path, directory: Path, kept_as: Path | None) -> None:
    """Restore a discarded checkpoint: the start that it was discarded for failed."""
    if kept_as is not None and not os.path.lexists(home / CHECKPOINT_FILE):
        with suppress(OSError):
            kept_as.rename(home / CHECKPOINT_FILE)
        mirror.renew(home, directory)
