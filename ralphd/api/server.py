"""uvicorn inside our own event loop, on a socket of our own, leaving signals to the daemon."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from ralphd.api.listen import Listener
from ralphd.api.peer import PeerProtocol
from ralphd.errors import RalphdError

BACKLOG = 256
GRACE_S = 3
KEEP_ALIVE_S = 30
logger = logging.getLogger(__name__)


class ApiServer(uvicorn.Server):
    """The API on a Unix socket. Serves until ``ask_to_exit``; the listener closes with it."""

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        config = uvicorn.Config(
            app,
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._listener = listener
        self._exit = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's."""
        yield

    async def main_loop(self) -> None:
        """Wait without uvicorn's ten looks a second: an idle daemon is to cost nothing."""
        await self.on_tick(0)
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

    async def keep_reachable(self, *, every_s: float = 5.0) -> None:
        """Make the socket anew whenever its file is gone or another's. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(every_s)
            if self._listener.is_reachable():
                continue
            try:
                await self._listen_anew()
            except (RalphdError, OSError) as fault:
                logger.error("the socket is gone and cannot be made anew: %s", fault)

    async def _listen_anew(self) -> None:
        fresh = Listener.bind(self._listener.path)
        try:
            server = await self._serve_on(fresh)
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
        logger.warning(
            "the socket's file was gone; listening anew", extra={"socket": str(self._listener.path)}
        )

    async def _serve_on(self, listener: Listener) -> asyncio.Server:
        def protocol() -> PeerProtocol:
            return PeerProtocol(self.config, self.server_state, self.lifespan.state)

        loop = asyncio.get_running_loop()
        return await loop.create_server(protocol, sock=listener.socket, backlog=BACKLOG)
