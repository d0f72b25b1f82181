"""Which files of a working directory changed since the last look, found in slices that cost little each (H2).

First what changed of late, then folders (a file that comes or goes changes its folder), then all other files,
going on where the last look stopped. What git ignores is no work of a run's; without git, every file counts.
"""

import os
import stat as modes
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from ralphd.core.model import Moment
from ralphd.git.folders import GONE, NEVER_OURS, UNSEEN, Folder, Folders, sign_of
from ralphd.git.listing import Ignored, Listing

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


class Files:
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
