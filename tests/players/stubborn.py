"""Ignores SIGTERM, as does its child; both print ``NAME PID`` (``leader``, ``grandchild``)."""

import os
import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
name = "leader" if os.fork() else "grandchild"
os.write(1, f"{name} {os.getpid()}\n".encode())  # in one piece, as the other writes too
time.sleep(600)
