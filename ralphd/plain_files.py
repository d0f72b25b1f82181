"""Open and read files that a run can write: the only way to do so (A6).

An agent can put a link, a FIFO, a device or an endless file anywhere below its working directory, and in the
state directory unless it is confined. So nothing here follows a link, blocks, or reads without a bound.
"""

from __future__ import annotations

import errno
import json
import os
import stat

TYPE_CHECKING = False  # typing and pathlib would cost `ralphctl status` its start-up time
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, BinaryIO

MAX_PEEK_BYTES = 1 << 20
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Why no file can be read at present: it says nothing about this one."""


class Descriptor:
    """A descriptor of any file (``O_CLOEXEC``), closed at the end of the block. Raise OSError."""

    def __init__(self, path: Path | str, flags: int, mode: int = 0o600) -> None:
        self._fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def open_plain(path: Path | str, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a regular file, without following a link. Raise OSError, for anything else too.

    To be written, it may have no other name: a hard link would change somebody else's file.
    """
    # O_NONBLOCK: a FIFO in place of the file must not block us.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or (flags != os.O_RDONLY and about.st_nlink > 1):
        os.close(fd)
        raise OSError("not a plain file")
    return os.fdopen(fd, "rb" if flags == os.O_RDONLY else "ab")


def read_plain(path: Path | str, most: int) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes. Raise OSError, also for a larger one."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data


def peek(path: Path | str) -> dict[str, Any] | None:
    """Return the object in a JSON file of any owner, 1 MiB at most; None for anything else."""
    try:
        content = json.loads(read_plain(path, MAX_PEEK_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def append_whole(path: Path, lines: bytes, *, durable: bool = False) -> None:
    """Append whole lines to a file that we alone write, all or none. Raise OSError.

    A torn line at the end, of a daemon that died within it, is ended first: it stays for a person to see.
    """
    with Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW) as fd:
        end = os.fstat(fd).st_size
        if end and os.pread(fd, 1, end - 1) != b"\n":
            lines = b"\n" + lines
        try:
            if os.write(fd, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(fd)
        except OSError:
            os.ftruncate(fd, end)
            raise


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else, or if missing."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def reason(error: Exception) -> str:
    """Return why a file could not be used."""
    if isinstance(error, OSError):
        return "a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
    return str(error)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raise OSError."""
    with Descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some file systems cannot, and need not
                raise
