"""``checkpoint.json``: save, load, verify, clear, discard (002-US-002).

There is one at most, in the ralph's own directory, where no agent works. The copy in ``.ralph/`` is for
people and is never read: whoever writes there could send the loop to another task, or make it wait for years.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from ralphd import diagnostics
from ralphd.core.loop.state import CHECKPOINT_VERSION, Checkpoint, CheckpointTask, PauseReason
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.store import mirror
from ralphd.store.files import (
    Broken,
    as_json,
    finite,
    moment_text,
    read_versioned,
    said,
    set_aside_as,
    write_whole,
)
from ralphd.store.mirror import CHECKPOINT_FILE, Mirror

DISCARDED_KEPT: Final = 5
MOST_FILES: Final = 200
"""How many names of uncommitted files are kept."""
_COMMIT: Final = re.compile(r"[0-9a-f]{4,64}")
_REF: Final = re.compile(r"refs/ralph/[A-Za-z0-9._/-]{1,200}")
_MOST: Final = 10**9


class CheckpointManager:
    """The checkpoint of one ralph. ``home`` holds the original, ``directory`` is where Ralph works.

    ``fault`` is what the last ``load`` had to say, empty when all was well. All methods block.
    """

    def __init__(self, home: Path, directory: Path) -> None:
        self.path = home / CHECKPOINT_FILE
        self.fault = ""
        self._directory = directory
        self._is_looked_at = False

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; it is on the disk when this returns.

        Raises NewerState rather than write over one of a newer version, OSError when the disk does not take
        it: then the old one is as it was.
        """
        if not self._is_looked_at:
            self.load()
        data = as_json(to_json(checkpoint))
        write_whole(self.path, data)
        diagnostics.reach("loop.checkpoint_saved")
        mirror.put(self._directory, CHECKPOINT_FILE, data)

    def load(self) -> Checkpoint | None:
        """The checkpoint; None without one, and where it was damaged: then ``fault`` says so (F2).

        Raises NewerState for one of a newer version, which stays as it is.
        """
        self.fault = ""
        try:
            found = read_versioned(self.path, CHECKPOINT_VERSION)
            if found is not None and (faults := self.verify(found)):
                raise set_aside_as(self.path, "; ".join(faults))
        except Broken as broken:
            self.fault = said(broken, "the checkpoint", "what was under way is begun anew")
            found = None
        self._is_looked_at = True
        return None if found is None else from_json(found)

    def clear(self) -> None:
        """Remove the checkpoint: nothing is to be resumed. Raises as ``save``."""
        if not self._is_looked_at:
            self.load()
        # The copy goes first: one without an original would look like a checkpoint to be taken over.
        mirror.drop(self._directory, CHECKPOINT_FILE)
        self.path.unlink(missing_ok=True)
        _sync(self.path.parent)
        diagnostics.reach("loop.checkpoint_cleared")

    def discard(self) -> Path | None:
        """Put the checkpoint aside, since a person said so; the last 5 are kept. None: there was none.

        It need not be readable, nor of our version. Raises OSError where it cannot be moved.
        """
        kept_as = _free_name(self.path)
        mirror.drop(self._directory, CHECKPOINT_FILE)
        try:
            self.path.rename(kept_as)
        except FileNotFoundError:
            return None
        _sync(self.path.parent)
        for old in sorted(self.path.parent.glob("checkpoint.discarded-*.json"))[:-DISCARDED_KEPT]:
            with suppress(OSError):
                old.unlink()
        return kept_as

    def verify(self, raw: Mapping[str, Any]) -> list[str]:
        """What is wrong with a checkpoint as it was read, key by key; empty when all of it may be believed.

        Keys that are not known are passed over: a new key does not raise the version.
        """
        faults = [f"{key} is missing" for key in _CHECKS if key not in raw and key not in _MAY_BE_MISSING]
        return faults + [
            f"{key}: {fault}" for key, check in _CHECKS.items() if key in raw and (fault := check(raw[key]))
        ]


def to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """What ``checkpoint.json`` holds."""
    task = checkpoint.task
    return {
        "version": CHECKPOINT_VERSION,
        "created_at": rfc3339(checkpoint.created_at),
        "iteration": checkpoint.iteration,
        "max_iterations": checkpoint.max_iterations,
        "task": None if task is None else {"id": task.id, "title": task.title, "attempt": task.attempt},
        "agent": checkpoint.agent,
        "pause_reason": checkpoint.pause_reason.value,
        "resume_at": moment_text(checkpoint.resume_at),
        "uncommitted_files": list(checkpoint.uncommitted_files[:MOST_FILES]),
        "head_commit": checkpoint.head_commit,
        "snapshot_ref": checkpoint.snapshot_ref,
        "session_id": checkpoint.session_id,
        "total_cost_usd": finite(checkpoint.total_cost_usd),
        "why": checkpoint.why,
    }


