"""Listen on a Unix socket that is private from its first moment, wherever its path leads."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ralphd import errors
from ralphd.api.errors import problem
from ralphd.diagnostics import LogLimit
from ralphd.process.peer_run import Peer, peer_of
from ralphd.process.sandbox.box import renew_shared

MAX_PATH_BYTES = 107
"""What fits ``sun_path`` beside its closing NUL (unix(7))."""
BACKLOG = 256


class Listener:
    """A listening socket and the file that leads to it.

    The caller holds the daemon's lock, so that of two daemons only one gets here. uvicorn's own ``uds=``
    is not used: it opens the file to everybody for a moment.
    """

    def __init__(self, path: Path, listening: socket.socket, *, is_ours: bool = True) -> None:
        """Use ``bind`` or ``handed_over``."""
        self.path, self.socket = path, listening
        self._is_ours, self._inode = is_ours, _inode(path)

    @classmethod
    def bind(cls, path: Path) -> "Listener":
        """Listen at ``path``, mode 0600 under any umask; a stale socket there is replaced.

        Makes the directory (0700) when it is missing. Raises DaemonBusy when somebody listens there, and
        SocketUnusable when the directory is not ours alone to write, or something else is in the way.
        """
        with _open_directory(path.parent) as directory:
            address = _address(path, directory)
            _make_way(path, address)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                _bind_private(listening, address)
                listening.listen(BACKLOG)
                return cls(path, listening)
            except OSError as fault:
                listening.close()
                raise errors.SocketUnusable(f"cannot listen at {path}", why=str(fault)) from fault

    @classmethod
    def handed_over(cls, fds: Sequence[int]) -> "Listener":
        """Listen on what systemd listens on already (``LISTEN_FDS``). Its file and its mode are systemd's.

        Who may call is looked at for each connection. Raises HandedOverUnusable for anything but one
        listening Unix stream socket that has a path.
        """
        if len(fds) != 1:
            raise _not_a_listener(f"there are {len(fds)} descriptors, and ralphd takes one")
        try:
            if not stat.S_ISSOCK(os.fstat(fds[0]).st_mode):
                raise _not_a_listener("it is no socket")
            listening = socket.socket(fileno=fds[0])
        except OSError as fault:
            raise _not_a_listener(str(fault)) from fault
        if why := _why_no_listener(listening):
            listening.close()
            raise _not_a_listener(why)
        listening.setblocking(False)
        return cls(Path(os.fsdecode(listening.getsockname())), listening, is_ours=False)

    def is_reachable(self) -> bool:
        """Return whether the file at ``path`` still leads here. systemd looks after its own."""
        return not self._is_ours or _inode(self.path) == self._inode

    def close(self) -> None:
        """Stop listening; remove the file, but only our own."""
        if self._is_ours and self.is_reachable():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.socket.close()


def _why_no_listener(given: socket.socket) -> str | None:
    name = given.getsockname()
    if given.family != socket.AF_UNIX or given.type != socket.SOCK_STREAM:
        return "it is not a Unix stream socket; ListenStream= must be a path"
    if not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "nobody listens on it; Accept= has to be no"
    # An abstract name (bytes that begin with NUL) has no permissions, and runs could not be told of it.
    if not isinstance(name, str) or not name.startswith("/"):
        return "it has no path; ListenStream= has to be an absolute one"
    return None


def _not_a_listener(why: str) -> errors.HandedOverUnusable:
    mend = "systemctl cat ralphd.socket  (systemd/ralphd.socket in the sources is a working example)"
    return errors.HandedOverUnusable("what systemd handed over cannot be listened on", why=why, mend=mend)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    """The socket's directory, made when it is missing, held open so that what was checked is what is used."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as fault:
        is_other = fault.errno in (errno.ENOTDIR, errno.ELOOP)
        why = "it is a symbolic link or no directory" if is_other else str(fault)
        raise _unusable(directory, why) from fault
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise _unusable(directory, f"it belongs to uid {found.st_uid}")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _unusable(directory, f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})")
        yield fd
    finally:
        os.close(fd)


