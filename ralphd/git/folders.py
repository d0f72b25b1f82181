"""The folders of a working directory with the names in them, kept small: 300,000 files take some 15 MB."""

import os
from array import array
from collections.abc import Iterable, Iterator

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