def from_json(raw: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint in ``raw``, of which ``verify`` had nothing to say."""
    task = raw["task"]
    return Checkpoint(
        created_at=parse_rfc3339(raw["created_at"]),
        iteration=raw["iteration"],
        pause_reason=PauseReason(raw["pause_reason"]),
        max_iterations=raw["max_iterations"],
        task=None if task is None else CheckpointTask(task["id"], task["title"], task["attempt"]),
        agent=raw["agent"],
        resume_at=_moment(raw["resume_at"]),
        uncommitted_files=tuple(raw["uncommitted_files"]),
        head_commit=raw["head_commit"],
        snapshot_ref=raw["snapshot_ref"],
        session_id=raw["session_id"],
        total_cost_usd=float(raw["total_cost_usd"]),
        why=raw.get("why", ""),
    )


def _moment(text: str | None) -> Moment | None:
    return None if text is None else parse_rfc3339(text)


def _version(value: object) -> str:
    return "" if type(value) is int and 1 <= value <= CHECKPOINT_VERSION else f"no version: {value!r:.40}"


def _count(value: object) -> str:
    return "" if type(value) is int and 0 <= value <= _MOST else f"no count: {value!r:.40}"


def _text(value: object) -> str:
    return "" if isinstance(value, str) else f"no text: {value!r:.40}"


def _matching(form: re.Pattern[str], what: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if isinstance(value, str) and form.fullmatch(value) and ".." not in value:
            return ""
        return f"no {what}: {value!r:.40}"

    return check


def _when(value: object) -> str:
    try:
        parse_rfc3339(str(value))
    except (ValueError, OverflowError):
        return f"no moment: {value!r:.40}"
    return ""


def _reason(value: object) -> str:
    known = [reason.value for reason in PauseReason]
    return "" if value in known else f"no known reason: {value!r:.40}"


def _cost(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return ""
    return f"no amount: {value!r:.40}"


def _task(value: object) -> str:
    if not isinstance(value, dict) or not {"id", "title", "attempt"} <= set(value):
        return f"no task: {value!r:.40}"
    if not value["id"]:
        return "its id is empty"
    return _text(value["id"]) or _text(value["title"]) or _count(value["attempt"])


def _files(value: object) -> str:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return "" if is_list else f"no list of names: {value!r:.40}"


def _or_null(check: Callable[[object], str]) -> Callable[[object], str]:
    return lambda value: "" if value is None else check(value)


_CHECKS: Final[Mapping[str, Callable[[object], str]]] = {
    "version": _version,
    "created_at": _when,
    "iteration": _count,
    "max_iterations": _count,
    "task": _or_null(_task),
    "agent": _or_null(_text),
    "pause_reason": _reason,
    "resume_at": _or_null(_when),
    "uncommitted_files": _files,
    "head_commit": _or_null(_matching(_COMMIT, "commit")),
    "snapshot_ref": _or_null(_matching(_REF, "ref of ours")),
    "session_id": _or_null(_text),
    "total_cost_usd": _cost,
    "why": _text,
}
_MAY_BE_MISSING: Final = frozenset({"why"})


def _free_name(path: Path) -> Path:
    """A free name ``checkpoint.discarded-<time>.json`` beside it; later ones sort after earlier ones."""
    while True:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        name = path.with_name(f"checkpoint.discarded-{now}.json")
        if not os.path.lexists(name):
            return name


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# The checkpoint as the daemon deals with it: looked at, taken over, put aside. The loop writes it (CP).

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
    files, name = found.get("uncommitted_files"), _checkpoint_file_text(task.get("id"))
    return {
        "created_at": _checkpoint_file_text(found.get("created_at")),
        "iteration": _number(found.get("iteration")),
        "task": None
        if name is None
        else {"id": name, "title": _checkpoint_file_text(task.get("title")) or ""},
        "attempt": _number(task.get("attempt")),
        "agent": _checkpoint_file_text(found.get("agent")),
        "pause_reason": _checkpoint_file_text(found.get("pause_reason")),
        "resume_at": _checkpoint_file_text(found.get("resume_at")),
        "uncommitted": len(files) if isinstance(files, list) else 0,
        "snapshot_ref": _checkpoint_file_text(found.get("snapshot_ref")),
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
            return Pause(
                _checkpoint_file_reason(found.get("pause_reason")),
                _checkpoint_file_moment(found.get("resume_at")),
            )
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
        mirror.renew(home, directory)


def signature_of(path: Path) -> Signature:
    """By what it is known that a file was replaced; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _checkpoint_file_reason(value: object) -> str | None:
    return value[:MOST_REASON_CHARS] if isinstance(value, str) else None


def _checkpoint_file_moment(value: object) -> Moment | None:
    with suppress(ValueError, OverflowError):
        return parse_rfc3339(value) if isinstance(value, str) else None
    return None


def _checkpoint_file_text(value: object) -> str | None:
    return value[:MOST_CHARS] if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
