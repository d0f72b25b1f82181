"""Receives 8 KiB by recv(2) on a loopback TCP socket each INTERVAL seconds (0.2), and is silent.

A child of it sends them by send(2), so that no read or write call moves a byte. Ends with 0 after SECONDS.
LINE is printed first.

watch_receiver.py SECONDS [INTERVAL] [LINE]
"""

import os
import socket
import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    sender = socket.create_connection(listener.getsockname())
    while time.monotonic() < until:
        sender.sendall(bytes(8192))
        time.sleep(pause)
    os._exit(0)
receiver, _ = listener.accept()
while receiver.recv(8192):
    pass
os.wait()
