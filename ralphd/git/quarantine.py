"""Remove what a crashed agent has left half written, once it is kept under a ref.

The next agent starts from a clean commit, and may take back what is good. Only new work is removed: a path
that was uncommitted or ignored before the attempt stays, even if it has changed since. Ignored files are
never touched.
"""

# Theory of operation
#
# Order: look (traces), snapshot, refs, look again, remove. The snapshot is a commit made in a copy of the
# index. Nothing is removed unless all of it is kept: one file that is too large refuses the whole.
#
# A person may save a file at any moment: before the second look, and all stays; after it, each file is
# compared with its first trace again right before it is removed, and stays if it differs. Files with a
# version in HEAD are compared together before one ``git checkout``: a save in these milliseconds is in
# neither place, which is the price for modes and line ends being git's own.
#
# A crash between refs and removal leaves the files, and the ref too: the repeated act makes both again. A
# failure in the middle names the ref, which has everything.

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.git.diagnostics import present_trouble
from ralphd.git.facts import position
from ralphd.git.repair import LEFT
from ralphd.git.rewrite.file_snapshots import Trace, traces
from ralphd.git.rewrite.move_branch import recover, refuse_filtered
from ralphd.git.rewrite.tree_diff import TreeEntry, above, committed_at, is_there, obstructing, staged_at
from ralphd.git.runner import LIMIT_S, SHOWN, GitRunner, NotDone, error_text, name_list, readable, ref_name
from ralphd.git.snapshot import Snapshot, snapshot

MOST_FILES: Final = 10_000
MOST_KNOWN: Final = 200_000
"""How many names are remembered for the time of an attempt."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What was removed: the names, and the ref that has it; ``trouble`` if it could not be.

    ``staged`` is another ref, where something else was staged than the files had. All empty: nothing was new.
    """

    ref: str | None = None
    files: tuple[str, ...] = ()
    trouble: str = ""
    staged: str | None = None

    @property
    def words(self) -> str:
        """One line for the next agent, and for a person."""
        if self.trouble:
            return f"what the attempt before has left half written is still there: {self.trouble}"
        if self.ref is None:
            return ""
        more = f" and {len(self.files) - SHOWN} more" if len(self.files) > SHOWN else ""
        staged = f" (and, as it was staged: {self.staged})" if self.staged else ""
        return (
            "what the attempt before had not committed when it crashed was set aside: "
            f"{', '.join(self.files[:SHOWN])}{more}. "
            f"See it: git show --stat {self.ref}{staged}. "
            f"Take back what is good: git checkout {self.ref} -- FILE"
        )


def uncommitted_paths(directory: Path, *, limit_s: float = LIMIT_S) -> frozenset[bytes] | None:
    """Return what is uncommitted, untracked or ignored now; None if git fails, or it is too much.

    Ignored paths count, so that an agent that edits ``.gitignore`` does not make them its own. A name with a
    slash at its end is a folder with all that is in it.
    """
    try:
        paths = _changed_paths(GitRunner(directory, limit_s=limit_s), "--ignored=matching")
        return frozenset(paths) if len(paths) <= MOST_KNOWN else None
    except (NotDone, OSError):
        return None


def put_away(
    directory: Path, before: Collection[bytes], label: str, *, scratch: Path, limit_s: float = LIMIT_S
) -> Quarantined:
    """Keep what is uncommitted now and was not ``before``, and set these paths to HEAD, index and files.

    Raises nothing: where anything cannot be kept, all stays.
    """
    try:
        git = GitRunner(directory, limit_s=limit_s)
        with git.exclusive():
            recover(git)
            return _put_away(git, before, label, scratch)
    except (NotDone, OSError) as why:
        return Quarantined(trouble=error_text(why))


def _put_away(git: GitRunner, before: Collection[bytes], label: str, scratch: Path) -> Quarantined:
    new = [
        path
        for path in _changed_paths(git)
        if not path.endswith(b"/")
        and path not in before
        and not any(each + b"/" in before for each in above(path))
    ]
    if not new:
        return Quarantined()
    if trouble := present_trouble(git.directory):
        raise NotDone("; ".join(trouble))
    if len(new) > MOST_FILES:
        raise NotDone(f"{len(new)} files: too many")
    refuse_filtered(git, new)
    seen = traces(git, new)
    work = snapshot(git.directory, f"{label}, what a crashed attempt has left", scratch=scratch)
    if work.trouble or work.commit is None:
        raise NotDone(work.trouble or "nothing of it could be kept")
    if work.skipped_large:
        raise NotDone(f"{work.skipped_large[0]} is too large to be kept")
    committed = committed_at(git, new, work.head)
    if way := obstructing(git, committed, new):
        raise NotDone(f"what git does not keep is in the way: {name_list(way)}")
    ref = f"{LEFT}{ref_name(label)}/files"
    git.update_refs(f"update {ref} {work.commit}")
    staged = _keep_staged(git, new, committed, work, f"{LEFT}{ref_name(label)}/staged")
    if traces(git, new) != seen or position(git.directory).head != work.head:
        raise NotDone(f"files change while they are looked at; as they were: git show --stat {ref}")
    try:
        _set_to_head(git, seen, new, committed, work.head)
    except (NotDone, OSError) as why:
        rest = f"in part at least, and all of it is kept: git show --stat {ref}"
        raise NotDone(f"{error_text(why)}; {rest}") from why
    return Quarantined(ref, tuple(map(readable, new)), staged=staged)


def _keep_staged(
    git: GitRunner, new: list[bytes], committed: dict[bytes, TreeEntry], work: Snapshot, ref: str
) -> str | None:
    """Keep what is staged, if it is neither HEAD's nor the file's, and return the ref."""
    files = committed_at(git, new, work.commit)
    staged = staged_at(git, new).items()
    if all(entry in (committed.get(path), files.get(path)) for path, entry in staged):
        return None
    index = git.work / "tmp-tree"
    git.copy_index(index)
    tree = git.text("write-tree", env={"GIT_INDEX_FILE": os.fspath(index)})
    parents = (work.head,) if work.head else ()
    commit = git.commit_tree(tree, "what a crashed attempt had staged\n", *parents)
    git.update_refs(f"update {ref} {commit}")
    return ref


def _set_to_head(
    git: GitRunner,
    seen: Mapping[bytes, Trace],
    paths: list[bytes],
    committed: Collection[bytes],
    head: str | None,
) -> None:
    if gone := [path for path in paths if path not in committed]:
        git.output("update-index", "-z", "--force-remove", "--stdin", given=gone)
        for path in gone:
            # is_there: never through a link that has taken the place of a folder.
            if is_there(git, path) and traces(git, [path]).get(path) == seen.get(path):
                git.remove(path)
    present = traces(git, committed)
    same = [path for path in committed if present.get(path) == seen.get(path)]
    if head is not None and same:
        words = ("checkout", "--quiet", head, "--pathspec-from-file=-", "--pathspec-file-nul")
        git.output(*words, given=same)


def _changed_paths(git: GitRunner, *words: str) -> list[bytes]:
    options = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=all", *words)
    return [entry[3:] for entry in git.output("status", *options).split(b"\0") if len(entry) > 3]
