"""Who calls: the kernel's word on the other end of a connection, before a byte of HTTP is read."""

import asyncio
import logging
import os
import socket
import struct
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ralphd.api.errors import problem
from ralphd.errors import UsageError

MAX_CONNECTIONS = 512
"""More are cut at once: file descriptors are needed to supervise."""
FIRST_REQUEST_S = 30.0
"""A connection whose first request has not begun in earnest by then is cut; uvicorn would wait for ever."""

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
    ``app_state``, ``connections``, ``conn`` and ``cycle`` are uvicorn's own names: tests hold them.
    """

    _silence: asyncio.TimerHandle | None = None

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
        self._silence = self.loop.call_later(FIRST_REQUEST_S, self._cut_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        if self._silence is not None:
            self._silence.cancel()
        super().connection_lost(exc)

    def _cut_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Tell a client that what it sends is not HTTP, if there is still a reply to be given."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        wrong = UsageError("the request is not HTTP as this daemon reads it", mend="speak HTTP/1.1")
        reply = problem(wrong, status=400, headers={"connection": "close"})
        head = h11.Response(status_code=400, headers=reply.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
