"""What an agent that crashed has left half written: kept under a ref, and out of the next one's way.

Only what was not there before it: a path that was uncommitted already stays as it is, whoever changed it
since. Ignored files are never touched, nor what is too large to be kept.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.git.calls import LIMIT_S, SHOWN, Calls, NotDone
from ralphd.git.guard import ref_name
from ralphd.git.moving import recover, refuse_filtered
from ralphd.git.repair import LEFT
from ralphd.git.snapshot import Snapshot, snapshot
from ralphd.git.trouble import present_trouble

MOST_FILES: Final = 10_000
_Seen: TypeAlias = dict[bytes, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class PutAway:
    """What was taken out of the work tree: under which ref it is, and its names. ``trouble``: why it was not.

    Neither: there was nothing.
    """

    ref: str | None = None
    files: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def words(self) -> str:
        """One line for the next agent, and for a person; empty where there was nothing."""
        if self.trouble:
            return f"what the attempt before has left half written is still there: {self.trouble}"
        if self.ref is None:
            return ""
        shown = ", ".join(self.files[:SHOWN])
        more = f" and {len(self.files) - SHOWN} more" if len(self.files) > SHOWN else ""
        return (
            f"what the attempt before had not committed when it crashed was set aside: {shown}{more}. "
            f"See it: git show --stat {self.ref}. Take back what is good: git checkout {self.ref} -- FILE"
        )


def uncommitted_paths(directory: Path, *, limit_s: float = LIMIT_S) -> frozenset[bytes] | None:
    """What is not committed now, untracked files too, relative to the root; None where git cannot tell."""
    try:
        return frozenset(_paths(Calls(directory, limit_s=limit_s)))
    except (NotDone, OSError):
        return None


def put_away(
    directory: Path, before: Collection[bytes], label: str, *, scratch: Path, limit_s: float = LIMIT_S
) -> PutAway:
    """Take out what is uncommitted now and was not ``before``, once it is kept under a ref of ``label``.

    The files of those paths, and what is staged of them, are then as HEAD has them. Raises nothing: where
    anything cannot be kept, all stays as it is, and ``trouble`` says why.
    """
    try:
        calls = Calls(directory, limit_s=limit_s)
        with calls.alone():
            recover(calls)
            return _put_away(calls, before, label, scratch)
    except NotDone as why:
        return PutAway(trouble=str(why))
    except OSError as error:
        return PutAway(trouble=f"{error.strerror}: {error.filename or 'in the repository'}")


def _put_away(calls: Calls, before: Collection[bytes], label: str, scratch: Path) -> PutAway:
    new = [path for path in _paths(calls) if path not in before and not path.endswith(b"/")]
    if not new:
        return PutAway()
    if trouble := present_trouble(calls.directory):
        raise NotDone("; ".join(trouble))
    if len(new) > MOST_FILES:
        raise NotDone(f"{len(new)} files: too many")
    refuse_filtered(calls, new)
    seen = _seen(calls, new)
    kept = snapshot(calls.directory, f"{label}, what a crashed attempt has left", scratch=scratch)
    _refuse_unkept(kept)
    ref = f"{LEFT}{ref_name(label)}/files"
    calls.printed("update-ref", "--stdin", given=f"update {ref} {kept.commit}\n".encode())
    if _seen(calls, new) != seen:
        raise NotDone(f"files change while they are looked at; as they were: git show --stat {ref}")
    _as_committed(calls, new, kept.head)
    return PutAway(ref, tuple(path.decode(errors="replace") for path in new))


def _refuse_unkept(kept: Snapshot) -> None:
    """Raises NotDone where anything at all could not be kept."""
    if kept.trouble or kept.commit is None:
        raise NotDone(kept.trouble or "nothing of it could be kept")
    if kept.skipped_large:
        raise NotDone(f"{kept.skipped_large[0]} is too large to be kept")


def _as_committed(calls: Calls, paths: list[bytes], head: str | None) -> None:
    """Files and index of these paths as HEAD has them, the folders that become empty removed."""
    there = _in_head(calls, paths, head)
    if gone := [path for path in paths if path not in there]:
        calls.printed("update-index", "-z", "--force-remove", "--stdin", given=_given(gone))
        for path in gone:
            if os.path.lexists(calls.path(path)):
                calls.remove(path)
    if head is not None and there:
        words = ("checkout", "--quiet", head, "--pathspec-from-file=-", "--pathspec-file-nul")
        calls.printed(*words, given=_given(path for path in paths if path in there))


def _in_head(calls: Calls, paths: list[bytes], head: str | None) -> set[bytes]:
    if head is None:
        return set()
    found: set[bytes] = set()
    for first in range(0, len(paths), 500):
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", head, "--")
        names = (os.fsdecode(path) for path in paths[first : first + 500])
        found.update(calls.printed(*words, *names).split(b"\0"))
    return found & set(paths)


def _paths(calls: Calls) -> list[bytes]:
    words = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=all")
    return [entry[3:] for entry in calls.printed("status", *words).split(b"\0") if len(entry) > 3]


def _seen(calls: Calls, paths: Iterable[bytes]) -> _Seen:
    """By what a file that is written to is known to be another one."""
    seen: _Seen = {}
    for path in paths:
        try:
            found = os.lstat(calls.path(path))
        except OSError:
            continue
        seen[path] = (found.st_ino, found.st_size, found.st_mtime_ns)
    return seen


def _given(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
