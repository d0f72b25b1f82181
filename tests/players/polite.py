"""Prints its pid; at SIGTERM or SIGINT prints which, then exits with the code given (0).

polite.py [CODE]
"""

import os
import signal
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
print(os.getpid(), flush=True)
got = signal.Signals(signal.sigwait({signal.SIGTERM, signal.SIGINT}))
print(f"got {got.name}", flush=True)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
