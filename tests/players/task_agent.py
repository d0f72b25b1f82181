"""Plays an agent for the built-in loop: it works off TASKS.md, or has one of its moods first.

Each line of the file MOODS is for one call, the first one first: ``usage S`` (a usage limit of S seconds,
exit 1), ``rate S`` (a rate limit, exit 1), ``rest`` (it works when MOODS.go is there), ``idle`` (it does
nothing and ends well). Without a mood it ticks the first open box and says so.

task_agent.py MOODS
"""

import os
import sys
import time

moods = sys.argv[1]
sys.stdin.read()
try:
    with open(moods) as file:
        mood, *others = file.read().splitlines() or [""]
    with open(moods, "w") as file:
        file.write("".join(f"{line}\n" for line in others))
except FileNotFoundError:
    mood = ""

if mood.startswith("usage"):
    sys.exit(f"Error: You've hit your usage limit. Try again in {mood.split()[1]} seconds.")
if mood.startswith("rate"):
    sys.exit(f"Error: 429 Too Many Requests. Retry after {mood.split()[1]} seconds.")
if mood == "rest":
    print("resting", flush=True)
    while not os.path.exists(f"{moods}.go"):
        time.sleep(0.01)
if mood == "idle":
    print("all is well", flush=True)
    sys.exit(0)
with open("TASKS.md") as file:
    text = file.read()
with open("TASKS.md", "w") as file:
    file.write(text.replace("- [ ]", "- [x]", 1))
print("one more task is done", flush=True)
