"""Files that are whole or missing: replace, read, set aside, lock (F1, F2).

Every reader opens regular files only, without following links and without blocking: the working directory
belongs to agents, which can put anything there.
"""

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ralphd import diagnostics
from ralphd.errors import DirectoryUnusable, NewerState
from ralphd.plain_files import PASSING, Descriptor, open_plain, reason

MAX_JSON_BYTES = 64 << 20
_TEMPORARY = ".ralphd-tmp"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_OWNER_TEXT_BYTES = 4096
LOCK_PATIENCE_S = 5.0
_LOCK_LOOK_S = 0.01


class Broken(Exception):
    """A damaged file. It was set aside as ``kept_as`` (F2), which is None if it could not be moved."""

    def __init__(self, path: Path, why: str, kept_as: Path | None) -> None:
        super().__init__(f"{path}: {why}")
        self.why, self.kept_as = why, kept_as


class Held(Exception):
    """Another process holds the lock; ``owner_text`` is what it wrote into it."""

    def __init__(self, owner_text: str) -> None:
        super().__init__(owner_text)
        self.owner_text = owner_text


def write_whole(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Put ``data`` at ``path``, for us alone; a reader sees the old bytes or the new ones at any moment (F1).

    Without ``durable`` nothing is synced: the file survives a crash of the process, not of the machine.
    Neither a link at ``path`` nor one in place of its directory is followed. Raises OSError, for example
    for a full disk; then the old file is as it was.
    """
    with Descriptor(path.parent, _DIRECTORY) as directory:
        temporary = f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, mode, dir_fd=directory), "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            diagnostics.reach(f"write.{path.name}.before_rename")
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        diagnostics.reach(f"write.{path.name}.after_rename")
        if durable:
            os.fsync(directory)


def remove_leftovers(directory: Path, *, of: Collection[str] | None = None) -> None:
    """Remove the half-written files of killed writers. Call it before anything writes there.

    ``of`` names the files that the caller alone writes, where others write in the same directory.
    """
    with suppress(OSError):
        for entry in directory.iterdir():
            is_ours = of is None or any(entry.name.startswith(f".{file}.") for file in of)
            if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY) and is_ours:
                shutil.rmtree(entry) if stat.S_ISDIR(entry.lstat().st_mode) else entry.unlink(missing_ok=True)


def remove_folder(path: Path, into: Path) -> None:
    """Remove a folder. It leaves its place first: what a crash leaves of it is a leftover in ``into``."""
    aside = into / f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}"
    with suppress(OSError):
        path = path.rename(aside)
    shutil.rmtree(path, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None without a file.

    A file that is cut off, not an object, a link, another user's or unreadable is moved to
    ``NAME.corrupt-<time>`` and raises Broken (F2). Raises OSError where it cannot be read at present.
    """
    try:
        with open_plain(path) as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0):
                raise ValueError(f"belongs to uid {about.st_uid}")
            if about.st_size > MAX_JSON_BYTES:
                raise ValueError(f"larger than {MAX_JSON_BYTES} bytes")
            content = json.load(file)
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        if getattr(error, "errno", None) in PASSING:
            raise
        raise Broken(path, reason(error), set_aside(path)) from error
    return content


def refuse_newer(path: Path, version: object, known: int) -> None:
    """Raise NewerState for a version that this ralphd does not know (F2)."""
    if isinstance(version, int) and version > known:
        what = f"{path} was written by a newer ralphd (version {version}, this one knows {known})"
        mend = f"install the newer ralphd again, or move the file away: mv {path} {path}.newer"
        raise NewerState(what, why="it is left as it is", mend=mend)


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file. What is not Unicode in a text becomes question marks."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"


def set_aside(path: Path) -> Path | None:
    """Move a file to ``NAME.corrupt-<time>`` in its directory and return that; None if it cannot be moved."""
    with suppress(OSError):
        return path.rename(corrupt_name(path))
    return None


def corrupt_name(path: Path) -> Path:
    """Return a free name ``NAME.corrupt-<time>`` in the directory of ``path``."""
    stem = f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (path.with_name(stem + suffix) for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next((name for name in names if not os.path.lexists(name)), path.with_name(stem))


def make_private_folders(path: Path) -> None:
    """Make a directory and those above it, each 0700, which mkdir gives the last alone. Raises OSError."""
    for each in reversed((path, *path.parents)):
        each.mkdir(mode=0o700, exist_ok=True)


def make_private_directory(path: Path) -> None:
    """Make a directory of our own, 0700, and missing parents. Raises DirectoryUnusable."""
    try:
        make_private_folders(path)
        with Descriptor(path, _DIRECTORY) as directory:
            about = os.fstat(directory)
            if about.st_uid != os.geteuid():
                what = f"{path} belongs to uid {about.st_uid}, not to uid {os.geteuid()}"
                mend = f"give it back (chown) or move it away: mv {path} {path}.old"
                raise DirectoryUnusable(what, mend=mend)
            if stat.S_IMODE(about.st_mode) != 0o700:
                os.fchmod(directory, 0o700)
    except OSError as error:
        what = f"{path} cannot be used as a directory of ralphd's own"
        why = f"{path} is a symbolic link" if path.is_symlink() else reason(error)
        mend = f"move it away, or make its parent writable: ls -ld {path} {path.parent}"
        raise DirectoryUnusable(what, why=why, mend=mend) from error


class Lock:
    """A lock file, held until it is released or this process ends; the kernel frees it then.

    As a context manager it is released at the end of the block.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd

    @classmethod
    def acquire(cls, path: Path, text: str) -> "Lock":
        """Take the lock and write ``text`` into it for others. Raises Held, with the owner's text."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            lock = cls(path, fd := os.open(path, flags, 0o600))
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner_text = _owner_text(fd)
                os.close(fd)
                raise Held(owner_text) from None
            except BaseException:
                os.close(fd)
                raise
            if os.fstat(fd).st_nlink > 1:  # a hard link: the text would overwrite the other name's file
                path.unlink(missing_ok=True)
            if lock.in_place():
                lock.write(text)
                return lock
            lock.release()  # the file was removed between open and flock: this lock excludes nobody

    @classmethod
    def acquire_soon(cls, path: Path) -> "Lock":
        """Take a lock that others hold for an instant. Raise TimeoutError after LOCK_PATIENCE_S, OSError."""
        end = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                return cls.acquire(path, f"{os.getpid()}\n")
            except Held:
                if time.monotonic() >= end:
                    text = "another process does not release the lock"
                    raise TimeoutError(errno.ETIMEDOUT, text, str(path)) from None
                time.sleep(_LOCK_LOOK_S)

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def in_place(self) -> bool:
        """Return whether the path still names the locked file; a `git clean` may have removed it."""
        with suppress(OSError):  # gone, or its directory is something else now
            return os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        return False

    def write(self, text: str) -> None:
        """Replace the text. On a full disk it stays empty; the lock is what counts."""
        with suppress(OSError):
            data = text.encode()
            os.pwrite(self.fd, data, 0)
            os.ftruncate(self.fd, len(data))

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next owner."""
        fd, self.fd = self.fd, -1  # first: a second thread would close a number that is in use again
        if fd >= 0:
            os.close(fd)


def _owner_text(fd: int) -> str:
    # An owner that has just locked the file may not have written its text yet.
    for _ in range(20):
        if text := os.pread(fd, _OWNER_TEXT_BYTES, 0).decode(errors="replace").strip():
            return text
        time.sleep(0.01)
    return ""
