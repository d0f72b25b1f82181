"""Who calls: the kernel's word on the other end of a connection, before a byte of HTTP is read."""

import asyncio
import logging
import os
import socket
import struct
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
"""More are cut at once: file descriptors are needed to supervise."""

_UCRED = struct.Struct("3i")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, as it was at that moment (SO_PEERCRED); its pid may be another's by now."""

    pid: int
    uid: int
    gid: int

    @property
    def is_welcome(self) -> bool:
        """Whether it is our own user's, or root's. A foreign user namespace shows as 65534: not welcome."""
        return self.uid in (os.geteuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """Who is at the other end of a Unix socket."""
    return Peer(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


class PeerProtocol(H11Protocol):
    """HTTP for those who may call, and a closed connection for everybody else.

    Puts ``peer`` and ``abort`` (cuts the connection, unsent bytes and all) into the state of each request.
    ``app_state``, ``connections`` and the keep-alive timer are uvicorn's own names: a test holds them.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Let the connection in, or cut it."""
        peer = peer_of(transport.get_extra_info("socket"))
        if not peer.is_welcome or len(self.connections) >= MAX_CONNECTIONS:
            logger.warning("connection refused", extra={"peer_pid": peer.pid, "peer_uid": peer.uid})
            self.transport = transport
            transport.abort()
            return
        self.app_state = {**self.app_state, "peer": peer, "abort": transport.abort}
        super().connection_made(transport)
        # uvicorn bounds the time between two requests, but not the time before the first.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
