"""Adds a byte to a file of its working directory, ``notes.txt``, each INTERVAL seconds (0.2), and is silent.

Ends with 0 after SECONDS. LINE is printed first.

watch_writer.py SECONDS [INTERVAL] [LINE]
"""

import os
import sys
import time

line = sys.argv[3] if len(sys.argv) > 3 else None
if line is not None:
    print(line, flush=True)
until = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
notes = os.open("notes.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
while time.monotonic() < until:
    os.write(notes, b".")
    time.sleep(pause)
