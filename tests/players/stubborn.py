"""Ignores SIGTERM, as does its child; both print ``NAME PID`` (``leader``, ``grandchild``)."""

import os
import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
name = "leader" if os.fork() else "grandchild"
print(f"{name} {os.getpid()}", flush=True)
time.sleep(600)
