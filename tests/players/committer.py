"""Plays an agent for the built-in loop that never runs out of work: it ticks a task, adds one, and commits.

It appends ``alone`` or ``beside`` to RECORD/calls, and waits until no other one with this record lives. Call
NUMBER makes the commit ``work NUMBER``.

TASKS.md keeps its last ten tasks. Each fifth call fails after its work; each seventh adds a file ``broken``,
which makes tests fail, and the next one removes it.

committer.py REST_S RECORD
"""

import fcntl
import os
import subprocess
import sys
import time

ENVIRONMENT = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


def git(*words: str) -> None:
    subprocess.run(["git", *words], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)


sys.stdin.read()
only = os.open(f"{sys.argv[2]}/only", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
try:
    fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    word = "alone"
except BlockingIOError:
    word = "beside"
fcntl.flock(only, fcntl.LOCK_EX)
with open(f"{sys.argv[2]}/calls", "a+") as calls:
    calls.write(f"{word}\n")
    calls.seek(0)
    number = len(calls.read().split())
time.sleep(float(sys.argv[1]))
with open("TASKS.md") as file:
    tasks = file.read().splitlines()
at = next((n for n, line in enumerate(tasks) if line.startswith("- [ ]")), len(tasks) - 1)
tasks[at] = tasks[at].replace("[ ]", "[x]")
with open("TASKS.md", "w") as file:
    file.write("\n".join([*tasks, f"- [ ] task {number + 3}"][-10:]) + "\n")
with open("work", "w") as file:
    file.write(f"{number}\n")
if os.path.exists("broken"):
    os.unlink("broken")
elif number % 7 == 0:
    with open("broken", "w") as file:
        file.write("broken\n")
git("add", "-A")
git("-c", "gc.auto=0", "commit", "-q", "-m", f"work {number}")
print(f"task {number} is done", flush=True)
os._exit(1 if number % 5 == 0 else 0)
