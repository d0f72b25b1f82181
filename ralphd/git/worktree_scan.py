"""Which files of a working directory changed since the last look, found in slices that cost little each (H2).

First what changed of late, then folders (a file that comes or goes changes its folder), then all other files,
going on where the last look stopped. What git ignores is no work of a run's; without git, every file counts.
"""

import os
import stat as modes
import subprocess
import tempfile
import time
from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeAlias

from ralphd.core.stall_detector import Changes
from ralphd.core.time import Moment
from ralphd.git import repo
from ralphd.git.repo import Repository, Signature

# The folders of a working directory with the names in them, kept small: 300,000 files take some 15 MB.

UNSEEN, GONE = 0, -1
"""Signatures of a file that was not looked at yet, and of one that is not there; hash() never gives -1."""
NEVER_OURS = frozenset({b".git", b".ralph"})
"""Folders that are not looked into, wherever they lie."""
MOST_FILES = 500_000


class Folder:
    """One folder: the names of its files, one signature for each, and what git ignores in it.

    ``sign`` is the folder's own signature. ``is_plain`` tells that git is not asked about it: there is none,
    or another repository begins here.
    """

    __slots__ = ("ignored", "is_plain", "names", "path", "sign", "signs")

    def __init__(self, path: bytes, *, is_plain: bool) -> None:
        self.path = path
        self.is_plain = is_plain
        self.sign = UNSEEN
        self.names = b""
        self.signs = array("q")
        self.ignored: frozenset[bytes] = frozenset()

    def add(self, names: list[bytes]) -> None:
        """More files, not looked at yet."""
        joined = b"\0".join(names)
        self.names = self.names + b"\0" + joined if self.signs else joined
        self.signs.frombytes(bytes(self.signs.itemsize * len(names)))  # UNSEEN

    def listed(self) -> list[bytes]:
        """The names of its files, in the order of their signatures."""
        return self.names.split(b"\0") if self.signs else []

    def inside(self, name: bytes) -> bytes:
        """The path of a name in it, relative to the working directory."""
        return self.path + b"/" + name if self.path else name


class Folders:
    """All folders that are known, by path and in the order they became known; at most MOST_FILES files."""

    def __init__(self) -> None:
        self.in_order: list[Folder] = []
        self._by_path: dict[bytes, Folder] = {}
        self._left = MOST_FILES

    def __contains__(self, path: bytes) -> bool:
        return path in self._by_path

    def made(self, path: bytes, *, is_plain: bool) -> Folder:
        """The folder at ``path``, made known where it was not; so are those above it, as git's."""
        folder = self._by_path.get(path)
        if folder is not None:
            return folder
        if path:
            self.made(_parent(path), is_plain=False)
        folder = self._by_path[path] = Folder(path, is_plain=is_plain)
        self.in_order.append(folder)
        return folder

    def take(self, folder: Folder, names: list[bytes]) -> None:
        """Add files to a folder, as long as there is room."""
        del names[self._left :]
        self._left -= len(names)
        if names:
            folder.add(names)

    def take_paths(self, paths: Iterable[bytes]) -> Iterator[bytes]:
        """Add files by their paths; gives back those of repositories inside (with a slash at the end).

        Paths in the same folder that follow each other, as git's do, are taken together: this is where the
        time goes that a large directory costs.
        """
        parent, names = b"", list[bytes]()
        for path in paths:
            folder, _, name = path.rpartition(b"/")
            if folder != parent:
                self._take_group(parent, names)
                parent, names = folder, []
            if name:
                names.append(name)
            elif NEVER_OURS.isdisjoint(folder.split(b"/")):
                yield folder
        self._take_group(parent, names)

    def _take_group(self, parent: bytes, names: list[bytes]) -> None:
        if names and NEVER_OURS.isdisjoint(parent.split(b"/")):
            self.take(self.made(parent, is_plain=False), names)


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def sign_of(stat: os.stat_result) -> int:
    """What differs once a file was written, replaced or cut."""
    return hash((stat.st_mtime_ns, stat.st_size, stat.st_ino))


