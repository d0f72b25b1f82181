"""Read what the TCP sockets of some processes have received, by NETLINK_SOCK_DIAG (sock_diag(7), tcp(7)).

An agent that waits for its vendor does nothing but receive, and ``/proc/PID/io`` counts only read and write
calls, not ``recv``. So the kernel is queried per socket. Only sockets of our own network namespace answer;
for another one there is only the sum of all that it has received. Keep-alives carry no bytes.
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
"""The limit of one query, both address families together."""
MOST_SOCKETS = 100_000
"""How many sockets of the machine are read."""
MOST_DESCRIPTORS = 20_000
"""How many open descriptors of a tree are read."""

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
    """The kernel does not answer the query."""


def inodes(pids: Iterable[int]) -> set[int]:
    """Return the sockets that these processes hold open, of any kind. Skip what may not be read."""
    found: set[int] = set()
    left = MOST_DESCRIPTORS
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")[:left]  # noqa: PTH208 - a probe must be cheap
        except OSError:
            continue
        left -= len(names)
        for name in names:
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def received(wanted: Collection[int]) -> dict[int, int] | None:
    """Return the bytes that each TCP socket among ``wanted`` (inodes) has received so far.

    Sockets of another kind or network namespace have no entry. None if the kernel does not answer within
    TIME_LIMIT_S.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    counts: dict[int, int] = {}
    has_answer = False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            counts |= _of_family(family, frozenset(wanted), deadline)
            has_answer = True
        except TimeoutError:
            return None
        except (OSError, _NoAnswer):  # a kernel without that family answers for the other
            continue
    return counts if has_answer else None


def received_elsewhere(pids: Iterable[int]) -> dict[int, int]:
    """Return the bytes received over IP by each foreign network namespace (inode) of these processes.

    That is more than TCP, and includes what others in the namespace receive: in doubt the run works.
    """
    ours = _namespace("self")
    counts: dict[int, int] = {}
    for pid in pids:
        namespace = _namespace(str(pid))
        if namespace is None or namespace == ours or namespace in counts:
            continue
        if (count := _octets(pid)) is not None:
            counts[namespace] = count
    return counts


def _namespace(process: str) -> int | None:
    try:
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - a probe must be cheap
    except OSError:  # gone, or another user's
        return None


def _octets(pid: int) -> int | None:
    """Return ``IpExt: InOctets`` plus ``Ip6InOctets`` of the namespace that a process is in."""
    try:
        lines = read_bytes(f"/proc/{pid}/net/netstat").splitlines()
        names, counts = (line.split() for line in lines if line.startswith(b"IpExt:"))
        octets = int(dict(zip(names, counts, strict=True))[b"InOctets"])
    except (OSError, ValueError, KeyError):
        return None
    with suppress(OSError, ValueError):  # a namespace without IPv6
        lines = read_bytes(f"/proc/{pid}/net/snmp6").splitlines()
        octets += sum(int(line.split()[1]) for line in lines if line.startswith(b"Ip6InOctets"))
    return octets


def _of_family(family: int, wanted: frozenset[int], deadline: float) -> dict[int, int]:
    if not hasattr(socket, "AF_NETLINK"):
        raise _NoAnswer
    with closing(
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    ) as link:
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _STATES)
        head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        link.sendto(head + body, (0, 0))
        counts = {}
        for message in _messages(link, deadline):
            inode = int.from_bytes(message[_INODE_AT : _INODE_AT + 4], sys.byteorder)
            if inode in wanted:
                counts[inode] = _received_bytes(message)
        return counts


def _messages(link: socket.socket, deadline: float) -> Iterator[bytes]:
    """Yield the messages of one dump, without their heads. Raise _NoAnswer, TimeoutError or OSError."""
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


def _received_bytes(message: bytes) -> int:
    """Return ``tcpi_bytes_received``; 0 where the kernel does not give it."""
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        count = message[at + _ATTRIBUTE.size + _RECEIVED_AT :][:8]
        if kind == _INET_DIAG_INFO and length >= _ATTRIBUTE.size + _RECEIVED_AT + 8:
            return int.from_bytes(count, sys.byteorder)
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return 0
