"""Wakes each INTERVAL seconds (0.1) and does nothing, as an event loop with a timer does, and is silent.

Ends with 0 after SECONDS. LINE is printed first.

watch_timer.py SECONDS [INTERVAL] [LINE]
"""

import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
while time.monotonic() < until:
    time.sleep(pause)
