"""Plays an agent, one word of its command line after the other; each thing it says is a line.

out=TEXT, err=TEXT, rest=SECONDS, exit=CODE, kill=SIGNAL, deaf (ignores SIGTERM), file=NAME (writes it),
read (all of stdin, and says how much), env=NAME (says its value), times=N (does what follows N times).
"""

import os
import signal
import sys
import time


def do(word: str) -> None:
    name, _, value = word.partition("=")
    match name:
        case "out":
            os.write(1, value.encode() + b"\n")
        case "err":
            os.write(2, value.encode() + b"\n")
        case "rest":
            time.sleep(float(value))
        case "exit":
            os._exit(int(value))
        case "kill":
            os.kill(os.getpid(), int(value))
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "file":
            with open(value, "ab") as file:
                file.write(b".")
        case "read":
            os.write(1, f"text read {len(sys.stdin.buffer.read())}\n".encode())
        case "env":
            os.write(1, f"text {value} is {os.environ.get(value)}\n".encode())
        case _:
            raise ValueError(word)


words, times = sys.argv[1:], 1
for at, word in enumerate(words):
    if word.startswith("times="):
        words, rest, times = words[:at], words[at + 1 :], int(word[6:])
        break
else:
    rest = []
for word in words:
    do(word)
for _ in range(times):
    for word in rest:
        do(word)
