"""Somebody who watches a command until so many lines came, the last of which matches, and presses Ctrl-C.

``watcher.py LINES PATTERN COMMAND``: COMMAND is for a shell; its exit code is ours.
"""

import re
import signal
import subprocess
import sys
import threading

BOUND_S = 30.0

lines, enough, command = int(sys.argv[1]), re.compile(sys.argv[2]), sys.argv[3]
process = subprocess.Popen(
    ["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
)
assert process.stdout is not None
patience = threading.Timer(BOUND_S, process.send_signal, [signal.SIGINT])
patience.start()
has_seen = False
for number, line in enumerate(process.stdout, start=1):
    print(line, end="", flush=True)
    if not has_seen and number >= lines and enough.match(line):
        has_seen = True
        process.send_signal(signal.SIGINT)
patience.cancel()
sys.exit(process.wait())
