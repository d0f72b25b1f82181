"""The lock on a working directory: at most one Regent, or one living run of an earlier one (S2)."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from ralphd.errors import DirectoryBusy, DirectoryUnusable


@dataclass(slots=True)
class DirectoryLock:
    """A flock on the descriptor of the directory itself, so that deleting what is in it changes nothing.

    A shim inherits the descriptor, so the lock lasts until the last of Regent and shims is gone. ``release``
    therefore closes and never unlocks: an unlock would take the lock from the shims too.
    """

    directory: Path
    fd: int

    @classmethod
    def acquire(cls, directory: Path) -> "DirectoryLock":
        """Lock ``directory``. Raises DirectoryBusy, which names the holders, or DirectoryUnusable."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DirectoryUnusable(f"cannot use {directory}", why=error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pids = [str(pid) for pid in holders(descriptor)]
            os.close(descriptor)
            raise DirectoryBusy(
                f"{directory} is supervised already",
                why=f"held by pid {', '.join(pids)}" if pids else "held by a process of another user",
                mend="ralphctl status, there or with that daemon's --socket",
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise DirectoryUnusable(f"cannot lock {directory}", why=error.strerror or str(error)) from error
        return cls(directory, descriptor)

    def release(self) -> None:
        """Let go of it. Runs that live keep it locked. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def holders(descriptor: int) -> list[int]:
    """The living processes that hold a flock on the file behind ``descriptor``, our own other ones included.

    Read from ``/proc/PID/fdinfo``: ``/proc/locks`` names the process that took a lock, which may be dead
    while those that inherited the descriptor hold it. Processes of other users are not seen.
    """
    wanted = os.fstat(descriptor)
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _holds(pid, (wanted.st_dev, wanted.st_ino))]


def _holds(pid: int, wanted: tuple[int, int]) -> bool:
    folder = Path(f"/proc/{pid}")
    try:
        return any(_is_lock(folder, entry.name, wanted) for entry in (folder / "fd").iterdir())
    except OSError:  # gone, or not ours to look into
        return False


def _is_lock(folder: Path, name: str, wanted: tuple[int, int]) -> bool:
    try:
        found = (folder / "fd" / name).stat()
        if (found.st_dev, found.st_ino) != wanted:
            return False
        return any(line.startswith("lock:") for line in (folder / "fdinfo" / name).read_text().splitlines())
    except OSError:
        return False
