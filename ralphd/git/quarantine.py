"""What an agent that crashed has left half written: kept under a ref, and out of the next one's way.

Only what was not there before it: a path that was uncommitted or ignored already stays as it is, whoever
changed it since. Ignored files are never touched, nor what is too large to be kept.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.git.diagnostics import present_trouble
from ralphd.git.facts import position
from ralphd.git.repair import LEFT
from ralphd.git.rewrite.file_snapshots import Trace, traces
from ralphd.git.rewrite.move_branch import recover, refuse_filtered
from ralphd.git.rewrite.revert import ref_name
from ralphd.git.rewrite.tree_diff import TreeEntry, above, files_below, is_file, is_there, staged_at
from ralphd.git.runner import LIMIT_S, SHOWN, GitRunner, NotDone, readable, said_of, shown
from ralphd.git.snapshot import Snapshot, snapshot

MOST_FILES: Final = 10_000
MOST_KNOWN: Final = 200_000
"""How many names are remembered for as long as an attempt takes."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What was taken out of the work tree: under which ref it is, and its names. ``trouble``: why it was not.

    Neither: there was nothing. ``staged`` is another ref, where something else was staged than the files had.
    """

    ref: str | None = None
    files: tuple[str, ...] = ()
    trouble: str = ""
    staged: str | None = None

    @property
    def words(self) -> str:
        """One line for the next agent, and for a person; empty where there was nothing."""
        if self.trouble:
            return f"what the attempt before has left half written is still there: {self.trouble}"
        if self.ref is None:
            return ""
        shown = ", ".join(self.files[:SHOWN])
        more = f" and {len(self.files) - SHOWN} more" if len(self.files) > SHOWN else ""
        staged = f" (and, as it was staged: {self.staged})" if self.staged else ""
        return (
            f"what the attempt before had not committed when it crashed was set aside: {shown}{more}. "
            f"See it: git show --stat {self.ref}{staged}. "
            f"Take back what is good: git checkout {self.ref} -- FILE"
        )


def uncommitted_paths(directory: Path, *, limit_s: float = LIMIT_S) -> frozenset[bytes] | None:
    """What is not committed now, relative to the root; None where git cannot tell, or it is too much.

    Untracked files too, and what is ignored: whoever changes the ``.gitignore`` makes none of it his own.
    A name that ends with a slash is a folder, with all that is in it.
    """
    try:
        found = _paths(GitRunner(directory, limit_s=limit_s), "--ignored=matching")
        return frozenset(found) if len(found) <= MOST_KNOWN else None
    except (NotDone, OSError):
        return None


def put_away(
    directory: Path, before: Collection[bytes], label: str, *, scratch: Path, limit_s: float = LIMIT_S
) -> Quarantined:
    """Take out what is uncommitted now and was not ``before``, once it is kept under a ref of ``label``.

    The files of those paths, and what is staged of them, are then as HEAD has them. Raises nothing: where
    anything cannot be kept, all stays as it is, and ``trouble`` says why.
    """
    try:
        calls = GitRunner(directory, limit_s=limit_s)
        with calls.alone():
            recover(calls)
            return _put_away(calls, before, label, scratch)
    except NotDone as why:
        return Quarantined(trouble=str(why))
    except OSError as error:
        return Quarantined(trouble=said_of(error))


def _put_away(calls: GitRunner, before: Collection[bytes], label: str, scratch: Path) -> Quarantined:
    new = [path for path in _paths(calls) if not path.endswith(b"/") and not _was_there(path, before)]
    if not new:
        return Quarantined()
    if trouble := present_trouble(calls.directory):
        raise NotDone("; ".join(trouble))
    if len(new) > MOST_FILES:
        raise NotDone(f"{len(new)} files: too many")
    refuse_filtered(calls, new)
    seen = traces(calls, new)
    kept = snapshot(calls.directory, f"{label}, what a crashed attempt has left", scratch=scratch)
    _refuse_unkept(kept)
    committed = _entries(calls, new, kept.head)
    _refuse_loss(calls, new, committed)
    ref = f"{LEFT}{ref_name(label)}/files"
    calls.printed("update-ref", "--stdin", given=f"update {ref} {kept.commit}\n".encode())
    staged = _keep_staged(calls, new, committed, kept, f"{LEFT}{ref_name(label)}/staged")
    if traces(calls, new) != seen or position(calls.directory).head != kept.head:
        raise NotDone(f"files change while they are looked at; as they were: git show --stat {ref}")
    try:
        _as_committed(calls, seen, new, committed, kept.head)
    except (NotDone, OSError) as why:
        words = said_of(why) if isinstance(why, OSError) else why
        raise NotDone(f"{words}; in part at least, and all of it is kept: git show --stat {ref}") from why
    return Quarantined(ref, tuple(map(readable, new)), staged=staged)


def _was_there(path: bytes, before: Collection[bytes]) -> bool:
    return path in before or any(each + b"/" in before for each in above(path))


def _refuse_loss(calls: GitRunner, new: Collection[bytes], committed: Collection[bytes]) -> None:
    """Raises NotDone where a file of HEAD's would take the place of something that is not kept."""
    way = set()
    for path in committed:
        way |= {each for each in above(path) if is_file(calls.path(each))}
        way |= set(files_below(calls, path))
    if way := way - set(new):
        raise NotDone(f"what git does not keep is in the way: {shown(way)}")


