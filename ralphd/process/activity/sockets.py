"""What the TCP sockets of some processes have received, by NETLINK_SOCK_DIAG (sock_diag(7), tcp(7)).

``recv`` on a socket is no read call: ``/proc/PID/io`` does not count it, so the sockets are asked themselves.
Only those of our own network namespace answer; another one tells what it has received as a whole.
"""

import os
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress

from ralphd.process.shim import read_bytes

TIME_LIMIT_S = 0.25
"""What one question may take, both families together."""
MOST_SOCKETS = 100_000
"""How many sockets of the machine are looked through."""
MOST_DESCRIPTORS = 20_000
"""How many open descriptors of a tree are looked through."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INET_DIAG_INFO = 2
_STATES = sum(1 << state for state in (1, 4, 5, 8, 9, 11))  # that have, or have had, a peer who sends

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_ATTRIBUTE = struct.Struct("=HH")
_INODE_AT = 68  # in struct inet_diag_msg
_ATTRIBUTES_AT = 72
_RECEIVED_AT = 128  # tcpi_bytes_received in struct tcp_info, since Linux 4.1


class _NoAnswer(Exception):
    """The kernel has no answer, or none in time."""


def inodes(pids: Iterable[int]) -> set[int]:
    """The sockets that these processes hold open, of any kind. What may not be read is passed over."""
    found: set[int] = set()
    left = MOST_DESCRIPTORS
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")[:left]  # noqa: PTH208 - a look is to be cheap
        except OSError:
            continue
        left -= len(names)
        found.update(_socket_inodes(f"/proc/{pid}/fd", names))
    return found


def received(wanted: Collection[int]) -> dict[int, int] | None:
    """The bytes that each TCP socket among ``wanted`` (inodes) has received so far.

    Sockets of another kind, or of another network namespace, are not in it. None where the kernel does not
    answer within TIME_LIMIT_S.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    found: dict[int, int] = {}
    answered = False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found |= _of_family(family, frozenset(wanted), deadline)
            answered = True
        except TimeoutError:
            return None
        except (OSError, _NoAnswer):  # a kernel without that family answers for the other
            continue
    return found if answered else None


def received_elsewhere(pids: Iterable[int]) -> dict[int, int]:
    """The bytes received over IP by each network namespace (inode) of these processes that is not ours.

    That is more than TCP, and more than theirs where others share the namespace: in doubt they work.
    """
    ours = _namespace("self")
    found: dict[int, int] = {}
    for pid in pids:
        namespace = _namespace(str(pid))
        if namespace is None or namespace == ours or namespace in found:
            continue
        if (count := _octets(pid)) is not None:
            found[namespace] = count
    return found


def _namespace(process: str) -> int | None:
    try:
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - a look is to be cheap
    except OSError:  # gone, or another user's
        return None


def _octets(pid: int) -> int | None:
    """``IpExt: InOctets`` and ``Ip6InOctets`` of the namespace that a process is in."""
    try:
        names, counts = (line.split() for line in _lines(pid, "netstat") if line.startswith(b"IpExt:"))
        octets = int(dict(zip(names, counts, strict=True))[b"InOctets"])
    except (OSError, ValueError, KeyError):
        return None
    with suppress(OSError, ValueError):  # a namespace without IPv6
        octets += sum(
            int(line.split()[1]) for line in _lines(pid, "snmp6") if line.startswith(b"Ip6InOctets")
        )
    return octets


def _lines(pid: int, name: str) -> list[bytes]:
    return read_bytes(f"/proc/{pid}/net/{name}").splitlines()


def _socket_inodes(folder: str, names: Iterable[str]) -> Iterator[int]:
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a look is to be cheap
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def _of_family(family: int, wanted: frozenset[int], deadline: float) -> dict[int, int]:
    if not hasattr(socket, "AF_NETLINK"):
        raise _NoAnswer
    with closing(
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    ) as link:
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _STATES)
        head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        link.sendto(head + body, (0, 0))
        return {
            inode: _received_bytes(message)
            for message in _messages(link, deadline)
            if (inode := _inode(message)) in wanted
        }


def _messages(link: socket.socket, deadline: float) -> Iterator[bytes]:
    """The messages of one dump, without their heads. Raises _NoAnswer, TimeoutError and OSError."""
    count = 0
    while True:
        if (left_s := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        link.settimeout(left_s)
        data, sender = link.recvfrom(1 << 16)
        if sender[0] != 0:  # not the kernel
            continue
        for kind, body in _split(data):
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR or count >= MOST_SOCKETS:
                raise _NoAnswer
            count += 1
            yield body


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _inode(message: bytes) -> int:
    return int.from_bytes(message[_INODE_AT : _INODE_AT + 4], sys.byteorder)


def _received_bytes(message: bytes) -> int:
    """``tcpi_bytes_received``; 0 where the kernel does not tell."""
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        count = message[at + _ATTRIBUTE.size + _RECEIVED_AT :][:8]
        if kind == _INET_DIAG_INFO and length >= _ATTRIBUTE.size + _RECEIVED_AT + 8:
            return int.from_bytes(count, sys.byteorder)
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return 0