def _unusable(directory: Path, why: str) -> errors.SocketUnusable:
    mend = "name a directory of your own with RALPHD_STATE_DIR, or a socket in one with RALPHD_SOCKET"
    return errors.SocketUnusable(f"the socket's directory cannot be used: {directory}", why=why, mend=mend)


def _address(path: Path, directory: int) -> str:
    # A path that does not fit sun_path is reached through the directory's descriptor.
    fits = len(os.fsencode(path)) <= MAX_PATH_BYTES
    return str(path) if fits else f"/proc/self/fd/{directory}/{path.name}"


def _make_way(path: Path, address: str) -> None:
    """Remove a socket on which nobody listens. Raises when somebody does, and for anything but a socket."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        why = "another file is in its place, and it is not a socket"
        raise errors.SocketUnusable(f"cannot listen at {path}", why=why, mend=f"mv {path} {path}.old")
    if _somebody_listens(address):
        mend = "ralphctl regent status, or another RALPHD_SOCKET"
        raise errors.DaemonBusy(f"somebody listens at {path} already", mend=mend)
    path.unlink()


def _somebody_listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full backlog (EAGAIN), or one that we may not ask (EACCES)
    return True


def _bind_private(listening: socket.socket, address: str) -> None:
    """Bind so that the file is born 0600.

    Linux gives the file the mode of the socket's own inode, less the umask (unix(7)), so the mode is right
    from the first moment; no chmod comes after. The umask belongs to the whole process: 0077 meanwhile, and
    not 0177, leaves a directory usable that another thread makes at this very moment.
    """
    os.fchmod(listening.fileno(), 0o600)
    former = os.umask(0o077)
    try:
        listening.bind(address)
    finally:
        os.umask(former)


# The peer of a connection, asked of the kernel before a byte of HTTP is read.

MAX_CONNECTIONS = 512
"""More are cut at once: file descriptors are needed to supervise."""
KEPT_CONNECTIONS = 8
"""Of these, so many only serve processes that belong to no run."""
OTHER_DESCRIPTORS = 32
"""What the daemon needs besides connections, at least; the rest of a small limit is shared with followers."""
HEAD_S = 30.0
"""The time limit for the head of each request; uvicorn would wait for ever."""

logger = logging.getLogger(__name__)


def most_connections(descriptors: int) -> int:
    """Return the most connections for a limit of descriptors: a follower needs two besides its connection."""
    return max(2 * KEPT_CONNECTIONS, min(MAX_CONNECTIONS, (descriptors - OTHER_DESCRIPTORS) // 3))


class PeerProtocol(H11Protocol):
    """HTTP for our own user and root, and a closed connection for everybody else.

    Puts ``peer`` and ``abort`` (cuts the connection, unsent bytes and all) into the state of each request.
    ``app_state``, ``connections``, ``conn`` and ``cycle`` are uvicorn's own names: tests hold them.
    """

    _silence: asyncio.TimerHandle | None = None
    _refused = LogLimit(logger)

    def __init__(self, *uvicorns: Any, is_within: Callable[[Peer], bool], **named: Any) -> None:
        super().__init__(*uvicorns, **named)
        self._is_within = is_within

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Let the connection in, or cut it."""
        peer = peer_of(transport.get_extra_info("socket"))
        if not peer.is_welcome or self._is_full(peer):
            why = "too many connections" if peer.is_welcome else "another user"
            self._refused.warn(f"connection refused: {why} (pid {peer.pid}, uid {peer.uid})")
            self.transport = transport
            transport.abort()
            return
        self.app_state = {**self.app_state, "peer": peer, "abort": transport.abort}
        super().connection_made(transport)
        self._limit_head()

    def _is_full(self, peer: Peer) -> bool:
        left = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) - len(self.connections)
        return left <= 0 or (left <= KEPT_CONNECTIONS and self._is_within(peer))

    def data_received(self, data: bytes) -> None:
        """Read a part of a request. The time limit of a head begins with its first byte."""
        super().data_received(data)
        self._limit_head()

    def _limit_head(self) -> None:
        is_expected = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if is_expected and self._silence is None:
            self._silence = self.loop.call_later(HEAD_S, self.transport.abort)
        elif not is_expected and self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of the head."""
        if self._silence is not None:
            self._silence.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with a problem document, unless a reply is under way."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        wrong = errors.UsageError("the request is not HTTP as this daemon reads it", mend="speak HTTP/1.1")
        reply = problem(wrong, status=400, headers={"connection": "close"})
        head = h11.Response(status_code=400, headers=reply.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


# uvicorn inside our own event loop, on our own socket, without its signal handlers.

GRACE_S = 3
KEEP_ALIVE_S = 30


def _cut_at_the_end(app: ASGIApp) -> ASGIApp:
    """Cut the connection of a reply that is cancelled; uvicorn would log a traceback for it."""

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            scope["state"]["abort"]()
            await asyncio.sleep(0)  # uvicorn then knows that nobody waits for the rest

    return cut


class ApiServer(uvicorn.Server):
    """The API on a Unix socket. Serves until ``ask_to_exit``; the listener closes with it."""

    def __init__(self, app: ASGIApp, listener: Listener, *, is_within: Callable[[Peer], bool]) -> None:
        """``is_within`` returns whether a peer belongs to a run: for it fewer connections are kept."""
        self._protocol = partial(PeerProtocol, is_within=is_within)
        config = uvicorn.Config(
            _cut_at_the_end(app),
            http=self._protocol,  # type: ignore[arg-type]  # called as the class would be
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=1,  # asyncio accepts so many at a time, and logs each that finds no descriptor
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._listener = listener
        self._exit = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield

    async def main_loop(self) -> None:
        """Wait without uvicorn's ten polls per second: an idle daemon costs nothing."""
        await self.on_tick(0)
        self._listener.socket.listen(BACKLOG)
        await self._exit.wait()

    def ask_to_exit(self) -> None:
        """End ``run``: no new connections, at most GRACE_S seconds for the replies under way."""
        self.should_exit = True
        self._exit.set()

    async def run_until_asked(self) -> None:
        """Serve until ``ask_to_exit``, then remove the socket's file if it is still ours."""
        try:
            await self.serve(sockets=[self._listener.socket])
        finally:
            self._listener.close()

    async def keep_reachable(self, report: Callable[[str | None], None], *, every_s: float = 5.0) -> None:
        """Bind the socket again whenever its file is gone or replaced. Runs until cancelled.

        ``report`` gets the reason why that fails, and None once it succeeds.
        """
        while True:
            renew_shared(self._listener.path)
            await asyncio.sleep(every_s)
            problem = None
            if not self._listener.is_reachable():
                try:
                    await self._listen_anew()
                except (errors.RalphdError, OSError) as fault:
                    text = errors.in_one_line(fault) if isinstance(fault, errors.RalphdError) else str(fault)
                    problem = f"{self._listener.path} does not lead to this daemon: {text}"
            report(problem)

    async def _listen_anew(self) -> None:
        fresh = Listener.bind(self._listener.path)
        protocol = partial(self._protocol, self.config, self.server_state, self.lifespan.state)
        try:
            server = await asyncio.get_running_loop().create_server(protocol, sock=fresh.socket, backlog=1)
            fresh.socket.listen(BACKLOG)
        except BaseException:
            fresh.close()
            raise
        if self.should_exit:
            server.close()
            fresh.close()
            return
        gone, self._listener = self._listener, fresh
        for former in self.servers:
            former.close()
        gone.close()
        self.servers = [server]
        where = {"socket": str(fresh.path)}
        logger.warning("the socket's file was missing; listening on a new one", extra=where)
