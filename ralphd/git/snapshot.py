"""Keep uncommitted work as a commit that no branch has; work tree and index stay as they are (L1).

Git stages everything in a copy of the index, so no lock is taken and none is in the way: an agent may be at
work. Ignored files are never taken, large files are only named, and no hook or filter runs.
"""

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ralphd.dataclass import dataclass
from ralphd.git.repo import Repository
from ralphd.git.runner import OWN_IDENTITY, GitRunner, NotDone

REFS: Final = "refs/ralph/checkpoints/"
KEPT: Final = 20
LIMIT_S: Final = 30.0
LARGE_BYTES: Final = 10 << 20
MOST_BYTES: Final = 1 << 30
"""The most uncommitted work in all; more of it means that a .gitignore is missing."""
MOST_NAMES: Final = 200
_MOST_FILES: Final = 100_000
_MOST_FAILURES: Final = 60
_SETTINGS: Final = ("core.splitIndex=false", "core.untrackedCache=false")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The uncommitted work. With ``ref`` None nothing had to be kept, or ``trouble`` says why it was not.

    ``head`` is the full sha of HEAD then. ``files`` are the first 200 names, relative to the root of the
    work tree; ``skipped_large`` those of over 10 MiB, whose content is not kept.
    """

    ref: str | None = None
    commit: str | None = None
    head: str | None = None
    files: tuple[str, ...] = ()
    skipped_large: tuple[str, ...] = ()
    trouble: str = ""


def snapshot(directory: Path, label: str, *, scratch: Path | None = None) -> Snapshot:
    """Keep the uncommitted work of the work tree around ``directory``; ``label`` goes into its message.

    The copy of the index lies in a directory below ``scratch``, which must be ours alone. Raises nothing.
    """
    if Repository.find(directory) is None:
        return Snapshot(trouble="this is not a git repository, so uncommitted work is not saved")
    try:
        with tempfile.TemporaryDirectory("", "snapshot-", scratch, ignore_cleanup_errors=True) as work:
            git = GitRunner(directory, limit_s=LIMIT_S, settings=_SETTINGS)
            return _Taking(git, Path(work) / "index").snapshot(label)
    except (NotDone, OSError) as why:
        return Snapshot(trouble=f"uncommitted work could not be kept: {why}")


class _Taking:
    """One snapshot being taken, in a copy of the index."""

    def __init__(self, git: GitRunner, index: Path) -> None:
        self._git, self._index = git, index
        self._env = {"GIT_INDEX_FILE": str(index)}
        self._failures = 0

    def snapshot(self, label: str) -> Snapshot:
        _, output = self._git.run("rev-parse", "--revs-only", "HEAD", "HEAD^{tree}")
        revisions = output.decode().split()
        head, head_tree = revisions if len(revisions) == 2 else (None, None)
        self._git.copy_index(self._index)
        names, gone, small, large = self._uncommitted()
        result = Snapshot(head=head, files=_first(names), skipped_large=_first(large))
        if not gone and not small:
            return result
        self._stage(gone, "--force-remove")
        if unread := self._stage(small, "--add", "--remove", "--replace"):
            result = replace(result, trouble=f"git could not read {', '.join(_first(unread[:5]))}: not kept")
        tree = self._git.text("write-tree", "--missing-ok", env=self._env)
        return result if tree == head_tree else self._keep(result, tree, label)

    def _keep(self, result: Snapshot, tree: str, label: str) -> Snapshot:
        """Create the commit and its ref; reuse the last one if nothing has changed since."""
        refs, repository = REFS, self._git.repository
        directory = self._git.directory.resolve()
        if repository.git != repository.common or directory != self._git.top.resolve():
            # Others work in the same repository; their snapshots must not push ours out.
            refs += hashlib.sha256(os.fsencode(directory)).hexdigest()[:8] + "/"
        form = "--format=%(refname) %(objectname) %(tree) %(parent)"
        mine = re.compile(re.escape(refs) + r"(\d{6,9}) (\w+) (\w+) ([\w ]*)")
        lines = map(mine.fullmatch, self._git.text("for-each-ref", form, refs).splitlines())
        known = {int(line[1]): (line[2], line[3], line[4]) for line in lines if line}
        number, last = max(known.items(), default=(0, ("", "", "")))
        if last[1:] == (tree, result.head or ""):
            return replace(result, ref=f"{refs}{number:06}", commit=last[0])
        message = f"ralph: {label}\n\nWork that was not committed, kept by ralphd.\n"
        printable = message.encode(errors="replace").decode()
        parents = () if result.head is None else (result.head,)
        commit = self._git.commit_tree(tree, printable, *parents, identity=OWN_IDENTITY)
        ref = f"{refs}{number + 1:06}"
        self._git.update_refs(f"create {ref} {commit}")
        if old := sorted(known)[: -(KEPT - 1)]:
            with suppress(NotDone):  # the next snapshot tries again
                self._git.update_refs(*(f"delete {refs}{each:06}" for each in old))
        return replace(result, ref=ref, commit=commit)

    def _uncommitted(self) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
        """Return the names of all uncommitted files, of those that are gone, to be kept, and too large."""
        entries = self._git.status("--ignore-submodules=dirty", env=self._env)
        if len(entries) > _MOST_FILES:
            raise NotDone(f"{len(entries)} files are not committed; add generated files to .gitignore")
        gone, small, large, total = [], [], [], 0
        for entry in entries:
            name = entry[3:]
            size = _size(self._git.path(name))
            # Git's word counts for deletions: a folder on the way may be a link by now. Except for UD
            # (deleted by the other side of a merge), where the file is there.
            if size is None or (entry[1:2] == b"D" and entry[:2] != b"UD"):
                gone.append(name)
            elif size > LARGE_BYTES:
                large.append(name)
            elif not name.endswith(b"/"):  # a nested repository
                small.append(name)
                total += size
        if total > MOST_BYTES:
            raise NotDone(f"{total >> 20} MiB are not committed; add generated files to .gitignore")
        return [entry[3:] for entry in entries], gone, small, large

    def _stage(self, names: list[bytes], *how: str) -> list[bytes]:
        """Stage names in the copy; return those that git cannot read.

        Git gives up at the first of them, and at a file that shrinks while it is read: bisect.
        """
        if not names:
            return []
        code, _ = self._git.run("update-index", "-z", *how, "--stdin", given=names, env=self._env)
        if code == 0:
            return []
        self._failures += 1
        if self._failures > _MOST_FAILURES:
            raise NotDone(f"git update-index ended with {code}; is the disk full?")
        if not (middle := len(names) // 2):
            return names
        return [*self._stage(names[:middle], *how), *self._stage(names[middle:], *how)]


def _first(names: list[bytes]) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in names[:MOST_NAMES])


def _size(path: bytes) -> int | None:
    """Return the size of a regular file, 0 for anything else, None for an absent one."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
