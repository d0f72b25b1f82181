"""The names of the files of a repository, as git tells them, and which names it ignores."""

import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

from ralphd.git import repo

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
