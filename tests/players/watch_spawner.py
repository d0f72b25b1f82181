"""Does each thing that it is told on standard input, prints its name when it is done, and is idle between.

``true``: starts /bin/true and waits for it. ``child``: starts a child that moves 100 kB and then rests.
``reap``: ends that child and waits for it. ``move``: moves 64 KiB through a pipe itself. ``orphan``: leaves
/bin/true to whoever takes orphans in. Each thing is one line of the FIFO.

watch_spawner.py FIFO
"""

import os
import signal
import sys
import time

children: list[int] = []


def start_child() -> None:
    if (pid := os.fork()) == 0:
        with open("/dev/zero", "rb", buffering=0) as zeros:
            zeros.read(100_000)
        print("child", flush=True)
        while True:
            time.sleep(60)
    children.append(pid)


def do(thing: str) -> None:
    if thing == "true":
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    elif thing == "child":
        start_child()
        return
    elif thing == "reap":
        os.kill(children[-1], signal.SIGKILL)
        os.waitpid(children.pop(), 0)
    elif thing == "move":
        reader, writer = os.pipe()
        os.write(writer, bytes(65536))
        os.read(reader, 65536)
    elif thing == "orphan":
        if (between := os.fork()) == 0:
            os.posix_spawn("/bin/true", ["true"], {})
            os._exit(0)
        os.waitpid(between, 0)
    print(thing, flush=True)


print("ready", flush=True)
with open(sys.argv[1]) as orders:
    for order in orders:
        do(order.strip())
