"""Tells each of its starts, and whether it was alone: it holds a lock that only one run at a time can have.

It appends ``alone PID RUN_ID``, or ``beside PID RUN_ID``, to RECORD/starts. Then it rests until RECORD/end is
there, which it removes, and ends with the code in it, or by the signal that is given as ``-N``.

``--output RATE`` prints lines of 100 bytes meanwhile, RATE bytes a second, and keeps in RECORD/written.RUN_ID
how many bytes ``write`` has taken. ``--stubborn`` ignores SIGTERM.

witness.py RECORD [--output RATE] [--stubborn]
"""

import fcntl
import os
import signal
import sys
import time

record = sys.argv[1]
run_id = os.environ["RALPH_RUN_ID"]
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

only = os.open(f"{record}/only", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
try:
    fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    word = "alone"
except BlockingIOError:
    word = "beside"
starts = os.open(f"{record}/starts", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(starts, f"{word} {os.getpid()} {run_id}\n".encode())

rate = float(sys.argv[sys.argv.index("--output") + 1]) if "--output" in sys.argv else 0.0
count = os.open(f"{record}/written.{run_id}", os.O_WRONLY | os.O_CREAT, 0o600) if rate else -1
line, written, begun = 0, 0, time.monotonic()


def told_to_end() -> int | None:
    try:
        with open(f"{record}/end") as file:
            code = int(file.read())
        os.unlink(f"{record}/end")
    except FileNotFoundError:
        return None
    return code


def print_block() -> None:
    global line, written
    block = b"".join(b"%099d\n" % number for number in range(line, line + 650))
    line += 650
    while block:
        done = os.write(1, block)
        written += done
        os.pwrite(count, b"%d" % written, 0)
        block = block[done:]


while (code := told_to_end()) is None:
    if rate:
        print_block()
        time.sleep(max(0.0, written / rate - (time.monotonic() - begun)))
    else:
        time.sleep(0.01)
if code < 0:
    os.kill(os.getpid(), -code)
    time.sleep(10)
sys.exit(code)
