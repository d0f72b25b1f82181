"""Find which files of a working directory changed since the last look, in slices that cost little each (H2).

A silent agent that still writes files is at work. inotify would need a watch for each folder, and kernels
limit these; so files are looked at in turn: first those that changed lately, then folders (a new or removed
file changes its folder), then all others, from where the last look stopped. Ignored files are not work.
"""

import os
import stat as modes
import subprocess
import tempfile
import time
from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeAlias

from ralphd.core.stall_detector import Changes
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.git import repo
from ralphd.git.repo import Repository, Signature

UNSEEN, GONE = 0, -1
"""Signatures of a file not looked at yet, and of an absent one; hash() never returns -1."""
NEVER_OURS = frozenset({b".git", b".ralph"})
"""Folders that are never entered, wherever they lie."""
MOST_FILES = 500_000
LISTING_S = 30.0
"""The time for git's list of files; a repository that needs longer is scanned without git."""
IGNORED_S = 2.0
SHARE = 0.05
"""The share of time that git may be busy for one working directory."""
LOOK_S = 0.05
"""The processor time of one look."""
LOOK_WALL_S = 0.5
"""The wall-clock time of one look, for a disk that is slow."""
LISTING_WAIT_S = 0.3
"""How long a look waits for git's list; a later look takes up a longer one."""
MOST_RECENT = 1000
RECENT_S = 3600.0
MOST_NAMES = 10_000
"""How many names of one folder are searched for new ones."""
MOST_NEW = 500
"""How many new names of one folder git is asked about at once."""
_PIECE_BYTES = 1 << 16
_CHUNK = 64
_SETTLED_NS = 50_000_000  # a folder changed so lately may change again within the same tick of its clock

Work: TypeAlias = Iterator[None]
"""A long job, in steps after which it may be left until the next look."""


class HeadWatch:
    """Reports moves of HEAD to another commit. Asks git only when its files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._repository: Repository | None = None
        self._signature: Signature | None = None
        self._commit: str | None = None
        self._is_known = False
        self._free_at = 0.0

    def moved(self) -> bool:
        """Return whether HEAD is at another commit than at the last call; never at the first one."""
        self._repository = self._repository or Repository.find(self._directory)
        if self._repository is None:
            self._is_known = True  # the first commit of a repository made later counts
            return False
        signature, began = self._repository.signature(), time.monotonic()
        if signature == self._signature or began < self._free_at:
            return False
        head = repo.head(self._directory)
        if head is None:  # gone, or too slow
            self._free_at = _after_rest(began)
            return False
        before, self._commit, self._signature = self._commit, head.commit, signature
        was_known, self._is_known = self._is_known, True
        if before is None or head.commit is None:
            return was_known and before is not head.commit
        # Git makes short shas longer as a repository grows.
        return was_known and not (before.startswith(head.commit) or head.commit.startswith(before))


@dataclass(eq=False, slots=True)
class Folder:
    """A folder with the names of its files and a signature for each: 300,000 files take about 15 MB.

    ``sign`` is the folder's own signature. ``is_plain`` means that git is not asked about it: there is none,
    or a nested repository begins here.
    """

    path: bytes
    is_plain: bool
    sign: int = UNSEEN
    names: bytes = b""
    signs: "array[int]" = field(default_factory=lambda: array("q"))
    ignored: frozenset[bytes] = frozenset()

    def listed(self) -> list[bytes]:
        """Return the names of its files, in the order of their signatures."""
        return self.names.split(b"\0") if self.signs else []

    def inside(self, name: bytes) -> bytes:
        """Return the path of a name in it, relative to the working directory."""
        return self.path + b"/" + name if self.path else name


class Folders:
    """All known folders, by path; at most MOST_FILES files."""

    def __init__(self) -> None:
        self.by_path: dict[bytes, Folder] = {}
        self._left = MOST_FILES

    def get(self, path: bytes, *, is_plain: bool) -> Folder:
        """Return the folder at ``path``; make it known first, with those above it, where it was not."""
        if path not in self.by_path:
            if path:
                self.get(path.rpartition(b"/")[0], is_plain=False)
            self.by_path[path] = Folder(path, is_plain)
        return self.by_path[path]

    def add(self, folder: Folder, names: list[bytes]) -> None:
        """Add files, not looked at yet, to a folder, as long as there is room."""
        del names[self._left :]
        self._left -= len(names)
        if names:
            joined = b"\0".join(names)
            folder.names = folder.names + b"\0" + joined if folder.signs else joined
            folder.signs.frombytes(bytes(folder.signs.itemsize * len(names)))  # UNSEEN

    def add_paths(self, paths: Iterable[bytes]) -> Iterator[bytes]:
        """Add files by their paths; yield those of nested repositories (with a slash at the end)."""
        # Git lists a folder's files one after the other: they are added together, since this loop is where
        # the time for a large directory goes.
        parent, names = b"", list[bytes]()
        for path in chain(paths, (b"\0/",)):  # the last one ends the last group
            folder, _, name = path.rpartition(b"/")
            if folder != parent:
                if names and NEVER_OURS.isdisjoint(parent.split(b"/")):
                    self.add(self.get(parent, is_plain=False), names)
                parent, names = folder, []
            if name:
                names.append(name)
            elif folder != b"\0" and NEVER_OURS.isdisjoint(folder.split(b"/")):
                yield folder


class Listing:
    """All files of a repository below a directory, tracked or neither tracked nor ignored.

    Git writes them into an unlinked file, so it never waits for us. Raises OSError where git cannot start.
    """

    def __init__(self, directory: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - outlives this call
        self._deadline = time.monotonic() + LISTING_S
        words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        try:
            self._git = repo.started(directory, *words, stdin=subprocess.DEVNULL, stdout=self._file.fileno())
        except OSError:
            self._file.close()
            raise

    def is_complete(self, *, wait_s: float) -> bool | None:
        """Wait ``wait_s`` seconds at most; return None if the list will never be complete."""
        try:
            return True if self._git.wait(wait_s) == 0 else None
        except subprocess.TimeoutExpired:
            return False if time.monotonic() < self._deadline else None

    def pieces(self) -> Iterator[list[bytes]]:
        """Yield paths, some hundred at a time, relative to the directory; a folder's ends with a slash."""
        self._file.seek(0)
        rest = b""
        while piece := self._file.read(_PIECE_BYTES):
            *names, rest = (rest + piece).split(b"\0")
            yield names

    def close(self) -> None:
        """Kill git, if it is still running."""
        repo.ended(self._git)
        self._file.close()


