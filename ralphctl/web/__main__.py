"""``python -m ralphctl.web``: serve the page until standard input ends. The daemon starts it, and ends it so.

The first line of standard input is an object: ``listen``, ``hosts``, ``socket``, ``state_directory``.
"""

import asyncio
import json
import logging
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from ralphd.errors import RalphdError, in_one_line

_DESCRIPTORS = 256


async def _serve(settings: dict[str, Any], reader: asyncio.StreamReader) -> None:
    from ralphctl.client.client import Client
    from ralphctl.web import app, devices, guard, listening, news, pairing
    from ralphd.store.files import make_private_directory

    state, daemon = Path(settings["state_directory"]), settings["socket"]
    directory = state / "web"
    make_private_directory(directory)
    site = listening.site_of(settings["listen"], tuple(settings["hosts"]))
    paired, feed = devices.Devices(directory), news.NewsFeed(lambda: [daemon])
    about = {"pid": os.getpid(), "url": site.url, "is_tls": site.is_tls}
    desk = pairing.PairingDesk(site, paired, lambda: about | {"watching": len(feed)})
    signatures = devices.Signatures(directory)
    serve = app.WebApp(Client(lambda: [daemon]), paired, signatures, desk, feed).serve
    bound = listening.bound(site, state)
    context = listening.tls(site, directory) if site.is_tls else None
    terminals = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind_private(terminals, directory / "control.sock")
    await listening.listen(guard.Guard(site, paired, serve), bound, context)
    await asyncio.start_unix_server(desk.serve_terminal, sock=terminals, limit=4096, backlog=4)
    logging.getLogger(__name__).warning("the page listens on %s", settings["listen"])
    await reader.read()


async def _main() -> None:
    reader = asyncio.StreamReader(limit=1 << 16)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await _serve(json.loads(await reader.readline()), reader)


def main() -> int:
    """Serve; return 0 when standard input has ended, 1 with the reason on standard error."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        asyncio.run(_main())
    except RalphdError as fault:
        print(in_one_line(fault), file=sys.stderr)
        return fault.exit_code
    except ImportError as missing:
        print(f"the page needs more packages ({missing}): see ralphctl web", file=sys.stderr)
        return 69
    return 0


if __name__ == "__main__":
    os._exit(main())  # not waiting for threads that still draw
