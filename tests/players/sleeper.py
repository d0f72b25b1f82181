"""Prints its pid and sleeps; ends of SIGTERM as a plain program does."""

import os
import time

print(os.getpid(), flush=True)
time.sleep(600)
