"""Passes bytes from a port of loopback to a Unix socket and back: pump.py SOCKET FILE_FOR_THE_PORT.

As the command of a ralph it sends requests as a process of that run, so that reports are accepted. Standard
library only; started by path.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def serve(client: socket.socket, path: Path) -> None:
    """Connect as the run does whose command this is, and copy both ways until one side ends."""
    directory = os.open(path.parent, os.O_RDONLY)
    with client, socket.socket(socket.AF_UNIX) as daemon:
        try:
            daemon.connect(f"/proc/self/fd/{directory}/{path.name}")
        except OSError:
            return
        finally:
            os.close(directory)
        back = threading.Thread(target=copy, args=(daemon, client), daemon=True)
        back.start()
        copy(client, daemon)
        back.join()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port_file = Path(sys.argv[2])
        port_file.with_suffix(".new").write_text(str(listening.getsockname()[1]))
        port_file.with_suffix(".new").rename(port_file)
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection, Path(sys.argv[1])), daemon=True).start()