class WorkTree:
    """A watched working directory. Changes before ``since`` (now, if None) do not count."""

    def __init__(self, directory: Path, *, since: Moment | None = None) -> None:
        self._head = HeadWatch(directory)
        self._directory = directory
        self._prefix = os.fsencode(directory) + b"/"
        self._since_ns = int((time.time() if since is None else since) * 1e9)
        self._folders = Folders()
        self._git_free_at = 0.0  # git is asked what it ignores, no more often than SHARE allows
        self._listing: Listing | None = None
        self._beginning: Work | None = self._begin()
        self._folder_round: Work | None = None
        self._file_round: Work | None = None
        self._recent: dict[bytes, tuple[Folder, int]] = {}
        self._count = 0
        self._file: bytes | None = None

    def changes(self) -> Changes:
        """Return what this slice found: how many files, one of them, and whether HEAD moved."""
        self._count, self._file = 0, None
        cpu_s, wall_s = time.thread_time(), time.monotonic() + LOOK_WALL_S + LISTING_WAIT_S
        self._beginning = _advance(self._beginning, cpu_s + LOOK_S, wall_s)
        if self._beginning is None:
            for path, (folder, index) in list(self._recent.items()):
                self._check(folder, index, path)
            folders = self._folder_round or self._each_folder()
            self._folder_round = _advance(folders, cpu_s + LOOK_S / 2, wall_s)
            self._file_round = _advance(self._file_round or self._each_file(), cpu_s + LOOK_S, wall_s)
        file = None if self._file is None else self._file.decode(errors="replace")
        return Changes(files=self._count, file=file, committed=self._head.moved())

    def close(self) -> None:
        """Kill git, where it is still listing."""
        if self._listing is not None:
            self._listing.close()
            self._listing = None

    def _begin(self) -> Work:
        """Learn which files exist: from git or, where that fails, by scanning."""
        is_complete: bool | None = None
        with suppress(OSError):
            self._listing = Listing(self._directory)
            while (is_complete := self._listing.is_complete(wait_s=LISTING_WAIT_S)) is False:
                yield
            for paths in self._listing.pieces() if is_complete else ():
                for nested in self._folders.add_paths(paths):
                    yield from self._search([self._folders.get(nested, is_plain=True)], were=UNSEEN)
                yield
        self.close()
        root = self._folders.get(b"", is_plain=is_complete is None)
        if root.is_plain:
            yield from self._search([root], were=UNSEEN)

    def _each_folder(self) -> Work:
        """Make one round over the folders: did names come to them?"""
        changed = []
        for number, folder in enumerate(list(self._folders.by_path.values())):
            is_free = folder.is_plain or time.monotonic() >= self._git_free_at
            if is_free and self._has_changed(folder):
                changed.append(folder)
            if number % _CHUNK == 0:
                yield
        yield from self._search(changed, were=GONE)

    def _has_changed(self, folder: Folder) -> bool:
        try:
            stat = self._stat(folder.path)
        except OSError:
            return False
        if stat is None or (sign := hash((stat.st_mtime_ns, stat.st_ino))) == folder.sign:
            return False
        is_settled = time.time_ns() - stat.st_mtime_ns > _SETTLED_NS
        was_seen, folder.sign = folder.sign != UNSEEN, sign if is_settled else GONE
        return was_seen or stat.st_mtime_ns >= self._since_ns

    def _search(self, folders: list[Folder], *, were: int) -> Work:
        """Add the unknown files of these folders, and of the unknown folders below them.

        They ``were`` either UNSEEN so far, or GONE, which makes each of them a change.
        """
        while folders:
            unknown = []
            for folder in folders:
                unknown.append((folder, *self._unknown(folder)))
                yield
            asked = [each.inside(name) for each, *new in unknown if not each.is_plain for name in chain(*new)]
            ignored = self._ignored(asked) if asked else set()
            folders = []
            for folder, names, below in unknown:
                hidden = {name for name in (*names, *below) if folder.inside(name) in ignored}
                folder.ignored |= hidden
                self._add(folder, [name for name in names if name not in hidden], were)
                for path in (folder.inside(name) for name in below if name not in hidden):
                    begins_another = os.path.lexists(self._prefix + path + b"/.git")
                    folders.append(self._folders.get(path, is_plain=folder.is_plain or begins_another))
                yield

    def _ignored(self, names: Collection[bytes]) -> set[bytes]:
        """Return the ignored ones of these names; none when git fails, so that no work is overlooked."""
        began = time.monotonic()
        given = b"".join(name + b"\0" for name in names)
        words = ("check-ignore", "-z", "--no-index", "--stdin")
        answer = repo.answer(self._directory, *words, limit_s=IGNORED_S, given=given)
        self._git_free_at = _after_rest(began)
        return set() if answer is None else set(answer[1].split(b"\0"))

    def _unknown(self, folder: Folder) -> tuple[list[bytes], list[bytes]]:
        """Return the unknown names in a folder: of files and links, and of folders."""
        known = {*folder.listed(), *folder.ignored, *NEVER_OURS}
        files: list[bytes] = []
        folders: list[bytes] = []
        with suppress(OSError), os.scandir(self._prefix + folder.path) as entries:
            for entry in islice(entries, MOST_NAMES):
                if entry.name in known or folder.inside(entry.name) in self._folders.by_path:
                    continue
                if len(files) + len(folders) == MOST_NEW and not folder.is_plain:
                    folder.sign = GONE  # the next look continues here
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    files.append(entry.name)
        return files, folders

    def _add(self, folder: Folder, names: list[bytes], were: int) -> None:
        start = len(folder.signs)
        self._folders.add(folder, names)
        for index in range(start, len(folder.signs)):
            folder.signs[index] = were
            self._check(folder, index, folder.inside(names[index - start]))

    def _each_file(self) -> Work:
        number = 0
        for folder in list(self._folders.by_path.values()):  # a copy: searches add folders meanwhile
            for index, name in enumerate(folder.listed()):
                path = folder.inside(name)
                if self._check(folder, index, path):
                    yield from self._search([self._folders.get(path, is_plain=True)], were=UNSEEN)
                number += 1
                if number % _CHUNK == 0:
                    yield

    def _check(self, folder: Folder, index: int, path: bytes) -> bool:
        """Count a file if it changed; return True for a nested repository that is met for the first time."""
        known = folder.signs[index]
        try:
            stat = self._stat(path)
        except OSError:  # unreadable by now: neither there nor gone
            return False
        if stat is not None and modes.S_ISDIR(stat.st_mode):
            folder.signs[index] = GONE
            return known == UNSEEN
        sign = GONE if stat is None else hash((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        if sign == known:
            return False
        folder.signs[index] = sign
        if known != UNSEEN or (stat is not None and stat.st_ctime_ns >= self._since_ns):
            self._count += 1
            self._file = self._file or path
            # What changed last is likely to change next: look at it first.
            self._recent.pop(path, None)
            self._recent[path] = (folder, index)
            if len(self._recent) > MOST_RECENT:
                del self._recent[next(iter(self._recent))]
        elif len(self._recent) < MOST_RECENT and stat is not None and time.time() - stat.st_mtime < RECENT_S:
            self._recent[path] = (folder, index)
        return False

    def _stat(self, path: bytes) -> os.stat_result | None:
        """Return None where there is nothing. Raises OSError."""
        try:
            return os.lstat(self._prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _after_rest(began: float) -> float:
    """Return when git may be asked again after a call: the longer it took, the later."""
    now = time.monotonic()
    return now + (now - began) * (1 / SHARE - 1)


def _advance(work: Work | None, cpu_s: float, wall_s: float) -> Work | None:
    """Work until a time of the thread's clock or of the wall's; return what is left, None when done."""
    for _ in work or ():
        if time.thread_time() >= cpu_s or time.monotonic() >= wall_s:
            return work
    return None
