"""The lock on a working directory: at most one Regent, or one living run of an earlier one (S2).

The lock is handed over, never taken twice: the Regent locks the directory before it starts a shim, and the
shim inherits the descriptor. Both then share one open file description, so the flock lasts until the last of
them has closed it. If the shim locked the directory itself, there would be a moment between its birth and
its lock in which a new daemon sees the directory free and starts a second run.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ralphd.dataclass import dataclass
from ralphd.errors import DirectoryBusy, DirectoryUnusable
from ralphd.process.shim import all_pids, arguments


@dataclass(slots=True)
class DirectoryLock:
    """A flock on the directory itself, so that deleting what is in it changes nothing."""

    directory: Path
    fd: int

    @classmethod
    def acquire(cls, directory: Path) -> "DirectoryLock":
        """Lock ``directory``. Raise DirectoryBusy, which names the holders, or DirectoryUnusable."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DirectoryUnusable(f"cannot use {directory}", why=error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pids = [str(pid) for pid in holders(os.fstat(descriptor))]
            os.close(descriptor)
            why = f"held by pid {', '.join(pids)}" if pids else "held by a process of another user"
            # Where a daemon holds it too, that one shows the run, and its kill would end all its ralphs.
            ends = pids if all(b"shim.main" in arguments(int(pid)) for pid in pids) else []
            mend = "ralphctl status --all, there or with that daemon's --socket"
            mend += f"\nkill {' '.join(ends)}  (to end a run that no ralphd shows)" if ends else ""
            raise DirectoryBusy(f"{directory} is supervised already", why=why, mend=mend) from error
        except OSError as error:
            os.close(descriptor)
            raise DirectoryUnusable(f"cannot lock {directory}", why=error.strerror or str(error)) from error
        return cls(directory, descriptor)

    def release(self) -> None:
        """Give the lock up. Living runs keep it. A second call does nothing."""
        fd, self.fd = self.fd, -1  # first: a second thread would close a number that is in use again
        if fd >= 0:
            # Close, never LOCK_UN: an unlock acts on the shared description and would rob the shims too.
            os.close(fd)


def holders(file: os.stat_result) -> list[int]:
    """Return the living processes that hold a flock on a file, our own included.

    Read from ``/proc/PID/fdinfo``, since ``/proc/locks`` names the process that took a lock: it may be dead
    while those that inherited the descriptor hold it. Processes of other users are not seen.
    """
    return [pid for pid in all_pids() if _holds(Path(f"/proc/{pid}"), file)]


def _holds(process: Path, wanted: os.stat_result) -> bool:
    with suppress(OSError):  # gone, or another user's
        for entry in (process / "fd").iterdir():
            with suppress(OSError):  # closed since
                is_wanted = os.path.samestat(entry.stat(), wanted)
                if is_wanted and "\nlock:" in (process / "fdinfo" / entry.name).read_text():
                    return True
    return False
