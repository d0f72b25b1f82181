"""Computes for a third of each INTERVAL seconds (0.5), rests for the others, and is silent.

Ends with 0 after SECONDS. LINE is printed first.

watch_burner.py SECONDS [INTERVAL] [LINE]
"""

import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
while time.monotonic() < until:
    stop = time.thread_time() + pause / 3
    while time.thread_time() < stop:
        pass
    time.sleep(pause * 2 / 3)
