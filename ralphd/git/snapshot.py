"""What is not committed, kept as a commit that no branch knows; work tree and index stay as they are (L1).

Git stages everything in a copy of the index, so that no lock is needed and none is in the way. What is
ignored is never taken, large files are named only. Nothing of the repository's is run: no hooks, no filters.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.git import repo
from ralphd.git.repo import Repository

REFS: Final = "refs/ralph/checkpoints/"
KEPT: Final = 20
LIMIT_S: Final = 30.0
LARGE_BYTES: Final = 10 << 20
MOST_BYTES: Final = 1 << 30
"""How much uncommitted work is kept in all; whoever has more forgot to ignore something."""
MOST_NAMES: Final = 200
_MOST_FILES: Final = 100_000
_MOST_FAILURES: Final = 60
_SETTINGS: Final = (
    *("core.splitIndex=false", "core.untrackedCache=false", "core.safecrlf=false"),
    *("core.fsyncMethod=batch", "i18n.commitEncoding=UTF-8"),
)
_IDENTITY: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "ralphd"), ("EMAIL", "ralphd@localhost"))
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was not committed. ``ref`` None: nothing could be or had to be kept, ``trouble`` says which.

    ``head`` is the full sha of HEAD then. ``files`` are the first 200 of ``file_count`` names, relative to
    the root of the work tree; ``skipped_large`` those of over 10 MiB, whose content is not kept.
    """

    ref: str | None = None
    commit: str | None = None
    head: str | None = None
    files: tuple[str, ...] = ()
    file_count: int = 0
    skipped_large: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where HEAD is, the root of the work tree, and under which refs its snapshots are kept."""

    top: Path
    refs: str
    head: str | None
    tree: str | None


@dataclass(frozen=True, slots=True)
class _Uncommitted:
    """Names as git tells them: all, those that are gone, those to be kept, those too large for it."""

    names: list[bytes]
    gone: list[bytes]
    kept: list[bytes]
    large: list[bytes]


class _Trouble(Exception):
    """Why there is no snapshot, in words."""


def snapshot(
    directory: Path, label: str, *, scratch: Path | None = None, limit_s: float = LIMIT_S
) -> Snapshot:
    """Keep what is not committed in the work tree around ``directory``; ``label`` says of what it is.

    The copy of the index lies in a directory below ``scratch`` meanwhile, which must be ours alone. Raises
    nothing: what prevents a snapshot is said in its ``trouble``. Blocks for ``limit_s`` at most.
    """
    repository = Repository.find(directory)
    if repository is None:
        return Snapshot(trouble="there is no git repository here, so uncommitted work is not kept")
    work = None
    try:
        work = Path(tempfile.mkdtemp(prefix="snapshot-", dir=scratch))
        return _Taking(directory, repository, work, time.monotonic() + limit_s).taken(label)
    except (_Trouble, OSError) as trouble:
        return Snapshot(trouble=f"uncommitted work could not be kept: {trouble}")
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


class _Taking:
    """One snapshot being taken, with a deadline for all calls of git together."""

    def __init__(self, directory: Path, repository: Repository, work: Path, deadline: float) -> None:
        self._directory = directory
        self._repository = repository
        self._index = work / "index"
        self._deadline = deadline
        self._failures = 0
        self._variables: Mapping[str, str] = {
            **_IDENTITY,
            "GIT_INDEX_FILE": str(self._index),
            "GIT_NO_LAZY_FETCH": "1",  # what a partial clone lacks is not fetched for this
        }

    def taken(self, label: str) -> Snapshot:
        place = self._place()
        self._directory = place.top
        self._copy_index()
        self._variables = {**self._variables, **self._without_filters()}
        found = self._uncommitted()
        told = Snapshot(
            head=place.head,
            files=_shown(found.names),
            file_count=len(found.names),
            skipped_large=_shown(found.large),
        )
        if not found.gone and not found.kept:
            return told
        return self._kept(place, found, told, label)

    def _kept(self, place: _Place, found: _Uncommitted, told: Snapshot, label: str) -> Snapshot:
        """The snapshot with its commit: a new one, or the last one where nothing has changed since."""
        self._stage(found.gone, "--force-remove")
        unread = self._stage(found.kept, "--add", "--remove", "--replace")
        trouble = "" if not unread else f"git could not read {', '.join(_shown(unread[:5]))}: not kept"
        tree = self._ask("write-tree", "--missing-ok").strip()
        if tree == place.tree:
            return _with(told, trouble=trouble)
        refs = self._known(place)
        number, known = max(refs.items(), default=(0, None))
        if known is not None and known[1:] == (tree, place.head or ""):
            return _with(told, trouble, f"{place.refs}{number:06}", known[0])
        parents = () if place.head is None else ("-p", place.head)
        said = f"ralph: {label}\n\nWork that was not committed, kept by ralphd.\n".encode(errors="replace")
        commit = self._ask("commit-tree", tree, *parents, "--no-gpg-sign", "-F", "-", given=said).strip()
        ref = f"{place.refs}{number + 1:06}"
        self._ask("update-ref", "--stdin", given=f"create {ref} {commit}\n".encode())
        self._prune([f"{place.refs}{old:06}" for old in sorted(refs)[: -(KEPT - 1)]])
        return _with(told, trouble, ref, commit)

    def _place(self) -> _Place:
        words = ("rev-parse", "--show-cdup", "--revs-only", "HEAD", "HEAD^{tree}")
        up, *revisions = self._ask(*words).split("\n")
        head, tree = revisions[:2] if len(revisions) > 2 else (None, None)
        refs = REFS
        if up or self._repository.is_linked:
            # Others work in the same repository; their snapshots must not push ours out.
            refs += hashlib.sha256(os.fsencode(self._directory.resolve())).hexdigest()[:8] + "/"
        return _Place(self._directory / up, refs, head, tree)

    def _copy_index(self) -> None:
        """Copy it with its time, by which git knows which files may have changed within the same tick."""
        with suppress(FileNotFoundError), (self._repository.git / "index").open("rb") as index:
            found = os.fstat(index.fileno())
            with self._index.open("wb") as copy:
                shutil.copyfileobj(index, copy)
            os.utime(self._index, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _without_filters(self) -> dict[str, str]:
        """Variables that turn off the filters which a configuration names: they are anybody's commands."""
        words = ("config", "-z", "--name-only", "--get-regexp", r"^filter\.")
        names = self._call(*words)[1].decode(errors="surrogateescape").split("\0")
        drivers = sorted({name[: name.rfind(".")] for name in names if name.count(".") > 1})
        off = [(f"{each}.{key}", "") for each in drivers for key in ("clean", "smudge", "process")]
        off += [(f"{each}.required", "false") for each in drivers]
        variables = {"GIT_CONFIG_COUNT": str(len(off))}
        for number, (key, value) in enumerate(off):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    def _uncommitted(self) -> _Uncommitted:
        words = ("--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=dirty")
        entries = [entry for entry in self._printed("status", *words).split(b"\0") if len(entry) > 3]
        if len(entries) > _MOST_FILES:
            raise _Trouble(f"{len(entries)} files are not committed; put into .gitignore what is made anew")
        found = _Uncommitted([entry[3:] for entry in entries], [], [], [])
        total = 0
        for entry, name in zip(entries, found.names, strict=True):
            size = _size(os.fsencode(self._directory) + b"/" + name)
            is_gone = entry[1:2] == b"D" and entry[:2] != b"UD"  # a folder on its way may be a link by now
            if size is None or is_gone:  # UD, deleted by the other side of a merge: it is there
                found.gone.append(name)
            elif size > LARGE_BYTES:
                found.large.append(name)
            elif not name.endswith(b"/"):  # a repository of its own
                found.kept.append(name)
                total += size
        if total > MOST_BYTES:
            raise _Trouble(f"{total >> 20} MiB are not committed; put into .gitignore what is made anew")
        return found

    def _stage(self, names: list[bytes], *how: str) -> list[bytes]:
        """Stage names in the copy; those that git cannot read, which are sought by halves.

        Git gives up at the first of them, and at a file that shrinks while it reads it.
        """
        if not names:
            return []
        words = ("update-index", "-z", *how, "--stdin")
        code, _ = self._call(*words, given=b"".join(name + b"\0" for name in names))
        if code == 0:
            return []
        self._failures += 1
        if self._failures > _MOST_FAILURES:
            raise _Trouble(f"git update-index ended with {code}; is the disk full?")
        middle = len(names) // 2
        return (
            names if not middle else [*self._stage(names[:middle], *how), *self._stage(names[middle:], *how)]
        )

    def _known(self, place: _Place) -> dict[int, tuple[str, str, str]]:
        """The snapshots that are kept: commit, tree and parents by number."""
        form = "--format=%(refname) %(objectname) %(tree) %(parent)"
        mine = re.compile(re.escape(place.refs) + r"(\d{6,9}) (\w+) (\w+) ([\w ]*)")
        lines = self._ask("for-each-ref", form, place.refs).splitlines()
        return {
            int(found[1]): (found[2], found[3], found[4]) for found in map(mine.fullmatch, lines) if found
        }

    def _prune(self, refs: list[str]) -> None:
        """Remove refs; where that fails, the next snapshot tries again."""
        if refs:
            self._call("update-ref", "--stdin", given="".join(f"delete {ref}\n" for ref in refs).encode())

    def _ask(self, *words: str, given: bytes = b"") -> str:
        return self._printed(*words, given=given).decode(errors="surrogateescape")

    def _printed(self, *words: str, given: bytes = b"") -> bytes:
        code, printed = self._call(*words, given=given)
        if code != 0:
            raise _Trouble(f"git {words[0]} ended with {code}; try it: git -C {self._directory} status")
        return printed

    def _call(self, *words: str, given: bytes = b"") -> tuple[int, bytes]:
        """The code and the output of git. Raises _Trouble when the time is up."""
        settings = (word for setting in _SETTINGS for word in ("-c", setting))
        answer = repo.answer(
            self._directory,
            *settings,
            *words,
            limit_s=max(0.0, self._deadline - time.monotonic()),
            given=given,
            also=self._variables,
        )
        if answer is None:
            raise _Trouble(f"git {words[0]} did not end in time, or could not be started")
        return answer


def _with(told: Snapshot, trouble: str, ref: str | None = None, commit: str | None = None) -> Snapshot:
    return Snapshot(ref, commit, told.head, told.files, told.file_count, told.skipped_large, trouble)


def _shown(names: list[bytes]) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in names[:MOST_NAMES])


def _size(path: bytes) -> int | None:
    """The size of a regular file, 0 for anything else, None for what is gone."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
