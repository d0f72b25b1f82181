"""Leaves a process behind that has no parent here and a session of its own, as a server that daemonises does.

Prints ``orphan PID``, then exits with 0 (``leave``), sleeps (``stay``), or exits while the orphan has closed
its output (``quiet``).

double_forker.py leave|stay|quiet
"""

import os
import sys
import time

told_r, told_w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if sys.argv[1] == "quiet":
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
        os.write(told_w, b"%d" % os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
print("orphan", int(os.read(told_r, 16)), flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
