"""Moves 8 KiB through a pipe by write and read each INTERVAL seconds (0.2), and is silent.

Ends with 0 after SECONDS. LINE is printed first.

watch_mover.py SECONDS [INTERVAL] [LINE]
"""

import os
import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
reader, writer = os.pipe()
while time.monotonic() < until:
    os.write(writer, bytes(8192))
    os.read(reader, 8192)
    time.sleep(pause)
