"""Open and read files that a run can write: the only way to do so (A6).

An agent can put a link, a FIFO, a device or an endless file anywhere below its working directory, and in the
state directory unless it is confined. So nothing here follows a link, blocks, or reads without a bound.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_PEEK_BYTES = 1 << 20


def open_plain(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
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


def read_plain(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes. Raise OSError, also for a larger one."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data


def peek(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file of any owner, 1 MiB at most; None for anything else."""
    try:
        content = json.loads(read_plain(path, MAX_PEEK_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else, or if missing."""
    try:
        status = path.lstat()
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
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)
