"""Reading a file of a working directory, in which an agent can put anything: bounded, never outside of it."""

import os
import stat
from pathlib import Path


class Unreadable(Exception):
    """Why a file is not read, as the end of a sentence that begins with its name."""


def read_inside(directory: Path, file: str, most_bytes: int) -> bytes:
    """What a regular file in ``directory`` holds. Raises FileNotFoundError, or Unreadable in words.

    Blocks no longer than it takes to read ``most_bytes``; links that lead outside are not followed.
    """
    try:
        root = directory.resolve(strict=True)
        real = (root / file).resolve(strict=True)
        _check(real, root)
        return _read(real, root, most_bytes)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise FileNotFoundError(file) from fault
    except OSError as fault:
        raise Unreadable(f"cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, RuntimeError) as fault:  # a null byte in the name; links in a circle
        raise Unreadable("cannot be read: it is no path to a file") from fault


def _read(real: Path, root: Path, most_bytes: int) -> bytes:
    if not stat.S_ISREG(real.stat().st_mode):
        raise Unreadable("is no regular file")
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
        # Asked again of what was opened: the path may have been changed since.
        _check(Path(f"/proc/self/fd/{descriptor}").readlink(), root)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable("is no regular file")
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise Unreadable(f"is larger than {most_bytes >> 20} MiB")
    return data


def _check(place: Path, root: Path) -> None:
    if not place.is_relative_to(root):
        raise Unreadable("lies outside the working directory")
