"""Prints a line, then exits with the code given, or is ended by the signal given as ``-N``.

exits.py CODE [SECONDS_BEFORE]
"""

import os
import sys
import time

code = int(sys.argv[1])
print("about to end", flush=True)
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
