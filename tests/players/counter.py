"""Prints a number a line, each PERIOD seconds (0.01), for ever or up to LAST; each goes to FILE first.

counter.py FILE [PERIOD] [LAST]
"""

import itertools
import os
import sys
import time

record = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
period = float(sys.argv[2]) if len(sys.argv) > 2 else 0.01
last = int(sys.argv[3]) if len(sys.argv) > 3 else None
for number in itertools.count(1):
    text = b"%d\n" % number
    os.write(record, text)
    os.write(1, text)
    if number == last:
        break
    time.sleep(period)
