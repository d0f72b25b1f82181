"""Behaves as a loop that knows the signals: it says hello, begins an iteration, and tells what it hears.

SIGUSR1: it finishes the iteration and ends with 75. SIGUSR2: it waits no longer. SIGTERM: it ends with 0.
``--wait S``: it tells a wait of S seconds first. Each thing it does is a line: ``begun``, ``waits``,
``skipped``, ``finished``.

loop_like.py [--wait S]
"""

import http.client
import json
import os
import signal
import socket
import sys
import time

HEARD = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
number = 0


def report(kind: str, **words: object) -> None:
    global number
    number += 1
    directory, name = os.path.split(os.environ["RALPHD_SOCKET"])
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    connection = http.client.HTTPConnection("ralphd")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(f"/proc/self/fd/{held}/{name}")
    os.close(held)
    body = {"run_id": os.environ["RALPH_RUN_ID"], "id": f"n{number}", "kind": kind, **words}
    path = f"/v1/ralphs/{os.environ['RALPH_NAME']}/reports"
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def tell(word: str) -> None:
    print(word, flush=True)


signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
report("hello", signals=True)
report("iteration-started", iteration=1, task={"id": "T-1", "title": "Mend the parser"}, agent="claude")
tell("begun")
if "--wait" in sys.argv:
    ends = time.time() + float(sys.argv[sys.argv.index("--wait") + 1])
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    report("waiting", until=until, reason="rate_limit")
    tell("waits")
while True:
    heard = signal.sigwait(HEARD)
    if heard == signal.SIGTERM:
        sys.exit(0)
    if heard == signal.SIGUSR1:
        break
    report("waiting", until=None)
    tell("skipped")
report("iteration-finished", iteration=1)
tell("finished")
sys.exit(75)
