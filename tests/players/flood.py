"""Writes BYTES bytes of numbered lines of LINE bytes (100) to stdout, and how many to the file COUNT.

The count holds what ``write`` took, so it is right also when the program is ended on the way (``--each``: the
file is brought up to date after each block; without it, at the end). Exits with 0.

flood.py COUNT BYTES [LINE] [--each] [--rate BYTES_PER_SECOND]
"""

import os
import sys
import time

each = "--each" in sys.argv
rate = float(sys.argv[sys.argv.index("--rate") + 1]) if "--rate" in sys.argv else 0.0
count_file, total = sys.argv[1], int(sys.argv[2])
line = int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 100

count = os.open(count_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
written = number = 0
begun = time.monotonic()
while written < total:
    lines = []
    for _ in range(max(1, 65536 // line)):
        lines.append(f"{number:012d} ".ljust(line - 1, "x") + "\n")
        number += 1
    block = memoryview("".join(lines).encode())[: total - written]
    while block:
        done = os.write(1, block)
        written += done
        block = block[done:]
        if each:
            os.pwrite(count, b"%d" % written, 0)
    if rate:
        time.sleep(max(0.0, written / rate - (time.monotonic() - begun)))
os.pwrite(count, b"%d" % written, 0)
