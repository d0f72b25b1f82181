"""Prints one JSON object about how it was started: argv, environment, umask, descriptors, signals, ids."""

import json
import os
import signal
import sys
from pathlib import Path

umask = os.umask(0)
os.umask(umask)
status = dict(
    line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
)
descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
print(
    json.dumps(
        {
            "argv": sys.argv[1:],
            "cwd": os.getcwd(),
            "environment": dict(os.environ),
            "umask": umask,
            "descriptors": sorted(
                number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}")
            ),
            "stdin": os.readlink("/proc/self/fd/0"),
            "ignored": int(status["SigIgn"], 16),
            "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "pid": os.getpid(),
            "group": os.getpgrp(),
            "session_of": os.getsid(0),
            "parent": os.getppid(),
            "cgroup": Path("/proc/self/cgroup").read_text(),
        }
    ),
    flush=True,
)
