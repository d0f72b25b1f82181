"""What every supervisor is given to run. Started by path; everything ends by itself within two minutes.

children.py tree RECORD SLEEPERS HOPPERS    a tree that does all it can to be left behind
children.py writer RECORD                   numbered lines, 500 kB/s; RECORD.PID says how much was written
children.py crasher RECORD                  lives for a moment, notes its begin and end, ends in many ways
children.py flood RECORD BYTES              numbered blocks of 100-byte lines as fast as they are taken, once
                                            there is a file RECORD.go
children.py ticker                          ten lines a second, each with the moment of its writing
children.py chatter LINES                   so many lines of 100 bytes a second, some every hundredth of it
"""

import os
import random
import signal
import sys
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIFE_S = 90
ASKING = (signal.SIGTERM, signal.SIGINT)  # what supervisors ask with: pm2 by SIGINT, the others by SIGTERM
LINE_BYTES = 100
BLOCK_LINES = 80


def append(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def numbered(number: int) -> bytes:
    """A line of LINE_BYTES that begins with ``#`` and its number."""
    return b"#%012d " % number + b"x" * (LINE_BYTES - 15) + b"\n"


def rest(record: str, name: str) -> None:
    append(record, f"{name} {os.getpid()}\n")
    time.sleep(LIFE_S)
    os._exit(0)


def tree(record: str, sleepers: str, hoppers: str) -> None:
    for asking in ASKING:
        signal.signal(asking, signal.SIG_IGN)
    if os.fork() == 0:
        for asking in ASKING:
            signal.signal(asking, signal.SIG_DFL)
        rest(record, "plain")
    if os.fork() == 0:
        os.setsid()
        rest(record, "setsid")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            rest(record, "double")
        os._exit(0)
    if os.fork() == 0:
        append(record, f"cleared {os.getpid()}\n")
        code = f"import time; time.sleep({LIFE_S})"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
    for _ in range(int(sleepers)):
        if os.fork() == 0:
            time.sleep(LIFE_S)
            os._exit(0)
    deadline = time.monotonic() + LIFE_S
    for _ in range(int(hoppers)):
        if os.fork() == 0:
            hop(deadline)
    rest(record, "leader")


def hop(deadline: float) -> None:
    """Fork and exit, each hop in a session of its own."""
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)
    os._exit(0)


def writer(record: str) -> None:
    asked = []
    for asking in ASKING:
        signal.signal(asking, lambda number, frame: asked.append(number))
    path = f"{record}.{os.getpid()}"
    written = number = 0
    deadline = time.monotonic() + LIFE_S
    append(path, "0\n")
    try:
        while not asked and time.monotonic() < deadline:
            block = memoryview(b"".join(numbered(number + line) for line in range(10)))
            number += 10
            while block:
                done = os.write(1, block)
                written += done
                block = block[done:]
            time.sleep(0.002)
    finally:
        append(path, f"{written}\n")


def crasher(record: str) -> None:
    run_id = os.environ.get("RALPH_RUN_ID", f"p{os.getpid()}")
    how = planned_end(run_id)
    append(record, f"begin {run_id} {time.monotonic_ns()}\n")
    time.sleep(random.random() * 0.15)
    append(record, f"end {run_id} {time.monotonic_ns()}\n")
    if how < 0:
        os.kill(os.getpid(), -how)
    sys.exit(how)


def planned_end(run_id: str) -> int:
    """How the crasher of this run ends: an exit code of 1 to 70, or ``-N`` for signal N."""
    digest = zlib.crc32(run_id.encode())
    return -signal.SIGKILL if digest % 5 == 0 else 1 + digest % 70


def flood(record: str, total: str) -> None:
    deadline = time.monotonic() + LIFE_S
    while not os.path.exists(f"{record}.go"):
        if time.monotonic() > deadline:
            sys.exit("nobody said go")
        time.sleep(0.01)
    begun = time.perf_counter()
    filler = b"x" * (LINE_BYTES - 1) + b"\n"
    rest_of_block = filler * (BLOCK_LINES - 1)
    for number in range(int(total) // (LINE_BYTES * BLOCK_LINES)):
        block = memoryview(numbered(number) + rest_of_block)
        while block:
            block = block[os.write(1, block) :]
    append(record, f"{time.perf_counter() - begun}\n")
    time.sleep(LIFE_S)


def ticker() -> None:
    deadline = time.monotonic() + LIFE_S
    while time.monotonic() < deadline:
        os.write(1, b"tick %d\n" % time.monotonic_ns())
        time.sleep(0.1)


def chatter(lines: str) -> None:
    began = time.monotonic()
    written = 0
    while (now := time.monotonic()) < began + LIFE_S:
        due = int((now - began) * int(lines))
        os.write(1, b"".join(b"line %-94d\n" % (written + n) for n in range(due - written)))
        written = due
        time.sleep(max(0.01, 1 / int(lines)))


def argv(*words: object) -> list[str]:
    """The command that plays one of these."""
    return [sys.executable, "-I", "-S", "-u", __file__, *map(str, words)]


if __name__ == "__main__":
    PLAYS: "dict[str, Callable[..., None]]" = {
        "tree": tree,
        "writer": writer,
        "crasher": crasher,
        "flood": flood,
        "ticker": ticker,
        "chatter": chatter,
    }
    PLAYS[sys.argv[1]](*sys.argv[2:])
