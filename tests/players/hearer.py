"""Prints ``ready PID``, then the name of each signal that comes; it does not end of them."""

import os
import signal

HEARD = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}

signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
print(f"ready {os.getpid()}", flush=True)
while True:
    print(signal.Signals(signal.sigwait(HEARD)).name, flush=True)
