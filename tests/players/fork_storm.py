"""COUNT children that sleep, and HOPPERS that fork and exit without end, each hop in a new session.

Prints ``storm`` once all sleepers are there. It ignores SIGTERM.

fork_storm.py COUNT [HOPPERS]
"""

import os
import signal
import sys
import time


def hop() -> None:
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(600)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    if os.fork() == 0:
        hop()
os.write(1, b"storm\n")
while True:
    time.sleep(1)
