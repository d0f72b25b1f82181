"""Files that are whole or not there: replace, read, lock (F1, F2)."""

import errno
import fcntl
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ralphd import diagnostics
from ralphd.core.time import Moment, rfc3339
from ralphd.errors import DirectoryUnusable, NewerState

MAX_JSON_BYTES = 64 << 20
_TEMPORARY = ".ralphd-tmp"
_OWNER_TEXT_BYTES = 4096


class Broken(Exception):
    """A file that cannot be what it should be. It is out of the way now, as ``kept_as`` (F2).

    ``kept_as`` is None when even moving it failed.
    """

    def __init__(self, path: Path, why: str, kept_as: Path | None) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why
        self.kept_as = kept_as


class Held(Exception):
    """Somebody holds the lock; ``owner_text`` is what they wrote into it."""

    def __init__(self, owner_text: str) -> None:
        super().__init__(owner_text)
        self.owner_text = owner_text


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put ``data`` at ``path``, 0600, so that a reader at any moment sees the old bytes or the new ones (F1).

    Without ``durable`` nothing is synced: the file survives a crash of the process, not of the machine.
    Neither a link at ``path`` nor one in place of its directory is followed. Raises OSError, for example
    for a full disk; then the old file is as it was.
    """
    with _directory_fd(path.parent) as directory:
        temporary = f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}"
        try:
            _write_new(temporary, directory, data, durable=durable)
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
    """Remove what writers that were killed left half written. Call it before anything writes there.

    ``of`` names the files whose writer the caller is, where others write in the same directory.
    """
    with suppress(OSError):
        for entry in directory.iterdir():
            name = entry.name
            if not (name.startswith(".") and name.endswith(_TEMPORARY)):
                continue
            if of is None or any(name.startswith(f".{file}.") for file in of):
                entry.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None when there is no file.

    A file that is cut off, no object, a link, somebody else's or not readable is moved to
    ``NAME.corrupt-<time>`` and told by ``Broken`` (F2).
    """
    try:
        found = json.loads(_read_own(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Broken(path, _reason(error), set_aside(path)) from error
    if not isinstance(found, dict):
        raise Broken(path, "not an object", set_aside(path))
    return found


def set_aside(path: Path) -> Path | None:
    """Move a broken file to ``NAME.corrupt-<time>`` beside it; None when that fails."""
    kept_as = corrupt_name(path)
    try:
        path.rename(kept_as)
    except OSError:
        return None
    return kept_as


def corrupt_name(path: Path) -> Path:
    """A free name ``NAME.corrupt-<time>`` beside ``path``."""
    stem = f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (path.with_name(stem + suffix) for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next((name for name in names if not os.path.lexists(name)), path.with_name(stem))


def make_private_directory(path: Path) -> None:
    """Have a directory of our own, 0700; missing parents are made. Raises DirectoryUnusable in words."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _directory_fd(path) as directory:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid():
                raise DirectoryUnusable(
                    f"{path} belongs to uid {found.st_uid}, not to uid {os.geteuid()}",
                    mend=f"give it back (chown) or move it away: mv {path} {path}.old",
                )
            if stat.S_IMODE(found.st_mode) != 0o700:
                os.fchmod(directory, 0o700)
    except OSError as error:
        raise DirectoryUnusable(
            f"{path} cannot be used as a directory of ralphd's own",
            why=_directory_reason(path, error),
            mend=f"move it away, or make its parent writable: ls -ld {path} {path.parent}",
        ) from error


class Lock:
    """A lock file, held as long as this process lives and does not release it; the kernel frees it then."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def acquire(cls, path: Path, text: str) -> "Lock":
        """Take the lock and leave ``text`` in it for whoever comes next. Raises Held, with the owner's."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            lock = cls(path, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner_text = _owner_text(fd)
                os.close(fd)
                raise Held(owner_text) from None
            except BaseException:
                os.close(fd)
                raise
            if lock.in_place():
                lock.write(text)
                return lock
            lock.release()  # the file was removed between open and flock: this one locks nothing

    def in_place(self) -> bool:
        """Whether the path still leads to the file that is locked; a `git clean` may have removed it."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        except OSError:  # gone, or its directory is something else now
            return False

    def write(self, text: str) -> None:
        """Replace the text. A full disk leaves it empty: what counts is the lock."""
        with suppress(OSError):
            data = text.encode()
            os.pwrite(self.fd, data, 0)
            os.ftruncate(self.fd, len(data))

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would race with the next owner."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@contextmanager
def _directory_fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_new(name: str, directory: int, data: bytes, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _read_own(path: Path) -> bytes:
    # O_NONBLOCK: a FIFO in place of the file must not hold us.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a plain file")
        if found.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"belongs to uid {found.st_uid}")
        if found.st_size > MAX_JSON_BYTES:
            raise ValueError(f"larger than {MAX_JSON_BYTES} bytes")
        return file.read()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.ELOOP:
            return "a symbolic link"
        return error.strerror or str(error)
    return str(error)


def _directory_reason(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"{path} is a symbolic link"
    return error.strerror or str(error)


def _owner_text(fd: int) -> str:
    # An owner that has just locked may not have written yet.
    for _ in range(20):
        if text := os.pread(fd, _OWNER_TEXT_BYTES, 0).decode(errors="replace").strip():
            return text
        time.sleep(0.01)
    return ""


# Files of JSON that carry a version: read, refused when newer, set aside when damaged (F2).


def read_versioned(path: Path, known: int) -> dict[str, Any] | None:
    """The object in a file, None without one. Raises Broken (then it is set aside) or NewerState."""
    found = read_json(path)
    version = None if found is None else found.get("version")
    if isinstance(version, int) and version > known:
        raise NewerState(
            f"{path} was written by a newer ralphd (version {version}, this one knows {known})",
            why="it is left as it is",
            mend=f"install the newer ralphd again, or move the file away: mv {path} {path}.newer",
        )
    return found


def set_aside_as(path: Path, why: str) -> Broken:
    """Move a file that is JSON but not what it should be out of the way; the error that tells it."""
    return Broken(path, why, set_aside(path))


def said(broken: Broken, what: str, so: str) -> str:
    """One line for people: what was broken, why, where it is now, and what that means."""
    kept = "and could not be moved away" if broken.kept_as is None else f"and is kept as {broken.kept_as}"
    return f"{what} in {broken.path} is damaged ({broken.why}) {kept}; {so}"


def as_json(content: Mapping[str, Any]) -> bytes:
    """The bytes of such a file. What is no Unicode in a text becomes question marks."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"


def finite(amount: float) -> float:
    """An amount that JSON can hold; 0 for what an agent told that is none."""
    return amount if math.isfinite(amount) else 0.0


def moment_text(moment: Moment | None) -> str | None:
    """A moment as text, if there is one."""
    return None if moment is None else rfc3339(moment)
