"""The commits that were made in a work tree, counted from the reflog of its HEAD without starting git.

Git appends a line for each move of HEAD and says in it what moved it; a garbage collection writes the file
anew. So a place in it is a byte offset together with the line that ends there.
"""

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from typing import Final

READ_BYTES: Final = 4 << 20
_LINE_BYTES: Final = 1 << 16
_SHORTEST_BYTES: Final = 80  # two commits

_MADE: Final = re.compile(
    rb"commit(?: \((?:initial|merge|cherry-pick)\))?: "
    rb"|cherry-pick: (?!fast-forward$)"
    rb"|revert: "
    rb"|am: "
    rb"|(?:merge|pull)\b[^:]*: (?:Merge made by|In-index merge)"
)
"""What a line says of a commit that was made here.

Not of one that came ready-made (fast-forward, checkout, reset), nor of one that takes another's place (amend,
rebase).
"""


@dataclass(frozen=True, slots=True)
class ReflogMark:
    """A place in a reflog: after ``offset`` bytes, where ``line``, a digest, is the last line before it.

    Both are plain values, to be kept in a file. ``offset`` 0 is the beginning, of a file that may yet come.
    """

    offset: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """How many commits were made since a mark, and the mark up to which they were counted."""

    made: int
    until: ReflogMark


def end_of(path: str) -> ReflogMark | None:
    """The place after the last line that is there now; the beginning of a file that is not there yet.

    None for a file that cannot be read: whoever took its beginning would count all that was ever done.
    """
    try:
        descriptor = _opened(path)
    except FileNotFoundError:
        return ReflogMark()
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        begin = max(0, size - _LINE_BYTES)
        data = os.pread(descriptor, size - begin, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    end = data.rfind(b"\n") + 1
    return _mark(begin + end, data[:end])


def commits_since(path: str, mark: ReflogMark) -> Commits | None:
    """What was made since ``mark``; None when that place is not to be found, or there is no reflog.

    Reads 4 MiB at most, some 20 000 commits: what is beyond, the next call with ``until`` counts.
    """
    try:
        descriptor = _opened(path)
    except OSError:
        return None
    try:
        begin = _after(descriptor, mark)
        if begin is None:
            return None
        data = os.pread(descriptor, READ_BYTES, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    whole = data[: data.rfind(b"\n") + 1]
    until = _mark(begin + len(whole), whole) if whole else ReflogMark(begin, mark.line)
    return Commits(sum(map(_is_made_here, whole.split(b"\n"))), until)


def _opened(path: str) -> int:
    """A descriptor of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file", path)


def _after(descriptor: int, mark: ReflogMark) -> int | None:
    """Where the lines after the mark begin: where they did or, in a file written anew, after its line."""
    if mark.offset <= 0:
        return 0
    begin = max(0, mark.offset - _LINE_BYTES)
    before = os.pread(descriptor, mark.offset - begin, begin)
    if len(before) == mark.offset - begin and _digest(before) == mark.line:
        return mark.offset
    begin = max(0, os.fstat(descriptor).st_size - READ_BYTES)
    data = os.pread(descriptor, READ_BYTES, begin)
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if end - start > _SHORTEST_BYTES and _digest(data[start:end]) == mark.line:
            return begin + end
        end = start
    return None


def _mark(offset: int, lines: bytes) -> ReflogMark:
    return ReflogMark(offset, _digest(lines)) if offset else ReflogMark()


def _digest(lines: bytes) -> str:
    """What tells the last of these lines from others; the two commits and the time in it make it unique."""
    last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
    return hashlib.sha256(last).hexdigest()[:16]


def _is_made_here(line: bytes) -> bool:
    """Whether a line ``OLD NEW name <mail> time zone<TAB>message`` tells of a commit that was made here."""
    head, _, message = line.partition(b"\t")
    before, _, rest = head.partition(b" ")
    return _MADE.match(message) is not None and before != rest.partition(b" ")[0]
