"""Writes what it is told: ``out:TEXT``, ``err:TEXT``, ``wait:SECONDS``, ``x:COUNT`` (that many x).

Python escapes in TEXT are resolved (``\\n``). ``file:PATH`` waits until PATH exists, ``touch:PATH`` makes it.
Exits with 0.

says.py PIECE...
"""

import os
import sys
import time
from pathlib import Path


def write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


for piece in sys.argv[1:]:
    kind, _, text = piece.partition(":")
    if kind == "wait":
        time.sleep(float(text))
    elif kind == "x":
        write(1, b"x" * int(text))
    elif kind == "touch":
        Path(text).touch()
    elif kind == "file":
        while not Path(text).exists():
            time.sleep(0.01)
    else:
        write({"out": 1, "err": 2}[kind], text.encode().decode("unicode_escape").encode("latin-1"))
