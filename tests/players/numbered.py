"""Prints numbered lines, ``RUN_ID NUMBER``, each PERIOD seconds, until it ends in its own way.

It appends ``alone PID RUN_ID`` to RECORD/starts, or ``beside PID RUN_ID`` if another run of it lives.
RECORD/written.RUN_ID is the number of lines that ``write`` has taken, at most one less than the true one.

- ``print``: it ends only when it is ended;
- ``crash S``: exits with 1 after S seconds; ``end S``: with 0;
- ``tree S``: leaves a child, a session and an orphan behind when it exits with 3 after S seconds;
- ``slow S``: S seconds after SIGTERM, with 0;
- ``flood BYTES S``: prints so many bytes of further lines (``x``), then as ``end S``.

numbered.py RECORD PERIOD HABIT [ARGUMENT...]
"""

import fcntl
import os
import signal
import sys
import time

record, period, habit = sys.argv[1], float(sys.argv[2]), sys.argv[3]
arguments = [float(word) for word in sys.argv[4:]]
run_id = os.environ["RALPH_RUN_ID"]

only = os.open(f"{record}/only", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
try:
    fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    word = "alone"
except BlockingIOError:
    word = "beside"
starts = os.open(f"{record}/starts", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
os.write(starts, f"{word} {os.getpid()} {run_id}\n".encode())
count = os.open(f"{record}/written.{run_id}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def leave_behind() -> None:
    """Three processes that outlive this one, without the lock: it is a descriptor of ours alone."""
    for detaches in (False, True):
        if os.fork() == 0:
            os.close(only)
            if detaches:
                os.setsid()
                if os.fork():
                    os._exit(0)
            time.sleep(600)
            os._exit(0)


if habit == "tree":
    leave_behind()
if habit == "flood":
    block = memoryview(b"".join(b"x%098d\n" % at for at in range(int(arguments[0]) // 100)))
    while block:
        block = block[os.write(1, block) :]
ends_at = time.monotonic() + arguments[-1] if arguments and habit != "slow" else float("inf")


def end_later(*_: object) -> None:
    global ends_at
    ends_at = time.monotonic() + arguments[-1]


if habit == "slow":
    signal.signal(signal.SIGTERM, end_later)
number = 0
while time.monotonic() < ends_at:
    os.write(1, f"{run_id} {number}\n".encode())
    number += 1
    os.pwrite(count, b"%d" % number, 0)
    time.sleep(period)
os._exit({"crash": 1, "tree": 3}.get(habit, 0))
