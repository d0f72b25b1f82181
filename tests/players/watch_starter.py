"""Starts /bin/true each INTERVAL seconds (0.2), waits for it, and is silent.

Ends with 0 after SECONDS. LINE is printed first.

watch_starter.py SECONDS [INTERVAL] [LINE]
"""

import os
import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
while time.monotonic() < until:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    time.sleep(pause)
