"""Somebody who watches a command until it has printed so many lines, and then presses Ctrl-C.

``watcher.py LINES COMMAND``: COMMAND is for a shell; its exit code is ours.
"""

import signal
import subprocess
import sys
import threading

BOUND_S = 30.0

lines, command = int(sys.argv[1]), sys.argv[2]
process = subprocess.Popen(["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, text=True)
assert process.stdout is not None
patience = threading.Timer(BOUND_S, process.send_signal, [signal.SIGINT])
patience.start()
for number, line in enumerate(process.stdout, start=1):
    print(line, end="", flush=True)
    if number == lines:
        process.send_signal(signal.SIGINT)
patience.cancel()
sys.exit(process.wait())