# The names of the files of a repository, as git tells them, and which names it ignores.

LISTING_S = 30.0
"""What a listing may take; a repository that needs longer is looked through without git."""
IGNORED_S = 2.0
"""What the question after ignored names may take."""
SHARE = 0.05
"""How much of the time git may be busy for one working directory."""
_PIECE_BYTES = 1 << 16


class Listing:
    """All files of a repository below a directory, tracked or neither tracked nor ignored.

    Git writes them into a file that nobody else sees, and never waits for us. Raises OSError where it cannot
    be started.
    """

    def __init__(self, directory: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - outlives this call
        self._deadline = time.monotonic() + LISTING_S
        try:
            self._git = repo.started(
                directory,
                *("ls-files", "-z", "--cached", "--others", "--exclude-standard"),
                stdin=subprocess.DEVNULL,
                stdout=self._file.fileno(),
            )
        except OSError:
            self._file.close()
            raise

    def is_complete(self, *, wait_s: float) -> bool | None:
        """Whether all names are there, after ``wait_s`` seconds at most; None when they will never be."""
        try:
            return True if self._git.wait(wait_s) == 0 else None
        except subprocess.TimeoutExpired:
            return False if time.monotonic() < self._deadline else None

    def pieces(self) -> Iterator[list[bytes]]:
        """The names, some hundred at a time, relative to the directory; a folder's ends with a slash."""
        self._file.seek(0)
        rest = b""
        while piece := self._file.read(_PIECE_BYTES):
            *names, rest = (rest + piece).split(b"\0")
            yield names

    def close(self) -> None:
        """End git, if it is still at work."""
        repo.ended(self._git)
        self._file.close()


class Ignored:
    """Asks git which of some names it ignores; no more often than SHARE allows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._free_at = 0.0

    def is_free(self) -> bool:
        """Whether git may be asked now."""
        return time.monotonic() >= self._free_at

    def among(self, names: Collection[bytes]) -> set[bytes]:
        """The ignored ones of these names; none when git cannot tell, so that no work is overlooked."""
        began = time.monotonic()
        given = b"".join(name + b"\0" for name in names)
        words = ("check-ignore", "-z", "--no-index", "--stdin")
        answer = repo.answer(self._directory, *words, limit_s=IGNORED_S, given=given)
        now = time.monotonic()
        self._free_at = now + (now - began) * (1 / SHARE - 1)
        return set() if answer is None else set(answer[1].split(b"\0"))


LOOK_S = 0.05
"""The processor time that a look may take."""
LOOK_WALL_S = 0.5
"""How long it may take, on a disk that is slow to answer."""
LISTING_WAIT_S = 0.3
"""How long a look waits for git's list; a longer one is taken up by a later look."""
MOST_RECENT = 1000
RECENT_S = 3600.0
MOST_NAMES = 10_000
"""How many names of one folder are gone through in search of new ones."""
MOST_NEW = 500
"""How many new names of one folder git is asked about at once."""
_CHUNK = 64
_SETTLED_NS = 50_000_000  # a folder changed so lately may change again within the same tick of its clock

Work: TypeAlias = Iterator[None]
"""Something long, in steps after which it may be left until the next look."""
Found: TypeAlias = tuple[Folder, list[bytes], list[bytes]]
"""New names in a folder: of files and links, and of folders."""


class ScannedFiles:
    """The files below a directory. Changes before ``since`` are no news."""

    def __init__(self, directory: Path, *, since: Moment) -> None:
        self._directory = directory
        self._prefix = os.fsencode(directory) + b"/"
        self._since_ns = int(since * 1e9)
        self._folders = Folders()
        self._ignored = Ignored(directory)
        self._listing: Listing | None = None
        self._beginning: Work | None = self._begin()
        self._folder_round: Work | None = None
        self._file_round: Work | None = None
        self._recent: dict[bytes, tuple[Folder, int]] = {}
        self._count = 0
        self._file: bytes | None = None

    def changes(self) -> tuple[int, str | None]:
        """How many changes were found in this slice, and one of them, relative to the directory."""
        self._count, self._file = 0, None
        self._look()
        name = None if self._file is None else self._file.decode(errors="replace")
        return self._count, name

    def close(self) -> None:
        """End git, where it is still making its list."""
        if self._listing is not None:
            self._listing.close()
            self._listing = None

    def _look(self) -> None:
        cpu_s, wall_s = time.thread_time(), time.monotonic() + LOOK_WALL_S + LISTING_WAIT_S
        self._beginning = _spent(self._beginning, cpu_s + LOOK_S, wall_s)
        if self._beginning is not None:
            return
        for path, (folder, index) in list(self._recent.items()):
            self._check(folder, index, path)
        self._folder_round = _spent(self._folder_round or self._each_folder(), cpu_s + LOOK_S / 2, wall_s)
        self._file_round = _spent(self._file_round or self._each_file(), cpu_s + LOOK_S, wall_s)

    def _begin(self) -> Work:
        """Learn which files there are: from git or, where that fails, by looking."""
        is_complete: bool | None = None
        with suppress(OSError):
            self._listing = Listing(self._directory)
            while (is_complete := self._listing.is_complete(wait_s=LISTING_WAIT_S)) is False:
                yield
            if is_complete:
                yield from self._take_list(self._listing)
        self.close()
        root = self._folders.made(b"", is_plain=is_complete is None)
        if root.is_plain:
            yield from self._search([root], were=UNSEEN)

    def _take_list(self, listing: Listing) -> Work:
        for paths in listing.pieces():
            for nested in self._folders.take_paths(paths):
                yield from self._search([self._folders.made(nested, is_plain=True)], were=UNSEEN)
            yield

    def _each_folder(self) -> Work:
        """One round over the folders: whether names came to them."""
        changed = []
        for number, folder in enumerate(self._folders.in_order):
            if (folder.is_plain or self._ignored.is_free()) and self._has_changed(folder):
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
        """Take in the unknown files of these folders, and of the unknown folders below them.

        They ``were`` either UNSEEN so far, or GONE, which makes each of them a change.
        """
        while folders:
            found = []
            for folder in folders:
                found.append((folder, *self._unknown(folder)))
                yield
            self._learn_ignored(found)
            folders = []
            for folder, names, below in found:
                self._take(folder, [name for name in names if name not in folder.ignored], were)
                folders += [self._below(folder, name) for name in below if name not in folder.ignored]
                yield

    def _unknown(self, folder: Folder) -> tuple[list[bytes], list[bytes]]:
        """Names in a folder that are not known yet: of files and links, and of folders."""
        known = {*folder.listed(), *folder.ignored, *NEVER_OURS}
        files: list[bytes] = []
        folders: list[bytes] = []
        with suppress(OSError), os.scandir(self._prefix + folder.path) as entries:
            for entry in islice(entries, MOST_NAMES):
                if entry.name in known or folder.inside(entry.name) in self._folders:
                    continue
                if len(files) + len(folders) == MOST_NEW and not folder.is_plain:
                    folder.sign = GONE  # the others have their turn at the next look
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    files.append(entry.name)
        return files, folders

    def _learn_ignored(self, found: list[Found]) -> None:
        asked = [folder.inside(name) for folder, *new in found if not folder.is_plain for name in chain(*new)]
        if not asked:
            return
        ignored = self._ignored.among(asked)
        for folder, *new in found:
            folder.ignored |= {name for name in chain(*new) if folder.inside(name) in ignored}

    def _below(self, folder: Folder, name: bytes) -> Folder:
        path = folder.inside(name)
        begins_another = os.path.lexists(self._prefix + path + b"/.git")
        return self._folders.made(path, is_plain=folder.is_plain or begins_another)

    def _take(self, folder: Folder, names: list[bytes], were: int) -> None:
        start = len(folder.signs)
        self._folders.take(folder, names)
        for index in range(start, len(folder.signs)):
            folder.signs[index] = were
            self._check(folder, index, folder.inside(names[index - start]))

    def _each_file(self) -> Work:
        """One round over all files."""
        number = 0
        for place in range(len(self._folders.in_order)):
            folder = self._folders.in_order[place]
            for index, name in enumerate(folder.listed()):
                path = folder.inside(name)
                if self._check(folder, index, path):
                    yield from self._search([self._folders.made(path, is_plain=True)], were=UNSEEN)
                number += 1
                if number % _CHUNK == 0:
                    yield

    def _check(self, folder: Folder, index: int, path: bytes) -> bool:
        """Count a file if it changed; True for a repository inside that is met for the first time."""
        known = folder.signs[index]
        try:
            stat = self._stat(path)
        except OSError:  # not ours to see any more: neither there nor gone
            return False
        if stat is not None and modes.S_ISDIR(stat.st_mode):
            folder.signs[index] = GONE
            return known == UNSEEN
        sign = GONE if stat is None else sign_of(stat)
        if sign == known:
            return False
        folder.signs[index] = sign
        if known != UNSEEN or (stat is not None and stat.st_ctime_ns >= self._since_ns):
            self._count += 1
            self._file = self._file or path
            self._remember(folder, index, path)
        elif len(self._recent) < MOST_RECENT and stat is not None and time.time() - stat.st_mtime < RECENT_S:
            self._recent[path] = (folder, index)
        return False

    def _remember(self, folder: Folder, index: int, path: bytes) -> None:
        """What changed last is what changes next, as a rule: it is looked at first."""
        self._recent.pop(path, None)
        self._recent[path] = (folder, index)
        if len(self._recent) > MOST_RECENT:
            del self._recent[next(iter(self._recent))]

    def _stat(self, path: bytes) -> os.stat_result | None:
        """What is at a path, links not followed; None where there is nothing. Raises OSError."""
        try:
            return os.lstat(self._prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _spent(work: Work | None, cpu_s: float, wall_s: float) -> Work | None:
    """Do some work until the thread's clock or the wall's says so: what is left of it, None when done."""
    if work is None:
        return None
    for _ in work:
        if time.thread_time() >= cpu_s or time.monotonic() >= wall_s:
            return work
    return None


# What changed in a working directory since the last look: its files, and where its HEAD is (H2).


class WorkTree:
    """A working directory, watched from ``since`` on: what changed before that is no news.

    Without ``since``, from now on.
    """

    def __init__(self, directory: Path, *, since: Moment | None = None) -> None:
        self._head = HeadWatch(directory)
        self._files = ScannedFiles(directory, since=time.time() if since is None else since)

    def changes(self) -> Changes:
        """What changed since the call before; the first one tells what changed after ``since``."""
        count, file = self._files.changes()
        return Changes(files=count, file=file, committed=self._head.moved())

    def close(self) -> None:
        """End a call of git that may still be under way."""
        self._files.close()


class HeadWatch:
    """Whether HEAD names another commit than before. Git is asked only where its files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._repository: Repository | None = None
        self._signature: Signature | None = None
        self._commit: str | None = None
        self._is_known = False
        self._free_at = 0.0

    def moved(self) -> bool:
        """Whether there is another commit than at the call before; never at the first one."""
        self._repository = self._repository or Repository.find(self._directory)
        if self._repository is None:
            self._is_known = True  # one that is made later begins with its first commit
            return False
        signature, began = self._repository.signature(), time.monotonic()
        if signature == self._signature or began < self._free_at:
            return False
        head = repo.head(self._directory)
        if head is None:  # gone, or too slow: asked again later, the later the longer it took
            now = time.monotonic()
            self._free_at = now + (now - began) * (1 / SHARE - 1)
            return False
        before, self._commit, self._signature = self._commit, head.commit, signature
        was_known, self._is_known = self._is_known, True
        return was_known and not _is_same(before, head.commit)


def _is_same(one: str | None, other: str | None) -> bool:
    """Whether two short names are of one commit: git makes them longer as a repository grows."""
    if one is None or other is None:
        return one is other
    return one.startswith(other) or other.startswith(one)
