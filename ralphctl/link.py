"""Reaching the daemon: where its socket may be, and one plain GET over it.

Written on ``_socket`` and loaded by ``status``: ``http.client`` alone would double its time (P3).
"""

# pathlib would cost `status` its start-up time.
# ruff: noqa: PTH100, PTH117, PTH118, PTH120, PTH123
from __future__ import annotations

import errno
import json
import os
from _socket import AF_UNIX, MSG_PEEK, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET
from _socket import socket as RawSocket

from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, Forbidden, InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ANSWER_LIMIT_S = 10.0
_QUIET_S = 1.0
_LONGEST_ADDRESS = 107  # sun_path has 108 bytes, the last of them NUL
_NOBODY = ("nothing is there", "nobody listens")


def candidates(given: str | None, environ: Mapping[str, str], directory: str) -> list[str]:
    """Where to look for the socket, best first; ``given`` by ``--socket`` it is the only one."""
    if given:
        return [os.path.abspath(given)]
    return list(dict.fromkeys(wire.socket_candidates(environ, signpost(directory))))


def signpost(directory: str) -> str | None:
    """The socket that the live ``.ralph/lock`` of this directory, or of one above it, names."""
    for above in upward(directory):
        if socket := signpost_in(above):
            return socket
    return None


def signpost_in(directory: str) -> str | None:
    """The socket that the live ``.ralph/lock`` of this very directory names."""
    return _read_signpost(os.path.join(directory, ".ralph", "lock"))


def upward(directory: str) -> Iterator[str]:
    """``directory`` without symlinks, then each directory above it."""
    path = os.path.realpath(directory)
    while True:
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def _read_signpost(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        # Somebody else's file must not lead to somebody else's socket: `start` sends the environment there.
        if about.st_uid not in (os.geteuid(), 0) or not is_flocked(about.st_ino):
            return None
        said = json.loads(os.read(descriptor, 16384))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    socket = said.get("socket") if isinstance(said, dict) else None
    return socket if isinstance(socket, str) and os.path.isabs(socket) else None


def is_flocked(inode: int) -> bool:
    """Whether somebody holds a flock on the file with this inode."""
    # Trying the lock would refuse it, for a moment, to the Regent that wants it. Looking does not.
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            return any("FLOCK" in line and f":{inode} " in line for line in locks)
    except OSError:
        return True


def connect(paths: Sequence[str], *, timeout_s: float = ANSWER_LIMIT_S) -> RawSocket:
    """A connection to the first of ``paths`` where somebody listens. Raises as ``reach`` does."""
    return reach(paths, timeout_s=timeout_s)[0]


def reach(paths: Sequence[str], *, timeout_s: float = ANSWER_LIMIT_S) -> tuple[RawSocket, str]:
    """A connection to the first of ``paths`` where somebody listens, and that path.

    Raises DaemonNotRunning with all that was tried, DaemonBusy when one is there but does not answer, and
    Forbidden when the one there belongs to another user.
    """
    tried = []
    for path in paths:
        try:
            link = _connect(path, timeout_s)
        except (TimeoutError, BlockingIOError):
            raise _silent(path, timeout_s) from None
        except OSError as fault:
            tried.append(f"{path}: {_in_words(fault)}")
        else:
            _check_peer(link, path)
            return link, path
    why = "\n".join(f"looked at {line}" for line in tried)
    raise DaemonNotRunning("no ralphd is running", why=why, mend="ralphctl regent start")


def _connect(path: str, timeout_s: float) -> RawSocket:
    address, held = short_address(path)
    link = RawSocket(AF_UNIX, SOCK_STREAM)
    link.settimeout(timeout_s)
    try:
        link.connect(address)
    except BaseException:
        link.close()
        raise
    finally:
        if held is not None:
            os.close(held)
    return link


def short_address(path: str) -> tuple[str, int | None]:
    """``path`` as the kernel takes it: a long one through an open directory, to be closed later."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        return path, None
    directory, name = os.path.split(path)
    held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{held}/{name}", held


def _check_peer(link: RawSocket, path: str) -> None:
    uid = int.from_bytes(link.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8], "little", signed=True)
    if os.geteuid() in (0, uid) or uid == 0:
        return
    link.close()
    raise Forbidden(
        f"the daemon at {path} belongs to another user",
        why=f"it runs as uid {uid}, you are uid {os.geteuid()}; nothing was sent to it",
        mend="ralphctl regent start  (a daemon of your own), or --socket PATH",
    )


def _in_words(fault: OSError) -> str:
    match fault.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return _NOBODY[0]
        case errno.ECONNREFUSED:
            return _NOBODY[1]
        case _:
            return fault.strerror or str(fault)


def _silent(path: str, timeout_s: float) -> DaemonBusy:
    return DaemonBusy(
        f"ralphd did not answer within {timeout_s:g} s",
        why=f"it listens at {path}",
        mend="ralphctl regent logs",
    )


def get(
    paths: Sequence[str],
    target: str,
    *,
    timeout_s: float = ANSWER_LIMIT_S,
    slow: Callable[[], None] | None = None,
    reached: Callable[[str], None] = lambda path: None,
) -> tuple[int, bytes]:
    """The HTTP status and body of ``GET target``. Raises as ``connect`` does.

    ``slow`` is called once where the answer takes longer than a second, ``reached`` with who is asked.
    """
    link, path = reach(paths, timeout_s=timeout_s)
    reached(path)
    try:
        # HTTP/1.0: the reply is never chunked and ends with the connection.
        link.sendall(f"GET {target} HTTP/1.0\r\nHost: ralphd\r\nAccept: application/json\r\n\r\n".encode())
        if slow is not None and not _answers(link, timeout_s):
            slow()
        return _read_reply(link)
    except TimeoutError:
        raise _silent(", ".join(paths), timeout_s) from None
    except OSError as fault:
        raise went_away(_in_words(fault)) from fault
    finally:
        link.close()


def _answers(link: RawSocket, timeout_s: float) -> bool:
    """Whether the answer begins within a second; nothing of it is taken."""
    link.settimeout(min(_QUIET_S, timeout_s))
    try:
        link.recv(1, MSG_PEEK)
    except TimeoutError:
        return False
    finally:
        link.settimeout(timeout_s)
    return True


def went_away(why: str) -> DaemonNotRunning:
    """The error for a daemon that ended in the middle of an answer."""
    return DaemonNotRunning("ralphd went away while it answered", why=why, mend="ralphctl regent start")


def _read_reply(link: RawSocket) -> tuple[int, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = link.recv(1 << 18)
        if not part:
            raise went_away("the reply was cut short")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    status, length = _read_head(head)
    parts, have = [body], len(body)
    while (length is None or have < length) and (part := link.recv(1 << 18)):
        parts.append(part)
        have += len(part)
    if length is not None and have < length:
        raise went_away("the reply was cut short")
    return status, b"".join(parts)


def _read_head(head: bytes) -> tuple[int, int | None]:
    first, *fields = head.split(b"\r\n")
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise InternalError("what answers on the socket does not speak HTTP", mend="ralphctl regent status")
    for line in fields:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(words[1]), int(value)
    return int(words[1]), None