def _keep_staged(
    calls: GitRunner, new: list[bytes], committed: dict[bytes, TreeEntry], kept: Snapshot, ref: str
) -> str | None:
    """Keep what is staged where it is neither HEAD's nor the file's; the ref, None where all of it is."""
    files = _entries(calls, new, kept.commit)
    staged = staged_at(calls, new).items()
    if all(entry in (committed.get(path), files.get(path)) for path, entry in staged):
        return None
    index = calls.work / "tmp-tree"
    shutil.copy2(calls.repository.git / "index", index)  # with its time, for what changed in the same tick
    tree = calls.text("write-tree", also={"GIT_INDEX_FILE": os.fspath(index)})
    parents = ("-p", kept.head) if kept.head else ()
    said = ("--no-gpg-sign", "-m", "what a crashed attempt had staged")
    commit = calls.text("commit-tree", tree, *parents, *said, also=calls.identity)
    calls.printed("update-ref", "--stdin", given=f"update {ref} {commit}\n".encode())
    return ref


def _refuse_unkept(kept: Snapshot) -> None:
    """Raises NotDone where anything at all could not be kept."""
    if kept.trouble or kept.commit is None:
        raise NotDone(kept.trouble or "nothing of it could be kept")
    if kept.skipped_large:
        raise NotDone(f"{kept.skipped_large[0]} is too large to be kept")


def _as_committed(
    calls: GitRunner,
    seen: Mapping[bytes, Trace],
    paths: list[bytes],
    committed: Collection[bytes],
    head: str | None,
) -> None:
    """Files and index of these paths as HEAD has them, the folders that become empty removed.

    A file that is another than was ``seen`` stays: somebody has saved it at this very moment.
    """
    if gone := [path for path in paths if path not in committed]:
        calls.printed("update-index", "-z", "--force-remove", "--stdin", given=_given(gone))
        for path in gone:
            # Never through a link that has taken the place of its folder.
            if is_there(calls, path) and traces(calls, [path]).get(path) == seen.get(path):
                calls.remove(path)
    now = traces(calls, committed)
    if head is not None and (same := [path for path in committed if now.get(path) == seen.get(path)]):
        words = ("checkout", "--quiet", head, "--pathspec-from-file=-", "--pathspec-file-nul")
        calls.printed(*words, given=_given(same))


def _entries(calls: GitRunner, paths: list[bytes], commit: str | None) -> dict[bytes, TreeEntry]:
    """What a commit has at these paths. Raises NotDone."""
    found: dict[bytes, TreeEntry] = {}
    for first in range(0, len(paths), 500) if commit is not None else ():
        wanted = paths[first : first + 500]
        words = ("ls-tree", "-r", "-z", "--full-tree", str(commit), "--")
        for line in calls.printed(*words, *map(os.fsdecode, wanted)).split(b"\0"):
            about, _, path = line.partition(b"\t")
            if about:
                mode, _, sha = about.split()
                found[path] = TreeEntry(mode, sha.decode())
    return {path: found[path] for path in paths if path in found}


def _paths(calls: GitRunner, *also: str) -> list[bytes]:
    words = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=all", *also)
    return [entry[3:] for entry in calls.printed("status", *words).split(b"\0") if len(entry) > 3]


def _given(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
